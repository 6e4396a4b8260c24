// Two boats, one current to drag.
'use strict';

const { world, policies, train, test, colours: methodColours } = JSON.parse(document.querySelector('#data').textContent);
const find = (selector) => document.querySelector(selector);
const PACE = 4; // steps per second: slow enough to see it adapt
const SPAN = 120; // steps of the traces
const AVERAGE = 8; // steps of the distance shown
const DRAG = 110; // pixels on the water for 1 m/s
const NAMES = ['sparc', 'only-obs'];

let current = [0, 0];
let paused = false;
let tick = 0;
let mark = '';
let samples = [];
let drag = null; // where a drag on the water began and is

const start = () => [0, 1].map(() => (2 * Math.random() - 1) * world.reach);
const first = start();
const boats = NAMES.map((name) => ({
  name, policy: new Policy(policies[name]), offset: [...first], far: [], heading: [0, 1],
  scene: new BoatScene(find(`#${name}`)), hex: methodColours[name],
}));
const beliefs = new Beliefs(boats[0].policy, test, 41);
let estimate = [0, 0];
const pad = new Pad(find('#pad'), { names: ['x', 'y'], units: ['m/s', 'm/s'], regions: [train], test }, (context) => flow(context));

function flow(context) {
  current = context.map((value, at) => clamp(value, test.low[at], test.high[at]));
  mark = 'context';
}

function step() {
  tick += 1;
  for (const boat of boats) {
    const action = boat.policy.act(boat.offset);
    boat.offset = drift(world, boat.offset, action, current);
    boat.heading = [...action];
    boat.far = [...boat.far, Math.hypot(...boat.offset)].slice(-AVERAGE);
    find(`#${boat.name}-far`).textContent = number(boat.far.reduce((sum, far) => sum + far, 0) / boat.far.length);
  }
  estimate = beliefs.estimate(boats[0].policy.latent);
  samples.push({ t: tick, mark, context: [...current], estimate, far: boats.map(({ offset }) => Math.hypot(...offset)) });
  samples = samples.slice(-SPAN - 1);
  mark = '';
  aim();
}

function aim(jump = false) {
  for (const { scene, offset, heading } of boats) {
    scene.aim({ boat: offset, heading, current, ring: world.tolerance }, 1 / PACE, jump);
  }
}

const bands = [
  { title: 'Distance from the buoy', unit: 'in m', value: (sample, at) => sample.far[at] },
  ...['x', 'y'].map((name, at) => ({
    title: `The current: ${name}`, unit: 'in m/s, true and believed', low: test.low[at], high: test.high[at], train: [[train.low[at], train.high[at]]],
    truth: (sample) => sample.context[at], value: (sample, boat) => (boat ? null : sample.estimate[at]),
  })),
];

let before = performance.now();
let due = before;
function paint(now) {
  requestAnimationFrame(paint);
  const passed = Math.min(0.1, (now - before) / 1000);
  before = now;
  if (paused) due = now;
  else if (now >= due) { step(); due = Math.max(due + 1000 / PACE, now); }
  for (const boat of boats) {
    for (const point of [boat.scene.motion.from, boat.scene.motion.to]) if (point) point.current = current;
    boat.scene.draw(now, passed, paused ? 0 : PACE * world.dt, lit(boat.hex));
    if (drag && drag.scene === boat) {
      const c = find(`#${boat.name}`).getContext('2d');
      arrow(c, drag.x, drag.y, current[0] * DRAG, -current[1] * DRAG, { fill: '#fff', width: 6 });
    }
  }
  pad.draw(current, samples.length ? [{ estimate, colour: lit(boats[0].hex) }] : []);
  drawTraces(find('#lines'), bands, samples, boats.map(({ hex }) => ({ colour: lit(hex) })), SPAN);
  const ind = current.every((value, at) => value >= train.low[at] - 1e-9 && value <= train.high[at] + 1e-9);
  find('#region').textContent = ind ? 'as in training' : 'never seen in training';
  find('#region').classList.toggle('ood', !ind);
}

for (const boat of boats) {
  const canvas = find(`#${boat.name}`);
  canvas.addEventListener('pointerdown', (event) => {
    canvas.setPointerCapture(event.pointerId);
    const box = canvas.getBoundingClientRect();
    drag = { scene: boat, x: event.clientX - box.left, y: event.clientY - box.top, from: [event.clientX, event.clientY] };
    event.preventDefault();
  });
  canvas.addEventListener('pointermove', (event) => {
    if (drag) flow([(event.clientX - drag.from[0]) / DRAG, (drag.from[1] - event.clientY) / DRAG]);
  });
  for (const end of ['pointerup', 'pointercancel', 'lostpointercapture']) canvas.addEventListener(end, () => { drag = null; });
}
find('#random').onclick = () => flow(test.low.map((low, at) => mix(low, test.high[at], Math.random())));
find('#push').onclick = () => {
  const angle = 2 * Math.PI * Math.random();
  for (const boat of boats) {
    boat.offset = boat.offset.map((value, at) => clamp(value + 4 * (at ? Math.sin(angle) : Math.cos(angle)), -world.limit, world.limit));
  }
  mark = 'push';
  aim();
};
find('#pause').onclick = () => { paused = !paused; find('#pause').textContent = paused ? 'Play' : 'Pause'; };
aim(true);
requestAnimationFrame(paint);
