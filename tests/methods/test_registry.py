"""Methods of others: registered, refused, loaded as plug-ins, and the example of the documentation as it is written."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sparc
from sparc import config as configs
from sparc.config import make_config, option
from sparc.errors import UserError
from sparc.methods import all_methods, find_method, phase_span, registry
from sparc.methods.only_obs import OnlyObs
from sparc.methods.qr_sac import QrSac, Spec

Cli = Callable[..., subprocess.CompletedProcess[str]]
PAGE = Path(__file__).parents[2] / "docs" / "methods" / "add-a-method.md"
BOAT = "DriftingBoat-v0"
WHO = {"env": BOAT}


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(registry, "_entries", all_methods())
    monkeypatch.setattr(configs, "_declared", dict(configs._declared))


def register(name: str = "mine", **values: Any) -> None:
    sparc.register_method(name, OnlyObs, **{"reads": "observation", **values})


def test_a_registered_method_is_loaded_by_its_name() -> None:
    register(title="Mine", cost=2.0)
    entry = find_method("mine")
    assert (entry.title, entry.cost, entry.privileged, entry.load()) == ("Mine", 2.0, False, OnlyObs)
    assert list(all_methods())[:5] == ["sparc", "rma", "only-obs", "history-input", "oracle"]
    sparc.register_method("by-name", "sparc.methods.only_obs:OnlyObs", reads="observation")
    assert find_method("by-name").load() is OnlyObs


def test_only_methods_that_read_the_context_are_privileged() -> None:
    assert [name for name, entry in all_methods().items() if entry.privileged] == ["oracle"]


def test_own_options_are_config_fields() -> None:
    register(options={"depth": option(2, "layers", low=1), "kind": option("a", "kind", choices=("a", "b"))})
    config = make_config({**WHO, "method": "mine", "depth": "3"})
    assert config.options == {"depth": 3, "kind": "a"} and config.to_dict()["depth"] == 3
    assert make_config(config.to_dict()) == config
    for wrong, message in (
        ({"depth": 0}, "depth must be at least 1, not 0"),
        ({"kind": "c"}, "unknown kind 'c': choose one of a, b."),
        ({"deph": 1}, "unknown config field 'deph': did you mean 'depth'?"),
        ({"rollout_policy": "expert"}, "rollout_policy is an option of sparc, not of mine: leave it out"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            make_config({**WHO, "method": "mine", **wrong})
    with pytest.raises(UserError, match="depth is an option of mine, not of sparc: leave it out"):
        make_config({**WHO, "method": "sparc", "depth": 3})


def test_phases_have_lengths_and_options() -> None:
    register(phases={"first": 0.5, "second": 0.25, "third": 0.25})
    config = make_config({**WHO, "method": "mine", "updates": 1000, "second_updates": 100})
    assert config.options == {"first_updates": 500, "second_updates": 100}
    spans = [phase_span(config, phase) for phase in find_method("mine").phases]
    assert spans == [(0, 500), (500, 600), (600, 1000)]
    with pytest.raises(UserError, match=r"first_updates \(500\) \+ second_updates \(500\) must be less than updates"):
        make_config({**WHO, "method": "mine", "updates": 1000, "second_updates": 500})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "my method"}, "'my-method' can"),
        ({"name": "a:b"}, "'a:b' cannot"),
        ({"reads": "everything"}, "reads must be one of observation, history, context"),
        ({"options": {"width": option(1, "w")}}, "'width' is a field of every method"),
        ({"options": {"depth": 3}}, r"declare the option 'depth' with sparc\.config\.option"),
        ({"options": {"depth": option([1], "d")}}, "the default of type int, float, bool, str"),
    ],
)
def test_a_registration_that_cannot_work_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        register(**values)
    assert len(all_methods()) == 5


def test_a_class_that_is_not_there_is_named() -> None:
    with pytest.raises(UserError, match=r"must be a class or have the form 'package\.module:Class'"):
        sparc.register_method("mine", "OnlyObs", reads="observation")
    sparc.register_method("mine", "sparc.methods.only_obs:OnlyObz", reads="observation")
    with pytest.raises(UserError, match=r"'mine' cannot be loaded from 'sparc\.methods\.only_obs:OnlyObz'"):
        find_method("mine").load()


def test_one_name_is_registered_by_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register()
    register(title="again")  # a notebook's cell may run twice
    assert find_method("mine").title == "again"
    monkeypatch.syspath_prepend(tmp_path)
    code = "import sparc\nsparc.register_method('mine', 'a:B', reads='history')\n"
    (tmp_path / "second_of_that_name.py").write_text(code)
    with pytest.raises(UserError, match=r"'mine' is registered twice, in .*test_registry\.py and in .*second_of_that"):
        find_method("second_of_that_name:mine")


def test_plug_ins_are_loaded_and_a_broken_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plugin:
        def __init__(self, value: str, load: Callable[[], Any]):
            self.value, self.load = value, load

    def broken() -> Any:
        raise ImportError("it is broken")

    plugins = [
        Plugin("broken_plugin", broken),
        Plugin("rival", lambda: lambda: sparc.register_method("sparc", OnlyObs, reads="history")),
        Plugin("working", lambda: register),
    ]
    monkeypatch.setattr(registry, "_plugins_loaded", False)
    monkeypatch.setattr("sparc.plugins.entry_points", lambda group: plugins if group == "sparc.methods" else [])
    with pytest.warns(UserWarning) as caught:
        assert find_method("mine").name == "mine"
    first, second = (str(warning.message) for warning in caught)
    assert "'broken_plugin' of sparc.methods was not loaded: it is broken" in first
    assert "'rival'" in second and "'sparc' is registered twice" in second and "rename one of them" in second
    assert find_method("sparc").title == "SPARC"


def test_an_unknown_module_or_method_names_the_remedy() -> None:
    with pytest.raises(UserError, match=r"is no_such_module\.py in this directory or installed\?"):
        find_method("no_such_module:mine")
    with pytest.raises(
        UserError, match=r"unknown method 'mine': choose one of sparc, rma.*your own, write module:name"
    ):
        find_method("mine")


def test_weight_decay_reaches_the_optimiser() -> None:
    """The decay shrinks weights without any gradient, which an optimiser can only do if it is handed the weights."""

    class Decaying(OnlyObs):
        def make_optimisers(self) -> dict[str, optax.GradientTransformation]:
            return super().make_optimisers() | {"expert": optax.adamw(0.1, weight_decay=0.5)}

    method: QrSac = Decaying(make_config({**WHO, "method": "only-obs", "width": 4}), Spec(2, 1, (0.0,), (1.0,)))
    before = method.init(np.random.default_rng(0))
    after, _, _ = method.descend(before, "expert", lambda actor: (jnp.zeros(()), None))
    for old, new in zip(jax.tree.leaves(before.expert), jax.tree.leaves(after.expert), strict=True):
        np.testing.assert_allclose(new, 0.95 * old, rtol=1e-6)


# The documentation's example


def blocks(language: str) -> Iterator[str]:
    fences = re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    yield from (text for found, text in fences if found == language)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of the example, which end with the test."""
    for language in ("python", "yaml"):
        text = next(blocks(language))
        (tmp_path / text.splitlines()[0].removeprefix("# ")).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "encoded_oracle", raising=False)
    return tmp_path


