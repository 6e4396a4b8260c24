// The page itself: what is shown, the time, the readings, the list of cars.

const find = (selector, root = document) => root.querySelector(selector);
const data = JSON.parse(find('#data').textContent);
const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
const track = makeTrack(await unpack(data.course.line, data.columns.line));
const state = { pair: null, playing: false, rate: 1, follow: false };
const scene = { laps: [], time: 0, zoom: 0, lines: 'trails' };
let [end, axis, colours] = [0, null, {}];

function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function clock(seconds, digits = 3) {
  const minutes = Math.floor(Number(seconds.toFixed(digits)) / 60);
  return `${minutes}:${Math.max(seconds - 60 * minutes, 0).toFixed(digits).padStart(digits + 3, '0')}`;
}

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const names = 'ink quiet line axis off agent ai agent-car ai-car land grid road edge dirt'.split(' ');
  colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`)]));
}

// Readings

const drivers = ['agent', 'ai'].map((name) => {
  const part = (selector) => find(`.driver.${name} ${selector}`);
  return {
    speed: part('.speed'), gear: part('.gear'), state: part('.state'), cursor: find(`.cursor.${name}`),
    throttle: part('.throttle i'), brake: part('.brake i'), steer: part('.steer i'),
  };
});

const AWAY = Object.fromEntries(data.columns.lap.map(([name]) => [name, 0]));

function stateOf(lap, time, car) {
  if (!car) return 'no lap to show';
  if (scene.time < lap.end) return car.wheels_out >= data.offCourse ? '△ off course' : '';
  return time === null ? `✕ stopped at ${(car.distance / 1000).toFixed(2)} km` : `lap ${clock(time)}`;
}

function showReadings(cars) {
  cars.forEach((car, index) => {
    const [driver, lap] = [drivers[index], scene.laps[index]];
    driver.state.textContent = stateOf(lap, index ? state.pair.aiTime : state.pair.time, car);
    driver.cursor.hidden = !car;
    const { speed, gear, throttle, brake, steer, distance } = car ?? AWAY;
    driver.speed.textContent = (3.6 * speed).toFixed(0);
    driver.gear.textContent = gear > 0 ? gear : gear < 0 ? 'R' : 'N';
    driver.throttle.style.transform = `scaleX(${throttle})`;
    driver.brake.style.transform = `scaleX(${brake})`;
    driver.steer.style.transform = `scaleX(${-steer / scene.lock})`;
    const share = clamp(distance / data.course.length, 0, 1);
    if (car) driver.cursor.style.transform = `translateX(${axis.left + share * axis.across}px)`;
  });
  const gap = gapAt(scene.laps, scene.time);
  find('#gap-value').textContent = gap === null ? '–' : `${Math.abs(gap).toFixed(2)} s`;
  find('#gap-text').textContent = gap === null ? '' : Math.abs(gap) < 0.005 ? 'level' : gap > 0 ? 'ahead' : 'behind';
  find('#clock').textContent = clock(scene.time, 2);
  find('#scrub').value = scene.time;
  find('#scrub').setAttribute('aria-valuetext', `${scene.time.toFixed(1)} of ${end.toFixed(1)} seconds`);
}

// Time

let [before, waiting] = [null, false];

function refresh() {
  if (!waiting) requestAnimationFrame(frame);
  waiting = true;
}

function frame(now) {
  waiting = false;
  const passed = before === null ? 0 : Math.min((now - before) / 1000, 0.25); // a tab that slept does not leap
  before = now;
  if (state.playing) seek(scene.time + passed * state.rate);
  if (state.playing && scene.time >= end) setPlaying(false);
  const zoom = state.follow ? 1 : 0;
  scene.zoom = calm ? zoom : scene.zoom + clamp(zoom - scene.zoom, -passed / 0.9, passed / 0.9);
  showReadings(drawMap(find('#map'), track, scene, colours));
  if (state.playing || scene.zoom !== zoom) refresh(); else before = null;
}

function redraw() {
  readColours();
  axis = drawCharts(find('#charts'), scene.laps, data.course.length, colours);
  refresh();
}

function seek(time) {
  scene.time = clamp(time, 0, end);
  refresh();
}

function setPlaying(playing) {
  state.playing = playing;
  const label = playing ? 'Pause' : 'Play';
  find('#play').setAttribute('aria-label', label);
  find('#play').title = `${label} (Space)`;
  refresh();
}

function togglePlay() {
  if (!state.playing && scene.time >= end) seek(0);
  setPlaying(!state.playing);
}

function setCamera(value) {
  find(`#camera [value="${value}"]`).checked = true;
  state.follow = value === 'follow';
  refresh();
}

