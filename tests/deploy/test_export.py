"""Exports of trained policies: every method, every runtime, what the contract says, and what is refused."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import onnxruntime
import pytest
from exporting import SPECS, Pair

import sparc
from sparc.acting.evaluate import evaluate
from sparc.deploy import runtime
from sparc.deploy.contract import SCHEMA, spec_of
from sparc.deploy.export import Exported, from_folder, from_run, write
from sparc.deploy.graph import CONTRACT_KEY, build_model
from sparc.deploy.load import load
from sparc.deploy.runners import CPolicy, OnnxPolicy, check_export
from sparc.envs.boat.env import DT
from sparc.envs.registry import get_env
from sparc.errors import UserError
from sparc.runs.run import Run
from sparc.runs.tests import evaluate_run

TOLERANCE = 1e-5  # of unit actions
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DATA = Path(__file__).resolve().parents[1] / "data" / "export-format1"
SCHEMATA = json.loads(SCHEMA.read_text())

Trained = Callable[[str], Run]


def copied(export: Path, place: Path) -> Path:
    return Path(shutil.copytree(export, place / "copy"))


# Parity


@pytest.mark.parametrize("kind", SPECS)
def test_the_onnx_graph_as_jax(kind: str) -> None:
    spec, pair = SPECS[kind], Pair(SPECS[kind])
    model = build_model(pair.contract, pair.weights)
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == 17
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for rows in (1, 7, 2_000):
        scale = 10.0 ** rng.uniform(-1, 1.5, (rows, 1))
        obs = (scale * rng.normal(size=(rows, spec.obs_size))).astype(np.float32)
        given: dict[str, Any] = {"obs": obs}
        if spec.reads == "history":
            given["history"] = rng.normal(size=(rows, spec.history_length, 8)).astype(np.float32) * scale[:, None]
            given["history"][..., 5:] = np.clip(given["history"][..., 5:], -1, 1)
            given["history"][rng.random(rows) < 0.5, : spec.history_length // 2] = 0.0
            given["history"] = given["history"].astype(np.float32)
        elif spec.reads == "context":
            given["context"] = rng.normal(size=(rows, 2)).astype(np.float32)
        action, *rest = session.run(None, given)
        expected, state = pair.numpy.predict(obs, given.get("history"), context=given.get("context"))
        assert np.abs((action - expected) / pair.numpy.half).max() <= TOLERANCE
        assert len(rest) == (spec.reads == "history")
        if rest:
            np.testing.assert_allclose(rest[0], state, atol=TOLERANCE)


@pytest.mark.parametrize("method", ["sparc", "rma", "history-input", "only-obs", "oracle"])
def test_every_method_acts_the_same_in_every_runtime(method: str, trained: Trained, tmp_path: Path) -> None:
    run = trained(method)
    write(from_run(run, with_context=method == "oracle"), tmp_path, c=True, js=True)
    found = check_export(tmp_path)
    assert [one.runtime for one in found] == ["NumPy", "onnxruntime", "C, -O2", "Node"]
    for one in found:
        assert one.difference <= TOLERANCE, one
    contract = json.loads((tmp_path / "contract.json").read_text())
    jsonschema.validate(contract, SCHEMATA)
    reads = {"only-obs": "nothing", "oracle": "context"}.get(method, "history")
    assert (contract["reads"], contract["method"]) == (reads, method)
    trace = runtime.read_tensors(tmp_path, runtime.CHECK, contract)
    assert np.abs(trace["unit"]).max() > 0.1 and trace["start"].sum() == 2
    lines = (tmp_path / "README.md").read_text().splitlines()
    assert len(lines) <= 20 and all(len(line) <= 125 for line in lines)
    again = load(tmp_path)
    assert spec_of(contract) == again.spec
    obs = np.random.default_rng(0).normal(size=(5, 2))
    context = np.zeros((5, 2)) if method == "oracle" else None
    assert (again.act(obs, context) == load(run.path).act(obs, context)).all()


def test_c_as_numpy_on_histories_of_all_kinds(boat_export: Path) -> None:
    """Open loop: what was executed makes any history, so C is asked about as many as the others."""
    c, policy = CPolicy(boat_export), runtime.load(boat_export)
    rng = np.random.default_rng(0)
    largest = 0.0
    for row in range(2_000):
        if row % 20 == 0:  # in between, the ring goes round
            c.reset()
            policy.reset()
        obs = (10.0 ** rng.uniform(-1, 2) * rng.normal(size=2)).astype(np.float32)
        executed = rng.uniform(-1.2, 1.2, 2).astype(np.float32)
        c.executed(executed)
        largest = max(largest, float(np.abs(c.act(obs) - policy.act(obs, executed=executed)).max()))
    assert largest <= TOLERANCE
    with pytest.raises(runtime.PolicyError, match="element 1 of the observation is not finite"):
        c.act(np.array([0.0, np.nan]))
    assert np.abs(c.act(obs) - policy.act(obs)).max() <= TOLERANCE  # it did not reach the history


class Rows:
    """N policies for one robot each, for an evaluation of N rows."""

    reads = "history"

    def __init__(self, make: Callable[[], Any], rows: int):
        self.policies = [make() for _ in range(rows)]

    def reset(self) -> None:
        for policy in self.policies:
            policy.reset()

    def act(self, obs: np.ndarray, context: None = None) -> np.ndarray:
        return np.stack([policy.act(row) for policy, row in zip(self.policies, obs, strict=True)])


def test_returns_in_the_environment_are_those_of_jax(boat_export: Path, trained: Trained) -> None:
    """States drift apart by rounding, returns must not: they differ by less than they do between start states."""
    contexts = get_env("DriftingBoat-v0").context_space.grid(3)
    numpy_policy, onnx_policy = runtime.load(boat_export), OnnxPolicy(boat_export)
    onnx_policy.reads = "history"  # type: ignore[attr-defined]
    policies = {"numpy": numpy_policy, "onnx": onnx_policy, "c": Rows(lambda: CPolicy(boat_export), len(contexts))}
    expected = evaluate(load(trained("sparc").path), "DriftingBoat-v0", contexts).returns
    other_start = evaluate(load(trained("sparc").path), "DriftingBoat-v0", contexts, seed=1).returns
    noise = np.abs(expected - other_start).mean()
    for name, policy in policies.items():
        returns = evaluate(policy, "DriftingBoat-v0", contexts).returns  # type: ignore[arg-type]
        assert np.abs(returns - expected).mean() < 0.1 * noise, name


# The contract


def test_the_contract_says_what_a_robot_needs(trained: Trained, tmp_path: Path) -> None:
    run = trained("sparc")
    copy = Run.open(copied(run.path, tmp_path))
    before = from_run(copy, check=False).contract
    assert before["results"] == [] and before["settling_steps"] is None and before["check"] is None
    evaluation, stem = evaluate_run(copy, 3, 1, "best", None)
    contract = from_run(copy).contract
    jsonschema.validate(contract | {"checksums": {"policy.safetensors": "0" * 64}}, SCHEMATA)
    assert contract["results"][0]["ood"]["mean"] == evaluation.summary()["ood"]["mean"]
    assert contract["control"]["period_s"] == DT
    obs, action, context = contract["inputs"]["obs"], contract["outputs"]["action"], contract["context"]
    assert (obs["names"], obs["units"]) == (["x", "y"], ["m", "m"])
    assert action["names"] == ["velocity x", "velocity y"] and action["low"] == [-1, -1]
    assert contract["inputs"]["history"]["length"] == run.config.history_length
    assert context["train"] == {"low": [-0.5, -0.5], "high": [0.5, 0.5]} and context["test"]["high"] == [1, 1]
    assert all(low < high for low, high in zip(obs["seen_low"], obs["seen_high"], strict=True))
    stem.with_suffix(".json").write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        from_run(copy, check=False)


def test_the_settling_time_is_in_the_contract_once_measured(trained: Trained, tmp_path: Path) -> None:
    from sparc.runs.adaptations import adapt_run

    copy = Run.open(copied(trained("sparc").path, tmp_path))
    adapt_run(copy, copy.choose("best"), 3)
    steps = from_run(copy, check=False).contract["settling_steps"]
    assert steps.keys() == {"ind", "ood"} and steps["ind"].keys() == {"reward", "latent"}
    assert steps["ood"]["latent"] is None or 0 < steps["ood"]["latent"] < 100


def test_the_schema_refuses_a_contract_that_is_not_one(boat_export: Path) -> None:
    contract = json.loads((boat_export / "contract.json").read_text())
    for change in ({"format": 2}, {"reads": "tea leaves"}, {"surprise": 1}, {"control": {"period_s": 0, "note": ""}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(contract | change, SCHEMATA)
    del contract["inputs"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(contract, SCHEMATA)


def test_a_lone_onnx_file_explains_itself(boat_export: Path) -> None:
    model = onnx.load(boat_export / "policy.onnx")
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(metadata[CONTRACT_KEY]) == json.loads((boat_export / "contract.json").read_text())
    assert [entry.name for entry in model.graph.input] == ["obs", "history"]
    assert [entry.name for entry in model.graph.output] == ["action", "next_history"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


PLUGIN = """
import sparc
space = sparc.ContextSpace.box(m=("kg", (0.9, 1.1), (0.5, 1.5)))
def apply(env, context):
    env.m = float(context[0])
