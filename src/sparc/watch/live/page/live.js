// The page of `sparc live`: takes frames from the simulation, draws them, and sends back what is asked for.
'use strict';

const find = (selector) => document.querySelector(selector);
const SECONDS = 10; // of the traces, in real time, but at least so many steps:
const FEWEST = 200;
const TRAIL = 50; // of φ(h) on the map
const KEPT = 1200; // samples
const PALETTE = ['#0072B2', '#D55E00', '#009E73', '#CC79A7'];

let hello = null; // what does not change
let frame = null; // the newest
let samples = [];
let cards = [];
let pads = [];
let maps = [];
let sliders = [];
let socket = null;
let asked = null; // a context that was asked for and is not in force yet
let askedAt = 0;

const send = (message) => { if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message)); };
const make = (tag, attributes = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), attributes);
  element.append(...children);
  return element;
};

// Contexts

let waiting = false;
function ask(context) {
  asked = context;
  askedAt = performance.now();
  if (waiting) return; // one message per picture is enough
  waiting = true;
  requestAnimationFrame(() => { waiting = false; send({ context: asked }); });
}
const shownContext = () => (asked && performance.now() - askedAt < 400 ? asked : frame.context);

function nudge(at, direction) {
  const { low, high } = hello.test;
  if (hello.choices || at >= low.length) return;
  const context = [...shownContext()];
  context[at] = clamp(context[at] + (direction * (high[at] - low[at])) / 40, low[at], high[at]);
  ask(context);
}

// Building the page once the simulation stands

function build() {
  find('#env').textContent = hello.env;
  find('#summary').textContent = hello.summary;
  document.title = `SPARC live – ${hello.env}`;
  const unique = new Set(hello.policies.map(({ colour }) => colour)).size === hello.policies.length;
  hello.policies.forEach((policy, at) => { policy.hex = unique && policy.colour ? policy.colour : PALETTE[at % 4]; });
  pads = [];
  cards = hello.policies.map(card);
  find('#policies').replaceChildren(...cards.map(({ element }) => element));
  buildControl();
  find('#speeds').replaceChildren(find('#speeds legend'), ...hello.speeds.map((speed) => {
    const input = make('input', { type: 'radio', name: 'speed', value: speed, onchange: () => send({ speed }) });
    return make('label', {}, input, `${{ 0.25: '¼', 0.5: '½' }[speed] ?? speed}×`);
  }));
  find('#push').hidden = !hello.can_push;
  const withMap = hello.policies.filter(({ map }) => map);
  find('#maps').hidden = !withMap.length;
  const ofAll = withMap[0]?.map.lines ? 'Grid: ψ of all contexts (shaded: trained).' : 'Grey: ψ of all contexts (dark: trained).';
  find('#key').textContent = `${ofAll} Dot: φ(h). Ring: ψ(c), the truth.`;
  const keys = ['Space pauses', 'R resets', ...(hello.can_push ? ['P pushes'] : []), ...(hello.choices ? [] : ['arrow keys move the context'])];
  find('#keys').textContent = `${keys.join(', ')}.`;
  find('#traces').style.gridColumn = withMap.length ? '' : '1 / -1';
  maps = withMap.map((policy) => {
    const canvas = make('canvas');
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', `φ(h) of ${policy.title} on the map of ψ`);
    const caption = make('figcaption');
    return { policy, canvas, caption, element: make('figure', {}, canvas, caption) };
  });
  find('#latents').replaceChildren(...maps.map(({ element }) => element));
  const entry = (colour, text, kind = '') => {
    const line = make('i', { className: kind });
    line.style.setProperty('--who', colour);
    return make('span', {}, line, text);
  };
  const plain = hello.names.length <= 2 && !hello.choices;
  find('#legend').replaceChildren(
    ...hello.policies.map(({ title, hex, map }) => entry(lit(hex), map && plain ? `${title} and what its φ believes` : title)),
    ...(plain ? [entry('var(--truth)', 'true context'), entry('', 'trained range (IND)', 'box')] : []),
  );
}

function card(policy, at) {
  const dot = make('i', { className: 'dot' });
  const big = make('b', { textContent: '–' });
  const header = make('header', {}, dot,
    make('div', { className: 'name' }, make('h2', { textContent: policy.title }),
      make('p', { className: 'reads', textContent: `sees ${policy.reads}`, title: `seed ${policy.seed}, ${policy.updates.toLocaleString('en')} updates` })),
    make('p', { className: 'readout' }, big, make('span', { textContent: 'reward per step' })));
  const view = make('div', { className: 'view' });
  const over = make('p', { className: 'over', hidden: true });
  const facts = make('span'), belief = make('span', { className: 'belief' });
  const element = make('article', { className: 'card' }, header, view, make('footer', {}, facts, belief));
  element.style.setProperty('--who', lit(policy.hex));
  const result = { policy, at, element, view, over, big, facts, belief, scene: null, episode: -1, compass: null };
  view.append(over);
  return result;
}

