// The plane of contexts: the boxes of training, the true context to drag, and what policies believe.
'use strict';

class Pad {
  // space: names, units, test {low, high} and regions [{low, high}, …] of the two features; bare: without axes, equal scales, on a scene
  constructor(canvas, space, move, bare = false) {
    Object.assign(this, { canvas, space, move, bare, dragging: false, hover: false });
    const drag = (event) => {
      const box = canvas.getBoundingClientRect();
      const { low, high } = space.test;
      const found = this.inverse(event.clientX - box.left, event.clientY - box.top);
      this.own = found.map((value, at) => clamp(value, low[at], high[at]));
      move(this.own);
    };
    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.dragging = true;
      drag(event);
      event.preventDefault();
    });
    canvas.addEventListener('pointermove', (event) => { if (this.dragging) drag(event); });
    for (const end of ['pointerup', 'pointercancel', 'lostpointercapture']) {
      canvas.addEventListener(end, () => { this.dragging = false; });
    }
  }

  frame(width, height) {
    const [left, right, top, bottom] = this.bare ? [7, 7, 7, 7] : [50, 12, 10, 34];
    const { low, high } = this.space.test;
    const spans = [width - left - right, height - top - bottom];
    let scales = [0, 1].map((at) => spans[at] / (high[at] - low[at]));
    if (this.bare) scales = [Math.min(...scales), Math.min(...scales)];
    const middle = [left + spans[0] / 2, top + spans[1] / 2];
    const centre = [0, 1].map((at) => (low[at] + high[at]) / 2);
    this.place = ([x, y]) => [middle[0] + (x - centre[0]) * scales[0], middle[1] - (y - centre[1]) * scales[1]];
    this.inverse = (x, y) => [centre[0] + (x - middle[0]) / scales[0], centre[1] - (y - middle[1]) / scales[1]];
  }

  // beliefs: [{ estimate, colour }]
  draw(context, beliefs) {
    const { c, width, height } = fit(this.canvas);
    const { ink, quiet, line, panel, inside, outside, truth } = theme();
    this.frame(width, height);
    const { regions, test, names, units } = this.space;
    const rectangle = ({ low, high }) => {
      const [[x1, y1], [x2, y2]] = [this.place(low), this.place(high)];
      return [x1, y2, x2 - x1, y1 - y2];
    };
    c.beginPath();
    if (this.bare) c.roundRect(0.5, 0.5, width - 1, height - 1, 10);
    else c.roundRect(...rectangle(test), 6);
    Object.assign(c, { fillStyle: this.bare ? panel : outside, globalAlpha: this.bare ? 0.82 : 1 });
    c.fill();
    c.globalAlpha = 1;
    Object.assign(c, { strokeStyle: line, lineWidth: 1 });
    c.stroke();
    if (this.bare) c.strokeRect(...rectangle(test));
    if (!this.bare) this.axes(c, width, height, { ink, quiet, line });
    const boxes = regions.map(rectangle);
    c.beginPath(); // one path: where regions overlap, the colour is the same
    for (const box of boxes) c.rect(...box);
    c.fillStyle = inside;
    c.fill();
    Object.assign(c, { strokeStyle: quiet, lineWidth: 1.2 });
    c.setLineDash([4, 3]);
    for (const box of boxes) c.strokeRect(...box);
    c.setLineDash([]);
    if (!this.bare) {
      const [x, y, wide, high] = rectangle(test);
      const area = ([,, across, down]) => across * down;
      const most = boxes.reduce((one, other) => (area(other) > area(one) ? other : one));
      write(c, 'trained here (IND)', most[0] + 6, most[1] + 14, { fill: quiet, size: 10.5, weight: 600 });
      if (area(most) < 0.999 * wide * high) write(c, 'never seen (OOD)', x + 8, y + 16, { fill: quiet, size: 10.5, weight: 600 });
    }
    // arrows begin at nothing, or in the middle of training where nothing is no context
    const calmest = [0, 1].every((at) => test.low[at] <= 0 && test.high[at] >= 0);
    const zero = [0, 1].map((at) => (calmest ? 0 : (regions[0].low[at] + regions[0].high[at]) / 2));
    const [ox, oy] = this.place(zero);
    const thick = this.bare ? 4.5 : 6;
    for (const { estimate, colour } of beliefs) {
      const [x, y] = this.place([0, 1].map((at) => clamp(estimate[at], test.low[at], test.high[at])));
      arrow(c, ox, oy, x - ox, y - oy, { fill: colour, width: thick * 1.7, ghost: true });
    }
    const [x, y] = this.place(this.dragging ? this.own : context);
    const radius = this.bare ? 5 : 7.5;
    const shaft = Math.max(0, 1 - radius / (Math.hypot(x - ox, y - oy) || 1)); // up to the handle
    if (shaft) arrow(c, ox, oy, (x - ox) * shaft, (y - oy) * shaft, { fill: truth, width: thick });
    c.beginPath();
    c.arc(x, y, radius, 0, 7);
    Object.assign(c, { fillStyle: panel, strokeStyle: truth, lineWidth: this.bare ? 2.5 : 3 });
    c.fill();
    c.stroke();
    this.canvas.setAttribute('aria-label', names.map((name, at) => `${name} ${number(context[at])} ${units[at]}`).join(', '));
  }

  axes(c, width, height, { quiet, line, ink }) {
    const { low, high } = this.space.test;
    const [bottom, left] = [this.place(low)[1], this.place(low)[0]];
    for (const at of [0, 1]) {
      const step = roundDown((high[at] - low[at]) / 4);
      for (let tick = Math.ceil(low[at] / step - 1e-9) * step; tick <= high[at] + 1e-9; tick += step) {
        const [x, y] = this.place(at ? [low[0], tick] : [tick, low[1]]);
        const text = number(tick, digitsOf(low[at], high[at]) > 2 ? 2 : clamp(Math.ceil(-Math.log10(step) - 1e-9), 0, 3));
        c.fillStyle = line;
        if (at) c.fillRect(x, y - 0.5, this.place(high)[0] - x, 1);
        else c.fillRect(x - 0.5, this.place(high)[1], 1, bottom - this.place(high)[1]);
        const place = at ? [left - 6, y, 'right', 'middle'] : [x, bottom + 6, 'center', 'top'];
        write(c, text, place[0], place[1], { fill: quiet, size: 10.5, align: place[2], base: place[3] });
      }
    }
    const title = (at) => `${this.space.names[at]}${this.space.units[at] ? ` (${this.space.units[at]})` : ''}`;
    write(c, title(0), (left + this.place(high)[0]) / 2, height - 4, { fill: ink, size: 11.5, weight: 600, align: 'center' });
    c.save();
    c.translate(11, (bottom + this.place(high)[1]) / 2);
    c.rotate(-Math.PI / 2);
    write(c, title(1), 0, 0, { fill: ink, size: 11.5, weight: 600, align: 'center' });
    c.restore();
  }
}
