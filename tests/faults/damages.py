"""Damage to every kind of file of a run and of a report, read by what the commands read it with."""

from __future__ import annotations

import contextlib
import io
import shutil
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sparc.errors import SparcError
from sparc.runs import checkpoint
from sparc.runs.adaptations import adapt_run, read_adaptation
from sparc.runs.load import load
from sparc.runs.run import Run
from sparc.runs.tests import evaluate_run, read_evaluation
from sparc.suites.gather import gather
from sparc.suites.plan import add_to_plan
from sparc.suites.tables import read, write
from sparc.training.loop import Trainer
from sparc.training.train import train

TINY: dict[str, Any] = {
    "width": 16, "latent": 8, "history_length": 5, "num_quantiles": 4, "batch_size": 8, "num_envs": 5,
    "random_steps": 50, "replay_capacity": 400, "chunk": 10, "log_every": 20, "evaluate_every": 100,
}  # fmt: skip
SUITE = {"methods": ["sparc"], "envs": ["DriftingBoat-v0"], "seeds": [0], "updates": 200, "grid": 3, "config": TINY}
MEMBER = Path("DriftingBoat-v0", "sparc", "seed0")
REPORT = "report"


def make_files(folder: Path) -> Path:
    """Train, test and report one small run; return the suite's folder."""
    import yaml

    (folder / "own.yaml").write_text(yaml.safe_dump(SUITE))
    suite = add_to_plan(str(folder / "own.yaml"), folder / "suite")
    (member,) = suite.members()
    fields = {name: value for name, value in member.config.to_dict().items() if name not in ("method", "env")}
    run = Run.open(train("sparc", member.config.env, run_dir=folder / "suite" / member.path, **fields))
    evaluate_run(run, 3, 1, "best", None)
    adapt_run(run, run.choose("best"), 3)
    write(gather(suite, folder / "suite"), folder / "suite" / REPORT)
    return folder / "suite"


def acting(suite: Path) -> Any:
    """What loading a policy gives: its actions."""
    policy = load(suite / MEMBER)
    return np.asarray(policy.act(np.linspace(-1, 1, policy.spec.obs_size)[None].repeat(3, 0)))


def resumed(suite: Path) -> Any:
    """What resuming a run begins from: its whole state, its replay's rows and its metrics."""
    run = Run.open(suite / MEMBER)
    run.verify_config()  # as the command line does, before it takes the run
    run.lock()
    try:
        run.verify_config()
        notes: list[str] = []
        trainer = Trainer(run, lambda record: notes.append(str(record.get("note", ""))))
        print("\n".join(notes))
        arrays = checkpoint.flatten(trainer.state, "") | trainer.collector.get_state() | trainer.replay.cursor()
        batch = trainer.replay.sample(np.random.default_rng(0), (64,), history=True, next_history=False)
        kept = [{k: v for k, v in record.items() if k != "crc32"} for record in run.records()]
        trainer.close()
        return {name: np.asarray(array).tobytes() for name, array in arrays.items()}, str(kept), str(batch)
    finally:
        run.close()


def tested(suite: Path) -> Any:
    """What an evaluation is read as."""
    run = Run.open(suite / MEMBER)
    found = read_evaluation(run.evaluations / f"{run.choose('best')}-grid3")
    return found.returns, found.contexts, found.lengths, found.terminated


def adapted(suite: Path) -> Any:
    """What a trace and latents are read as."""
    run = Run.open(suite / MEMBER)
    trace, latents = read_adaptation(run, run.choose("best"), 3)
    return [*vars(trace).values(), *vars(latents).values()]


def reported(suite: Path) -> Any:
    """What a report is made from."""
    results = read(suite / REPORT)
    part = results.envs["DriftingBoat-v0"]
    return str(results.manifest), str([part.returns, part.measures, part.curves, part.traces, part.latents])


