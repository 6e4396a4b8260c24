"""Every runtime of an export behind the same calls, `reset()` and `act(obs)`, for checks, benches and tests."""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sparc.deploy import runtime
from sparc.deploy.c_source import SOURCE
from sparc.deploy.export import MODEL, RUNTIME, SCRIPT
from sparc.errors import RunFailure, UserError

C_FLAGS = ("-std=c99", "-O2", "-Wall", "-Werror", "-shared", "-fPIC")
# What the header does not give: the size of a policy, for memory that Python owns, and the time of a step inside C.
C_EXTRA = """
#include <time.h>
#include "policy.h"
unsigned long sparc_size(void) { return sizeof(sparc_policy); }
#if SPARC_CONTEXTS
double sparc_seconds(sparc_policy *policy, int steps, const float *obs, const float *context, float *action)
#else
double sparc_seconds(sparc_policy *policy, int steps, const float *obs, float *action)
#endif
{
    const clock_t began = clock();
    for (int step = 0; step < steps; step++)
#if SPARC_CONTEXTS
        sparc_act(policy, obs, context, action);
#else
        sparc_act(policy, obs, action);
#endif
    return (double)(clock() - began) / CLOCKS_PER_SEC / steps;
}
"""
COMPILER_SECONDS, NODE_SECONDS = 120, 60
REPEATS = 5  # of the trace, for its time per step


class OnnxPolicy:
    """policy.onnx in onnxruntime on one thread, with its history kept here."""

    def __init__(self, folder: Path):
        try:
            import onnxruntime
        except ImportError:
            raise UserError("onnxruntime is not installed: pip install 'sparc-rl[deploy]'.") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        path = str(folder / MODEL)
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._shapes = {entry.name: entry.shape for entry in self.session.get_inputs()}
        self._outputs = [entry.name for entry in self.session.get_outputs()]
        self._history: np.ndarray | None = None

    def reset(self) -> None:
        """Forget the history."""
        self._history = None

    def act(self, obs: np.ndarray, context: np.ndarray | None = None) -> np.ndarray:
        """Return actions for (O,) or (N, O)."""
        rows = np.atleast_2d(obs).astype(np.float32, copy=False)
        inputs = {"obs": rows}
        if "history" in self._shapes:
            if self._history is None:
                self._history = np.zeros((len(rows), *self._shapes["history"][1:]), np.float32)
            inputs["history"] = self._history
        if "context" in self._shapes:
            inputs["context"] = np.atleast_2d(np.asarray(context, np.float32))
        action, *rest = self.session.run(self._outputs, inputs)
        self._history = rest[0] if rest else None
        return np.asarray(action[0] if np.ndim(obs) == 1 else action)


class CPolicy:
    """policy.c, compiled and called through ctypes, for one robot."""

    def __init__(self, folder: Path):
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise UserError("policy.c needs a C compiler: install gcc.")
        self._contract = runtime.read_contract(folder)
        with tempfile.TemporaryDirectory() as place:
            extra, library = Path(place) / "extra.c", Path(place) / "policy.so"
            extra.write_text(C_EXTRA)
            command = [compiler, *C_FLAGS, f"-I{folder}", str(extra), str(folder / SOURCE), "-lm", "-o", str(library)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILER_SECONDS, check=False)
            if done.returncode:
                raise RunFailure(f"policy.c was not compiled: {(done.stderr.splitlines() or ['no message'])[0]}")
            self._library = ctypes.CDLL(str(library))  # stays loaded when the file is gone
        self._library.sparc_size.restype = ctypes.c_ulong
        self._library.sparc_seconds.restype = ctypes.c_double
        self._state = ctypes.create_string_buffer(self._library.sparc_size())
        self._action = np.zeros(self._contract["outputs"]["action"]["size"], np.float32)
        self.reset()

    def reset(self) -> None:
        """Forget the history."""
        self._library.sparc_reset(self._state)

    def act(self, obs: np.ndarray, context: np.ndarray | None = None) -> np.ndarray:
        """Return the action for (O,)."""
        inputs = [np.ascontiguousarray(part, np.float32) for part in (obs, context) if part is not None]
        wrong = self._library.sparc_act(self._state, *map(_pointer, inputs), _pointer(self._action))
        if wrong:
            raise runtime.PolicyError(f"element {wrong - 1} of the observation is not finite: the history is unchanged")
        return self._action.copy()

    def seconds(self, obs: np.ndarray, context: np.ndarray | None = None, steps: int = 2_000) -> float:
        """Return the processor time of a step inside C, the best of several stretches."""
        inputs = [np.ascontiguousarray(part, np.float32) for part in (obs, context) if part is not None]
        given = (*map(_pointer, inputs), _pointer(self._action))
        return min(self._library.sparc_seconds(self._state, steps, *given) for _ in range(REPEATS))

    def executed(self, action: np.ndarray) -> None:
        """Record that something else was executed than what act returned."""
        self._library.sparc_executed(self._state, _pointer(np.ascontiguousarray(action, np.float32)))


def _pointer(array: np.ndarray) -> Any:
    return array.ctypes.data_as(ctypes.c_void_p)


