// Traces over the last steps, and where φ(h) lies on the map of ψ.
'use strict';

const MARKS = { context: 'changed', reset: 'reset', push: 'push' };
const CLOSE = 12; // steps: changes as near to each other are one, of a drag

// bands: [{ title, unit, low, high, train: [[low, high], …] or null, truth(sample) or null, value(sample, policy) }]
// samples: newest last, each with t, mark, policies; lines: [{ colour, width }] of the policies
function drawTraces(canvas, bands, samples, lines, span) {
  const { c, width, height } = fit(canvas);
  const { ink, quiet, line, inside, truth, faint } = theme();
  const columns = width > 640 ? bands.length : 1;
  const rows = bands.length / columns;
  const [left, right, top, bottom] = [44, 12, 24, 24];
  const high = (height - bottom) / rows - top - (rows > 1 ? 6 : 0);
  const across = width / columns - left - right;
  const last = samples.length ? samples[samples.length - 1].t : 0;
  const shown = samples.filter(({ t }) => t >= last - span);
  bands.forEach((band, index) => {
    const x = (columns > 1 ? index * (width / columns) : 0) + left;
    const y = top + (columns > 1 ? 0 : index * (high + top + 6));
    const toX = (t) => x + (1 + (t - last) / span) * across;
    let { low: floor, high: roof } = band;
    if (floor === undefined) [floor, roof] = range(shown.flatMap((sample) => lines.map((_, at) => band.value(sample, at))));
    const toY = (value) => y + ((roof - clamp(value, floor, roof)) / (roof - floor)) * high;
    c.fillStyle = faint;
    c.fillRect(x, y, across, high);
    if (band.train) {
      c.beginPath(); // one path: where ranges overlap, the colour is the same
      for (const [least, most] of band.train) c.rect(x, toY(most), across, toY(least) - toY(most));
      c.fillStyle = inside;
      c.fill();
    }
    const step = roundUp((roof - floor) / Math.max(2, Math.floor(high / 26)));
    for (let tick = Math.ceil(floor / step - 1e-9) * step; tick <= roof + 1e-9; tick += step) {
      c.fillStyle = line;
      c.fillRect(x, Math.round(toY(tick)), across, 1);
      const text = number(tick, clamp(Math.ceil(-Math.log10(step) - 1e-9), 0, 3));
      write(c, text, x - 6, toY(tick), { fill: quiet, size: 10.5, align: 'right', base: 'middle' });
    }
    write(c, band.title, x, y - 9, { fill: ink, size: 12.5, weight: 600 });
    const wide = c.measureText(band.title).width;
    if (band.unit) write(c, band.unit, x + wide + 6, y - 9, { fill: quiet, size: 11 });
    let before = -Infinity, labelled = -Infinity;
    for (const { t, mark } of shown) {
      if (!mark) continue;
      const fresh = mark !== 'context' || t - before > CLOSE;
      if (mark === 'context') before = t;
      if (!fresh) continue;
      Object.assign(c, { strokeStyle: quiet, lineWidth: 1 });
      c.setLineDash([3, 3]);
      c.beginPath();
      c.moveTo(Math.round(toX(t)) + 0.5, y);
      c.lineTo(Math.round(toX(t)) + 0.5, y + high);
      c.stroke();
      c.setLineDash([]);
      const late = toX(t) > x + across - 44; // its label is left of the line
      if (index === 0 && toX(t) - labelled > (late ? 98 : 54)) {
        labelled = toX(t);
        write(c, MARKS[mark], labelled + (late ? -4 : 4), y + high - 6, { fill: quiet, size: 10.5, align: late ? 'right' : 'left' });
      }
    }
    c.lineJoin = 'round';
    if (band.truth) stroke(c, shown, toX, toY, band.truth, truth, 2, true);
    lines.forEach(({ colour }, at) => {
      const value = (sample) => band.value(sample, at);
      if (!band.smooth) { stroke(c, shown, toX, toY, value, colour, 1.8); return; }
      c.globalAlpha = 0.35;
      stroke(c, shown, toX, toY, value, colour, 1);
      c.globalAlpha = 1;
      stroke(c, shown, toX, toY, mean(value, band.smooth), colour, 2);
    });
    if (columns === 1 && index < bands.length - 1) return;
    const every = roundUp(span / Math.max(2, Math.floor(across / 60)));
    for (let ago = 0; ago < span; ago += every) {
      const text = ago ? `−${ago}` : 'now';
      write(c, text, toX(last - ago), y + high + 16, { fill: quiet, size: 10.5, align: ago ? 'center' : 'right' });
    }
    write(c, 'steps', x - 6, y + high + 16, { fill: quiet, size: 10.5, align: 'right' });
  });
}

