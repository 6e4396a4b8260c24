"""The real command line: what each command does."""

import csv
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from answers import complaint, succeed

import sparc
from sparc import cli
from sparc.acting.evaluate import Evaluation
from sparc.cli import bench, benches
from sparc.config import make_config
from sparc.runs import checkpoint
from sparc.runs.load import load_expert
from sparc.runs.run import Run
from sparc.training.loop import Trainer
from sparc.watch import laps as race_replay

Cli = Callable[..., subprocess.CompletedProcess[str]]
BOAT = "DriftingBoat-v0"

# Train → evaluate → resume


def test_a_run_from_beginning_to_end(sparc_cli: Cli, tiny_yaml: Path, tmp_path: Path) -> None:
    options = ("--updates", 20, "--evaluate_every", 10, "--seed", 3)
    out = succeed(sparc_cli("train", "sparc", BOAT, "--config", tiny_yaml, *options))
    (run,) = tmp_path.glob(f"runs/{BOAT}/sparc/seed3-*")
    shown = run.relative_to(tmp_path)
    assert out.splitlines()[0] == f"run: {shown}"
    assert re.search(r"^done: best checkpoint (10|20), mean return [\d.,]+ over the IND settings", out, re.MULTILINE)
    assert out.splitlines()[-1] == f"next: sparc evaluate {shown}"
    for name in (
        "config.yaml",
        "manifest.json",
        "metrics.jsonl",
        "tensorboard",
        "replay",
        "checkpoints",
        "evaluations",
    ):
        assert (run / name).exists(), name
    manifest = json.loads((run / "manifest.json").read_text())
    assert (manifest["method"], manifest["env"], manifest["seed"]) == ("sparc", BOAT, 3)
    kinds = [json.loads(line)["kind"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert kinds.count("evaluation") == 2 and "train" in kinds

    out = succeed(sparc_cli("evaluate", run))
    best = re.search(r"checkpoint (\d+)", out)
    assert best and "over 121 IND and 320 OOD contexts" in out and "picture: " in out
    stem = run / "evaluations" / f"{best[1]}-grid21"
    with stem.with_suffix(".csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["x", "y", "region", "episode", "return", "steps", "terminated"]
    assert len(rows) == 441 == len({(row["x"], row["y"]) for row in rows})
    regions = [row["region"] for row in rows]
    assert (regions.count("ind"), regions.count("ood")) == (121, 320)
    assert {(row["steps"], row["terminated"], row["episode"]) for row in rows} == {("100", "0", "0")}
    about = json.loads(stem.with_suffix(".json").read_text())
    returns = [float(row["return"]) for row in rows if row["region"] == "ood"]
    assert about["summary"]["ood"]["mean"] == pytest.approx(sum(returns) / 320)
    assert (about["method"], about["env"], about["updates"], about["grid"]) == ("sparc", BOAT, int(best[1]), 21)
    assert stem.with_suffix(".png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")

    (events,) = (run / "tensorboard").iterdir()
    curves = set(re.findall(rb"evaluation/return_[\w.-]*", events.read_bytes()))
    assert {b"evaluation/return_x_0_y_0"} < curves and b"evaluation/return_0" not in curves  # named by their contexts

    before = (run / "metrics.jsonl").read_text()
    assert "already at 20 updates" in succeed(sparc_cli("resume", run))  # finished: nothing left to do
    assert (run / "metrics.jsonl").read_text() == before

    assert "30/30 updates" in sparc_cli("resume", run, "--updates", "3e1").stderr
    assert "updates: 30" in (run / "config.yaml").read_text()
    assert 30 in checkpoint.numbers(run / "checkpoints")


def test_a_finished_run_whose_rates_fell_is_not_said_to_go_further(
    sparc_cli: Cli, copy: Path, tiny: dict[str, Any]
) -> None:
    assert "extend it with: sparc resume run --updates N" in succeed(sparc_cli("resume", "run"))
    sparc.train("only-obs", BOAT, run_dir=copy.parent / "decayed", updates=20, **tiny | {"final_lr_fraction": 0.0})
    out = succeed(sparc_cli("resume", "decayed"))
    assert "already at 20 updates; its learning rates have decayed" in out and "--updates" not in out


@pytest.mark.slow
def test_an_untrained_checkpoint_is_tested_with_a_warning(
    tmp_path: Path, tiny: dict[str, Any], finished: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    warning = "warning: there is only the untrained checkpoint 0 yet; the next comes at update {}\n"
    monkeypatch.setattr(race_replay, "replay_run", lambda *_: (tmp_path / "page.html", [], ""))
    for method, updates, after in (("only-obs", 3000, 100), ("only-obs", 60, 60), ("rma", 80, 60)):
        run = Run.create(
            make_config({"method": method, "env": BOAT, **tiny, "updates": updates}), tmp_path / f"{after}"
        )
        Trainer(run, lambda record: None).close()
        run.close()
        for words in (["evaluate", str(run.path), "--grid", "2"], ["replay", str(run.path)]):
            assert cli.main(words) == 0
            assert capsys.readouterr().err == warning.format(after)
        shutil.rmtree(run.path)
    assert cli.main(["replay", str(finished)]) == 0
    assert capsys.readouterr().err == ""


def test_a_grid_where_tests_have_their_own_contexts_is_warned_of(
    tmp_path: Path, tiny: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config({"method": "sparc", "env": "RaceCars-forza-v0", **tiny})
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config.to_dict()))
    for words in (["--grid", "11"], []):
        assert cli.main(["evaluate", str(tmp_path), *words]) == 2  # it has no checkpoint
        warned = "RaceCars-forza-v0 is tested in 515 contexts of its own, not on a grid" in capsys.readouterr().err
        assert warned == bool(words)


@pytest.mark.parametrize(("which", "number"), [("last", 20), ("10", 10), ("best", None)])
def test_evaluate_a_chosen_checkpoint(sparc_cli: Cli, copy: Path, which: str, number: int | None) -> None:
    succeed(sparc_cli("evaluate", "run", "--checkpoint", which, "--grid", 3, "--episodes", 2))
    (rows,) = (copy / "evaluations").glob("*.csv")
    assert number is None or rows.name == f"{number}-grid3x2.csv"
    assert len(rows.read_text().splitlines()) == 1 + 9 * 2


def test_evaluations_keep_their_own_files(sparc_cli: Cli, copy: Path) -> None:
    for words in ((), ("--grid", 4), ("--episodes", 2)):
        succeed(sparc_cli("evaluate", "run", *(words or ("--grid", 3)), "--checkpoint", 10))
    pictures = {file.name: file.read_bytes() for file in (copy / "evaluations").glob("*.png")}
    assert pictures.keys() == {"10-grid3.png", "10-grid4.png", "10-grid21x2.png"}
    assert len(set(pictures.values())) == 3


def test_a_run_that_is_only_read_is_evaluated_elsewhere(sparc_cli: Cli, copy: Path, tmp_path: Path) -> None:
    def state() -> list[tuple[Path, int]]:
        return sorted((path, path.stat().st_mtime_ns) for path in [copy, *copy.rglob("*")])

    before = state()
    out = succeed(sparc_cli("evaluate", "run", "--grid", 3, "--checkpoint", 10, "--adaptation", "--out", "new/results"))
    assert state() == before  # not even a lock
    assert "picture: new/results/10-grid3.png" in out
    names = {file.name for file in (tmp_path / "new" / "results").iterdir()}
    assert names == {*(f"10-grid3.{kind}" for kind in ("csv", "json", "png")), "10-trace.csv", "10-adaptation.json"}


def test_the_expert_is_evaluated_beside_its_policy(
    tiny_run: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(tiny_run("sparc"), tmp_path / "run"))
    assert cli.main(["evaluate", str(run), "--grid", "3"]) == 0
    policy = {file.name: file.read_bytes() for file in (run / "evaluations").iterdir()}
    assert cli.main(["evaluate", str(run), "--grid", "3", "--expert"]) == 0
    assert "sparc expert" in capsys.readouterr().out
    names = {file.name for file in (run / "evaluations").iterdir()} - policy.keys()
    assert names == {f"10-expert-grid3.{kind}" for kind in ("csv", "json", "png")}
    assert all((run / "evaluations" / name).read_bytes() == content for name, content in policy.items())
    summary = json.loads((run / "evaluations" / "10-expert-grid3.json").read_text())
    assert summary["expert"] is True and summary["reads"] == "context"
    rows = Evaluation.read_csv(run / "evaluations" / "10-expert-grid3.csv")
    expert, contexts = load_expert(Run.open(run), 10), Run.open(run).space.grid(3)
    assert expert is not None
    np.testing.assert_array_equal(rows.returns, sparc.evaluate(expert, BOAT, contexts).returns)  # the same starts
    assert cli.main(["evaluate", str(run), "--expert", "--adaptation"]) == 2
    assert "leave out one of them" in capsys.readouterr().err
    assert cli.main(["evaluate", str(tiny_run("only-obs")), "--expert"]) == 2
    assert "has no expert beside its policy: leave out --expert" in capsys.readouterr().err


PARTS = {
    "count": (("--count", 3), ("--count chooses among car models, and DriftingBoat-v0 is tested on a grid",)),
    "cars": (("--cars", "kei-07"), ("DriftingBoat-v0 has no cars by name",)),
    "both": (("--cars", "kei-07", "--count", 3), ("--count not allowed with argument --cars",)),
}


@pytest.mark.parametrize(("words", "parts"), PARTS.values(), ids=PARTS)
def test_a_part_of_the_contexts_is_for_car_models(
    finished: Path, capsys: pytest.CaptureFixture[str], words: tuple[Any, ...], parts: tuple[str, ...]
) -> None:
    assert cli.main(["evaluate", str(finished), *map(str, words)]) == 2
    line = capsys.readouterr().err
    assert [part for part in parts if part not in line] == [], line


def test_options_of_the_environment_add_up() -> None:
    words = ["train", "sparc", BOAT, "--env-options", "a=1", "b=[2]", "--env-options", "c=x"]
    parsed = cli.make_commands().parser.parse_args(words)
    assert dict(parsed.env_options) == {"a": 1, "b": [2], "c": "x"}


# Benches: that they run and what they tell, never how fast


def test_bench_replay(sparc_cli: Cli) -> None:
    found = json.loads(succeed(sparc_cli("bench", "replay", "--method", "only-obs")))
    assert (found["bench"], found["env"]) == ("replay", "WindHalfCheetah-v5")
    assert 0 < found["bytes_per_step"] <= 200
    assert found["machine"]["cores"] >= 1
    assert found["sample_ms_per_update"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "keys"),
    [
        ("learner", {"updates_per_s", "gflops", "fraction_of_peak", "fraction_of_cold_peak", "mflop_per_update"}),
        ("train", {"updates_per_s", "sgemm_gflops", "fraction_of_peak", "cold_sgemm_gflops", "env_steps_per_s"}),
        ("rollout", {"num_envs", "env_steps_per_s", "env_steps_per_s_with_policy"}),
        ("policy", {"microseconds_per_action"}),
        ("evaluate", {"seconds", "cells", "env_steps"}),
    ],
)
def test_benches_print_one_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], what: str, keys: set[str]
) -> None:
    def once(call: Callable[[], Any], seconds: float = 0.0, **how: Any) -> float:
        call()
        return 100.0

    monkeypatch.setattr(benches, "rate", once)
    monkeypatch.setenv(bench.ALONE, "1")  # measure here, not in a process of its own
    assert cli.main(["bench", what, "--env", BOAT, "--method", "only-obs", "--preset", "light"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert not err
    assert found.keys() >= keys | {"bench", "env", "machine"}
    assert all(found[key] > 0 for key in keys)
    if what == "rollout":  # 100 chunks a second: 50 updates of 10 steps each
        assert found["env_steps_per_s_with_policy"] == 100 * 50 * 10


def test_a_bench_that_fails_says_so_in_one_line(sparc_cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import sparc\n"
        "def apply(env, context): raise ZeroDivisionError('no such pendulum')\n"
        "space = sparc.ContextSpace.box(m=('kg', (1, 2), (1, 3)))\n"
        "sparc.register_env('Mine-v0', make='Pendulum-v1', apply=apply, context_space=space)\n"
    )
    assert "no such pendulum" in complaint(sparc_cli("bench", "replay", "--env", "mine:Mine-v0"), 1)