class Checked(NamedTuple):
    """A runtime's result: the largest difference of unit actions and µs per step, or why there is none."""

    runtime: str
    difference: float = float("nan")
    microseconds: float = float("nan")
    missing: str = ""


def check_export(folder: Path) -> list[Checked]:
    """Repeat the recorded trace in every runtime that the folder has."""
    try:
        contract = runtime.read_contract(folder)
        runtime.load(folder)
        if runtime.CHECK not in contract["checksums"]:
            raise UserError(f"{folder} was exported with --no-check: there is nothing to compare with.")
        trace = runtime.read_tensors(folder, runtime.CHECK, contract)
    except runtime.PolicyError as error:
        raise UserError(f"{error}.") from error
    ways: dict[str, tuple[str, Callable[[], tuple[float, float]]]] = {
        "NumPy": (RUNTIME, lambda: numpy_check(folder)),
        "onnxruntime": (MODEL, lambda: stepwise(OnnxPolicy(folder), trace, contract)),
        "C, -O2": (SOURCE, lambda: stepwise(CPolicy(folder), trace, contract)),
        "Node": (SCRIPT, lambda: node_check(folder, trace, contract)),
    }
    found = []
    for name, (file, run) in ways.items():
        if not (folder / file).is_file():
            continue
        try:
            found.append(Checked(name, *run()))
        except UserError as error:  # a compiler or a library is missing
            found.append(Checked(name, missing=str(error)))
    return found


def difference(actions: np.ndarray, trace: dict[str, np.ndarray], contract: dict[str, Any]) -> float:
    """Return the largest difference of actions (T, A) from the recorded ones, in unit actions."""
    low, high = (np.array(contract["outputs"]["action"][name]) for name in ("low", "high"))
    half = np.where(high > low, (high - low) / 2, 1.0)
    return float(np.abs((actions - trace["action"]) / half).max())


def stepwise(
    policy: OnnxPolicy | CPolicy, trace: dict[str, np.ndarray], contract: dict[str, Any]
) -> tuple[float, float]:
    """Repeat the trace in this process; return the largest difference and µs of processor time per step."""
    contexts = trace.get("context")
    best = float("inf")
    for _ in range(REPEATS):
        actions, began = [], time.process_time()
        for step, obs in enumerate(trace["obs"]):
            if trace["start"][step]:
                policy.reset()
            actions.append(policy.act(obs) if contexts is None else policy.act(obs, contexts[step]))
        best = min(best, (time.process_time() - began) / len(actions))
    return difference(np.stack(actions), trace, contract), 1e6 * best


def numpy_check(folder: Path) -> tuple[float, float]:
    """Run the folder's own sparc_policy.py in a process of its own, as on a robot."""
    command = [sys.executable, "-I", str(folder / RUNTIME), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.fullmatch(r"largest difference (\S+), (\S+) µs per step\n", done.stdout)
    if done.returncode or not found:
        raise RunFailure(f"{RUNTIME} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return float(found[1]), float(found[2])


START = """
import sys, time
sys.path.insert(0, sys.argv[1])
began = time.process_time()
import sparc_policy
sparc_policy.load(sys.argv[1])
seconds = time.process_time() - began
print(seconds, *(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""


def numpy_start(folder: Path) -> dict[str, float]:
    """Return what a fresh Python needs to import the folder's sparc_policy.py and to load the policy."""
    command = [sys.executable, "-I", "-c", START, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, kilobytes = map(float, done.stdout.split())
    return {"start_processor_s": round(seconds, 3), "process_mb": round(1.024e-3 * kilobytes, 1)}


NODE_CHECK = """
import {{ readFileSync }} from "node:fs";
const {{ load }} = await import({module});
const trace = JSON.parse(readFileSync(0));
const policy = await load({folder});
let actions, best = Infinity;
for (let repeat = 0; repeat < {repeats}; repeat++) {{
  const began = process.cpuUsage();
  actions = trace.obs.map((obs, step) => {{
    if (trace.start[step]) policy.reset();
    return [...policy.act(obs, {{ context: trace.context?.[step] }})];
  }});
  const {{ user, system }} = process.cpuUsage(began);
  best = Math.min(best, (user + system) / actions.length);
}}
console.log(JSON.stringify({{ actions, microseconds: best }}));
"""


def node_check(folder: Path, trace: dict[str, np.ndarray], contract: dict[str, Any]) -> tuple[float, float]:
    """Repeat the trace in Node."""
    node = shutil.which("node")
    if node is None:
        raise UserError("Node is not installed.")
    where = folder.resolve()
    script = NODE_CHECK.format(
        module=json.dumps((where / SCRIPT).as_uri()), folder=json.dumps(str(where)), repeats=REPEATS
    )
    given = json.dumps({name: array.tolist() for name, array in trace.items()})
    command = [node, "--input-type=module", "--eval", script]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=NODE_SECONDS, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "Error" in line] or ["no message"]
        raise RunFailure(f"{SCRIPT} failed: {lines[0]}")
    answer = json.loads(done.stdout)
    return difference(np.array(answer["actions"]), trace, contract), answer["microseconds"]