function buildControl() {
  const { names, units, test, choices } = hello;
  const planar = names.length >= 2 && !choices;
  find('#what').textContent = hello.policies.length ? contextTitle() : 'Context';
  const told = hello.policies.some(({ reads }) => reads.includes('true context'));
  find('#hint').textContent = [
    planar ? 'Drag the arrow.' : '', told ? 'Only a policy that sees the true context is told.' : 'No policy is told about it.',
    hello.restarts ? 'A change starts a new episode.' : '',
  ].filter(Boolean).join(' ');
  find('#pad').hidden = !planar;
  find('#centre').hidden = Boolean(choices);
  if (planar) {
    const rest = (two) => [...two, ...shownContext().slice(2)];
    pads.push(new Pad(find('#pad'), plane(), (two) => ask(rest(two))));
  }
  find('#chooser').hidden = !choices;
  if (choices) {
    find('#choice').replaceChildren(...choices.map(({ label, ind }, index) => new Option(`${label} (${regionOf(ind)})`, index)));
    find('#choice').onchange = ({ target }) => send({ choice: Number(target.value) });
  }
  sliders = choices ? [] : names.map((name, at) => {
    const [low, high] = [test.low[at], test.high[at]];
    const input = make('input', { type: 'range', min: low, max: high, step: (high - low) / 400, id: `slider-${at}` });
    input.oninput = () => { const context = [...shownContext()]; context[at] = Number(input.value); ask(context); };
    input.setAttribute('aria-label', `${name} in ${units[at] || 'its own unit'}`);
    const share = (value) => (value - low) / (high - low);
    // the middle of the thumb travels less than the whole width
    const boxes = regions().map((region) => {
      const box = make('i');
      box.style.left = `calc(${share(region.low[at])} * (100% - 1rem) + .5rem)`;
      box.style.width = `calc(${share(region.high[at]) - share(region.low[at])} * (100% - 1rem))`;
      return box;
    });
    const output = make('output');
    const element = make('label', { className: 'slider' }, make('b', { textContent: name }), make('span', { className: 'track' }, ...boxes, input), output);
    return { input, output, element, at };
  });
  find('#sliders').replaceChildren(...sliders.map(({ element }) => element));
}

// All regions that any policy was trained in, those of the first policy first
const regions = () => {
  const all = hello.policies.flatMap((policy) => policy.regions).map((region) => JSON.stringify(region));
  return [...new Set(all)].map((region) => JSON.parse(region));
};
// What a context is to the policies, of which some may have been trained on it
const regionOf = (inside) => (inside.every(Boolean) ? 'IND' : inside.some(Boolean) ? 'IND for some' : 'OOD');
// The first two features, which the plane shows
const plane = () => {
  const two = ({ low, high }) => ({ low: low.slice(0, 2), high: high.slice(0, 2) });
  return { names: hello.names, units: hello.units, test: two(hello.test), regions: regions().map(two) };
};
const contextTitle = () => ({ boat: 'The current', wind: 'The wind' }[hello.kind] ?? 'The context');

// Frames

function take(message) {
  if (message.hello) {
    hello = message.hello;
    samples = [];
    frame = null;
    hello.fresh = true;
  }
  if (!message.frame) return;
  frame = message.frame;
  if (hello?.fresh && frame.policies.length) {
    hello.fresh = false;
    const { scene } = frame.policies[0];
    hello.kind = scene?.wind ? 'wind' : scene?.kind ?? 'picture';
    build();
  }
  samples.push(...message.samples.filter(({ t }) => !samples.length || t > samples[samples.length - 1].t));
  if (samples.length > KEPT) samples.splice(0, samples.length - KEPT);
  const failed = find('#failure');
  if (frame.error) {
    find('#why').textContent = frame.error;
    if (!failed.open) failed.showModal();
    return;
  }
  if (failed.open) failed.close();
  const seconds = 1 / (hello.rate * frame.speed);
  frame.policies.forEach((state, at) => show(cards[at], state, seconds));
}

