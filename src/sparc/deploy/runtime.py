"""Acts with an exported SPARC policy. Needs Python 3.9 and NumPy, nothing else; reads files, never executes them.

    import sparc_policy
    policy = sparc_policy.load("path/of/the/export")
    policy.reset()                   # before each episode
    action = policy.act(obs)         # once per control period: obs (O,) or (N, O) for N robots side by side

`python sparc_policy.py DIR` repeats the recorded check of an export and prints the largest difference. What the numbers
mean is in contract.json. In the package this file is sparc/deploy/runtime.py; `sparc export` copies it.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = 1  # of the contract: the newest that this file reads
KIND = "sparc-policy"
CONTRACT, WEIGHTS, CHECK = "contract.json", "policy.safetensors", "check.safetensors"
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "<u1", "BOOL": "?"}


class PolicyError(ValueError):
    """An export that cannot be used, or an input that the policy refuses."""


# Files


def read_contract(folder: str | Path) -> dict[str, Any]:
    """Read the contract of an export; refuse one that is newer than this file."""
    path = Path(folder) / CONTRACT
    try:
        contract = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PolicyError(f"{folder} is no exported policy: {CONTRACT}: {error.strerror}") from None
    except ValueError:
        raise PolicyError(f"{path} is no JSON: export the policy again") from None
    if not isinstance(contract, dict) or contract.get("kind") != KIND or type(contract.get("format")) is not int:
        raise PolicyError(f"{path} is not the contract of an exported policy")
    if contract["format"] > FORMAT:
        newer = f"{path} has format {contract['format']}, this reader knows up to {FORMAT}"
        raise PolicyError(f"{newer}: use the sparc_policy.py of that export, or upgrade sparc-rl")
    return contract


def read_tensors(folder: str | Path, name: str, contract: dict[str, Any]) -> dict[str, np.ndarray]:
    """Read a safetensors file of an export and compare its checksum."""
    path = Path(folder) / name
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PolicyError(f"{folder} is no whole export: {name}: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != contract.get("checksums", {}).get(name):
        raise PolicyError(f"the checksum of {path} is not the one in {CONTRACT}: export the policy again")
    try:
        return parse_safetensors(data)
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise PolicyError(f"{path} is damaged: {error}") from None


def parse_safetensors(data: bytes) -> dict[str, np.ndarray]:
    """Return the arrays of a safetensors file: 8 bytes of length, a JSON header, raw little-endian numbers."""
    (length,) = struct.unpack_from("<Q", data)
    if length > len(data) - 8:
        raise ValueError("its header is longer than the file")
    header, body, arrays = json.loads(data[8 : 8 + length]), memoryview(data)[8 + length :], {}
    header.pop("__metadata__", None)
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype, shape = np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"])
        if not 0 <= begin <= end <= len(body) or any(size < 0 for size in shape):
            raise ValueError(f"{name} lies outside the file")
        if end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{name} does not have the bytes of its shape {shape}")
        arrays[name] = np.frombuffer(body[begin:end], dtype).reshape(shape)
    return arrays


def load(folder: str | Path) -> Policy:
    """Return the policy of an export."""
    contract = read_contract(folder)
    weights = read_tensors(folder, WEIGHTS, contract)
    try:
        return Policy(contract, weights)
    except (KeyError, TypeError) as error:
        raise PolicyError(f"{CONTRACT} in {folder} is not whole: {error}") from None


def layer_shapes(contract: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return the layers of the policy's networks in order: name → inputs, outputs."""
    network, contexts = contract["network"], len(contract["context"]["names"])
    obs, actions = contract["inputs"]["obs"]["size"], contract["outputs"]["action"]["size"]
    width, latent, encoder = network["width"], network["latent"], network["encoder"]
    shapes: dict[str, tuple[int, int]] = {}
    if encoder == "context-encoder":
        shapes |= {"encoder.mlp.layers[0]": (contexts, latent), "encoder.mlp.layers[1]": (latent, latent)}
    elif encoder == "history-adapter":
        shapes["encoder.embed"] = (obs + actions, latent)
        channels, steps = latent, contract["inputs"]["history"]["length"]
        for index, layer in enumerate(network["convolutions"]):
            shapes[f"encoder.convolutions[{index}]"] = (layer["kernel"] * channels, layer["filters"])
            channels, steps = layer["filters"], -(-steps // layer["stride"])
        shapes["encoder.out"] = (steps * channels, latent)
    elif encoder not in ("none", "raw-context"):
        raise PolicyError(f"unknown encoder '{encoder}': use the sparc_policy.py of that export, or upgrade sparc-rl")
    joined = {"none": 0, "raw-context": contexts}.get(encoder, latent)
    shapes |= {"trunk.observe.layers[0]": (obs, width), "trunk.observe.layers[1]": (width, width)}
    shapes |= {"trunk.decide.layers[0]": (width + joined, width), "trunk.decide.layers[1]": (width, width)}
    return shapes | {"trunk.head": (width, 2 * actions)}  # means, then log standard deviations


def window_index(steps: int, kernel: int, stride: int) -> np.ndarray:
    """Return which steps each window of a convolution with edge padding covers, (windows · kernel,)."""
    windows = -(-steps // stride)
    left = ((windows - 1) * stride + kernel - steps) // 2
    return np.clip(np.arange(windows)[:, None] * stride + np.arange(kernel) - left, 0, steps - 1).reshape(-1)


class Policy:
    """Acts for one robot, or for N side by side, and keeps the history of each.

    `set_weights` swaps the networks in place. All actions are in the units of the contract; inside, and in the history,
    they are unit actions in [-1, 1].
    """

    def __init__(self, contract: dict[str, Any], weights: dict[str, np.ndarray]):
        self.contract, self.reads = contract, contract["reads"]
        obs, action, history = contract["inputs"]["obs"], contract["outputs"]["action"], contract["inputs"]["history"]
        self.obs_size, self.action_size, self.obs_names = int(obs["size"]), int(action["size"]), obs["names"]
        self.history_length = int(history["length"]) if history else 0
        self.context_size = len(contract["context"]["names"]) if contract["context"]["read"] else 0
        self.low, self.high = (np.array(action[bound], action["dtype"]) for bound in ("low", "high"))
        self.middle, self.half = (self.high + self.low) / 2, (self.high - self.low) / 2
        scale = contract["context"]
        self._centre, self._half_range = np.float32(scale["centre"]), np.float32(scale["half_range"])
        self._log_std_range = contract["network"]["log_std_range"]
        self._clip = obs["normalisation"]["clip"] if obs["normalisation"] else None
        self._shapes = layer_shapes(contract)
        self._windows, steps = [], self.history_length
        for layer in contract["network"]["convolutions"]:
            self._windows.append(window_index(steps, layer["kernel"], layer["stride"]))
            steps = -(-steps // layer["stride"])
        self._rows = 0  # 0: as many as the next call brings
        self.set_weights(weights)

    def set_weights(self, weights: dict[str, np.ndarray]) -> None:
        """Swap the networks, named as in policy.safetensors; the history stays."""
        layers = {
            name: (_array(weights, f"policy.{name}.weight", shape), _array(weights, f"policy.{name}.bias", shape[1:]))
            for name, shape in self._shapes.items()
        }
        if self._clip is not None:
            least = np.float32(self.contract["inputs"]["obs"]["normalisation"]["min_std"])
            variance = _array(weights, "policy.norm.variance", (self.obs_size,))
            self._mean = _array(weights, "policy.norm.mean", (self.obs_size,))
            self._std = np.maximum(np.sqrt(variance), least)
        self._observe, self._decide_layers, self._context_layers, self._convolutions = (
            [layer for name, layer in layers.items() if name.startswith(prefix)]
            for prefix in ("trunk.observe", "trunk.decide", "encoder.mlp", "encoder.convolutions")
        )
        self._head = layers["trunk.head"]
        self._mode_head = tuple(np.ascontiguousarray(part[..., : self.action_size]) for part in self._head)
        if self.history_length:
            self._embed, self._out = layers["encoder.embed"], layers["encoder.out"]
            if self._rows:
                self._embedded[:] = self._embed_rows(self._history)

    # Acting

    def reset(self, mask: Any = None) -> None:
        """Forget the history of the masked rows; without a mask, of all, and be ready for another number of rows."""
        if mask is None:
            self._rows = 0
        elif self._rows:
            mask = np.asarray(mask, bool)
            if mask.shape != (self._rows,):
                raise PolicyError(f"the policy acts for {self._rows} rows: its mask needs as many, not {mask.shape}")
            self._forget(mask)

    def act(self, obs: Any, *, executed: Any = None, context: Any = None) -> np.ndarray:
        """Return the action for each observation and remember both.

        `executed` is what was really executed since the last call, where that is not what `act` returned: the driver
        took over, an actuator saturated. It takes the place of the last action in the history.
        """
        action = self.scale(self.choose(obs, executed, context))
        return action[0] if np.ndim(obs) == 1 else action

    def sample(self, obs: Any, rng: np.random.Generator, *, executed: Any = None, context: Any = None) -> np.ndarray:
        """Return actions with the noise of the policy's own distribution, as in training, and remember them."""
        action = self.scale(self.choose(obs, executed, context, rng))
        return action[0] if np.ndim(obs) == 1 else action

    def choose(self, obs: Any, executed: Any = None, context: Any = None, rng: Any = None) -> np.ndarray:
        """Return unit actions (N, A) in [-1, 1], drawn if there is an rng, and remember them."""
        rows = _vectors(obs, self.obs_size, "observation", names=self.obs_names)
        if self._rows and self._rows != len(rows):
            raise PolicyError(f"the policy has acted for {self._rows} rows, now for {len(rows)}: call reset() first")
        z = self._read_context(context, len(rows))
        if executed is not None:
            executed = _vectors(executed, self.action_size, "executed action", len(rows))
        if not self._rows:
            self._start(len(rows))
        seen = self._seen(rows)
        if not self.history_length:
            return self._decide(seen, z, rng)
        if executed is not None:
            self._execute(executed)
        end = self._end
        unit = self._decide(seen, self._latent(self._embedded[:, end - self.history_length : end]), rng)
        self._push(rows, seen, unit)
        return unit

    def predict(
        self, obs: Any, state: Any = None, episode_start: Any = None, context: Any = None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return actions and the next state, in the convention of other libraries; the policy itself remembers nothing.

        The state is the history (N, H, O+A), None at first, and None for policies that read none. Rows whose
        `episode_start` is true begin with an empty one.
        """
        rows = _vectors(obs, self.obs_size, "observation", names=self.obs_names)
        z = self._read_context(context, len(rows))
        if self.history_length:
            shape = (len(rows), self.history_length, self.obs_size + self.action_size)
            state = np.zeros(shape, np.float32) if state is None else np.array(state, np.float32)
            if state.shape != shape:
                raise PolicyError(f"the state must have the shape {shape}, not {state.shape}")
            if episode_start is not None:
                state[np.broadcast_to(np.asarray(episode_start, bool), len(rows))] = 0.0
            z = self._latent(self._embed_rows(state))
        unit = self._decide(self._seen(rows), z, None)
        if state is not None and self.history_length:
            state = np.concatenate([state[:, 1:], np.concatenate([rows, unit], axis=1)[:, None]], axis=1)
        action = self.scale(unit)
        return (action[0] if np.ndim(obs) == 1 else action), state if self.history_length else None

    @property
    def history(self) -> np.ndarray:
        """The history (N, H, O+A) that the next action will be chosen by: oldest first, unit actions."""
        if not self._rows or not self.history_length:
            return np.zeros((self._rows, self.history_length, self.obs_size + self.action_size), np.float32)
        return self._history[:, self._end - self.history_length : self._end].copy()

    def scale(self, unit: np.ndarray) -> np.ndarray:
        """Return unit actions in the units of the contract."""
        return np.minimum(np.maximum(self.middle + self.half * unit, self.low), self.high)

    # Inside

    def _read_context(self, context: Any, rows: int) -> np.ndarray | None:
        """Return the scaled context, or ψ of it, for policies that read it."""
        if not self.context_size:
            return None
        if context is None:
            raise PolicyError("this policy reads the true context: call act(obs, context=…)")
        z = (_vectors(context, self.context_size, "context", rows) - self._centre) / self._half_range
        for layer in self._context_layers:
            z = _relu(z, layer)
        return z

    def _seen(self, obs: np.ndarray) -> np.ndarray:
        """Standardise observations, where the policy does."""
        if self._clip is None:
            return obs
        with np.errstate(over="ignore"):  # a huge number is clipped like any other
            return np.minimum(np.maximum((obs - self._mean) / self._std, -self._clip), self._clip)

    def _start(self, rows: int) -> None:
        self._rows, size = rows, 2 * self.history_length
        if self.history_length:
            # Twice as long as the history: rows are moved to the front only when the end is reached.
            self._history = np.zeros((rows, size, self.obs_size + self.action_size), np.float32)
            self._embedded = np.empty((rows, size, len(self._embed[1])), np.float32)
            self._known = np.zeros(rows, bool)  # rows that have acted since their reset
            self._end = self.history_length
            self._forget(np.ones(rows, bool))

    def _forget(self, mask: np.ndarray) -> None:
        if self.history_length:
            self._history[mask], self._known[mask] = 0.0, False
            self._embedded[mask] = np.maximum(self._embed[1], 0.0)

    def _push(self, obs: np.ndarray, seen: np.ndarray, unit: np.ndarray) -> None:
        if self._end == self._history.shape[1]:
            for buffer in (self._history, self._embedded):
                buffer[:, : self.history_length] = buffer[:, self.history_length :]
            self._end = self.history_length
        row = self._history[:, self._end]
        row[:, : self.obs_size], row[:, self.obs_size :] = obs, unit
        self._embedded[:, self._end] = self._embed_rows(row, seen)
        self._known[:] = True
        self._end += 1

    def _execute(self, executed: np.ndarray) -> None:
        """Put what was executed in the place of the last action of the rows that have acted."""
        unit = np.clip((executed - self.middle) / np.where(self.half > 0, self.half, 1.0), -1.0, 1.0)
        row = self._history[:, self._end - 1]
        row[self._known, self.obs_size :] = unit[self._known]
        self._embedded[:, self._end - 1] = self._embed_rows(row)

    def _embed_rows(self, rows: np.ndarray, seen: np.ndarray | None = None) -> np.ndarray:
        """Embed rows (…, O+A) of a history; those of zeros are before the episode and stay zeros."""
        if self._clip is not None:
            seen = self._seen(rows[..., : self.obs_size]) if seen is None else seen
            if not (there := rows.any(axis=-1, keepdims=True)).all():
                seen = np.where(there, seen, np.float32(0.0))
            rows = np.concatenate([seen, rows[..., self.obs_size :]], axis=-1)
        return _relu(rows, self._embed)

    def _latent(self, x: np.ndarray) -> np.ndarray:
        """Return φ(h) of an embedded history (N, H, Z)."""
        rows = len(x)
        for index, layer in zip(self._windows, self._convolutions):  # noqa: B905 (strict= needs Python 3.10)
            x = _relu(x.take(index, axis=1).reshape(rows, -1, len(layer[0])), layer)
        return _relu(x.reshape(rows, -1), self._out)

    def _decide(self, x: np.ndarray, z: np.ndarray | None, rng: np.random.Generator | None) -> np.ndarray:
        for layer in self._observe:
            x = _relu(x, layer)
        if z is not None:
            x = np.concatenate([x, z], axis=1)
        for layer in self._decide_layers:
            x = _relu(x, layer)
        if rng is None:
            weight, bias = self._mode_head
            return np.tanh(x @ weight + bias)
        weight, bias = self._head
        mean, log_std = np.split(x @ weight + bias, 2, axis=1)
        low, high = self._log_std_range  # a tanh is stretched to it
        std = np.exp(low + 0.5 * (high - low) * (np.tanh(log_std) + 1.0))
        return np.tanh(mean + std * rng.standard_normal(mean.shape, np.float32))


def _relu(x: np.ndarray, layer: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return an affine layer and a ReLU on the last axis."""
    y: np.ndarray = x @ layer[0]
    y += layer[1]
    return np.maximum(y, 0.0, out=y)


def _vectors(values: Any, size: int, what: str, rows: int | None = None, names: list[str] | None = None) -> np.ndarray:
    """Return (N, size) numbers, all finite, or name what is wrong."""
    try:
        found = np.asarray(values, np.float32)
    except (TypeError, ValueError):
        raise PolicyError(f"the {what} must be {size} numbers, got {str(values)[:60]}") from None
    found = found[None] if found.ndim == 1 else found
    if found.ndim != 2 or found.shape[1] != size or not len(found) or len(found) != (rows or len(found)):
        many = f"{rows} times " if rows and rows > 1 else ""
        raise PolicyError(f"the {what} must be {many}{size} numbers, got the shape {np.shape(values)}")
    if not (finite := np.isfinite(found)).all():
        row, column = np.argwhere(~finite)[0]
        name, where = f" ({names[column]})" if names else "", f" of row {row}" if len(found) > 1 else ""
        value = found[row, column]
        raise PolicyError(f"element {column}{name} of the {what}{where} is {value}: the history is unchanged")
    return found


def _array(weights: dict[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    found = weights[name].shape if name in weights else "nothing"
    if found != shape:
        raise PolicyError(f"the weights do not fit the contract: {name} should have the shape {shape}, found {found}")
    return np.array(weights[name], np.float32, order="C")  # a copy: the caller may overwrite its own


# The check


def check(folder: str | Path) -> tuple[float, float]:
    """Repeat the recorded trace of an export; return the largest difference of unit actions, and seconds per step."""
    policy = load(folder)
    trace = read_tensors(folder, CHECK, policy.contract)
    contexts = trace.get("context", [None] * len(trace["obs"]))
    units, began = [], time.process_time()
    for obs, start, context in zip(trace["obs"], trace["start"], contexts):  # noqa: B905
        if start:
            policy.reset()
        units.append(policy.choose(obs, context=context)[0])
    seconds = (time.process_time() - began) / len(units)
    return float(np.abs(np.stack(units) - trace["unit"]).max()), seconds


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python sparc_policy.py DIR")
    try:
        difference, seconds = check(sys.argv[1])
    except PolicyError as error:
        sys.exit(f"sparc_policy: {error}")
    print(f"largest difference {difference:.1e}, {1e6 * seconds:.0f} µs per step")
