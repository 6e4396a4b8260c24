"""What runs in a worker, here without Ray: grants, weights, phases, failures, the clock."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import worlds
from pooling import wait_for

import sparc
from sparc.acting.history import History
from sparc.config import make_config
from sparc.deploy.contract import describe_policy
from sparc.envs.registry import get_env, make_vector_env
from sparc.errors import RunFailure, UserError
from sparc.methods import get_method
from sparc.methods.build import encoder_name
from sparc.methods.nets import Inputs
from sparc.runs import checkpoint
from sparc.runs.load import make_spec
from sparc.runs.stages import Lineage, Stage
from sparc.training.blocks import RANDOM
from sparc.training.replay import Replay
from sparc.training.workers.rollout import Clock, Reply, Rollout, RolloutSetup, Task, Weights

BOAT = "DriftingBoat-v0"
Start = Callable[..., Rollout]


def make_setup(env: str = BOAT, **changes: Any) -> RolloutSetup:
    entry = get_env(env)
    setup = RolloutSetup(
        env, {}, Lineage((Stage(),)), entry.context_space.fingerprint(), entry.revision, 7, 1, 5, 100, ".", num_envs=3
    )
    return replace(setup, **changes)


def make_weights(
    method: str = "sparc", env: str = BOAT, phase: str | None = None, number: int = 0, **fields: Any
) -> Weights:
    """Weights as the learner publishes them, with the actor they are from."""
    tiny = {"width": 16, "latent": 8, "history_length": 5, "num_quantiles": 4, "batch_size": 8, "num_envs": 5}
    config = make_config({"method": method, "env": env, **tiny, **fields})
    venv = make_vector_env(env, 1)
    spec = make_spec(venv)
    venv.close()
    learner = get_method(method)(config, spec, phase)
    actor = learner.rollout_policy(learner.init(np.random.default_rng(number)))
    arrays = checkpoint.flatten(actor, "policy")
    own = replace(learner.spec, reads=actor.encoder.reads, encoder=encoder_name(actor.encoder))
    vector = np.concatenate([array.ravel().astype(np.float32) for array in arrays.values()])
    made = Weights(
        number, 10 * number, learner.phase, describe_policy(own), [(n, a.shape) for n, a in arrays.items()], vector
    )
    make_weights.actor = actor  # type: ignore[attr-defined]
    return made


@pytest.fixture
def start() -> Iterator[Start]:
    """Begin a worker, and end its thread after the test."""
    begun: list[Rollout] = []

    def begin(setup: RolloutSetup) -> Rollout:
        rollout = Rollout()
        rollout.begin(setup)
        begun.append(rollout)
        return rollout

    yield begin
    for rollout in begun:
        if rollout._stepping is not None and rollout._stepping.is_alive():
            rollout.exchange(None, Task(rollout.task.phase, False, 0, last=True))
            rollout._stepping.join(30)
            assert not rollout._stepping.is_alive()


def collect(rollout: Rollout, weights: Weights, task: Task, steps: int) -> list[Reply]:
    """Exchange until so many steps have come."""
    replies = [rollout.exchange(weights, task)]
    while count(replies) < steps:
        replies.append(rollout.exchange(None, task._replace()))
    return replies


def count(replies: list[Reply]) -> int:
    return sum(len(block.rows) - 1 for reply in replies for block in reply.blocks)


def test_a_simulator_has_no_more_in_hand_than_its_grant(start: Start) -> None:
    rollout, weights = start(make_setup()), make_weights()
    first = rollout.exchange(weights, Task("train", False, 30))
    wait_for(lambda: rollout.writer.steps == 30)  # it goes on
    time.sleep(0.2)  # but not further than that
    assert rollout.writer.steps == 30
    second = rollout.exchange(None, Task("train", False, 0))
    assert count([first]) <= 30 and count([second]) == 30
    time.sleep(0.2)
    assert rollout.writer.steps == 0 and rollout.exchange(None, Task("train", False, 0)).blocks == []
    assert rollout.stats.steps == count([first, second])


def test_blocks_say_whose_policy_acted(start: Start) -> None:
    rollout = start(make_setup())
    old, new = make_weights(number=1), make_weights(number=2)
    replies = collect(rollout, old, Task("train", True, 60), 60)
    time.sleep(0.2)
    replies += [rollout.exchange(None, Task("train", False, 60)), rollout.exchange(new, Task("train", False, 60))]
    replies += collect(rollout, None, Task("train", False, 60), 60)  # type: ignore[arg-type]
    versions = [block.version for reply in replies for block in reply.blocks]
    assert set(versions) == {RANDOM, 10, 20} and versions == sorted(versions)


def test_the_policy_that_acts_is_the_learners_and_sees_the_right_history(start: Start) -> None:
    """Random first, then the policy: the actions of the mode, recomputed from the rows in JAX, are the same."""
    rollout, weights = start(make_setup(num_envs=1)), make_weights()
    actor = make_weights.actor  # type: ignore[attr-defined]
    quiet = Quiet()
    rollout.rng = quiet  # type: ignore[assignment]
    replies = collect(rollout, weights, Task("train", True, 8), 8)
    replies += collect(rollout, None, Task("train", False, 40), 30)  # type: ignore[arg-type]
    history, checked = History(1, 5, 4), 0
    for block in (block for reply in replies for block in reply.blocks):
        for row in block.rows[:-1]:
            obs, action = row["step"][None, :2], row["step"][None, 2:]
            if row["position"] == 0:
                history = History(1, 5, 4)
            if block.version != RANDOM:
                expected = actor.mode(Inputs(obs, history=history.array))
                np.testing.assert_allclose(action, np.asarray(expected), atol=1e-5)
                checked += 1
            history.push(obs, action)
    assert checked >= 30


class Quiet:
    """A generator whose normal draws are zero, so that samples are the mode."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def standard_normal(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return np.zeros(shape, dtype)

    def uniform(self, *how: Any) -> np.ndarray:
        return self.rng.uniform(*how)


