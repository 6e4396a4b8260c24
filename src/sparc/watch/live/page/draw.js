// What all canvases share: size, colours, arrows, numbers.
'use strict';

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const mix = (a, b, share) => a + (b - a) * share;
const dark = matchMedia('(prefers-color-scheme: dark)');
const calm = matchMedia('(prefers-reduced-motion: reduce)');

// The page's colours, read again when the scheme changes
let colours = null;
function theme() {
  if (colours) return colours;
  const style = getComputedStyle(document.documentElement);
  const names = ['ground', 'panel', 'ink', 'quiet', 'line', 'faint', 'inside', 'outside', 'truth'];
  colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  colours.font = getComputedStyle(document.body).fontFamily;
  return colours;
}
dark.addEventListener('change', () => { colours = null; });

// Make a canvas as sharp as the screen; its units are CSS pixels
function fit(canvas) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across || canvas.height !== down) Object.assign(canvas, { width: across, height: down });
  const c = canvas.getContext('2d');
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  return { c, width, height };
}

// "#D55E00" → [213, 94, 0]
const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const rgb = ([red, green, blue], alpha = 1) => `rgba(${red | 0}, ${green | 0}, ${blue | 0}, ${alpha})`;
const blend = (hex, other, share) => parts(hex).map((part, at) => mix(part, other[at], share));

// A method's colour as it reads on the page's background
function lit(hex) {
  if (!dark.matches) return hex;
  const [red, green, blue] = parts(hex);
  const light = (0.3 * red + 0.59 * green + 0.11 * blue) / 255;
  const bright = blend(hex, [255, 255, 255], light < 0.35 ? 0.55 : 0.25);
  return `#${bright.map((part) => Math.round(part).toString(16).padStart(2, '0')).join('')}`;
}

function number(value, digits = 2) {
  if (!Number.isFinite(value)) return '–';
  const shown = Number(value.toFixed(digits)) || 0; // never −0
  return shown.toLocaleString('en', { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace('-', '−');
}

// As many digits as a range needs
const digitsOf = (low, high) => clamp(2 - Math.floor(Math.log10(Math.max(high - low, 1e-9))), 0, 4);

// The largest of 1, 2, 5, 10, 20 … that is not above a value
function roundDown(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [5, 2, 1].find((factor) => factor * power <= value * 1.0001);
}

// The smallest of 1, 2, 5, 10, 20 … that is not below a value
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= value * 0.9999);
}

function write(c, text, x, y, { fill, size = 11, weight = 400, align = 'left', base = 'alphabetic' }) {
  Object.assign(c, { fillStyle: fill, font: `${weight} ${size}px ${theme().font}`, textAlign: align, textBaseline: base });
  c.fillText(text, x, y);
}

// An arrow from (x, y) by (dx, dy); a short one is all head
function arrow(c, x, y, dx, dy, { fill, width = 5, ghost = false }) {
  const length = Math.hypot(dx, dy);
  if (length < 1.5) {
    c.beginPath();
    c.arc(x, y, width * 0.7, 0, 7);
  } else {
    const head = Math.min(width * 2.9, length), half = width / 2, neck = length - head, side = head * 0.55;
    c.save();
    c.translate(x, y);
    c.rotate(Math.atan2(dy, dx));
    c.beginPath();
    for (const [u, v] of [[0, -half], [neck, -half], [neck, -side], [length, 0], [neck, side], [neck, half], [0, half]]) {
      c.lineTo(u, v);
    }
    c.closePath();
    c.restore();
  }
  if (ghost) {
    Object.assign(c, { fillStyle: fill, globalAlpha: 0.28 });
    c.fill();
    Object.assign(c, { strokeStyle: fill, lineWidth: 1.6, globalAlpha: 1 });
    c.stroke();
  } else {
    c.fillStyle = fill;
    c.fill();
  }
}

// Streaks that drift: the wind, the current
class Streaks {
  constructor(count) {
    this.places = Array.from({ length: count }, () => [Math.random(), Math.random(), mix(0.5, 1, Math.random())]);
  }

  // Move by shares of width and height, each at its own pace
  move(across, down) {
    for (const place of this.places) {
      place[0] = (((place[0] + across * place[2]) % 1) + 1) % 1;
      place[1] = (((place[1] + down * place[2]) % 1) + 1) % 1;
    }
  }

  // Each is (along, up) pixels long
  draw(c, width, height, along, up, colour) {
    const length = Math.hypot(along, up);
    if (length < 0.5) return;
    Object.assign(c, { strokeStyle: colour, lineCap: 'round' });
    for (const [x, y, depth] of this.places) {
      const [px, py] = [x * (width + 2 * length) - length, y * (height + 2 * length) - length];
      c.lineWidth = 2 * depth;
      c.beginPath();
      c.moveTo(px, py);
      c.lineTo(px - along * depth, py + up * depth);
      c.stroke();
    }
  }
}

// A state shown smoothly: from what is on the screen to the newest one within one step
class Motion {
  constructor(between) { this.between = between; }

  aim(state, seconds, jump) {
    const now = performance.now();
    this.from = jump || !this.to ? state : this.at(now);
    Object.assign(this, { to: state, start: now, span: calm.matches ? 0 : 1000 * clamp(seconds, 0.005, 1) });
  }

  at(now) {
    if (!this.to) return null;
    const share = this.span ? clamp((now - this.start) / this.span, 0, 1) : 1;
    return share === 1 ? this.to : this.between(this.from, this.to, share);
  }
}
