"""What a stranger's files, or absurd values, may do: nothing. They are refused at once, and leave nothing behind."""

import shutil
import time
from pathlib import Path

import pytest

from sparc import cli
from sparc.files import shield, unshield
from sparc.suites.suite import MAX_MEMBERS

BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
ABSURD = [
    ("--n-step", "1e8"), ("--width", "99999999"), ("--width", "16000"), ("--latent", "1e9"), ("--num-envs", "1e9"),
    ("--history-length", "1e9"), ("--batch-size", "1e12"), ("--num-quantiles", "1e9"),
    ("--replay-capacity", "1e18"), ("--replay-capacity", "9e9"), ("--random-steps", "1e15"), ("--updates", "1e300"),
    ("--chunk", "1e9"), ("--steps-per-update", "1e9"), ("--seed", "1e30"), ("--evaluate-every", "1e11"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("words", ABSURD, ids=" ".join)
def test_absurd_values_are_refused_and_leave_nothing(
    words: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    assert cli.main(["train", "sparc", "DriftingBoat-v0", "--preset", "light", *words]) == 2
    said = capsys.readouterr().err
    assert (said.count("\n") == 1 and words[0][2:].replace("-", "_") in said) or "needs" in said, said
    assert not list(tmp_path.iterdir()) and time.monotonic() - began < 30


@pytest.mark.parametrize("content", [BOMB, "x: " + "[" * 20_000, "&a [*a]", "a: &a [*a]\n"])
def test_bombs_of_yaml_are_refused(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bomb.yaml").write_text(content)
    for words in (["train", "sparc", "DriftingBoat-v0", "--config", "bomb.yaml"], ["suite", "run", "bomb.yaml"]):
        assert cli.main(words) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bomb.yaml"]


def test_a_file_without_an_end_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "sparc", "DriftingBoat-v0", "--config", "/dev/zero"]) == 2
    assert "more than 1,000,000 bytes" in capsys.readouterr().err


def test_a_suite_of_too_many_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = [str(seed) for seed in range(20_000)]
    assert cli.main(["suite", "run", "smoke", "--seeds", *seeds]) == 2
    assert f"at most {MAX_MEMBERS:,} runs" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_module_named_in_a_file_is_not_imported_unless_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "strange_module.py").write_text("import pathlib\npathlib.Path('ran').touch()\n")
    (tmp_path / "own.yaml").write_text(
        "methods: [sparc]\nenvs: ['strange_module:Strange-v0']\nseeds: [0]\nupdates: 100\n"
    )
    (run := tmp_path / "run").mkdir()
    (run / "config.yaml").write_text("method: sparc\nenv: strange_module:Strange-v0\n")
    for words in (["suite", "run", "own.yaml"], ["resume", "run"], ["evaluate", "run"], ["play", "run"]):
        assert cli.main(words) == 2
        said = capsys.readouterr().err
        assert not (tmp_path / "ran").exists(), words
        if words[0] == "suite":
            assert "would import strange_module" in said and "--allow-import" in said
    assert cli.main(["suite", "run", "own.yaml", "--allow-import"]) == 2
    assert (tmp_path / "ran").exists() and "Strange-v0" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)


@pytest.mark.parametrize("text", ["=1+1", "+a", "-cmd|' /C calc'!A0", "@SUM(1)", "'=1", "\t=1", "''=1"])
def test_text_that_a_spreadsheet_would_run_is_quoted(text: str) -> None:
    assert shield(text).startswith("'") and unshield(shield(text)) == text


@pytest.mark.parametrize("text", ["-1.5", "+3", "1e-5", "rally-07", "", "it's", "-inf"])
def test_other_text_and_numbers_stay_as_they_are(text: str) -> None:
    assert shield(text) == text == unshield(text)