@pytest.mark.parametrize("method", ["sparc", "rma", "only-obs", "history-input", "oracle"])
def test_every_method_acts_and_its_blocks_fit_the_replay(start: Start, method: str) -> None:
    rollout, weights = start(make_setup()), make_weights(method)
    replies = collect(rollout, weights, Task(weights.phase, False, 200), 300)
    replay = Replay(
        None, capacity=1000, num_envs=2, obs_size=2, action_size=2, context_size=2, history_length=5, n_step=1,
        discount=0.9, margin=500,
    )  # fmt: skip
    assert sum(replay.put(block) for reply in replies for block in reply.blocks) == count(replies) == replay.total
    assert sum(len(reply.returns) for reply in replies) == replies[-1].stats.episodes


def test_another_phase_begins_new_episodes_with_its_own_policy(start: Start) -> None:
    rollout = start(make_setup())
    expert, adapter = make_weights("rma", phase="expert"), make_weights("rma", phase="adapter", number=1)
    assert expert.contract != adapter.contract
    collect(rollout, expert, Task("expert", False, 30), 30)
    time.sleep(0.2)
    replies = collect(rollout, adapter, Task("adapter", False, 30), 30)
    blocks = [block for reply in replies for block in reply.blocks]
    assert {block.phase for block in blocks} == {"adapter"}
    assert [int(block.rows["position"][0]) for block in blocks[:3]] == [0, 0, 0]


def test_seeds_differ_between_sessions_workers_and_incarnations(start: Start) -> None:
    weights = make_weights()
    setups = [make_setup(), make_setup(session=2), make_setup(worker=1), make_setup(incarnation=1), make_setup()]
    first = [
        collect(start(setup), weights, Task("train", False, 9), 9)[0].blocks[0].rows["step"][0].tobytes()
        for setup in setups
    ]
    assert len(set(first)) == 4 and first[0] == first[-1]


