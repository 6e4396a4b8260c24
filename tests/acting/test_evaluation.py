"""evaluate() against a plain loop over single environments, and what is made of its rows."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import sparc
from sparc.acting.evaluate import Evaluation, evaluate
from sparc.acting.policy import Policy
from sparc.config import make_config
from sparc.contexts import ContextSpace
from sparc.envs.registry import get_env
from sparc.runs.run import Run
from sparc.seals import is_intact
from sparc.training.loop import Trainer

BOAT, WALKER = "DriftingBoat-v0", "WindWalker2d-v5"
CURRENTS = np.array([[0.0, 0.0], [0.5, -0.5], [-1.0, 1.0], [0.3, 0.9]])  # IND, IND (a corner), OOD, OOD
WINDS = np.array([[0.0, 0.0], [-20.0, 5.0], [20.0, -5.0], [10.0, 0.0]])

Maker = Callable[..., Policy]


@pytest.fixture
def untrained(tmp_path: Path, tiny: dict[str, Any]) -> Maker:
    """Make the policy of a method that has just begun."""

    def make(method: str, env: str) -> Policy:
        run = Run.create(make_config({"method": method, "env": env, **tiny}), tmp_path / method)
        try:
            return Trainer(run, lambda record: None).make_policy()
        finally:
            run.close()

    return make


class Recorder:
    """A stand-in for a policy: pushes one way and remembers what it was shown."""

    reads = "context"

    def __init__(self, action_size: int = 2, push: float = 0.0):
        self.action_size, self.push = action_size, push
        self.obs: list[np.ndarray] = []
        self.contexts: list[np.ndarray] = []

    def reset(self) -> None:
        pass

    def act(self, obs: np.ndarray, context: np.ndarray | None = None) -> np.ndarray:
        self.obs.append(obs.copy())
        self.contexts.append(None if context is None else context.copy())  # type: ignore[arg-type]
        return np.full((len(obs), self.action_size), self.push, np.float32)


def loop(policy: Any, env: str, contexts: np.ndarray, seed: int = 0) -> list[tuple[float, int, bool]]:
    """Return, length and termination of one episode per context, in single environments."""
    envs = [sparc.make_env(env) for _ in contexts]
    obs = np.stack([
        single.reset(seed=seed + i, options={"context": context})[0]
        for i, (single, context) in enumerate(zip(envs, contexts, strict=True))
    ])  # fmt: skip
    results: list[tuple[float, int, bool]] = [(0.0, 0, False)] * len(envs)
    running = set(range(len(envs)))
    policy.reset()
    while running:
        action = policy.act(obs, contexts if policy.reads == "context" else None)
        for i in sorted(running):
            obs[i], reward, terminated, truncated, _ = envs[i].step(action[i])
            total, length, _ = results[i]
            results[i] = total + float(reward), length + 1, terminated
            if terminated or truncated:
                running.remove(i)
                obs[i] = 0.0
    for single in envs:
        single.close()
    return results


def rows(evaluation: Evaluation) -> list[tuple[float, int, bool]]:
    columns = evaluation.returns, evaluation.lengths, evaluation.terminated
    return list(zip(*(column.tolist() for column in columns), strict=True))


# The same as a plain loop


@pytest.mark.parametrize("method", ["sparc", "only-obs", "oracle"])
def test_boat_equals_a_loop_over_single_environments(untrained: Maker, method: str) -> None:
    policy = untrained(method, BOAT)
    evaluation = evaluate(policy, BOAT, CURRENTS, seed=7)
    assert rows(evaluation) == loop(policy, BOAT, CURRENTS, seed=7)
    np.testing.assert_array_equal(evaluation.contexts, CURRENTS)
    assert evaluation.ind.tolist() == [True, True, False, False]
    assert (evaluation.lengths == 100).all() and not evaluation.terminated.any()


@pytest.mark.parametrize("threads", [1, 2])
def test_an_episode_that_terminates_stops_counting(untrained: Maker, threads: int) -> None:
    policy = untrained("sparc", WALKER)
    evaluation = evaluate(policy, WALKER, WINDS, threads=threads)
    assert rows(evaluation) == loop(policy, WALKER, WINDS)
    assert evaluation.terminated.all()
    assert len(set(evaluation.lengths.tolist())) > 1  # some were over while others ran on


def test_the_policy_is_shown_nothing_of_an_episode_that_is_over() -> None:
    policy = Recorder(6)
    evaluation = evaluate(policy, WALKER, WINDS)  # type: ignore[arg-type]
    shown = np.stack(policy.obs)  # (T, 4, O)
    for row, length in enumerate(evaluation.lengths):
        assert shown[:length, row].any(axis=1).all()
        assert not shown[length:, row].any()


def test_each_episode_has_a_start_of_its_own() -> None:
    evaluation = evaluate(Recorder(), BOAT, CURRENTS, episodes=3, seed=5)  # type: ignore[arg-type]
    assert evaluation.episode.tolist() == [0, 1, 2] * 4
    np.testing.assert_array_equal(evaluation.contexts, CURRENTS.repeat(3, axis=0))
    assert rows(evaluation) == loop(Recorder(), BOAT, CURRENTS.repeat(3, axis=0), seed=5)
    assert len(set(evaluation.returns.tolist())) == 12


def test_the_same_seed_gives_the_same_rows_and_another_seed_others(untrained: Maker) -> None:
    policy = untrained("only-obs", BOAT)
    first, second, other = (evaluate(policy, BOAT, CURRENTS, seed=seed) for seed in (0, 0, 100))
    np.testing.assert_array_equal(first.returns, second.returns)
    assert (first.returns != other.returns).all()


def test_a_vector_environment_can_be_given() -> None:
    venv = sparc.make_vector_env(BOAT, len(CURRENTS))
    given = evaluate(Recorder(), venv, CURRENTS)  # type: ignore[arg-type]
    np.testing.assert_array_equal(given.returns, evaluate(Recorder(), BOAT, CURRENTS).returns)  # type: ignore[arg-type]
    with pytest.raises(sparc.UserError, match="3 contexts"):
        evaluate(Recorder(), venv, CURRENTS[:3])  # type: ignore[arg-type]
    venv.close()


def test_progress_counts_episodes_by_their_steps() -> None:
    calls: list[tuple[int, int]] = []
    evaluate(Recorder(), BOAT, CURRENTS, progress=lambda done, most: calls.append((done, most)))  # type: ignore[arg-type]
    assert len(calls) == 100 and {most for _, most in calls} == {len(CURRENTS)}
    assert [done for done, _ in calls][24::25] == [int(len(CURRENTS) * share) for share in (0.25, 0.5, 0.75, 1.0)]


# Contexts


def test_a_policy_that_reads_the_context_is_given_it_at_every_step() -> None:
    policy = Recorder()
    evaluate(policy, BOAT, CURRENTS)  # type: ignore[arg-type]
    assert len(policy.contexts) == 100
    for context in policy.contexts:
        np.testing.assert_array_equal(context, CURRENTS)


@pytest.mark.parametrize("reads", ["nothing", "history"])
def test_other_policies_are_not(reads: str) -> None:
    policy = Recorder()
    policy.reads = reads
    evaluate(policy, BOAT, CURRENTS)  # type: ignore[arg-type]
    assert all(context is None for context in policy.contexts)


@pytest.mark.parametrize("env", [BOAT, WALKER])
def test_a_change_probability_does_not_disturb_the_contexts_of_an_evaluation(env: str) -> None:
    contexts, size = (CURRENTS, 2) if env == BOAT else (WINDS, 6)
    policy = Recorder(size)
    calm = evaluate(Recorder(size), env, contexts)  # type: ignore[arg-type]
    changing = evaluate(policy, env, contexts, change_probability=1.0)  # type: ignore[arg-type]
    assert rows(changing) == rows(calm)
    assert all(np.array_equal(context, contexts) for context in policy.contexts)


@pytest.mark.parametrize(
    ("contexts", "message"),
    [
        ([[0.0, 0.0], [0.0, 1.01]], r"context 1: y = 1\.01 m/s is outside .*\[-1, 1\]"),
        ([[np.nan, 0.0]], "^x = nan"),
        ([[0.0, 0.0, 0.0]], r"2 numbers \(x, y\)"),
    ],
)
def test_contexts_that_cannot_be_are_refused(contexts: list[list[float]], message: str) -> None:
    policy = Recorder()
    with pytest.raises(sparc.UserError, match=message):
        evaluate(policy, BOAT, np.array(contexts))  # type: ignore[arg-type]
    assert not policy.obs


@pytest.mark.parametrize("episodes", [0, -1])
def test_at_least_one_episode(episodes: int) -> None:
    with pytest.raises(sparc.UserError, match="episodes"):
        evaluate(Recorder(), BOAT, CURRENTS, episodes=episodes)  # type: ignore[arg-type]


# An environment that goes wrong


class Fragile(gym.Env[Any, Any]):
    """Breaks in its third step where the context is positive: returns NaN, or raises."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))
    raises = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        broken = self.steps == 3 and self.context > 0
        if broken and self.raises:
            raise ZeroDivisionError("of the simulator")
        return np.zeros(1, np.float32), np.nan if broken else 1.0, False, False, {}


