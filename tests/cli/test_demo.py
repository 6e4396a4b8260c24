"""`sparc demo` without its two minutes of training."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import sparc
from sparc.acting.evaluate import Evaluation
from sparc.cli import demo
from sparc.envs.registry import get_env
from sparc.methods import all_methods
from sparc.runs.run import Run
from sparc.suites.plan import planned
from sparc.suites.status import Status
from sparc.suites.suite import Suite

SPACE = get_env(demo.ENV).context_space


def results(ood: float, ind: float = 80.0) -> Evaluation:
    contexts = SPACE.grid(5)
    inside = SPACE.is_train(contexts)
    returns = np.where(inside, ind, ood)
    zeros = np.zeros(len(contexts), int)
    return Evaluation(SPACE.names, contexts, inside, zeros, returns, zeros + 100, zeros > 0)


# The scale


@pytest.mark.parametrize(("ood", "expected"), [(4.0, 0.0), (44.0, 1.0), (24.0, 0.5), (54.0, 1.25), (0.0, -0.1)])
def test_a_random_policy_is_0_and_the_oracle_1(ood: float, expected: float) -> None:
    assert demo.score(results(ood), oracle=results(44.0), random=4.0) == pytest.approx(expected)


def test_random_return_equals_a_loop_over_single_environments() -> None:
    contexts, seed = SPACE.grid(3), 5
    rng = np.random.default_rng(seed)
    actions = np.stack([rng.uniform(-1, 1, (len(contexts), 2)) for _ in range(100)]).astype(np.float32)
    returns = []
    for row, context in enumerate(contexts):
        env = sparc.make_env(demo.ENV)
        env.reset(seed=seed + row, options={"context": context})
        returns.append(sum(env.step(action[row])[1] for action in actions))
    ood = ~SPACE.is_train(contexts)
    assert demo.random_return(3, seed) == pytest.approx(np.mean(np.array(returns)[ood]), rel=1e-12)


# All together; that suites run is shown in test_runner.py


class Ran:
    """A runner whose members are done, or not, because of Ctrl-C."""

    exit_code = 130

    def __init__(self, suite: Suite, folder: Path, states: dict[str, Status] | None = None):
        assert planned("smoke", folder) == suite  # so that `sparc suite run` can go on with it
        states = states or {}
        self.standings = {m: states.get(m.config.method, Status("done")) for m in suite.members()}
        for member in suite.members():
            if not (folder / member.path).exists():
                Run.create(member.config, folder / member.path)

    def run(self) -> bool:
        return all(standing.state == "done" for standing in self.standings.values())


def test_the_demo_compares_and_pictures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    means = {"sparc": 60.0, "rma": 40.0, "only-obs": 20.0, "history-input": 50.0, "oracle": 70.0}
    monkeypatch.setattr("sparc.suites.runner.Runner", Ran)
    monkeypatch.setattr(
        "sparc.suites.status.finished", lambda suite, run: SimpleNamespace(evaluation=results(means[run.config.method]))
    )
    monkeypatch.setattr(demo, "random_return", lambda grid, seed: 10.0)
    assert demo.run_demo(7, tmp_path / "demo") == 0
    summary = json.loads((tmp_path / "demo" / "summary.json").read_text())
    assert (summary["env"], summary["seed"], summary["random_ood"]) == (demo.ENV, 7, 10.0)
    scores = {name: part["ood_score"] for name, part in summary["methods"].items()}
    assert scores == pytest.approx({name: (mean - 10) / 60 for name, mean in means.items()})
    assert summary["methods"]["sparc"]["ind"]["mean"] == pytest.approx(80.0)
    assert (tmp_path / "demo" / "heatmaps.png").read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert all(name in out for name in all_methods())
    assert "83%" in out and "100%" in out and "17%" in out
    assert max(map(len, out.splitlines()[1:])) <= max(80, len(str(tmp_path)) + 60)


def test_a_demo_that_did_not_end_says_why_and_can_be_gone_on_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    states = {"rma": Status("failed", note="No space left on device.")}
    monkeypatch.setattr("sparc.suites.runner.Runner", lambda suite, folder: Ran(suite, folder, states))
    again = f"sparc demo --seed 3 --run-dir {tmp_path / 'demo'}"
    with pytest.raises(sparc.RunFailure, match="rma: No space left on device") as caught:
        demo.run_demo(3, tmp_path / "demo")
    assert again in str(caught.value)
    states["rma"] = Status("stopped", 500)  # Ctrl-C
    assert demo.run_demo(3, tmp_path / "demo") == 130
    assert f"stopped; continue with: {again}" in capsys.readouterr().out
    with pytest.raises(sparc.UserError, match="choose another --run-dir"):
        demo.run_demo(4, tmp_path / "demo")  # another seed is another demo


@pytest.mark.parametrize("kind", ["full", "file", "below a file"])
def test_nothing_is_overwritten(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("mine")
    folder = {"full": tmp_path, "file": tmp_path / "file", "below a file": tmp_path / "file" / "demo"}[kind]
    with pytest.raises(sparc.UserError, match="choose another --run-dir"):
        demo.run_demo(0, folder)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
