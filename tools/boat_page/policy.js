// A trained policy and the boat's physics in plain JavaScript, as the Python package has them.
'use strict';

// Weights are float32 in base64, row by row
function decode({ shape, data }) {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  return { shape, values: new Float32Array(bytes.buffer) };
}

// x (n · in) @ weight (in, out) + bias, for n rows
function linear(x, rows, { weight, bias }, relu = true) {
  const [size, out] = weight.shape;
  const result = new Float32Array(rows * out);
  for (let row = 0; row < rows; row += 1) {
    for (let unit = 0; unit < out; unit += 1) {
      let sum = bias.values[unit];
      for (let at = 0; at < size; at += 1) sum += x[row * size + at] * weight.values[at * out + unit];
      result[row * out + unit] = relu ? Math.max(0, sum) : sum;
    }
  }
  return result;
}

// Cut (steps, channels) into windows with edge padding, each flattened with the oldest step first
function windows(x, steps, channels, kernel, stride) {
  const count = Math.ceil(steps / stride);
  const before = Math.floor(((count - 1) * stride + kernel - steps) / 2);
  const result = new Float32Array(count * kernel * channels);
  for (let at = 0; at < count; at += 1) {
    for (let tap = 0; tap < kernel; tap += 1) {
      const step = Math.min(steps - 1, Math.max(0, at * stride + tap - before));
      result.set(x.subarray(step * channels, (step + 1) * channels), (at * kernel + tap) * channels);
    }
  }
  return result;
}

class Policy {
  constructor({ spec, convolutions, arrays }) {
    const named = Object.fromEntries(Object.entries(arrays).map(([name, array]) => [name, decode(array)]));
    const layer = (name) => ({ weight: named[`${name}.weight`], bias: named[`${name}.bias`] });
    const pair = (name) => [0, 1].map((at) => layer(`${name}.layers[${at}]`));
    Object.assign(this, { spec, convolutions });
    this.observe = pair('policy.trunk.observe');
    this.decide = pair('policy.trunk.decide');
    this.head = layer('policy.trunk.head');
    this.norm = named['policy.norm.mean'] && { mean: named['policy.norm.mean'].values, variance: named['policy.norm.variance'].values };
    if (spec.reads === 'history') {
      this.embed = layer('policy.encoder.embed');
      this.layers = convolutions.map((_, at) => layer(`policy.encoder.convolutions[${at}]`));
      this.out = layer('policy.encoder.out');
      this.psi = pair('psi.mlp');
    }
    this.reset();
  }

  reset() { this.history = []; }

  standardise(values) {
    if (!this.norm) return values;
    const clip = this.spec.observation_clip;
    return values.map((value, at) => {
      const std = Math.max(Math.sqrt(this.norm.variance[at]), this.spec.min_std);
      return Math.min(clip, Math.max(-clip, Math.fround((value - this.norm.mean[at]) / std)));
    });
  }

  // φ(h): zeros before the episode
  phi() {
    const { history_length: length, obs_size: size, action_size: more } = this.spec;
    let x = new Float32Array(length * (size + more));
    this.history.forEach(([obs, action], at) => {
      x.set([...this.standardise(obs), ...action], (length - this.history.length + at) * (size + more));
    });
    x = linear(x, length, this.embed);
    let steps = length, channels = this.embed.weight.shape[1];
    this.layers.forEach((layer, at) => {
      const [kernel, stride] = this.convolutions[at];
      const cut = windows(x, steps, channels, kernel, stride);
      steps = Math.ceil(steps / stride);
      x = linear(cut, steps, layer);
      channels = layer.weight.shape[1];
    });
    return linear(x, 1, this.out);
  }

  // ψ(c)
  encode(context) {
    const { context_centre: centre, context_half_range: half } = this.spec;
    const scaled = Float32Array.from(context.map((value, at) => (value - centre[at]) / half[at]));
    return this.psi.reduce((x, layer) => linear(x, 1, layer), scaled);
  }

  // The action without noise, in [−1, 1]; remembers what it saw and did
  act(offset) {
    const obs = Float32Array.from(offset);
    this.latent = this.embed ? this.phi() : new Float32Array(0);
    let x = this.observe.reduce((y, layer) => linear(y, 1, layer), Float32Array.from(this.standardise(obs)));
    x = Float32Array.from([...x, ...this.latent]);
    x = this.decide.reduce((y, layer) => linear(y, 1, layer), x);
    const action = linear(x, 1, this.head, false).slice(0, this.spec.action_size).map(Math.tanh);
    this.history.push([obs, action]);
    if (this.history.length > this.spec.history_length) this.history.shift();
    return action;
  }
}

// The contexts of a grid with their ψ(c), to find the one nearest to φ(h)
class Beliefs {
  constructor(policy, { low, high }, count) {
    const places = Array.from({ length: count }, (_, at) => low[0] + ((high[0] - low[0]) * at) / (count - 1));
    this.contexts = places.flatMap((x) => places.map((y) => [x, y]));
    this.table = this.contexts.map((context) => policy.encode(context));
  }

  // The mean of the four nearest contexts, weighted by 1/distance²
  estimate(latent) {
    const distances = this.table.map((row, index) => [row.reduce((sum, value, at) => sum + (value - latent[at]) ** 2, 0), index]);
    const nearest = distances.sort((a, b) => a[0] - b[0]).slice(0, 4).map(([distance, index]) => [1 / (distance + 1e-9), index]);
    const total = nearest.reduce((sum, [weight]) => sum + weight, 0);
    return [0, 1].map((at) => nearest.reduce((sum, [weight, index]) => sum + weight * this.contexts[index][at], 0) / total);
  }
}

// One step of the boat: the offset from the buoy after it
function drift(world, offset, action, current) {
  return offset.map((value, at) => {
    const velocity = world.speed * Math.min(1, Math.max(-1, action[at])) + current[at];
    return Math.min(world.limit, Math.max(-world.limit, value + world.dt * velocity));
  });
}

function rewardOf(world, [x, y]) {
  const [u, v] = [x / world.tolerance, y / world.tolerance];
  return Math.exp(-(u * u + v * v));
}
