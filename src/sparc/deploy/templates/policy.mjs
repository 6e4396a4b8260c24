// Acts with an exported SPARC policy in a browser or in Node, without any library.
//
//   import { load } from "./policy.mjs";
//   const policy = await load(".");          // the folder of the export: an address, or a path in Node
//   policy.reset();                          // before each episode
//   const action = policy.act(obs);          // once per control period: obs of O numbers, or N rows of them
//
// A page that carries its weights inside calls new Policy(contract, parseSafetensors(bytes)).

const FORMAT = 1;

export async function load(folder) {
  const contract = checkContract(JSON.parse(new TextDecoder().decode(await read(folder, "contract.json"))));
  const bytes = await read(folder, "policy.safetensors");
  if (globalThis.crypto?.subtle) {
    // browsers have it only in secure contexts
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    const found = [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    if (found !== contract.checksums["policy.safetensors"])
      throw new Error("the checksum of policy.safetensors is not the one in contract.json: export the policy again");
  }
  return new Policy(contract, parseSafetensors(bytes));
}

async function read(folder, name) {
  const place = `${String(folder).replace(/\/$/, "")}/${name}`;
  if (typeof process !== "undefined" && process.versions?.node && !/^https?:/.test(place)) {
    const { readFile } = await import("node:fs/promises");
    return new Uint8Array(await readFile(place));
  }
  const answer = await fetch(place);
  if (!answer.ok) throw new Error(`cannot read ${place}: ${answer.status}`);
  return new Uint8Array(await answer.arrayBuffer());
}

export function checkContract(contract) {
  if (contract?.kind !== "sparc-policy") throw new Error("contract.json is not the contract of an exported policy");
  if (contract.format > FORMAT)
    throw new Error(`contract.json has format ${contract.format}, this reader knows up to ${FORMAT}: export again`);
  return contract;
}

// The float32 arrays of a safetensors file by name.
export function parseSafetensors(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const length = Number(view.getBigUint64(0, true));
  if (length > bytes.byteLength - 8) throw new Error("policy.safetensors is damaged: its header is too long");
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  const arrays = {};
  for (const [name, { dtype, data_offsets: offsets }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const [begin, end] = offsets ?? [];
    if (!(0 <= begin && begin <= end && 8 + length + end <= bytes.byteLength))
      throw new Error(`policy.safetensors is damaged: ${name} lies outside the file`);
    if (dtype === "F32") arrays[name] = new Float32Array(bytes.slice(8 + length + begin, 8 + length + end).buffer);
  }
  return arrays;
}

function relu(y) {
  for (let j = 0; j < y.length; j++) if (y[j] < 0) y[j] = 0;
  return y;
}

function addProduct(x, from, count, weight, offset, y) {
  const m = y.length;
  for (let i = 0; i < count; i++) {
    const xi = x[from + i];
    if (xi === 0) continue;
    const row = offset + i * m;
    for (let j = 0; j < m; j++) y[j] += xi * weight[row + j];
  }
}

function dense(x, layer) {
  const y = Float32Array.from(layer.bias);
  addProduct(x, 0, x.length, layer.weight, 0, y);
  return y;
}

function convolve(rows, layer, kernel, stride) {
  const steps = rows.length;
  const windows = Math.ceil(steps / stride);
  const left = Math.floor(((windows - 1) * stride + kernel - steps) / 2);
  return Array.from({ length: windows }, (_, window) => {
    const y = Float32Array.from(layer.bias);
    for (let k = 0; k < kernel; k++) {
      const row = rows[Math.min(Math.max(window * stride + k - left, 0), steps - 1)];
      addProduct(row, 0, row.length, layer.weight, k * row.length * y.length, y);
    }
    return relu(y);
  });
}

function joined(...parts) {
  const out = new Float32Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

export class Policy {
  constructor(contract, weights) {
    this.contract = contract;
    const { obs, history } = contract.inputs;
    const { low, high } = contract.outputs.action;
    this.obsSize = obs.size;
    this.actionSize = contract.outputs.action.size;
    this.historyLength = history ? history.length : 0;
    this.low = low;
    this.high = high;
    this.middle = low.map((value, i) => (value + high[i]) / 2);
    this.half = low.map((value, i) => (high[i] - value) / 2);
    const layer = (name) => {
      const [weight, bias] = ["weight", "bias"].map((part) => weights[`policy.${name}.${part}`]);
      if (!weight || !bias) throw new Error(`the weights do not fit the contract: ${name} is missing`);
      return { weight, bias };
    };
    this.observe = [0, 1].map((i) => layer(`trunk.observe.layers[${i}]`));
    this.decide = [0, 1].map((i) => layer(`trunk.decide.layers[${i}]`));
    this.head = layer("trunk.head");
    if (obs.normalisation) {
      this.clip = obs.normalisation.clip;
      this.mean = weights["policy.norm.mean"];
      this.std = weights["policy.norm.variance"].map((value) => Math.max(Math.sqrt(value), obs.normalisation.min_std));
    }
    this.encoder = contract.network.encoder;
    if (this.encoder === "history-adapter") {
      this.embed = layer("encoder.embed");
      this.convolutions = contract.network.convolutions.map((shape, i) => ({
        ...shape,
        layer: layer(`encoder.convolutions[${i}]`),
      }));
      this.out = layer("encoder.out");
    } else if (this.encoder === "context-encoder") {
      this.contextLayers = [0, 1].map((i) => layer(`encoder.mlp.layers[${i}]`));
    } else if (this.encoder !== "none" && this.encoder !== "raw-context") {
      throw new Error(`unknown encoder '${this.encoder}': use the policy.mjs of that export`);
    }
    this.reset();
  }

  // Forgets the history of the masked rows; without a mask, of all, and is ready for another number of rows.
  reset(mask) {
    if (mask === undefined) this.rows = [];
    else if (this.rows.length && mask.length !== this.rows.length)
      throw new Error(`the policy acts for ${this.rows.length} rows: its mask must have as many, not ${mask.length}`);
    else this.rows.forEach((row, i) => mask[i] && this.begin(row));
  }

  // Returns the action for an observation, or one for each row, and remembers both. `executed` is what was really
  // executed since the last call, where that is not what `act` returned; `context` is for policies that read it.
  act(obs, { executed, context } = {}) {
    const single = typeof obs[0] === "number";
    const [rows, done, contexts] = single ? [[obs], executed && [executed], context && [context]] : [obs, executed, context];
    rows.forEach((row, i) => this.check(row, this.obsSize, "the observation", i));
    if (done) rows.forEach((_, i) => this.check(done[i] ?? [], this.actionSize, "the executed action", i));
    if (this.contract.context.read) {
      const size = this.contract.context.names.length;
      rows.forEach((_, i) => this.check(contexts?.[i] ?? [], size, "the context", i));
    }
    if (!this.rows.length) this.rows = rows.map(() => this.begin({}));
    if (this.rows.length !== rows.length)
      throw new Error(`the policy has acted for ${this.rows.length} rows, now for ${rows.length}: call reset() first`);
    const actions = rows.map((row, i) => this.actRow(this.rows[i], row, done?.[i], contexts?.[i]));
    return single ? actions[0] : actions;
  }

  check(values, size, what, row) {
    if (values.length !== size) throw new Error(`${what} of row ${row} must have ${size} numbers, not ${values.length}`);
    const wrong = Array.from(values).findIndex((value) => !Number.isFinite(value));
    if (wrong >= 0) throw new Error(`element ${wrong} of ${what} of row ${row} is ${values[wrong]}: nothing has changed`);
  }

  begin(row) {
    if (this.historyLength) {
      const nothing = relu(Float32Array.from(this.embed.bias));
      row.embedded = new Array(this.historyLength).fill(nothing);
    }
    row.obs = undefined;
    return row;
  }

  see(obs) {
    if (!this.mean) return Float32Array.from(obs);
    return Float32Array.from(obs, (value, i) =>
      Math.min(Math.max((Math.fround(value) - this.mean[i]) / this.std[i], -this.clip), this.clip),
    );
  }

  embedRow(obs, unit) {
    const there = [...obs, ...unit].some((value) => value !== 0);
    const seen = there ? this.see(obs) : new Float32Array(this.obsSize);
    return relu(dense(joined(seen, unit), this.embed));
  }

  latent(row, context) {
    if (this.encoder === "none") return new Float32Array(0);
    if (this.encoder === "history-adapter") {
      let rows = row.embedded;
      for (const { layer, kernel, stride } of this.convolutions) rows = convolve(rows, layer, kernel, stride);
      return relu(dense(joined(...rows), this.out));
    }
    const { centre, half_range: half } = this.contract.context;
    let z = Float32Array.from(context, (value, i) => (value - centre[i]) / half[i]);
    for (const layer of this.contextLayers ?? []) z = relu(dense(z, layer));
    return z;
  }

  actRow(row, obs, executed, context) {
    if (executed && row.obs && this.historyLength) {
      const unit = this.middle.map((middle, i) => (executed[i] - middle) / (this.half[i] || 1));
      const clipped = Float32Array.from(unit, (value) => Math.min(Math.max(value, -1), 1));
      row.embedded = [...row.embedded.slice(0, -1), this.embedRow(row.obs, clipped)];
    }
    let x = this.see(obs);
    for (const layer of this.observe) x = relu(dense(x, layer));
    x = joined(x, this.latent(row, context));
    for (const layer of this.decide) x = relu(dense(x, layer));
    const unit = dense(x, this.head).slice(0, this.actionSize).map(Math.tanh);
    row.obs = Float32Array.from(obs);
    if (this.historyLength) row.embedded = [...row.embedded.slice(1), this.embedRow(row.obs, unit)];
    return unit.map((value, i) => Math.min(Math.max(this.middle[i] + this.half[i] * value, this.low[i]), this.high[i]));
  }
}
