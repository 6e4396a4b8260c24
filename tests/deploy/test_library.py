"""The policies that come with sparc: complete, small, usable by name; and the commands around exports."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import sparc
from sparc.acting.evaluate import evaluate
from sparc.cli import main
from sparc.deploy import runtime
from sparc.deploy.contract import SCHEMA
from sparc.deploy.library import FOLDER, policies
from sparc.deploy.load import open_source
from sparc.envs.registry import get_env
from sparc.errors import UserError
from sparc.runs.run import Run
from sparc.watch.play import default_path

BOAT = "DriftingBoat-v0"
NAMES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_is_whole_small_and_measured(name: str) -> None:
    folder = FOLDER / name
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 600_000
    contract = runtime.read_contract(folder)
    jsonschema.validate(contract, json.loads(SCHEMA.read_text()))
    assert runtime.check(folder)[0] <= 1e-5
    assert contract["results"][0]["ood"]["contexts"] > 0 and contract["control"]["period_s"]
    entry = get_env(contract["env"])
    assert contract["env_revision"] == entry.revision
    assert contract["context"]["train"]["low"] == entry.context_space.train.low.tolist()


def test_a_policy_by_its_name_does_what_its_contract_says() -> None:
    assert BOAT in policies()
    policy, contract = sparc.load(f"sparc://{BOAT}"), policies()[BOAT]
    found = evaluate(policy, BOAT, get_env(BOAT).context_space.grid(21)).summary()
    assert found["ood"]["mean"] == pytest.approx(contract["results"][0]["ood"]["mean"], abs=0.5)
    fast = sparc.load(BOAT, backend="numpy")
    obs = np.random.default_rng(0).normal(size=(3, 2))
    np.testing.assert_allclose(fast.act(obs), policy.act(obs), atol=1e-5)


def test_a_video_of_a_named_policy_is_put_into_the_current_folder() -> None:
    source = open_source(f"sparc://{BOAT}")
    assert (source.method, source.env, source.name) == ("sparc", BOAT, BOAT)
    path = default_path([source], BOAT, np.array([0.9, -0.9]), 0)
    assert path == Path("videos") / f"{BOAT}-x0.9-y-0.9.mp4"


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match=f"unknown policy 'DriftingBot-v0': did you mean '{BOAT}'"):
        sparc.load("sparc://DriftingBot-v0")
    with pytest.raises(UserError, match=f"unknown policy 'DriftingBot-v0': did you mean '{BOAT}'"):
        sparc.load("DriftingBot-v0")
    for name in ("nowhere/at-all", "runs/DriftingBot-v0", f"runs/{BOAT}"):
        with pytest.raises(UserError, match="is not a run directory"):
            sparc.load(name)
    with pytest.raises(UserError, match="unknown backend 'torch'"):
        sparc.load(BOAT, backend="torch")


def test_the_list_has_names_and_returns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policies"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in NAMES) and "out of distribution" in out


def test_export_and_check_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "robot"
    assert main(["export", f"sparc://{BOAT}", "--to", str(folder), "--c", "--js"]) == 0
    assert f"next: sparc export --check {folder}" in capsys.readouterr().out
    assert main(["export", "--check", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["NumPy", "onnxruntime", "C,", "Node"]
    assert all("largest difference" in line and "µs per step" in line for line in lines)
    source = folder / "policy_weights.h"
    text = source.read_text()
    source.write_text(text.replace("head_bias[2] = {\n", "head_bias[2] = {\n1.0f + "))
    assert source.read_text() != text
    assert main(["export", "--check", str(folder)]) == 1
    assert "C, -O2: other actions than the trained policy's" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, message",
    [
        (["export"], "sparc export needs a run, or --check DIR"),
        (["export", "a", "--check", "b"], "--check takes the folder of an export and no run"),
        (["export", BOAT], "is an export already: say where to write another one, --to DIR"),
        (["export", "--check", "nowhere"], "nowhere is no exported policy"),
        (["export", "nowhere"], "nowhere is not a run directory"),
        (["bench", "policy", "--backend", "fortran"], "unknown backend 'fortran'"),
        (["bench", "learner", "--backend", "c"], "--backend is for `sparc bench policy`, not for `learner`"),
    ],
)
def test_mistakes_get_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


def test_a_run_is_exported_into_its_own_directory(sparc_cli: Cli, trained: Callable[[str], Run]) -> None:
    run = trained("sparc").path
    done = sparc_cli("export", run, "--no-onnx", "--checkpoint", "last")
    assert done.returncode == 0, done.stderr
    assert (run / "export" / "1500" / "sparc_policy.py").is_file()


@pytest.mark.parametrize(
    "words, message",
    [
        (["live", BOAT, "--no-browser", "--checkpoint", "last"], "is an exported policy, of checkpoint"),
        (["play", f"sparc://{BOAT}", "--checkpoint", "3000"], "so leave '3000' out"),
        (["export", BOAT, "--to", "x", "--checkpoint", "best", "--no-check"], "leave out --checkpoint, --no-check."),
        (["export", BOAT, "--to", "x", "--with-context"], "is an export already, made from one checkpoint of a run"),
        (["export", "--check", "x", "--c", "--to", "y"], "--check writes nothing: leave out --to, --c."),
        (["evaluate", f"sparc://{BOAT}", "--checkpoint", "last"], "a policy by its name has no run"),
        (["evaluate", str(FOLDER / BOAT), "--checkpoint", "last"], "is an exported policy; only runs are evaluated"),
    ],
)
def test_options_that_would_change_nothing_are_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_an_export_over_an_earlier_one_says_what_it_removes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "robot")
    assert main(["export", BOAT, "--to", folder, "--no-onnx", "--c", "--js"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["export", BOAT, "--to", folder, "--no-onnx", "--c"]) == 0
    assert capsys.readouterr().err == "removed, of the earlier export there: policy.mjs\n"
