// The map: road, lines and cars, drawn in metres with y up; `pixel` is the length of one of the screen's.

const LOOSE = 1; // friction below which a surface is drawn as loose: dirt, sand
const TRAIL = 7; // s
const CAR = 20; // pixels that a car is long at least
const ROAD = 10; // pixels that the road is wide at least
const GRID = 50; // m, between the lines on the land, which show how fast one moves
const DARK = '#111';
const SPEEDS = [ // the lighter part of viridis, which shows on a dark road
  '#2c738e', '#287d8e', '#24878e', '#20928c', '#1e9b8a', '#21a585', '#28ae80', '#37b878', '#48c16e', '#5ec962',
  '#77d153', '#90d743', '#addc30', '#c8e020', '#fde725',
];

// A canvas as sharp as the screen, empty
function fit(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  const ratio = devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height, ratio };
}

// Draw in metres from here on; the origin is at a place on the screen
function toMetres(c, ratio, scale, x, y) {
  c.setTransform(ratio * scale, 0, 0, -ratio * scale, ratio * x, ratio * y);
}

function polygon(c, points) {
  c.beginPath();
  for (const point of points) c.lineTo(...point);
  c.closePath();
}

// A curve that bends near its points instead of breaking at them
function smooth(path, points) {
  path.lineTo(...points[0]);
  for (let i = 1; i + 1 < points.length; i++) {
    const [[x, y], [u, v]] = [points[i], points[i + 1]];
    path.quadraticCurveTo(x, y, (x + u) / 2, (y + v) / 2);
  }
  path.lineTo(...points.at(-1));
}

function makeTrack(line) {
  const [sines, cosines] = [line.heading.map(Math.sin), line.heading.map(Math.cos)];
  const widest = most(line.half_width);
  const bounds = [line.x, line.y].map((values) => [Math.min(...values) - widest, Math.max(...values) + widest]);
  const loose = stretches(line.rows, (row) => line.friction[row] < LOOSE);
  let made = { least: NaN };

  function side(first, last, sign, least) {
    return Array.from({ length: last - first + 1 }, (_, index) => {
      const row = (first + index) % line.rows;
      const half = sign * Math.max(line.half_width[row], least);
      return [line.x[row] - sines[row] * half, line.y[row] + cosines[row] * half];
    });
  }

  function path(...parts) {
    const result = new Path2D();
    parts.forEach((points) => smooth(result, points));
    return result;
  }

  // The road, at least so wide to either side that it can be seen when the whole track is
  function road(least) {
    if (made.least === least) return made;
    const strip = (first, last) => path(side(first, last, 1, least), side(first, last, -1, least).reverse());
    made = {
      least,
      tarmac: strip(0, line.rows),
      loose: loose.map(([first, last]) => strip(first, last + 1)),
      edges: [1, -1].map((sign) => path(side(0, line.rows, sign, least))),
    };
    return made;
  }
  const centre = path(side(0, line.rows, 0, 0));
  const start = { x: line.x[0], y: line.y[0], heading: line.heading[0], half: line.half_width[0] };
  return { bounds, spans: bounds.map(([low, high]) => high - low), road, centre, start, hasLoose: loose.length > 0 };
}

function shade(speed, [low, high]) {
  return clamp(Math.floor((speed - low) / (high - low) * SPEEDS.length), 0, SPEEDS.length - 1);
}

// What is drawn of a lap again and again: its line, a path per shade of speed, and where it is off course
function addPaths(lap, speeds) {
  lap.lines = SPEEDS.map(() => new Path2D());
  for (let row = 0; row + 1 < lap.rows; row++) {
    const path = lap.lines[shade(lap.speed[row], speeds)];
    path.moveTo(lap.x[row], lap.y[row]);
    path.lineTo(lap.x[row + 1], lap.y[row + 1]);
  }
  lap.offPath = new Path2D();
  for (const [first, last] of lap.offs) {
    const from = Math.max(first - 1, 0);
    lap.offPath.moveTo(lap.x[from], lap.y[from]);
    for (let row = from; row <= Math.min(last + 1, lap.rows - 1); row++) lap.offPath.lineTo(lap.x[row], lap.y[row]);
  }
}

// Where one looks: from afar at the whole track (zoom 0) to close behind the agent (zoom 1)
function cameraOf(track, width, height, zoom, target) {
  const [edge, top, bottom] = [18, 58, 36]; // room for the buttons and the legend
  const far = Math.min((width - 2 * edge) / track.spans[0], (height - top - bottom) / track.spans[1]);
  const near = clamp(width / 130, 3.2, 7);
  const scale = far * (near / far) ** (zoom * zoom * (3 - 2 * zoom));
  const home = track.bounds.map(([low, high]) => mix(low, high, 0.5));
  home[1] += (top - bottom) / 2 / far;
  const way = (1 - far / scale) / (1 - far / near); // what one zooms in on moves evenly on the screen
  return { x: mix(home[0], target?.x ?? home[0], way), y: mix(home[1], target?.y ?? home[1], way), scale };
}