@pytest.mark.parametrize("fault", ["raises", "nan"])
def test_an_environment_that_fails_now_and_then_is_restarted(start: Start, fault: str) -> None:
    worlds.Faulty.steps = 0
    rollout = start(make_setup("Faulty-v0", env_options={fault: 130}, num_envs=1))
    replies = collect(rollout, make_weights(env="Faulty-v0"), Task("train", False, 100), 400)
    assert rollout.stats.env_restarts >= 3
    blocks = [block for reply in replies for block in reply.blocks]
    assert all(np.isfinite(block.rows["step"]).all() for block in blocks)


def test_an_environment_that_always_fails_ends_the_worker_and_is_named(start: Start) -> None:
    rollout = start(make_setup("Faulty-v0", env_options={"raises": 10}, num_envs=1, worker=3))
    with pytest.raises(RunFailure) as caught:
        collect(rollout, make_weights(env="Faulty-v0"), Task("train", False, 100), 400)
    line = str(caught.value)
    for part in (
        "worker 3 on ",
        "Faulty-v0 raised ValueError at step ",
        "pull=",
        "the cable came off",
        "3 times in a row",
    ):
        assert part in line
    assert "\n" not in line


def test_other_contexts_than_the_learners_are_refused() -> None:
    with pytest.raises(RunFailure, match="other contexts to train on"):
        Rollout().begin(make_setup(contexts="0123456789abcdef"))
    with pytest.raises(RunFailure, match="revision 1"):
        Rollout().begin(make_setup(revision=2))


def test_a_stage_has_its_own_region(start: Start) -> None:
    lineage = Lineage((Stage(ranges={"x": (0.4, 0.5)}),))
    space = lineage.space(get_env(BOAT))
    rollout = start(make_setup(lineage=lineage, contexts=space.fingerprint()))
    replies = collect(rollout, make_weights(), Task("train", False, 50), 50)
    contexts = np.concatenate([block.rows["context"] for reply in replies for block in reply.blocks])
    assert ((contexts[:, 0] >= 0.4) & (contexts[:, 0] <= 0.5)).all()


def test_a_real_time_environment_never_waits(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "log"
    rollout = start(make_setup("Console-v0", env_options={"log": str(log), "stall": 0.1}, num_envs=1))
    weights = make_weights(env="Console-v0")
    rollout.exchange(weights, Task("train", False, 0))  # no grant: it does not care
    before = len(log.read_text().splitlines())
    wait_for(lambda: len(log.read_text().splitlines()) >= before + 60)  # nobody asks
    reply = rollout.exchange(None, Task("train", False, 0))
    assert count([reply]) >= 60
    assert reply.stats.late >= 1  # of the stalls; the clock's own test counts exactly


def test_a_clock_counts_late_ticks_and_goes_on_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    clock = Clock(0.1)
    for work in (0.05, 0.09, 0.12):  # the last one a little behind: no harm
        now[0] += work
        clock.wait()
    assert clock.late == 0 and now[0] == pytest.approx(100.32)
    now[0] += 0.5
    clock.wait()
    assert clock.late == 1 and clock.next == pytest.approx(now[0] + 0.1)


def test_a_worker_loads_neither_jax_nor_ray() -> None:
    code = (
        "import sys, sparc.training.workers.rollout as r; r.Rollout().greet(); "
        "print([m for m in ('jax', 'jaxlib', 'equinox', 'optax', 'ray') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_real_time_environment_needs_its_period() -> None:
    with pytest.raises(UserError, match="real_time=True needs period="):
        sparc.register_env(
            "Timeless-v0", make=worlds.Point, apply=worlds.apply, context_space=worlds.SPACE, max_episode_steps=5,
            real_time=True,
        )  # fmt: skip