function show(card, state, seconds) {
  const jump = state.episode !== card.episode;
  card.episode = state.episode;
  card.over.hidden = !state.ended;
  card.over.textContent = state.ended;
  if (state.scene) {
    if (!card.scene) {
      const canvas = make('canvas', { className: 'scene' });
      canvas.setAttribute('role', 'img');
      canvas.setAttribute('aria-label', `${card.policy.title} in ${hello.env}`);
      card.view.prepend(canvas);
      card.scene = state.scene.kind === 'boat' ? new BoatScene(canvas) : new RobotScene(canvas);
      if (hello.names.length === 2 && !hello.choices) {
        const compass = make('canvas', { className: 'compass', title: 'Drag me' });
        compass.setAttribute('role', 'img');
        card.view.append(compass);
        card.compass = new Pad(compass, plane(), ask, true);
        pads.push(card.compass);
      }
    }
    card.scene.aim(state.scene, Math.max(seconds, 1 / Math.max(frame.pace, 1)), jump);
    card.drift = state.scene.drift ?? 0;
  } else if (state.picture) {
    card.picture ??= card.view.insertAdjacentElement('afterbegin', make('img', { className: 'scene', alt: `${card.policy.title} in ${hello.env}` }));
    card.picture.src = `data:image/jpeg;base64,${state.picture}`;
  }
}

// Texts: a few times per second, or nobody could read them
let updated = 0;
function update() {
  const now = performance.now();
  if (now - updated < 120) return;
  updated = now;
  const recent = samples.slice(-Math.max(5, Math.round(hello.rate)));
  frame.policies.forEach((state, at) => {
    const rewards = recent.map((sample) => sample.policies[at]?.reward).filter((reward) => reward !== undefined);
    const card = cards[at];
    card.big.textContent = rewards.length ? number(rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length) : '–';
    const falls = state.failures ? ` · ${card.policy.failure} ${state.failures === 1 ? 'once' : `${state.failures} times`}` : '';
    card.facts.textContent = `return ${number(state.total, Math.abs(state.total) < 100 ? 1 : 0)} in ${state.steps.toLocaleString('en')} steps${falls}`;
    const last = samples[samples.length - 1]?.policies[at];
    if (last?.estimate && hello.names.length <= 2) {
      const texts = hello.names.map((name, feature) => `${name} ${number(last.estimate[feature], digits(feature))}`);
      card.belief.replaceChildren('φ believes ', make('b', { textContent: `${texts.join(', ')} ${hello.units[0]}` }));
      card.belief.style.color = lit(card.policy.hex);
    }
  });
  maps.forEach(({ policy, caption }) => {
    const last = samples[samples.length - 1]?.policies[hello.policies.indexOf(policy)];
    caption.textContent = `${policy.title}: φ(h) is ${last ? number(last.distance) : '–'} spreads of ψ away from ψ(c)`;
  });
  const slow = !frame.paused && frame.pace && frame.pace < 0.9 * hello.rate * frame.speed;
  find('#pace').textContent = frame.paused ? 'paused' : `${number(frame.pace, 0)} steps/s`;
  find('#pace').classList.toggle('slow', Boolean(slow));
  find('#pace').title = slow ? `Slower than the ${number(hello.rate * frame.speed, 0)} steps/s asked for: this machine is busy` : 'Steps of the simulation per second';
  find('#play').textContent = frame.paused ? 'Play' : 'Pause';
  if (hello.choices && document.activeElement !== find('#choice')) find('#choice').selectedIndex = frame.choice;
  const speed = find(`#speeds input[value="${frame.speed}"]`);
  if (speed) speed.checked = true;
}
const digits = (feature) => Math.min(2, digitsOf(hello.test.low[feature], hello.test.high[feature]));

// Pictures

let before = performance.now();
let frames = 0;
function paint(now) {
  requestAnimationFrame(paint);
  const passed = Math.min(0.1, (now - before) / 1000);
  before = now;
  if (!frame || !hello || hello.fresh || !cards.length) return;
  frames += 1;
  if (frame.policies.length) update(); // here and not with each frame: while paused, none follows the last
  const context = shownContext();
  const last = samples[samples.length - 1];
  const beliefs = hello.policies.map((policy, at) => ({ estimate: last?.policies[at]?.estimate, colour: lit(policy.hex) }));
  const pace = frame.paused ? 0 : frame.pace;
  const strongest = Math.hypot(...hello.test.high.map((high, at) => Math.max(high, -hello.test.low[at])));
  for (const card of cards) {
    card.scene?.draw(now, passed, pace * (card.drift || 1), lit(card.policy.hex), strongest);
    if (card.compass) card.compass.draw(context, beliefs[card.at].estimate ? [beliefs[card.at]] : []);
  }
  if (pads.length && !find('#pad').hidden) pads[0].draw(context.slice(0, 2), beliefs.filter(({ estimate }) => estimate));
  showContext(context);
  const span = clamp(Math.round(SECONDS * hello.rate), FEWEST, KEPT - 1);
  drawTraces(find('#lines'), bands(), samples, hello.policies.map(({ hex }) => ({ colour: lit(hex) })), span);
  for (const { policy, canvas } of maps) {
    const at = hello.policies.indexOf(policy);
    const trail = samples.slice(-TRAIL).map((sample) => sample.policies[at]?.phi ?? null);
    drawMap(canvas, policy.map, trail, last?.policies[at]?.psi, lit(policy.hex));
  }
}

