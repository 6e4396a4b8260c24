"""What ends a run is named: the environment, the folder, the file handles, the memory; not the learning rate."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparc
from sparc.envs.guard import EnvFailure
from sparc.errors import RunFailure

# An environment that goes wrong at its fifth step as `wrong` says.
WRONG = """
import gymnasium as gym
import numpy as np
import sparc
from sparc.envs.contextual import ContextualEnv

wrong = ""

class Wrong(gym.Env):
    observation_space = gym.spaces.Box(-9, 9, (2,), np.float64)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    drift = 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.normal(size=2), {}

    def step(self, action):
        self.steps += 1
        now = wrong if self.steps == 5 else ""
        reward = {"huge": 1e300, "negative": -1e300}.get(now, 0.0)
        return self.np_random.normal(size=2), reward, False, False, {}

class Reporting(ContextualEnv):
    def step(self, action):
        *found, info = super().step(action)
        return *found, info | ({"context": [np.nan]} if wrong == "context" and self.env.unwrapped.steps == 5 else {})

def set_drift(env, context):
    env.drift = float(context[0])

space = sparc.ContextSpace.box(drift=("m/s", (-1, 1), (-2, 2)))

def make(**options):
    return Reporting(gym.wrappers.TimeLimit(Wrong(), 40), space, set_drift)

sparc.register_env("Wrong-v0", make=make, context_space=space, max_episode_steps=40)
"""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("context", "returned NaN or infinity in a context"),
        ("huge", "returned a reward of 1e\\+300, more than the 1e\\+15"),
        ("negative", "returned a reward of -1e\\+300"),
    ],
)
def test_what_an_environment_returns_is_its_own_fault(
    wrong: str, said: str, tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wrong_env.py").write_text(WRONG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import wrong_env  # type: ignore[import-not-found]

    monkeypatch.setattr(wrong_env, "wrong", wrong)
    with pytest.raises(EnvFailure, match=said) as failure:
        sparc.train("only-obs", "wrong_env:Wrong-v0", run_dir=tmp_path / "run", updates=100, **tiny)
    assert "drift=" in str(failure.value) and "step" in str(failure.value) and "learning" not in str(failure.value)


@pytest.mark.slow
def test_a_deleted_run_is_no_full_disk(tmp_path: Path, tiny: dict[str, Any]) -> None:
    run = tmp_path / "run"

    def delete(record: dict[str, Any]) -> None:
        if record.get("updates") == 30:
            shutil.rmtree(run)

    with pytest.raises(RunFailure, match=r"its folder \S+ was moved or deleted; put it back") as failure:
        sparc.train("only-obs", "DriftingBoat-v0", run_dir=run, updates=100, report=delete, **tiny)
    assert "disk" not in str(failure.value) and not run.exists()


# `sparc` with hardly more file handles than are open already, one more each time; lines part what was said.
FEW_HANDLES = """
import os, resource, sys
import sparc.training.loop, sparc.runs.board, tensorboardX
from sparc.cli import main

used, most = len(os.listdir("/proc/self/fd")), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
codes = []
for more in range(0, 32, 2):  # a font that cannot be opened costs Matplotlib a handle each time
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + more, most))
    print("----", file=sys.stderr, flush=True)
    codes.append(main(sys.argv[1:]))
print(codes)
"""
# `sparc` with little more memory than it takes to begin.
LITTLE_MEMORY = """
import resource, sys
import sparc.training.loop
from sparc.cli import main

size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (400 << 20)
resource.setrlimit(resource.RLIMIT_AS, (size, size))
sys.exit(main())
"""


def test_too_few_file_handles_are_named(copy: Path, sparc_cli: Callable[..., Any]) -> None:
    result = sparc_cli("evaluate", copy, "--grid", 2, command=(sys.executable, "-c", FEW_HANDLES))
    answers = result.stderr.split("----\n")[1:]
    assert len(answers) == 16 and "Traceback" not in result.stderr, result.stderr
    said = [line for answer in answers for line in answer.splitlines() if line.startswith("sparc: ")]
    assert said and all("too many open files" in line and "ulimit -n" in line for line in said), said
    assert result.stdout.splitlines()[-1].endswith(", 0]"), result.stdout  # enough, in the end


def test_too_little_memory_is_named(tmp_path: Path, sparc_cli: Callable[..., Any]) -> None:
    large = ("--chunk", 50, "--batch-size", 4096, "--history-length", 200, "--random-steps", 50, "--num-envs", 5)
    words = ("train", "sparc", "DriftingBoat-v0", "--preset", "light", *large, "--run-dir", tmp_path / "run")
    result = sparc_cli(*words, command=(sys.executable, "-c", LITTLE_MEMORY))
    said = [line for line in result.stderr.splitlines() if line.startswith("sparc: ")]
    assert result.returncode == 1 and len(said) == 1 and "the memory is used up" in said[0], result
    assert "Traceback" not in result.stderr
