"""A control loop around policy.onnx with onnxruntime: python control_loop.py EXPORT

The observations come from the recorded check of the export; on a robot, read_sensors and drive are yours.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime


def read_sensors(folder: Path) -> Iterator[tuple[bool, np.ndarray, np.ndarray]]:
    """Yield whether an episode begins, what is seen, and here also what the trained policy did."""
    sys.path.insert(0, str(folder))
    import sparc_policy

    trace = sparc_policy.read_tensors(folder, sparc_policy.CHECK, sparc_policy.read_contract(folder))
    for start, obs, action in zip(trace["start"], trace["obs"], trace["action"], strict=True):
        yield bool(start), obs, action


def main(folder: Path, speed: float) -> None:
    """Run the loop and say how far its actions are from the recorded ones."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # the network is too small for more
    session = onnxruntime.InferenceSession(folder / "policy.onnx", options, providers=["CPUExecutionProvider"])
    contract = json.loads(session.get_modelmeta().custom_metadata_map["sparc_contract"])
    period, history = contract["control"]["period_s"], contract["inputs"]["history"]
    if contract["context"]["read"] or not period:
        sys.exit("this loop is for policies that read no context and whose contract has a period")
    state: dict[str, np.ndarray] = {}
    difference, late, steps, due = 0.0, 0.0, 0, time.perf_counter()
    for start, obs, recorded in read_sensors(folder):
        if start and history:
            state = {"history": np.zeros((1, history["length"], history["width"]), np.float32)}
        action, *rest = session.run(None, {"obs": obs[None], **state})
        if history:  # it holds unit actions: never feed back the scaled ones
            state = {"history": rest[0]}
        difference = max(difference, float(np.abs(action[0] - recorded).max()))  # here: drive(action[0])
        steps, due = steps + 1, due + period / speed
        time.sleep(max(0.0, due - time.perf_counter()))
        late = max(late, time.perf_counter() - due)
    print(f"{steps} steps, largest difference {difference:.1e}, latest wake-up {1e6 * late:.0f} us")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: control_loop.py EXPORT [SPEED]")
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 1.0)