function bands() {
  const reward = { title: 'Reward', unit: 'per step', smooth: Math.round(hello.rate / 2), value: (sample, at) => sample.policies[at]?.reward };
  const { names, units, test, choices } = hello;
  if (choices || names.length > 2) {
    const distance = { title: 'Distance of φ(h) from ψ(c)', unit: 'in spreads of ψ', value: (sample, at) => sample.policies[at]?.distance };
    return maps.length ? [reward, distance] : [reward];
  }
  return [reward, ...names.map((name, feature) => ({
    title: `${contextTitle()}: ${name}`, unit: units[feature] && `in ${units[feature]}`, low: test.low[feature], high: test.high[feature],
    train: regions().map(({ low, high }) => [low[feature], high[feature]]), truth: (sample) => sample.context[feature],
    value: (sample, at) => sample.policies[at]?.estimate?.[feature],
  }))];
}

function showContext(context) {
  for (const { input, output, at } of sliders) {
    if (document.activeElement !== input || !asked) input.value = context[at];
    const text = number(context[at], digits(at));
    if (output.dataset.value !== text) {
      output.dataset.value = text;
      output.replaceChildren(`${text} `, make('small', { textContent: hello.units[at] }));
    }
  }
  const isIn = ({ low, high }) => context.every((value, at) => value >= low[at] - 1e-9 && value <= high[at] + 1e-9);
  const inside = hello.choices ? frame.ind : hello.policies.map((policy) => policy.regions.some(isIn));
  const trained = hello.policies.filter((_, at) => inside[at]).map(({ title }) => title);
  const words = { IND: 'IND · as in training', OOD: 'OOD · never seen' };
  const region = find('#region');
  region.textContent = words[regionOf(inside)] ?? `IND for ${trained.join(', ')} only`;
  region.classList.toggle('ood', !inside.every(Boolean));
}

// What one can do

dark.addEventListener('change', () => { if (hello && !hello.fresh) build(); });

find('#play').onclick = () => send({ paused: !frame?.paused });
find('#reset').onclick = () => send({ do: 'reset' });
find('#push').onclick = () => send({ do: 'push' });
find('#restart').onclick = () => send({ do: 'restart' });
find('#failure').oncancel = (event) => event.preventDefault();
find('#centre').onclick = () => ask(hello.train.low.map((low, at) => (low + hello.train.high[at]) / 2));
find('#random').onclick = () => {
  if (hello.choices) send({ choice: Math.floor(Math.random() * hello.choices.length) });
  else ask(hello.test.low.map((low, at) => mix(low, hello.test.high[at], Math.random())));
};
document.addEventListener('keydown', (event) => {
  if (!hello || event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, select, dialog')) return;
  const keys = {
    ' ': () => find('#play').click(), r: () => find('#reset').click(), p: () => find('#push').click(),
    ArrowLeft: () => nudge(0, -1), ArrowRight: () => nudge(0, 1), ArrowDown: () => nudge(1, -1), ArrowUp: () => nudge(1, 1),
  };
  if (!keys[event.key] || (event.key === ' ' && event.target.closest('button'))) return;
  event.preventDefault();
  keys[event.key]();
});

// The connection; sparc may be started again at the same address only with another token, so a lost one is said to be so
function connect() {
  const address = new URL('socket', location.href);
  address.protocol = 'ws:';
  socket = new WebSocket(address);
  socket.onopen = () => { find('#notice').hidden = true; };
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    take(message);
    if (message.frame) send('seen'); // the next one is sent when this one was taken
  };
  socket.onclose = () => {
    find('#notice').hidden = false;
    find('#notice').textContent = 'No connection: sparc live has ended. Start it again and open the address it prints.';
    find('#pace').textContent = '';
    setTimeout(connect, 2000);
  };
}
connect();
requestAnimationFrame(paint);