RUN = f"{MEMBER.as_posix()}/"
# The files, by the name that the table shows, and who reads them.
FILES: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "config.yaml, resume": (RUN + "config.yaml", resumed),
    "config.yaml, load": (RUN + "config.yaml", acting),
    "manifest.json of a run": (RUN + "manifest.json", resumed),
    "metrics.jsonl": (RUN + "metrics.jsonl", resumed),
    "replay rows": (RUN + "replay/rows.npy", resumed),
    "checkpoint.json, resume": (RUN + "checkpoints/*/checkpoint.json", resumed),
    "checkpoint.json, load": (RUN + "checkpoints/*/checkpoint.json", acting),
    "arrays.safetensors": (RUN + "checkpoints/*/arrays.safetensors", resumed),
    "policy.safetensors": (RUN + "checkpoints/*/policy.safetensors", acting),
    "rows of an evaluation": (RUN + "evaluations/*-grid3.csv", tested),
    "summary of an evaluation": (RUN + "evaluations/*-grid3.json", tested),
    "trace, latents and their seal": (RUN + "evaluations/*-[atl]*", adapted),
    "tables of a report": (f"{REPORT}/*.csv", reported),
    "manifest of a report": (f"{REPORT}/manifest.json", reported),
}


def damage(data: bytes, rng: np.random.Generator) -> bytes:
    """Return other bytes: a flipped bit, another digit, a stretch of zeros, a lost byte, or an end that is missing."""
    changed, at = bytearray(data), int(rng.integers(len(data)))
    digits = [i for i in range(at, min(at + 200, len(data))) if chr(data[i]).isdigit()]
    match int(rng.integers(5)):
        case 0:
            changed[at] ^= 1 << int(rng.integers(8))
        case 1 if digits:
            changed[digits[0]] = ord("0") + (data[digits[0]] - ord("0") + 1 + int(rng.integers(8))) % 10
        case 2:
            changed[at : at + 64] = bytes(len(changed[at : at + 64]))
        case 3:
            del changed[at]
        case _:
            del changed[at:]
    return bytes(changed)


class Damages:
    """Damages files of a suite one at a time and puts them back."""

    def __init__(self, folder: Path, seed: int):
        self.seed, self.sound = seed, make_files(folder)
        self.work = folder / "work"
        shutil.copytree(self.sound, self.work)
        self.expected = {read: self.run(read)[1] for _, read in FILES.values()}
        assert None not in self.expected.values(), "sound files must be read"

    def run(self, read: Callable[[Path], Any]) -> tuple[str, Any, str]:
        """Return how reading ended, what was read, and what was said."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return "read", repr(as_text(read(self.work))), said.getvalue().strip()
            except (SparcError, OSError) as error:
                return "refused", None, str(error)
            except Exception:
                return "crash", None, traceback.format_exc()

    def attempt(self, kind: str, number: int) -> tuple[str, str]:
        """Damage a file of a kind, read it, and put everything back."""
        pattern, read = FILES[kind]
        rng = np.random.default_rng([self.seed, list(FILES).index(kind), number])
        files = sorted(self.work.glob(pattern))
        file = files[int(rng.integers(len(files)))]
        data = file.read_bytes()
        file.write_bytes(other := damage(data, rng))
        how, found, said = self.run(read)
        if read is resumed:  # the only one that writes
            shutil.rmtree(self.work / MEMBER)
            shutil.copytree(self.sound / MEMBER, self.work / MEMBER)
        else:
            file.write_bytes(data)
        if how == "crash":
            return "crash", said
        if how == "refused" or said:
            return "named", ""
        if found == self.expected[read] or other == data:
            return "harmless", ""
        return "silent", f"{file.name}: {describe(data, other)}"


def describe(data: bytes, other: bytes) -> str:
    """Return where two contents part, and how."""
    at = next((i for i, (a, b) in enumerate(zip(data, other, strict=False)) if a != b), min(len(data), len(other)))
    return f"from byte {at} of {len(data)}, {data[at : at + 40]!r} became {other[at : at + 40]!r}"


def as_text(value: Any) -> Any:
    """Return a value that is equal only where every number is: arrays as their bytes."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return [as_text(each) for each in value] if isinstance(value, (list, tuple)) else value