function jump(event) {
  const x = event.clientX - find('#charts').getBoundingClientRect().left;
  const distance = clamp((x - axis.left) / axis.across, 0, 1) * data.course.length;
  const [agent, ai] = scene.laps;
  seek(timeAt(agent.rows && distance <= agent.reach.at(-1) ? agent : ai, distance));
}

function pressed(event) {
  const { target, key } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || target.matches('[type="search"], select')) return;
  const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (key === ' ' && !target.matches('button')) togglePlay();
  else if (step) seek(scene.time + step * (event.shiftKey ? 5 : 1));
  else if (key === 'Home') seek(0);
  else if (key === 'f') setCamera(state.follow ? 'whole' : 'follow');
  else return;
  event.preventDefault();
}

// The list

const MARKS = {
  clean: ['✓', 'clean'], off: ['△', 'off course'], wall: ['△', 'not clean'], failed: ['✕', 'not completed'],
};
const markOf = (pair) => (pair.time === null ? 'failed' : pair.clean ? 'clean' : pair.off ? 'off' : 'wall');
const ratioOf = (pair) => (pair.time === null ? Infinity : pair.time / pair.aiTime); // not completed is the worst
const ratioText = (pair) => (pair.time === null ? '–' : ratioOf(pair).toFixed(3));
const badgeOf = (pair) => make('b', { class: `badge ${pair.region}` }, pair.region.toUpperCase());
const ORDERS = {
  best: (a, b) => ratioOf(a) - ratioOf(b),
  worst: (a, b) => ratioOf(b) - ratioOf(a),
  time: (a, b) => (a.time ?? Infinity) - (b.time ?? Infinity),
  name: (a, b) => a.car.localeCompare(b.car, 'en', { numeric: true }),
};

function kindOf(pair, after = '') { // power and mass are all that a car has there
  return pair.class ? `${pair.class} · ${pair.tyre}${after}` : '';
}

function rowOf(pair, index) {
  const [sign, word] = MARKS[markOf(pair)];
  const failed = pair.time === null;
  const row = make('label', { class: 'row' },
    make('input', { type: 'radio', name: 'pair', value: index }),
    make('span', { class: 'name' }, make('b', {}, pair.car),
      make('span', { class: 'mark', title: word }, make('i', { class: markOf(pair) }, sign), ' ',
        failed ? word : make('span', { class: 'unseen' }, word)),
      failed ? '' : ratioText(pair)),
    make('span', { class: 'kind' }, badgeOf(pair), make('span', {}, kindOf(pair)),
      failed ? '' : clock(pair.time)));
  return { row, pair, words: [pair.car, pair.class, pair.tyre, pair.region, word].join(' ').toLowerCase() };
}

const list = data.pairs.map(rowOf);

function showList() {
  const words = find('#search').value.toLowerCase().split(/\s+/);
  const region = find('#region :checked').value;
  const order = ORDERS[find('#order').value];
  const sorted = list.toSorted((a, b) => order(a.pair, b.pair) || 0); // two that are not completed are equal
  find('#rows').append(...sorted.map(({ row }) => row));
  for (const { row, pair, words: known } of list) {
    row.hidden = (region && pair.region !== region) || !words.every((word) => known.includes(word));
  }
  const shown = list.filter(({ row }) => !row.hidden).length;
  find('#count').textContent = shown === list.length ? `${shown} cars.` : `${shown} of ${list.length} cars.`;
}

function openList(open) {
  if (open === document.body.classList.contains('picking')) return;
  document.body.classList.toggle('picking', open);
  find('#open').setAttribute('aria-expanded', open);
  if (open) showPicked();
  find(open ? '#close' : '#open').focus();
}