def set_context(env: Any, context: np.ndarray) -> None:
    env.context = float(context[0])


gym.register("FragileBase-v0", entry_point=Fragile, max_episode_steps=5)
sparc.register_env(
    "Fragile-v0", make="FragileBase-v0", apply=set_context, context_space=ContextSpace.box(c=("", (-1, 1), (-1, 1)))
)


def test_nan_is_reported_with_the_context() -> None:
    good = evaluate(Recorder(1), "Fragile-v0", [[-1.0]])  # type: ignore[arg-type]
    assert rows(good) == [(5.0, 5, False)]
    with pytest.raises(
        sparc.RunFailure, match=r"^Fragile-v0 returned NaN or infinity in a reward at step 2 with c=0\.5\.$"
    ):
        evaluate(Recorder(1), "Fragile-v0", [[-1.0], [0.5]])  # type: ignore[arg-type]


def test_an_error_of_the_environment_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fragile, "raises", True)
    # the line and the context are those of the row that raised
    message = r"^Fragile-v0 raised ZeroDivisionError at step 2 \(test_evaluation\.py:\d+\) with c=0\.5: of the"
    with pytest.raises(sparc.RunFailure, match=message) as caught:
        evaluate(Recorder(1), "Fragile-v0", [[-0.5], [0.5], [0.6]])  # type: ignore[arg-type]
    assert str(caught.value).endswith("; run again with --debug for the traceback.")  # and of no checkpoint


