// A robot of capsules, from the side, in the wind if there is one; one that moves in space is seen from a little above.
'use strict';

class RobotScene {
  constructor(canvas) {
    this.canvas = canvas;
    this.streaks = new Streaks(42);
    const numbers = (a, b, share) => a.map((value, at) => mix(value, b[at], share));
    this.motion = new Motion((a, b, share) => ({
      ...b,
      capsules: b.capsules.map((capsule, at) => numbers(a.capsules[at], capsule, share)),
      focus: numbers(a.focus, b.focus, share),
    }));
    this.seen = null;
  }

  aim(scene, seconds, jump) {
    if (jump) this.seen = null;
    this.motion.aim(scene, seconds, jump);
  }

  draw(now, passed, pace, hex, strongest) {
    const scene = this.motion.at(now);
    if (!scene) return;
    const { c, width, height } = fit(this.canvas);
    const night = dark.matches;
    const metre = height / scene.height;
    const [fx, fy, fz] = scene.focus;
    const tilt = (scene.tilt * Math.PI) / 180;
    // the floor of a robot seen from the side stays where it is, however high it jumps
    const row = height * (tilt ? 0.54 : clamp(0.86 - fz / scene.height, 0.3, 0.6));
    const place = (x, y, z) => [
      width / 2 + (x - fx) * metre,
      row - ((z - fz) * Math.cos(tilt) + (y - fy) * Math.sin(tilt)) * metre,
    ];
    const sky = c.createLinearGradient(0, 0, 0, height);
    sky.addColorStop(0, night ? '#141d29' : '#d7e6f5');
    sky.addColorStop(1, night ? '#1d2a39' : '#f4f8fc');
    c.fillStyle = sky;
    c.fillRect(0, 0, width, height);
    if (tilt) this.plane(c, width, height, metre, place, scene.focus, night);
    else this.side(c, width, height, metre, place, fx, fz, night);

    const moved = this.seen ? fx - this.seen : 0;
    this.seen = fx;
    if (scene.wind) {
      const [u, v] = scene.wind.map((force) => force / strongest);
      const speed = 0.75 * passed * (pace ? 1 : 0);
      this.streaks.move(u * speed - (moved * metre) / width, -v * speed);
      this.streaks.draw(c, width, height, u * 70, v * 70, night ? 'rgba(170, 200, 235, .30)' : 'rgba(60, 105, 160, .30)');
    }

    const limbs = scene.capsules.map((capsule) => ({ capsule, depth: tilt ? capsule[1] + capsule[4] : [1, 0, 2][capsule[7] % 3] }));
    limbs.sort((a, b) => b.depth - a.depth);
    c.lineCap = 'round';
    for (const { capsule: [x1, y1, z1, x2, y2, z2, radius, leg] } of limbs) {
      const [start, end] = [place(x1, y1, z1), place(x2, y2, z2)];
      const shade = leg === 0 ? 0 : leg % 2 ? 0.16 : 0.42;
      const fill = rgb(blend(hex, night ? [20, 26, 36] : [40, 40, 48], shade));
      const edge = rgb(blend(hex, [10, 14, 22], 0.72));
      for (const [style, more] of [[edge, 2.6], [fill, 0]]) {
        Object.assign(c, { strokeStyle: style, lineWidth: 2 * radius * metre + more });
        c.beginPath();
        c.moveTo(...start);
        c.lineTo(end[0] + 0.01, end[1]);
        c.stroke();
      }
    }
  }

  side(c, width, height, metre, place, fx, fz, night) {
    const floor = place(0, 0, 0)[1];
    for (const [share, rise, fill] of [[0.12, 46, night ? '#1a2735' : '#dde8f2'], [0.3, 24, night ? '#1c2b3a' : '#cfdeeb']]) {
      c.fillStyle = fill;
      c.beginPath();
      c.moveTo(0, floor);
      for (let x = 0; x <= width; x += 6) {
        const at = x / metre + fx * share + 40 * share;
        c.lineTo(x, floor - rise * (0.55 + 0.3 * Math.sin(at * 0.9) + 0.15 * Math.sin(at * 2.3)));
      }
      c.lineTo(width, floor);
      c.fill();
    }
    const soil = c.createLinearGradient(0, floor, 0, height);
    soil.addColorStop(0, night ? '#2c3947' : '#a9b8c6');
    soil.addColorStop(1, night ? '#1f2934' : '#c3ced9');
    c.fillStyle = soil;
    c.fillRect(0, floor, width, height - floor);
    const first = Math.floor(fx - width / 2 / metre);
    const last = Math.ceil(fx + width / 2 / metre);
    const ink = night ? '#93a3b3' : '#44535f';
    for (let at = first; at <= last; at += 1) {
      const x = place(at, 0, 0)[0];
      c.fillStyle = at % 2 ? 'rgba(255, 255, 255, .05)' : 'rgba(0, 0, 0, .05)';
      c.fillRect(x, floor, metre, height - floor);
      c.fillStyle = ink;
      c.fillRect(Math.round(x), floor, 1, 6);
      if (floor + 20 < height) write(c, `${number(at, 0)} m`, x, floor + 18, { fill: ink, size: 10.5, align: 'center' });
    }
    c.fillRect(0, Math.round(floor), width, 1.5);
  }

  plane(c, width, height, metre, place, [fx, fy], night) {
    c.strokeStyle = night ? 'rgba(147, 163, 179, .22)' : 'rgba(68, 83, 95, .2)';
    c.lineWidth = 1;
    const reach = 12;
    for (let at = -reach; at <= reach; at += 1) {
      const [x, y] = [Math.round(fx) + at, Math.round(fy) + at];
      for (const [a, b] of [[[x, fy - reach], [x, fy + reach]], [[fx - reach, y], [fx + reach, y]]]) {
        c.beginPath();
        c.moveTo(...place(...a, 0));
        c.lineTo(...place(...b, 0));
        c.stroke();
      }
    }
  }
}