function showPicked() {
  const [box, row] = [find('#rows'), find('#rows :checked').parentNode];
  const top = row.offsetTop - box.scrollTop;
  if (top < 0 || top + row.offsetHeight > box.clientHeight) box.scrollTop = row.offsetTop - box.clientHeight / 3;
}

async function pick(index) {
  const pair = data.pairs[index];
  find(`#rows [value="${index}"]`).checked = true;
  const laps = await Promise.all(pair.laps.map((text) => unpackLap(text, data.columns.lap, data.offCourse)));
  if (Number(find('#rows :checked').value) !== index) return; // another was picked meanwhile
  const all = laps.flatMap((lap) => [...lap.speed]);
  const speeds = all.length ? [Math.min(...all), Math.max(...all) + 0.1] : [0, 1];
  laps.forEach((lap) => addPaths(lap, speeds));
  state.pair = pair;
  end = Math.max(0.1, ...laps.map((lap) => lap.end));
  const lock = Math.max(0.1, ...laps.map((lap) => most(lap.steer)));
  Object.assign(scene, { laps, time: 0, speeds, lock, size: pair.size, failed: pair.time === null });
  history.replaceState(null, '', `#${encodeURIComponent(pair.car)}`);
  showPair(pair);
  redraw();
}

function showPair(pair) {
  const [sign, word] = MARKS[markOf(pair)];
  const field = (name, value) => make('span', {}, `${name} `, make('b', {}, value));
  find('#car').textContent = pair.car;
  find('#about').replaceChildren(badgeOf(pair), make('span', {}, kindOf(pair, ' tyre')));
  find('#result').replaceChildren(field('Agent', pair.time === null ? '–' : clock(pair.time)),
    field('AI', clock(pair.aiTime)), field('Ratio', ratioText(pair)),
    make('span', { class: 'mark' }, make('i', { class: markOf(pair) }, sign), ` ${word}`));
  find('#scrub').max = end;
  find('#end').textContent = clock(end, 2);
  find('#slow').textContent = (3.6 * scene.speeds[0]).toFixed(0);
  find('#fast').textContent = `${(3.6 * scene.speeds[1]).toFixed(0)} km/h`;
  find('#off-key').hidden = !scene.laps.some((lap) => lap.offs.length);
  find('#map').setAttribute('aria-label', `Map of ${data.course.name}: ${pair.car}, driven by agent and AI`);
}

// Begin

const on = (selector, kind, action) => find(selector).addEventListener(kind, action);
on('#play', 'click', togglePlay);
on('#restart', 'click', () => seek(0));
on('#scrub', 'input', (event) => seek(Number(event.target.value)));
on('#rate', 'change', (event) => { state.rate = Number(event.target.value); });
on('#camera', 'change', (event) => setCamera(event.target.value));
on('#lines', 'change', (event) => { scene.lines = event.target.value; refresh(); });
on('#charts', 'pointerdown', (event) => { event.target.setPointerCapture(event.pointerId); jump(event); });
on('#charts', 'pointermove', (event) => { if (event.target.hasPointerCapture(event.pointerId)) jump(event); });
on('#rows', 'change', (event) => pick(Number(event.target.value)));
on('#rows', 'click', (event) => { if (event.detail) openList(false); }); // not the clicks that arrow keys make
on('#search', 'input', showList);
on('#order', 'change', showList);
on('#region', 'change', showList);
on('#open', 'click', () => openList(true));
on('#close', 'click', () => openList(false));
addEventListener('keydown', pressed);
addEventListener('keydown', (event) => { if (event.key === 'Escape') openList(false); });

find('#bar').style.background = `linear-gradient(to right, ${SPEEDS.join(', ')})`;
find('#dirt-key').hidden = !track.hasLoose;
readColours();
showList();
let asked = location.hash.slice(1);
try { asked = decodeURIComponent(asked); } catch { /* a link that was mistyped names no car */ }
await pick(Math.max(data.pairs.findIndex((pair) => pair.car === asked), 0));
find('#wait').remove();
showPicked();
setPlaying(!calm);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
for (const box of ['#stage', '#traces']) new ResizeObserver(redraw).observe(find(box));