function stroke(c, samples, toX, toY, value, colour, width, steps = false) {
  Object.assign(c, { strokeStyle: colour, lineWidth: width });
  c.beginPath();
  let pen = null;
  for (const sample of samples) {
    const now = value(sample);
    if (now === null || now === undefined) { pen = null; continue; }
    const [x, y] = [toX(sample.t), toY(now)];
    if (pen === null) c.moveTo(x, y);
    else if (steps) { c.lineTo(x, pen); c.lineTo(x, y); } else c.lineTo(x, y);
    pen = y;
  }
  c.stroke();
}

// The mean of the last values, for samples in their order
function mean(value, count) {
  let recent = [];
  return (sample) => {
    const now = value(sample);
    if (now === null || now === undefined) { recent = []; return null; }
    recent.push(now);
    if (recent.length > count) recent.shift();
    return recent.reduce((sum, one) => sum + one, 0) / recent.length;
  };
}

// What lines need, with a little room; never nothing
function range(values) {
  const there = values.filter((value) => value !== null && value !== undefined);
  if (!there.length) return [0, 1];
  const [low, high] = [Math.min(...there), Math.max(...there)];
  const room = Math.max((high - low) * 0.08, Math.abs(high) * 0.02, 0.05);
  return [Math.min(low - room, 0), Math.max(high + room, 0)];
}

// map: { lines, boxes } or { points, train }; trail: places of φ(h), newest last; psi: that of ψ(c)
function drawMap(canvas, map, trail, psi, colour) {
  const { c, width, height } = fit(canvas);
  const { ink, quiet, line, inside, truth, panel } = theme();
  const all = map.lines ? map.lines.flat() : map.points;
  const [xs, ys] = [0, 1].map((at) => all.map((point) => point[at]));
  const [left, right, top, bottom] = [22, 10, 10, 20];
  const lows = [Math.min(...xs), Math.min(...ys)], highs = [Math.max(...xs), Math.max(...ys)];
  const scale = 0.94 * Math.min((width - left - right) / (highs[0] - lows[0] || 1), (height - top - bottom) / (highs[1] - lows[1] || 1));
  const place = ([x, y]) => [
    left + (width - left - right) / 2 + (x - (lows[0] + highs[0]) / 2) * scale,
    top + (height - top - bottom) / 2 - (y - (lows[1] + highs[1]) / 2) * scale,
  ];
  const path = (points) => { c.beginPath(); points.forEach((point) => c.lineTo(...place(point))); };
  if (map.lines) {
    c.beginPath();
    for (const box of map.boxes) box.forEach((point, at) => (at ? c.lineTo(...place(point)) : c.moveTo(...place(point))));
    c.fillStyle = inside;
    c.fill();
    Object.assign(c, { strokeStyle: line, lineWidth: 1, lineJoin: 'round' });
    for (const points of map.lines) { path(points); c.stroke(); }
    Object.assign(c, { strokeStyle: quiet, lineWidth: 1.2 });
    c.setLineDash([4, 3]);
    for (const box of map.boxes) { path(box); c.stroke(); }
    c.setLineDash([]);
  } else {
    map.points.forEach((point, at) => {
      c.beginPath();
      c.arc(...place(point), 2.5, 0, 7);
      c.fillStyle = map.train[at] ? quiet : line;
      c.fill();
    });
  }
  c.lineCap = 'round';
  for (let at = 1; at < trail.length; at += 1) {
    if (!trail[at - 1] || !trail[at]) continue;
    Object.assign(c, { strokeStyle: colour, globalAlpha: 0.75 * (at / trail.length) ** 1.5, lineWidth: 2 });
    path([trail[at - 1], trail[at]]);
    c.stroke();
  }
  c.globalAlpha = 1;
  if (psi) {
    c.beginPath();
    c.arc(...place(psi), 7, 0, 7);
    Object.assign(c, { strokeStyle: truth, lineWidth: 2.5 });
    c.stroke();
  }
  const newest = trail[trail.length - 1];
  if (newest) {
    c.beginPath();
    c.arc(...place(newest), 5, 0, 7);
    Object.assign(c, { fillStyle: colour, strokeStyle: panel, lineWidth: 1.5 });
    c.fill();
    c.stroke();
  }
  write(c, 'first component of ψ', left + (width - left - right) / 2, height - 5, { fill: quiet, size: 10.5, align: 'center' });
  c.save();
  c.translate(12, top + (height - top - bottom) / 2);
  c.rotate(-Math.PI / 2);
  write(c, 'second component', 0, 0, { fill: quiet, size: 10.5, align: 'center' });
  c.restore();
}
