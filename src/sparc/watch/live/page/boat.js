// The boat from above: buoy, ring, wake, and a current that one sees drift by.
'use strict';

const HULL = [[0.75, 0], [0.5, 0.2], [0.15, 0.3], [-0.3, 0.31], [-0.62, 0.25], [-0.62, -0.25], [-0.3, -0.31], [0.15, -0.3], [0.5, -0.2]];
const NEAREST = 4.4, MARGIN = 1.4; // m from the buoy to the edge
const WAKE = 2600; // ms

class BoatScene {
  constructor(canvas) {
    this.canvas = canvas;
    this.streaks = new Streaks(64);
    this.motion = new Motion((a, b, share) => ({ ...b, boat: [0, 1].map((at) => mix(a.boat[at], b.boat[at], share)) }));
    this.wake = [];
    this.reach = NEAREST;
    this.angle = Math.PI / 2;
  }

  aim(scene, seconds, jump) {
    if (jump) this.wake = [];
    this.motion.aim(scene, seconds, jump);
  }

  // Draw; the clock runs at `pace` seconds of the boat's per second of ours
  draw(now, passed, pace, hex) {
    const scene = this.motion.at(now);
    if (!scene) return;
    const { c, width, height } = fit(this.canvas);
    const night = dark.matches;
    const [x, y] = scene.boat;
    const wanted = Math.max(NEAREST, Math.abs(y) + MARGIN, ((Math.abs(x) + MARGIN) * height) / width);
    this.reach += (wanted - this.reach) * Math.min(1, 4 * passed);
    const metre = height / 2 / this.reach;
    const place = ([u, v]) => [width / 2 + u * metre, height / 2 - v * metre];
    const water = c.createLinearGradient(0, 0, 0, height);
    water.addColorStop(0, night ? '#12364f' : '#4e9fc7');
    water.addColorStop(1, night ? '#0b2437' : '#2f7fae');
    c.fillStyle = water;
    c.fillRect(0, 0, width, height);

    const [u, v] = scene.current;
    this.streaks.move((u * pace * passed * metre) / width, (-v * pace * passed * metre) / height);
    this.streaks.draw(c, width, height, u * 44, v * 44, night ? 'rgba(160, 210, 240, .22)' : 'rgba(255, 255, 255, .34)');

    const [bx, by] = place([0, 0]);
    c.beginPath();
    c.arc(bx, by, scene.ring * metre, 0, 7);
    Object.assign(c, { fillStyle: 'rgba(255, 255, 255, .13)', strokeStyle: 'rgba(255, 255, 255, .6)', lineWidth: 1.5 });
    c.fill();
    c.setLineDash([5, 5]);
    c.stroke();
    c.setLineDash([]);

    this.wake.push([x, y, now]);
    while (this.wake.length > 2 && now - this.wake[0][2] > WAKE) this.wake.shift();
    c.lineCap = 'round';
    for (let at = 1; at < this.wake.length; at += 1) {
      const fresh = clamp(1 - (now - this.wake[at][2]) / WAKE, 0, 1);
      Object.assign(c, { strokeStyle: `rgba(255, 255, 255, ${0.5 * fresh ** 1.5})`, lineWidth: 1 + metre * 0.16 * fresh });
      c.beginPath();
      c.moveTo(...place(this.wake[at - 1]));
      c.lineTo(...place(this.wake[at]));
      c.stroke();
    }

    const [hx, hy] = scene.heading;
    if (Math.hypot(hx, hy) > 0.05) {
      const turn = Math.atan2(hy, hx) - this.angle;
      this.angle += Math.atan2(Math.sin(turn), Math.cos(turn)) * Math.min(1, 9 * passed);
    }
    c.save();
    c.translate(...place([x, y]));
    c.rotate(-this.angle);
    this.outline(c, 1.12 * metre, [0, 0.05]);
    c.fillStyle = 'rgba(0, 20, 40, .22)';
    c.fill();
    this.outline(c, metre, [0, 0]);
    Object.assign(c, { fillStyle: '#fbf9f4', strokeStyle: 'rgba(16, 42, 64, .85)', lineWidth: 1.5, lineJoin: 'round' });
    c.fill();
    c.stroke();
    this.outline(c, 0.62 * metre, [-0.06, 0]);
    c.fillStyle = hex;
    c.fill();
    c.restore();

    c.beginPath();
    c.arc(bx, by, Math.max(4, 0.17 * metre), 0, 7);
    Object.assign(c, { fillStyle: '#e0352b', strokeStyle: '#fff', lineWidth: 2 });
    c.fill();
    c.stroke();
  }

  outline(c, metre, [forward, left]) {
    c.beginPath();
    HULL.forEach(([u, v]) => c.lineTo((u + forward) * metre, (-v + left) * metre));
    c.closePath();
  }
}
