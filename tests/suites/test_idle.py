"""Doing nothing: measured once in the simulator, kept with the tables, never mixed with other contexts."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import CARS, make_races

from sparc.config import Config, make_config
from sparc.envs.registry import get_env
from sparc.errors import RunFailure, UserError
from sparc.suites import idle
from sparc.suites.idle import idle_returns
from sparc.suites.results import EnvResults, Results
from sparc.suites.tables import read, write

BOAT = "DriftingBoat-v0"


@pytest.fixture
def part() -> EnvResults:
    space = get_env(BOAT).context_space
    contexts = space.grid(5)
    return EnvResults(space, contexts, space.is_train(contexts), criteria=get_env(BOAT).criteria)


@pytest.fixture
def config() -> Config:
    return make_config({"method": "sparc", "env": BOAT})


def test_doing_nothing_is_measured_once(
    part: EnvResults, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "idle.csv"
    found = idle_returns(part, config, cache)
    assert found is not None and found.shape == (25,)
    assert 0 < found.max() < 10  # of the 100 that a boat gets which holds its place
    monkeypatch.setattr(idle, "measure", lambda *_: 1 / 0)
    np.testing.assert_allclose(idle_returns(part, config, cache), found, rtol=1e-7)
    with pytest.raises(ZeroDivisionError):  # another grid is measured anew
        idle_returns(replace(part, contexts=part.contexts[:9], ind=part.ind[:9]), config, cache)


@pytest.mark.parametrize("change", [{"revision": 2}, {"test_options": {"calm": True}}, None])
def test_doing_nothing_is_measured_again_in_another_simulator(
    part: EnvResults, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any] | None
) -> None:
    cache, found = tmp_path / "idle.csv", np.arange(25.0)
    monkeypatch.setattr(idle, "measure", lambda *_: found)
    idle_returns(part, config, cache)
    if change is None:  # a cache of an earlier version, which does not say
        idle.write_idle(cache, part, found)
    else:
        changed = replace(get_env(BOAT), **change)
        monkeypatch.setattr(idle, "get_env", lambda _: changed)
    monkeypatch.setattr(idle, "measure", lambda *_: found + 1)
    np.testing.assert_array_equal(idle_returns(part, config, cache), found + 1)
    monkeypatch.setattr(idle, "measure", lambda *_: 1 / 0)
    np.testing.assert_array_equal(idle_returns(part, config, cache), found + 1)


def test_where_the_return_does_not_judge_or_the_simulator_fails_there_is_none(
    part: EnvResults,
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    race = make_races((CARS,), cars=10).envs[CARS]
    assert idle_returns(race, config, tmp_path / "idle.csv") is None and not list(tmp_path.iterdir())

    def fail(*_: object) -> None:
        raise RunFailure("no simulator")

    monkeypatch.setattr(idle, "evaluate", lambda *_, **__: fail())
    assert idle_returns(part, config, tmp_path / "idle.csv") is None
    assert "not tested with doing nothing (no simulator" in capsys.readouterr().err


def test_the_table_is_written_read_and_checked(part: EnvResults, tmp_path: Path) -> None:
    returns = {"sparc": {0: np.arange(25.0)}}
    returns_of_nothing = np.linspace(-3.0, 3.0, 25)
    manifest = {
        "suite": "made", "grid": 5, "contexts": {BOAT: part.space.to_dict()},
        "members": [{"env": BOAT, "method": "sparc", "variation": "", "seed": 0, "state": "done"}],
    }  # fmt: skip
    results = Results(manifest, {BOAT: replace(part, returns=returns, idle=returns_of_nothing)})
    write(results, tmp_path)
    table = tmp_path / f"idle-{BOAT}.csv"
    assert table.read_text().splitlines()[:2] == ["x,y,region,return", "-1,-1,ood,-3"]
    np.testing.assert_allclose(read(tmp_path).envs[BOAT].idle, returns_of_nothing, rtol=1e-7)
    whole = table.read_text()
    table.write_text(whole.replace("-1,-1,", "-1,1,", 1))
    with pytest.raises(UserError, match="doing nothing was tested in other contexts"):
        read(tmp_path)
    table.write_text(whole.replace("ood,-3", "ood,-4", 1))
    with pytest.raises(UserError, match=rf"Changed in .*{table.name}"):
        read(tmp_path)
    write(Results(manifest, {BOAT: replace(part, returns=returns)}), tmp_path)
    assert not table.exists() and read(tmp_path).envs[BOAT].idle is None  # no number of another report is left
