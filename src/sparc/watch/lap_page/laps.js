// Laps: the numbers of a pair as they come out of the page, and what was where when.

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const mix = (a, b, share) => a + (b - a) * share;
const most = (values) => values.reduce((a, b) => Math.max(a, Math.abs(b)), 0);

// Columns of numbers: whole steps, differenced, their bytes in four planes, deflated (`packed` in __init__.py)
async function unpack(text, columns) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const plane = bytes.length / 4;
  const rows = plane / columns.length;
  const table = { rows, columns };
  columns.forEach(([name, step, order], column) => {
    const values = new Float64Array(rows);
    for (let row = 0, at = column * rows; row < rows; row++, at++) {
      values[row] = bytes[at] | bytes[at + plane] << 8 | bytes[at + 2 * plane] << 16 | bytes[at + 3 * plane] << 24;
    }
    for (let pass = 0; pass < order; pass++) {
      for (let row = 1; row < rows; row++) values[row] += values[row - 1];
    }
    table[name] = values.map((value) => value * step);
  });
  return table;
}

async function unpackLap(text, columns, offCourse) {
  const lap = await unpack(text, columns);
  let farthest = -Infinity;
  lap.reach = lap.distance.map((value) => (farthest = Math.max(farthest, value))); // a car that spins goes back
  lap.end = lap.rows ? lap.time[lap.rows - 1] : 0;
  lap.offs = stretches(lap.rows, (row) => lap.wheels_out[row] >= offCourse);
  return lap;
}

// Runs of rows of which something is true, as pairs of first and last row
function stretches(rows, isTrue) {
  const found = [];
  for (let row = 0; row < rows; row++) {
    if (!isTrue(row)) continue;
    if (found.length && found.at(-1)[1] === row - 1) found.at(-1)[1] = row; else found.push([row, row]);
  }
  return found;
}

// The two rows around a value of a growing column, and the share of the way from one to the other
function around(column, value) {
  let [low, high] = [0, column.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (column[middle] <= value) low = middle; else high = middle;
  }
  const span = column[high] - column[low];
  return [low, high, span > 0 ? clamp((value - column[low]) / span, 0, 1) : 0];
}

// The car at a time: on a smooth curve through the samples (cubic Hermite), on a line between them, or as the nearest,
// as each column says
function carAt(lap, time) {
  if (!lap.rows) return null;
  const [row, next, s] = around(lap.time, time);
  const step = lap.time[next] - lap.time[row];
  const slope = (values, i) => {
    const [a, b] = [Math.max(i - 1, 0), Math.min(i + 1, lap.rows - 1)];
    return b > a ? (values[b] - values[a]) / (lap.time[b] - lap.time[a]) : 0;
  };
  const curve = (values) => (1 + 2 * s) * (1 - s) ** 2 * values[row] + s * (1 - s) ** 2 * step * slope(values, row)
    + s * s * (3 - 2 * s) * values[next] + s * s * (s - 1) * step * slope(values, next);
  const line = (values) => mix(values[row], values[next], s);
  const nearest = (values) => values[s < 1 ? row : next];
  const between = { curve, line, nearest };
  const car = { row };
  for (const [name, , , how] of lap.columns) car[name] = between[how](lap[name]);
  return car;
}

function timeAt(lap, distance) {
  const [row, next, share] = around(lap.reach, distance);
  return mix(lap.time[row], lap.time[next], share);
}

// Seconds by which the agent is ahead of the AI at the place it has come to
function gapAt([agent, ai], time) {
  if (!agent.rows || !ai.rows) return null;
  return timeAt(ai, carAt(agent, time).distance) - Math.min(time, agent.end);
}