# Rows → cells → summary → files


@pytest.fixture
def made() -> Evaluation:
    """Five contexts, two episodes each; the returns of the cells are 1.5, 3.5, 6, 8 and 30."""
    contexts = np.array([[0.0, 1.0], [-1.0, 0.5], [2.0, 2.0], [0.1, 0.2], [-2.0, 0.0]]).repeat(2, axis=0)
    return Evaluation(
        names=("x", "y"),
        contexts=contexts,
        ind=np.array([True, True, False, True, False]).repeat(2),
        episode=np.tile([0, 1], 5),
        returns=np.array([1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 8.0, 8.0, 20.0, 40.0]),
        lengths=np.arange(10),
        terminated=np.arange(10) == 3,
    )


def test_cells_average_the_episodes_in_the_order_of_the_contexts(made: Evaluation) -> None:
    contexts, ind, returns = made.cells()
    np.testing.assert_array_equal(contexts, made.contexts[::2])
    assert ind.tolist() == [True, True, False, True, False]
    np.testing.assert_allclose(returns, [1.5, 3.5, 6.0, 8.0, 30.0], rtol=1e-15)


def test_summary_by_hand(made: Evaluation) -> None:
    summary = made.summary()
    assert list(summary) == ["ind", "ood"]
    ind, ood = summary["ind"], summary["ood"]  # of 1.5, 3.5, 8 and of 6, 30
    assert (ind["contexts"], ind["min"], ind["max"]) == (3, 1.5, 8.0)
    assert ind["mean"] == pytest.approx(13 / 3)
    assert ind["std"] == pytest.approx(np.sqrt(((1.5 - 13 / 3) ** 2 + (3.5 - 13 / 3) ** 2 + (8 - 13 / 3) ** 2) / 2))
    assert ood == {"contexts": 2, "mean": 18.0, "std": pytest.approx(np.sqrt(288)), "min": 6.0, "max": 30.0}


def test_a_region_without_contexts_is_left_out(made: Evaluation) -> None:
    everywhere = Evaluation(**{**vars(made), "ind": np.ones(10, bool)})
    assert list(everywhere.summary()) == ["ind"]


def test_csv_has_every_row_to_the_last_bit(made: Evaluation, tmp_path: Path) -> None:
    made.returns[0] = 0.1 + 0.2
    made.write_csv(tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(newline="") as file:
        header, *lines = csv.reader(file)
    assert header == ["x", "y", "region", "episode", "return", "steps", "terminated"]
    assert len(lines) == 10
    assert lines[0] == ["0.0", "1.0", "ind", "0", "0.30000000000000004", "0", "0"]
    assert lines[3] == ["-1.0", "0.5", "ind", "1", "4.0", "3", "1"]
    assert [line[2] for line in lines[4:6]] == ["ood", "ood"]
    assert [file.name for file in tmp_path.iterdir()] == ["rows.csv"]


def test_json_has_the_summary_and_where_it_is_from(made: Evaluation, tmp_path: Path) -> None:
    made.write_json(tmp_path / "s.json", method="sparc", grid=21)
    content = json.loads((tmp_path / "s.json").read_text())
    assert is_intact(content)
    content.pop("sha256")
    assert content == {"method": "sparc", "grid": 21, "summary": made.summary()}


def test_the_paper_grid_has_121_cells_in_distribution_and_320_out_of_it() -> None:
    for env in (BOAT, WALKER, "WindHalfCheetah-v5", "WindHopper-v5", "WindAnt-v5"):
        space = get_env(env).context_space
        ind = space.is_train(space.grid(21))
        assert (ind.sum(), (~ind).sum()) == (121, 320)
