"""An environment with measures and a variant of its own, as documented: from training to the report."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import yaml

import sparc
from sparc.acting.evaluate import Evaluation
from sparc.cli import main
from sparc.envs import registry
from sparc.envs.measures import make_criteria
from sparc.errors import UserError
from sparc.report.figures.curves import learned
from sparc.report.measured import mean_of
from sparc.runs.run import Run
from sparc.suites.tables import read

PAGE = Path(__file__).parents[2] / "docs" / "environments" / "your-own.md"
ENV = "Parking-v0"


@pytest.fixture
def parking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the documented file; what is registered is forgotten afterwards."""
    monkeypatch.setattr(registry, "_entries", registry.all_envs())
    monkeypatch.setattr("gymnasium.envs.registration.registry", dict(gym.registry))
    monkeypatch.delitem(sys.modules, "parking", raising=False)
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "# parking.py" in code)
    (tmp_path / "parking.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_documented_measures_reach_tables_figures_and_displays(
    parking: Path, tiny: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    suite = {"methods": ["only-obs"], "envs": [f"parking:{ENV}"], "seeds": [0], "updates": 100, "grid": 5,
             "variants": ["icy"], "preset": "light", "config": tiny}  # fmt: skip
    (parking / "own.yaml").write_text(yaml.safe_dump(suite))
    run = parking / "runs" / "own" / ENV / "only-obs" / "seed0"
    fields = {"preset": "light", "updates": 100, "seed": 0, **tiny}
    sparc.train("only-obs", f"parking:{ENV}", run_dir=run, **fields)
    for options in (["--adaptation"], ["--variant", "icy"]):
        assert main(["evaluate", str(run), "--grid", "5", *options]) == 0
    shown = capsys.readouterr().out
    assert "parked carts [%]" in shown and "energy used [J/kg]" in shown and f"{ENV}, icy, checkpoint" in shown
    number = Run.open(run).choose("best")
    evaluation, icy = (Evaluation.read_csv(run / "evaluations" / f"{number}-grid5{rest}.csv") for rest in ("", "-icy"))
    assert set(evaluation.measures) == {"parked", "energy"} and set(evaluation.measures["parked"]) <= {0.0, 1.0}
    assert not np.array_equal(evaluation.returns, icy.returns)
    mean = evaluation.summary()["ood"]["energy"]
    assert f"{mean:,.2f}" in shown

    assert main(["suite", "run", "own.yaml"]) == 0  # nothing is left to do
    capsys.readouterr()
    assert main(["suite", "status", "own.yaml"]) == 0
    assert f", energy {mean:,.2f} J/kg" in " ".join(capsys.readouterr().out.split())
    assert main(["suite", "report", "own.yaml", "--out", "out"]) == 0
    registry._entries.pop(ENV)  # as where the environment is not installed
    results = read(parking / "out")
    part = results.envs[ENV]
    assert list(results.parts) == [ENV, f"{ENV}, icy"] and part.judged_by == ("parked", "energy")
    assert part.criteria["energy"] == sparc.Measure("energy used", -1, "J/kg", 2)
    np.testing.assert_allclose(part.measures["only-obs"][0]["energy"], evaluation.measures["energy"], rtol=1e-7)
    np.testing.assert_allclose(part.variants["icy"].returns["only-obs"][0], icy.returns, rtol=1e-7)
    assert mean_of(part, "only-obs", "ood", "parked")[0] == pytest.approx(100 * evaluation.summary()["ood"]["parked"])
    assert learned(results, ENV) == ("parked", "energy")
    figures = {path.stem for path in (parking / "out" / "figures").glob("*.png")}
    assert {"summary", "curves", f"measures-parked-{ENV}", f"measures-energy-{ENV}"} <= figures
    assert main(["report", "out"]) == 0
    page = re.sub(r"<(script|style).*?</\1>", " ", (parking / "out" / "report.html").read_text(), flags=re.S)
    text = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    assert all(f"{name}, out of distribution (OOD" in text for name in (ENV, f"{ENV}, icy"))
    assert "parked carts [%]" in text and "energy used [J/kg], less is better" in text and f" {mean:,.2f} " in text
    assert f"What the new variant changes: {ENV}, icy" in text and "lap" not in re.findall(r"[a-z]+", text.lower())
    manifest = json.loads((parking / "out" / "manifest.json").read_text())
    assert manifest["criteria"][ENV]["judged_by"] == ["parked", "energy"] and manifest["variants"] == ["icy"]


def test_the_last_measures_of_an_episode_count(parking: Path) -> None:
    import parking as module

    assert isinstance(sparc.make_env(ENV).unwrapped, module.Parking)

    venv = sparc.make_vector_env(ENV, 2)
    assert set(venv.measures()) == {"parked", "energy"} and np.isnan(venv.measures()["energy"]).all()
    venv.reset(seed=0)
    for _ in range(5):
        venv.step(np.ones((2, 1)))
    np.testing.assert_allclose(venv.measures()["energy"], 5 * 0.1 * 4.0)
    venv.reset(options={"reset_mask": np.array([True, False])})
    assert np.isnan(venv.measures()["energy"][0]) and venv.measures()["energy"][1] > 0
    for _ in range(100):
        ended = venv.step(np.ones((2, 1)))[3]
    assert ended.all()
    np.testing.assert_allclose(venv.measures()["energy"], 100 * 0.1 * 4.0)  # the second was stepped on
    state = venv.get_state()
    other = sparc.make_vector_env(ENV, 2)
    other.set_state(state)
    np.testing.assert_array_equal(other.measures()["energy"], venv.measures()["energy"])


DECLARED: dict[str, Any] = {
    "max_episode_steps": 100,
    "measures": {"parked": sparc.Measure("parked"), "energy": sparc.Measure("energy", -1)},
    "judged_by": ("parked", "energy"),
}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "judged by nothing declared": ({"judged_by": ("parkd",)}, "'parkd' of .* in judged_by=: did you mean"),
    "judged by none": ({"judged_by": ()}, "judged_by must name"),
    "judged twice by one": ({"judged_by": ("parked", "parked")}, "judged_by must name"),
    "judged by a given": (
        {"measures": {"best": sparc.Measure("best", 0)}, "judged_by": "best"}, "a given .better=0. that no policy",
    ),
    "a measure that is a number": ({"measures": {"parked": 1.0}}, "'parked' must be a sparc.Measure"),
    "a wrong direction": ({"measures": {"parked": sparc.Measure("parked", 2)}}, "better of the measure 'parked'"),
    "the name of a column": ({"measures": {"region": sparc.Measure("x")}, "judged_by": None}, "called 'region'"),
    "the name of a feature": ({"measures": {"slope": sparc.Measure("x")}, "judged_by": None}, "a context feature"),
    "a variant for no file": ({"variants": {"a/b": {"friction": 1.0}}}, "'a/b' cannot, 'icy' can"),
    "a variant without options": ({"variants": {"icy": {}}}, "'icy' must hold options"),
    "a probe that is no name": ({"probes": {"the slope": len}}, "a probe cannot be called 'the slope'"),
    "a probe that is no function": ({"probes": {"slope": 1.0}}, "the probe 'slope' must be a function of contexts"),
    "a variant twice": ({"variants": {"icy": {"friction": 1}, "wet": {"friction": 1}}}, "'wet' has the options"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_declaration_is_refused_in_one_line(case: str) -> None:
    changes, message = WRONG[case]
    space = sparc.ContextSpace.box(slope=("", (-0.5, 0.5), (-1, 1)))
    with pytest.raises(UserError, match=message) as error:
        sparc.register_env("WrongParking-v0", **{**DECLARED, "make": "Pendulum-v1", "apply": print,
                                                 "context_space": space, **changes})  # fmt: skip
    assert "\n" not in str(error.value) and "WrongParking-v0" not in registry._entries


def test_names_of_columns_and_of_the_training_log_are_reserved() -> None:
    from sparc.acting.evaluate import FIXED
    from sparc.envs.measures import RESERVED, RESERVED_BEGINNINGS
    from sparc.suites.results import EXPLAINED, VARIANTS
    from sparc.suites.tables import KEYS, LABEL
    from sparc.training.loop import LEARNING

    names = {*FIXED, *KEYS, LABEL, *EXPLAINED, *LEARNING, "contexts", "mean", "std", "min", "max", "updates", "phase"}
    assert all(name in RESERVED or name.startswith(RESERVED_BEGINNINGS) for name in names)
    assert all(f"{variant}_" in RESERVED_BEGINNINGS for variant in VARIANTS)


def test_a_judged_measure_without_a_value_is_refused() -> None:
    criteria = make_criteria(ENV, DECLARED["measures"], DECLARED["judged_by"])
    values = {"parked": np.array([1.0, 0.0]), "energy": np.array([1.0, np.nan])}
    with pytest.raises(UserError, match="judged by 'energy', which 1 of 2 episodes have no value of"):
        criteria.check_values(ENV, values)
    criteria.check_values(ENV, {"other": np.array([np.nan])})  # of a setting without measures
    assert criteria.judged({"parked"}) == ("return",) and criteria.outcome({"mean": 1234.56}) == "1,234.6"
    assert criteria.outcome({"mean": 1.0, "parked": 0.5, "energy": 2.0}) == "parked 0.5, energy 2.0"


def test_an_undeclared_measure_is_named(parking: Path) -> None:
    import parking as module

    id, few = "Parking-v1", {"parkd": sparc.Measure("parked")}
    sparc.register_env(id, make=module.Parking, context_space=module.SLOPE, max_episode_steps=9, measures=few)
    venv = sparc.make_vector_env(id, 1)
    venv.reset(seed=0)
    with pytest.raises(UserError, match=r"unknown measure 'parked' of info..measures..: did you mean 'parkd'"):
        venv.step(np.ones((1, 1)))