function drawGrid(c, camera, width, height, colours) {
  const [w, h] = [width / 2 / camera.scale, height / 2 / camera.scale];
  c.beginPath();
  for (let x = Math.ceil((camera.x - w) / GRID) * GRID; x <= camera.x + w; x += GRID) {
    c.moveTo(x, camera.y - h);
    c.lineTo(x, camera.y + h);
  }
  for (let y = Math.ceil((camera.y - h) / GRID) * GRID; y <= camera.y + h; y += GRID) {
    c.moveTo(camera.x - w, y);
    c.lineTo(camera.x + w, y);
  }
  c.lineWidth = 1 / camera.scale;
  c.strokeStyle = colours.grid;
  c.stroke();
}

function drawRoad(c, track, pixel, close, colours) {
  const road = track.road(ROAD / 2 * pixel);
  c.fillStyle = colours.road;
  c.fill(road.tarmac);
  c.fillStyle = colours.dirt;
  road.loose.forEach((path) => c.fill(path));
  c.strokeStyle = colours.edge;
  c.lineWidth = Math.max(1.2 * pixel, 0.3);
  road.edges.forEach((path) => c.stroke(path));
  if (close) {
    c.globalAlpha = 0.35;
    c.setLineDash([3, 9]);
    c.stroke(track.centre);
    c.setLineDash([]);
    c.globalAlpha = 1;
  }
  // Chequers across the road, and beside it an arrow in the direction of the lap
  const half = Math.max(track.start.half, road.least);
  const square = half / 4;
  c.save();
  c.translate(track.start.x, track.start.y);
  c.rotate(track.start.heading);
  for (let i = 0; i < 16; i++) {
    c.fillStyle = (i >> 1) + i & 1 ? '#fff' : DARK;
    c.fillRect((i % 2 - 1) * square, (i >> 1) * square - half, square, square);
  }
  c.translate(0, half + 8 * pixel);
  c.scale(pixel, pixel);
  c.fillStyle = colours.ink;
  polygon(c, [[-9, -1], [2, -1], [2, -4], [9, 0], [2, 4], [2, 1], [-9, 1]]);
  c.fill();
  c.restore();
}

function drawOff(c, lap, pixel, colour) {
  c.lineCap = 'butt';
  c.setLineDash([Math.max(7 * pixel, 1.5), Math.max(4 * pixel, 0.9)]);
  for (const [width, ink] of [[8, DARK], [6, colour]]) {
    c.lineWidth = Math.max(width * pixel, 0.15 * width);
    c.strokeStyle = ink;
    c.stroke(lap.offPath);
  }
  c.setLineDash([]);
  c.lineCap = 'round';
}

function drawTrail(c, lap, car, time, speeds, width) {
  Object.assign(c, { lineWidth: width, lineCap: 'butt' });
  for (let row = car.row; row >= 0; row--) {
    const age = (Math.min(time, lap.end) - lap.time[row]) / TRAIL;
    if (age > 1) break;
    c.globalAlpha = Math.sqrt(1 - Math.max(age, 0));
    c.strokeStyle = SPEEDS[shade(lap.speed[row], speeds)];
    c.beginPath();
    c.moveTo(lap.x[row], lap.y[row]);
    c.lineTo(...(row === car.row ? [car.x, car.y] : [lap.x[row + 1], lap.y[row + 1]]));
    c.stroke();
  }
  Object.assign(c, { globalAlpha: 1, lineCap: 'round' });
}

// A car from above, in its own frame: x ahead, y to the left; the AI's is a ghost
function drawCar(c, car, [length, width], pixel, colour, ghost) {
  const grow = Math.max(1, CAR * pixel / length);
  const box = (x, y, l, w, round) => {
    c.roundRect(x * length, y * width, l * length, w * width, round.map((radius) => radius * width));
  };
  c.save();
  c.translate(car.x, car.y);
  c.rotate(car.yaw);
  c.scale(grow, grow);
  c.fillStyle = DARK;
  for (const [x, y] of [[0.3, 0.44], [0.3, -0.44], [-0.3, 0.44], [-0.3, -0.44]]) {
    c.save();
    c.translate(x * length, y * width);
    if (x > 0) c.rotate(car.steer * 0.4);
    c.fillRect(-0.09 * length, -0.1 * width, 0.18 * length, 0.2 * width);
    c.restore();
  }
  c.beginPath();
  box(-0.5, -0.5, 1, 1, [0.22, 0.45, 0.45, 0.22]);
  c.globalAlpha = ghost ? 0.45 : 1;
  c.fillStyle = colour;
  c.fill();
  c.globalAlpha = 1;
  c.lineWidth = Math.max(1.2 * pixel / grow, 0.07);
  c.strokeStyle = ghost ? colour : DARK;
  c.stroke();
  c.beginPath();
  box(0.02, -0.38, 0.17, 0.76, [0.14]);
  box(-0.36, -0.34, 0.1, 0.68, [0.1]);
  c.fillStyle = ghost ? '#0b2a4a99' : '#111c';
  c.fill();
  if (car.brake > 0.05) {
    c.fillStyle = '#ff4b3e';
    for (const y of [-0.44, 0.2]) c.fillRect(-0.5 * length, y * width, 0.05 * length, 0.24 * width);
  }
  c.restore();
}