sparc.register_env("Exported-v0", make="Pendulum-v1", apply=apply, context_space=space, max_episode_steps=40)
"""


def test_an_environment_of_your_own_has_nulls_where_it_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: dict[str, Any]
) -> None:
    (tmp_path / "exported_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    env = "exported_plugin:Exported-v0"
    path = sparc.train("only-obs", env, run_dir=tmp_path / "run", **tiny, updates=20)
    write(from_run(Run.open(path)), tmp_path / "export", onnx=False)
    contract = json.loads((tmp_path / "export" / "contract.json").read_text())
    jsonschema.validate(contract, SCHEMATA)
    obs, action = contract["inputs"]["obs"], contract["outputs"]["action"]
    assert obs["names"] is obs["units"] is action["names"] is contract["control"]["period_s"] is None
    assert action["low"] == [-2.0] and contract["env"] == env
    monkeypatch.setattr("sparc.runs.load.find_env", lambda id: None)
    with pytest.raises(UserError, match=r"is not installed, and the check is recorded in it: .* --no-check"):
        from_run(Run.open(path))
    assert from_run(Run.open(path), check=False).contract["context"]["train"] is None


# What is refused


def test_a_policy_that_reads_the_context_is_not_deployed_by_accident(trained: Trained) -> None:
    with pytest.raises(
        UserError, match=r"reads the true context \(x, y\), which a robot cannot know: .* --with-context"
    ):
        from_run(trained("oracle"))
    rma = trained("rma")
    with pytest.raises(UserError, match="--with-context"):
        from_run(rma, 1_500)
    assert from_run(rma, 1_500, with_context=True).contract["network"]["encoder"] == "context-encoder"


def test_a_folder_with_something_else_in_it_is_left_alone(boat_export: Path, tmp_path: Path) -> None:
    exported = from_folder(boat_export)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to-my-mother.txt").write_text("…")
    with pytest.raises(UserError, match="is neither empty nor an export: choose another --to"):
        write(exported, tmp_path / "letters")
    with pytest.raises(UserError, match="is a file: choose another --to"):
        write(exported, tmp_path / "letters" / "to-my-mother.txt")
    write(exported, tmp_path / "export", c=True, js=True)
    (tmp_path / "export" / "notes.txt").write_text("mine")
    write(exported, tmp_path / "export", onnx=False)
    left = {path.name for path in (tmp_path / "export").iterdir()}
    names = {"contract.json", "policy.safetensors", "check.safetensors", "sparc_policy.py", "README.md", "notes.txt"}
    assert left == names  # no runtime of the earlier weights


def test_an_export_can_be_exported_again(boat_export: Path, tmp_path: Path) -> None:
    write(from_folder(boat_export), tmp_path, c=True)
    for name in ("policy.c", "policy.h", "policy_weights.h", "sparc_policy.py"):
        assert (tmp_path / name).read_bytes() == (boat_export / name).read_bytes()
    assert all(one.difference <= TOLERANCE for one in check_export(tmp_path))


def changed(folder: Path, **values: Any) -> None:
    path = folder / "contract.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda folder: changed(folder, format=2), "has format 2, this reader knows up to 1: use the sparc_policy.py"),
        (lambda folder: changed(folder, kind="cake"), "is not the contract of an exported policy"),
        (lambda folder: changed(folder, network={}), "is not whole: 'log_std_range'"),
        (lambda folder: (folder / "contract.json").write_text("{"), "is no JSON"),
        (lambda folder: (folder / "contract.json").unlink(), "is no exported policy: contract.json: No such file"),
        (lambda folder: (folder / "policy.safetensors").unlink(), "policy.safetensors: No such file"),
        (lambda folder: (folder / "policy.safetensors").write_bytes(b"?" * 99), "the checksum of .* is not the one in"),
    ],
)
def test_a_damaged_export_is_refused(
    damage: Callable[[Path], Any], message: str, boat_export: Path, tmp_path: Path
) -> None:
    folder = copied(boat_export, tmp_path)
    damage(folder)
    with pytest.raises(runtime.PolicyError, match=message):
        runtime.load(folder)
    with pytest.raises(UserError, match=message):
        check_export(folder)


def test_loading_executes_nothing(boat_export: Path, tmp_path: Path) -> None:
    folder = copied(boat_export, tmp_path)
    trap = "raise SystemExit('executed')\n"
    (folder / "sparc_policy.py").write_text(trap)
    (folder / "__init__.py").write_text(trap)
    (folder / "numpy.py").write_text(trap)
    runtime.load(folder)
    load(folder)
    assert isinstance(from_folder(folder), Exported)


def test_what_is_missing_is_said(boat_export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    found = {one.runtime: one.missing for one in check_export(boat_export)}
    assert found["NumPy"] == ""
    assert found["onnxruntime"] == "onnxruntime is not installed: pip install 'sparc-rl[deploy]'."
    assert "needs a C compiler" in found["C, -O2"] and "Node is not installed" in found["Node"]
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"ONNX needs the extra `deploy`: pip install .*, or use --no-onnx"):
        write(from_folder(boat_export), tmp_path)


def test_an_export_of_format_1_still_loads() -> None:
    """Written when format 1 was the newest: whatever comes later must read it."""
    contract = json.loads((DATA / "contract.json").read_text())
    assert contract["format"] == 1
    assert runtime.check(DATA)[0] <= TOLERANCE
    trace = runtime.read_tensors(DATA, runtime.CHECK, contract)
    policy = load(DATA)
    for step, obs in enumerate(trace["obs"]):
        if trace["start"][step]:
            policy.reset()
        assert np.abs(policy.act(obs) - trace["action"][step]).max() <= TOLERANCE


# Examples


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("flags", [["-O2"], ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]])
def test_the_real_time_loop_in_c(flags: list[str], boat_export: Path, tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    trace = run(sys.executable, EXAMPLES / "realtime_c" / "trace.py", boat_export, cwd=tmp_path)
    (tmp_path / "trace.csv").write_text(trace.stdout)
    warnings = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    sources = [f"-I{boat_export}", EXAMPLES / "realtime_c" / "main.c", boat_export / "policy.c", "-lm", "-o", "loop"]
    built = run("gcc", *warnings, *flags, *sources, cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    done = run("./loop", "trace.csv", 1000, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("128 steps, largest difference")
    (tmp_path / "bad.csv").write_text("1,0.5,nan,0,0\n")
    done = run("./loop", "bad.csv", cwd=tmp_path)
    assert done.returncode == 1 and "element 1 of the observation is not finite" in done.stderr
    assert run("./loop", cwd=tmp_path).returncode == 2


def test_the_control_loop_with_onnxruntime(boat_export: Path, tmp_path: Path) -> None:
    done = run(sys.executable, EXAMPLES / "control_loop.py", boat_export, 1000, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("128 steps") and float(done.stdout.split()[4].rstrip(",")) <= TOLERANCE
