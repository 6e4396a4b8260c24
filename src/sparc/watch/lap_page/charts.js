// The traces of both laps over the distance, one band below the other.

// The largest of 1, 2, 5, 10, 20 … that is not above a value
function roundDown(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [5, 2, 1].find((factor) => factor * power <= value);
}

function bandsOf(laps) {
  const [agent] = laps;
  const speed = 1.04 * 3.6 * Math.max(10, ...laps.map((lap) => most(lap.speed)));
  const gaps = [...agent.time].map((time) => gapAt(laps, time) ?? 0);
  const gap = 1.15 * Math.max(0.1, most(gaps));
  const steer = 1.15 * Math.max(0.1, ...laps.map((lap) => most(lap.steer)));
  return [
    { title: ['Speed', 'km/h'], share: 3.2, low: 0, high: speed, of: (lap) => lap.speed.map((v) => 3.6 * v) },
    { title: ['Gap, s', 'ahead ↑'], share: 1.5, low: -gap, high: gap, of: (lap) => (lap === agent ? gaps : []) },
    { title: ['Pedals', 'throttle ↑', 'brake ↓'], share: 1.7, low: -1.1, high: 1.1,
      of: (lap) => lap.throttle.map((v, row) => v - lap.brake[row]) },
    { title: ['Steering', 'left ↑'], share: 1.5, low: -steer, high: steer, of: (lap) => lap.steer },
  ];
}

// Draw them, and give where on the canvas the lap begins and how long it is there
function drawCharts(canvas, laps, length, colours) {
  const { context: c, width, height } = fit(canvas);
  const wide = width > 640; // else the titles stand above their bands
  const [left, right, top, bottom, between] = wide ? [112, 14, 10, 20, 12] : [36, 12, 22, 20, 24];
  const across = width - left - right;
  const toX = (distance) => left + clamp(distance / length, 0, 1) * across;
  const bands = bandsOf(laps);
  const family = getComputedStyle(document.body).fontFamily;
  const shares = bands.reduce((sum, band) => sum + band.share, 0);
  const unit = (height - top - bottom - between * (bands.length - 1)) / shares;
  const write = (text, x, y, colour, font, align = 'left') => {
    Object.assign(c, { fillStyle: colour, font: `${font} ${family}`, textAlign: align });
    c.fillText(text, x, y);
  };
  c.lineJoin = 'round';
  let y = top;
  for (const band of bands) {
    const high = band.share * unit;
    const toY = (value) => y + (band.high - value) / (band.high - band.low) * high;
    c.fillStyle = colours.off;
    for (const [first, last] of laps[0].offs) {
      const [from, to] = [first, last].map((row) => toX(laps[0].distance[row]));
      c.fillRect(from - 1, y, to - from + 2, high);
    }
    const step = roundDown(band.low ? band.high : band.high / 2.5);
    let last = Infinity;
    for (let tick = Math.ceil(band.low / step) * step; tick <= band.high; tick += step) {
      c.fillStyle = tick ? colours.line : colours.axis;
      c.fillRect(left, Math.round(toY(tick)), across, 1);
      if (last - toY(tick) < 12) continue; // no room for its number
      last = toY(tick);
      write(String(Number(tick.toFixed(3))).replace('-', '−'), left - 6, last + 3.5, colours.quiet, '10px', 'right');
    }
    const [title, ...notes] = band.title;
    write(title, wide ? 12 : 8, wide ? y + 10 : y - 8, colours.ink, '600 12px');
    const after = wide ? 12 : 14 + c.measureText(title).width;
    if (wide) notes.forEach((note, index) => write(note, after, y + 23 + 12 * index, colours.quiet, '10.5px'));
    else write(notes.join(', '), after, y - 8, colours.quiet, '10.5px');
    // the AI's line is wide and pale, so that it shows below the agent's
    [[laps[1], colours.ai, 3, 0.55], [laps[0], colours.agent, 1.5, 1]].forEach(([lap, colour, thick, alpha]) => {
      Object.assign(c, { strokeStyle: colour, lineWidth: thick, globalAlpha: alpha });
      c.beginPath();
      band.of(lap).forEach((value, row) => c.lineTo(toX(lap.distance[row]), toY(value)));
      c.stroke();
      c.globalAlpha = 1;
    });
    y += high + between;
  }
  const step = roundDown(length / 1000 / (across / 160));
  for (let km = 0; km <= length / 1000; km += step) {
    const text = `${Number(km.toFixed(3))}${km ? '' : ' km'}`;
    write(text, toX(1000 * km), height - 6, colours.quiet, '10px', km ? 'center' : 'left');
  }
  return { left, across };
}