// Where a lap that was not completed ended
function drawCross(c, x, y, pixel) {
  const arm = 7 * pixel;
  for (const [width, colour] of [[6, DARK], [3, '#fff']]) {
    c.beginPath();
    for (const side of [-1, 1]) {
      c.moveTo(x - arm, y - side * arm);
      c.lineTo(x + arm, y + side * arm);
    }
    c.lineWidth = width * pixel;
    c.strokeStyle = colour;
    c.stroke();
  }
}

// An arrow at the rim of the picture towards a car outside it; x and y in pixels from the middle
function drawPointer(c, width, height, x, y, colour) {
  const reach = Math.max(Math.abs(x) / (width / 2 - 16), Math.abs(y) / (height / 2 - 56)); // not below the buttons
  if (reach <= 1) return;
  c.save();
  c.translate(width / 2 + x / reach, height / 2 + y / reach);
  c.rotate(Math.atan2(y, x));
  polygon(c, [[11, 0], [-7, -8], [-7, 8]]);
  paint(c, colour);
  c.restore();
}

function paint(c, colour) {
  c.fillStyle = colour;
  c.fill();
  c.strokeStyle = DARK;
  c.lineWidth = 1;
  c.stroke();
}

// The whole track, small, while the camera follows
function drawInset(c, track, cars, width, height, ratio, colours) {
  const room = width < 500 ? [90, 70] : [150, 96];
  const scale = Math.min(room[0] / track.spans[0], room[1] / track.spans[1]);
  const [w, h] = track.spans.map((span) => span * scale);
  const [left, bottom] = [width - w - 18, height - (width < 500 ? 50 : 18)]; // beside the legend or above it
  c.globalAlpha = 0.85;
  c.fillStyle = colours.land;
  c.beginPath();
  c.roundRect(left - 10, bottom - h - 10, w + 20, h + 20, 6);
  c.fill();
  c.globalAlpha = 1;
  c.lineWidth = 1;
  c.strokeStyle = colours.line;
  c.stroke();
  const [x, y] = track.bounds.map(([low]) => low);
  toMetres(c, ratio, scale, left - x * scale, bottom + y * scale);
  c.strokeStyle = colours.quiet;
  c.lineWidth = 3 / scale;
  c.stroke(track.centre);
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  for (const [car, colour] of cars) {
    c.beginPath();
    c.arc(left + (car.x - x) * scale, bottom - (car.y - y) * scale, 4.5, 0, 7);
    paint(c, colour);
  }
}

// All of it. A scene has laps, time, zoom, lines (whose whole line is shown), speeds (the range), size, failed.
function drawMap(canvas, track, scene, colours) {
  const { context: c, width, height, ratio } = fit(canvas);
  const cars = scene.laps.map((lap) => carAt(lap, scene.time));
  const camera = cameraOf(track, width, height, scene.zoom, cars[0] ?? cars[1]);
  const { x, y, scale } = camera;
  const [pixel, close] = [1 / scale, scale > 1.5];
  const paints = [colours['agent-car'], colours['ai-car']];
  const order = [1, 0].filter((index) => cars[index]); // the agent on top
  toMetres(c, ratio, scale, width / 2 - x * scale, height / 2 + y * scale);
  c.lineCap = c.lineJoin = 'round';
  if (close) drawGrid(c, camera, width, height, colours);
  drawRoad(c, track, pixel, close, colours);
  const whole = ['agent', 'ai'].indexOf(scene.lines);
  if (whole >= 0) {
    c.lineWidth = Math.max(4 * pixel, 0.5);
    scene.laps[whole].lines.forEach((path, index) => { c.strokeStyle = SPEEDS[index]; c.stroke(path); });
  }
  for (const index of order) drawOff(c, scene.laps[index], pixel, paints[index]);
  for (const index of whole < 0 ? order : []) {
    const wide = Math.max((index ? 2 : 4) * pixel, index ? 0.3 : 0.6);
    drawTrail(c, scene.laps[index], cars[index], scene.time, scene.speeds, wide);
  }
  if (scene.failed && cars[0]) drawCross(c, scene.laps[0].x.at(-1), scene.laps[0].y.at(-1), pixel);
  for (const index of order) drawCar(c, cars[index], scene.size, pixel, paints[index], index === 1);
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  if (scene.zoom > 0.5) {
    if (cars[1]) drawPointer(c, width, height, (cars[1].x - x) * scale, (y - cars[1].y) * scale, paints[1]);
    drawInset(c, track, order.map((index) => [cars[index], paints[index]]), width, height, ratio, colours);
  }
  return cars;
}