def test_the_example_of_the_documentation_runs_as_written(example: Path, sparc_cli: Cli) -> None:
    for line in "".join(blocks("")).splitlines():
        words = shlex.split(line)
        assert words[0] == "sparc"
        done = sparc_cli(*words[1:], timeout=600)
        assert done.returncode == 0, done.stderr
    config = make_config_of(example / "runs" / "try")
    assert config.method == "encoded_oracle:encoded-oracle" and config.options == {"context_units": 8}
    report = example / "runs" / "encoded" / "report"
    described = json.loads((report / "manifest.json").read_text())["methods"]["encoded-oracle"]
    assert (described["title"], described["colour"], described["reads"]) == ("Encoded Oracle", "#E69F00", "context")
    assert "#e69f00" in (report / "figures" / "curves.svg").read_text()
    page = (report / "report.html").read_text()
    row = re.search(r'<tr class="reference">(?:(?!</tr>).)*Encoded Oracle.*?</tr>', page, re.DOTALL)
    assert row and "a reference" in row[0] and "★" not in row[0]


def make_config_of(run: Path) -> configs.Config:
    from sparc.runs.run import Run

    return Run.open(run).config


@pytest.mark.slow
def test_the_example_trains_from_python(example: Path) -> None:
    *_, code = blocks("python")
    found: dict[str, Any] = {}
    exec(code, found)
    context = np.zeros(2)
    assert found["policy"].reads == "context"
    assert found["policy"].act(np.zeros(found["policy"].obs_size, np.float32), context).shape == (2,)
    assert found["run"].parent.name == "encoded-oracle"


def test_the_command_line_knows_the_options_of_a_method(example: Path, sparc_cli: Cli) -> None:
    out = " ".join(sparc_cli("train", "encoded_oracle:encoded-oracle", BOAT, "--help").stdout.split())
    assert "--context-units INT encoded-oracle only: units of the encoded context (default 16)" in out
    done = sparc_cli("train", "sparc", BOAT, "--context-units", "8")
    assert done.returncode == 2 and "unknown option '--context-units' of `sparc train`" in done.stderr
    done = sparc_cli("train", "encoded_oracle:encoded-oracle", BOAT, "--rollout-policy", "expert")
    assert done.returncode == 2
    assert "rollout_policy is an option of sparc, not of encoded_oracle:encoded-oracle: leave it out" in done.stderr
