"""Adaptation: switches, and what is measured around them against episodes without one."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest

import sparc
from sparc.acting import adaptation
from sparc.acting.adaptation import encode, latents, principal_axes, rollout, spread, switches, trace
from sparc.acting.evaluate import evaluate
from sparc.acting.policy import Policy
from sparc.config import make_config
from sparc.contexts import Box, ContextSpace, Finite
from sparc.envs.contextual import ContextualVectorEnv
from sparc.envs.registry import all_envs, get_env
from sparc.methods.nets import Actor, ContextEncoder
from sparc.methods.sparc import Sparc
from sparc.runs import adaptations
from sparc.runs.adaptations import adapt_run, read_adaptation, why_no_trace
from sparc.runs.load import load, load_with_psi, make_spec
from sparc.runs.run import Run

BOAT, WALKER = "DriftingBoat-v0", "WindWalker2d-v5"
METHODS = ("sparc", "rma", "only-obs", "history-input", "oracle")
ADAPTERS = ("sparc", "rma")
SPACE = get_env(BOAT).context_space
LIMIT = 160  # steps for a walker: some fall before their middle, some after it


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log file where it stands


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, tiny_fields: dict[str, Any]) -> dict[str, Run]:
    """A tiny run of each method."""
    folder, phases = tmp_path_factory.mktemp("runs"), {"expert_updates": 100}
    return {
        method: Run.open(
            sparc.train(
                method,
                BOAT,
                run_dir=folder / method,
                updates=200,
                **tiny_fields | (phases if method == "rma" else {}),
            )
        )
        for method in METHODS
    }


Pair = tuple[Policy, ContextEncoder]


@pytest.fixture
def adapted(runs: dict[str, Run]) -> Pair:
    """The tiny run's adapter policy and its ψ."""
    policy, psi = load_with_psi(runs["sparc"], 200)
    assert psi is not None
    return policy, psi


def expert(pair: Pair) -> Policy:
    """The perfect adapter: ψ(c) itself in the place of φ(h)."""
    policy, psi = pair
    return Policy(Actor(policy.actor.trunk, psi), policy.spec)


# Loading


@pytest.mark.parametrize("method", METHODS)
def test_psi_comes_with_the_policies_that_phi_drives(runs: dict[str, Run], method: str) -> None:
    policy, psi = load_with_psi(runs[method], 200)
    assert (psi is not None) == (method in ADAPTERS)
    obs, contexts = np.ones((3, 2)), np.array([[0.1, 0.2]] * 3)
    context = contexts if policy.reads == "context" else None
    np.testing.assert_array_equal(policy.act(obs, context), load(runs[method].path, 200).act(obs, context))


def test_rma_has_no_adapter_at_the_wheel_in_its_first_phase(runs: dict[str, Run]) -> None:
    policy, psi = load_with_psi(runs["rma"], 100)
    assert policy.reads == "context" and psi is None


# Switches


def change(space: ContextSpace, found: adaptation.Switches) -> np.ndarray:
    return np.abs((found.after - found.before) / (space.train.high - space.train.low)).max(axis=1)


@pytest.mark.parametrize("features", [1, 2, 5])
def test_switches_lead_far_enough_within_and_out_of_the_training_region(features: int) -> None:
    space = ContextSpace.box(**{f"f{i}": ("", (-1.0 - i, 1.0), (-2.0 - i, 2.0)) for i in range(features)})
    found = switches(space, 16, seed=3)
    assert found.before.shape == found.after.shape == (32, features)
    assert found.region.tolist() == ["ind"] * 16 + ["ood"] * 16
    assert space.is_train(found.before).all()
    np.testing.assert_array_equal(space.is_train(found.after), found.region == "ind")
    space.check(found.after)
    assert (change(space, found) >= 0.5).all()
    assert len(np.unique(found.before, axis=0)) == 32


def test_switches_are_always_the_same_for_a_seed() -> None:
    first, second, other = switches(SPACE, 4, 1), switches(SPACE, 4, 1), switches(SPACE, 4, 2)
    for a, b, c in zip(first, second, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.shape == c.shape
    assert (first.after != other.after).all()


def test_switches_within_a_finite_set() -> None:
    train = Finite(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    test = Finite(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [3.0, 3.0]]))
    space = ContextSpace(("x", "y"), ("", ""), train, test)
    found = switches(space, 8)
    space.check(found.after)
    assert train.contains(found.before).all() and (found.before != found.after).any(axis=1).all()
    np.testing.assert_array_equal(train.contains(found.after), found.region == "ind")
    assert found.region.tolist() == ["ind"] * 8 + ["ood"] * 8


def test_contexts_that_lie_close_give_the_largest_changes() -> None:
    # forty values close together and one far off: most pairs differ by less than half the range
    values = np.append(np.linspace(0.0, 0.2, 40), 1.0)[:, None]
    found = switches(ContextSpace(("x",), ("",), Finite(values), Finite(values)), 4)
    assert found.region.tolist() == ["ind"] * 4
    assert ((found.before == 1.0) | (found.after == 1.0)).all()


def test_without_contexts_outside_there_are_no_switches_to_there() -> None:
    space = ContextSpace.box(x=("", (-1, 1), (-1, 1)), y=("", (0, 1), (0, 1)))
    assert switches(space, 5).region.tolist() == ["ind"] * 5


def test_one_context_for_training_leaves_only_switches_out_of_it() -> None:
    space = ContextSpace(("x",), ("",), Finite(np.zeros((1, 1))), Box(-np.ones(1), np.ones(1)))
    found = switches(space, 5)
    assert found.region.tolist() == ["ood"] * 5 and not found.before.any()


# The switch


class Seen(NamedTuple):
    running: np.ndarray
    reward: np.ndarray
    latent: np.ndarray


def episodes(policy: Policy, *arguments: Any, **options: Any) -> list[Seen]:
    return [Seen(now.running, now.reward, policy.latent) for now in rollout(policy, *arguments, **options)]


def test_the_switch_happens_at_its_step_and_not_before(adapted: Pair) -> None:
    before, after = np.array([[0.1, 0.2], [-0.5, 0.5]]), np.array([[-0.4, 0.2], [1.0, -1.0]])
    calm = episodes(adapted[0], BOAT, before, 40)
    switched = episodes(adapted[0], BOAT, before, 40, after, 17)
    assert len(calm) == len(switched) == 40
    for step, (a, b) in enumerate(zip(calm, switched, strict=True)):
        if step < 17:
            np.testing.assert_array_equal(a.reward, b.reward)
        elif step == 17:
            assert (a.reward != b.reward).all()
        if step < 18:  # a history does not yet know of the step that was just taken
            np.testing.assert_array_equal(a.latent, b.latent)
        elif step == 19:  # the observation after the switch has entered the history
            assert (a.latent != b.latent).any(axis=1).all()


@pytest.mark.parametrize("method", METHODS)
def test_episodes_are_those_of_an_evaluation(runs: dict[str, Run], method: str) -> None:
    policy, _ = load_with_psi(runs[method], 200)
    contexts = SPACE.grid(3)
    total = sum(now.reward for now in episodes(policy, BOAT, contexts, 1000, seed=4))
    np.testing.assert_allclose(total, evaluate(policy, BOAT, contexts, seed=4).returns, rtol=1e-4)


def test_a_trace_averages_what_happens_around_the_middle(adapted: Pair) -> None:
    policy, psi = adapted
    found = trace(policy, psi, BOAT, n=3, seed=1)
    assert found.region.tolist() == ["ind"] * 100 + ["ood"] * 100
    np.testing.assert_array_equal(found.step, np.tile(np.arange(-50, 50), 2))
    np.testing.assert_array_equal(found.rows, np.full(200, 3.0))
    chosen = switches(SPACE, 3, 1)
    steps = episodes(policy, BOAT, chosen.before, 100, chosen.after, 50, seed=1)
    np.testing.assert_allclose(found.reward[:100], [now.reward[:3].mean() for now in steps])
    np.testing.assert_allclose(found.reward[100:], [now.reward[3:].mean() for now in steps])
    unit = spread(encode(psi, SPACE.grid(21)))
    for step, place in ((49, 49), (50, 50)):
        truth = encode(psi, chosen.before if step < 50 else chosen.after)[:3]
        distances = [np.sqrt(sum((a - b) ** 2)) for a, b in zip(steps[step].latent[:3], truth, strict=True)]
        np.testing.assert_allclose(found.distance[place], np.mean(distances) / unit, rtol=1e-6)


def test_the_window_is_cut_where_the_episode_is_longer(adapted: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adaptation, "BEFORE", 10)
    monkeypatch.setattr(adaptation, "AFTER", 20)
    calls: list[tuple[int, int]] = []
    found = trace(*adapted, BOAT, n=2, progress=lambda *call: calls.append(call))
    np.testing.assert_array_equal(found.step, np.tile(np.arange(-10, 20), 2))
    assert calls == [(step, 70) for step in range(1, 71)]


def test_what_an_environment_has_to_tell_is_told(adapted: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ContextualVectorEnv, "take_notes", lambda venv: ["the simulator was lost"])
    with pytest.warns(UserWarning, match="the simulator was lost"):
        episodes(adapted[0], BOAT, get_env(BOAT).context_space.settings, 3)


def test_an_option_of_the_run_can_shorten_its_episodes(adapted: Pair) -> None:
    found = trace(*adapted, BOAT, n=2, max_episode_steps=30)
    np.testing.assert_array_equal(found.step, np.tile(np.arange(-15, 15), 2))


def test_the_perfect_adapter_is_at_no_distance(adapted: Pair) -> None:
    found = trace(expert(adapted), adapted[1], BOAT, n=4)
    np.testing.assert_allclose(found.distance, 0.0, atol=1e-5)
    at_a_loss = trace(*adapted, BOAT, n=4)
    assert (at_a_loss.distance > 0.1).all()


def test_guessing_the_average_is_at_a_distance_of_one(adapted: Pair) -> None:
    policy, psi = adapted
    grid = SPACE.grid(21)
    truth = encode(psi, grid)
    # φ that ignores the history and always says the mean of ψ over the grid, which is not negative
    phi = policy.actor.encoder
    constant = eqx.tree_at(
        lambda p: (p.out.weight, p.out.bias),
        phi,
        (jnp.zeros_like(phi.out.weight), jnp.asarray(truth.mean(axis=0), jnp.float32)),  # type: ignore[union-attr]
    )
    policy.actor = Actor(policy.actor.trunk, constant)
    found = trace(policy, psi, BOAT, n=8)
    chosen = switches(SPACE, 8)
    distance = np.linalg.norm(encode(psi, chosen.after) - truth.mean(axis=0), axis=1)
    unit = np.sqrt(np.mean(np.linalg.norm(truth - truth.mean(axis=0), axis=1) ** 2))
    for region in ("ind", "ood"):
        after = found.distance[(found.region == region) & (found.step >= 0)]
        np.testing.assert_allclose(after, distance[chosen.region == region].mean() / unit, rtol=1e-5)


def test_spread_by_hand() -> None:
    # mean (1, 1), squared distances from it 4, 4, 9, 9
    assert spread(np.array([[3.0, 1.0], [-1.0, 1.0], [1.0, 4.0], [1.0, -2.0]])) == pytest.approx(6.5**0.5)
    assert spread(np.array([[0.0, 0.0], [6.0, 8.0]])) == pytest.approx(5.0)
    assert np.isnan(spread(np.ones((4, 3))))


@pytest.fixture
def walker(tiny: dict[str, Any]) -> Pair:
    """An untrained walker, of those that do not fall at once."""
    config = make_config({"method": "sparc", "env": WALKER, **tiny})
    venv = sparc.make_vector_env(WALKER, 1)
    method = Sparc(config, make_spec(venv))
    state = method.init(np.random.default_rng(9))
    assert isinstance(state.expert.encoder, ContextEncoder)
    return Policy(method.policy(state), method.spec), state.expert.encoder


def test_rows_that_fall_drop_out(walker: Pair) -> None:
    found = trace(*walker, WALKER, n=8, max_episode_steps=LIMIT)
    chosen = switches(get_env(WALKER).context_space, 8)
    steps = episodes(walker[0], WALKER, chosen.before, LIMIT, chosen.after, LIMIT // 2, max_episode_steps=LIMIT)
    lengths = np.stack([now.running for now in steps]).sum(axis=0)
    assert len(set(lengths.tolist())) > 3 and lengths.min() < LIMIT // 2 < lengths.max()
    for region in ("ind", "ood"):
        mine, those = found.region == region, chosen.region == region
        alive = np.array([(lengths[those] > step).sum() for step in range(LIMIT)])
        np.testing.assert_array_equal(found.rows[mine], alive[alive > 0])
        np.testing.assert_array_equal(found.step[mine], np.arange((alive > 0).sum()) - LIMIT // 2)
        for step, reward in zip(found.step[mine] + LIMIT // 2, found.reward[mine], strict=True):
            assert reward == pytest.approx(steps[int(step)].reward[those & (lengths > step)].mean())


def test_the_second_half_is_that_of_what_an_episode_lasted(walker: Pair) -> None:
    policy, psi = walker
    space = get_env(WALKER).context_space
    grid = space.grid(3)
    found = latents(policy, psi, WALKER, grid, max_episode_steps=LIMIT)
    assert found is not None
    steps = episodes(policy, WALKER, grid, LIMIT, max_episode_steps=LIMIT)
    lengths = np.stack([now.running for now in steps]).sum(axis=0)
    assert len(set(lengths.tolist())) > 3
    truth = encode(psi, grid)
    axes = principal_axes(truth, (grid - space.centre) / space.half_range)
    for row, length in enumerate(lengths):
        guess = np.mean([now.latent[row] for now in steps[length // 2 : length]], axis=0)
        np.testing.assert_allclose(found.phi[row], (guess - truth.mean(axis=0)) @ axes, atol=1e-5)


# An environment that goes wrong


class Brittle(gym.Env[Any, Any]):
    """Returns NaN where the context is out of the training region."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,))
    action_space = gym.spaces.Box(-1.0, 1.0, (2,))
    context = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), np.nan if self.context > 1 else 1.0, False, False, {}


gym.register("BrittleBase-v0", entry_point=Brittle, max_episode_steps=30)
sparc.register_env(
    "Brittle-v0",
    make="BrittleBase-v0",
    apply=lambda env, context: setattr(env, "context", float(context[0])),
    context_space=ContextSpace.box(x=("", (0, 1), (0, 2)), y=("", (0, 1), (0, 1))),
)


def test_nan_is_reported_with_the_context(adapted: Pair) -> None:
    with pytest.raises(
        sparc.RunFailure, match=r"^Brittle-v0 returned NaN or infinity in a reward at step 15 with x=1\.\d+, y="
    ):
        trace(*adapted, "Brittle-v0", n=2)


sparc.register_env(
    "Constant-v0",
    make="BrittleBase-v0",
    apply=lambda env, context: None,
    context_space=ContextSpace(("x", "y"), ("", ""), Finite(np.zeros((1, 2))), Finite(np.zeros((1, 2)))),
)


def test_one_context_leaves_nothing_to_switch_to(adapted: Pair) -> None:
    found = trace(*adapted, "Constant-v0")
    assert found.region.shape == found.step.shape == found.distance.shape == (0,)


# Latents


def test_latents_average_the_second_half_on_the_axes_of_psi(adapted: Pair) -> None:
    policy, psi = adapted
    grid = SPACE.grid(5)
    found = latents(policy, psi, BOAT, grid)
    assert found is not None and found.psi.shape == found.phi.shape == (25, 2)
    truth = encode(psi, grid)
    guess = np.mean([now.latent for now in episodes(policy, BOAT, grid, 100)][50:], axis=0)
    axes = principal_axes(truth, grid)
    np.testing.assert_allclose(found.psi, (truth - truth.mean(axis=0)) @ axes)
    np.testing.assert_allclose(found.phi, (guess - truth.mean(axis=0)) @ axes, atol=1e-5)
    np.testing.assert_allclose(found.psi.mean(axis=0), 0.0, atol=1e-6)
    assert latents(policy, None, BOAT, grid) is None


def test_latents_of_the_perfect_adapter_are_those_of_psi(adapted: Pair) -> None:
    found = latents(expert(adapted), adapted[1], BOAT, SPACE.grid(4))
    assert found is not None
    np.testing.assert_allclose(found.phi, found.psi, atol=1e-5)


def test_principal_axes_by_hand() -> None:
    contexts = np.stack(np.meshgrid([-1.0, 0.0, 1.0], [-1.0, 0.0, 1.0], indexing="ij"), axis=-1).reshape(-1, 2)
    x, y = contexts.T
    latent = np.stack([7 + 0 * x, -y, 3 * x], axis=1)  # x along the third coordinate, y against the second
    np.testing.assert_allclose(principal_axes(latent, contexts), [[0, 0], [0, -1], [1, 0]], atol=1e-12)
    np.testing.assert_allclose(principal_axes(-latent, contexts), [[0, 0], [0, 1], [-1, 0]], atol=1e-12)
    np.testing.assert_allclose(principal_axes(x[:, None], contexts), [[1, 0]], atol=1e-12)  # one dimension of latent


# Files


def seal_of(run: Run, number: int) -> dict[str, Any]:
    seal: dict[str, Any] = json.loads((run.evaluations / f"{number}-adaptation.json").read_text())
    return seal


@pytest.mark.parametrize("method", METHODS)
def test_a_run_is_measured_and_read_again(runs: dict[str, Run], method: str) -> None:
    run, adapter = runs[method], method in ADAPTERS
    number = run.choose("best")
    calls: list[tuple[int, int]] = []
    run.evaluations.mkdir(exist_ok=True)
    (run.evaluations / f"{number}-latents.csv").write_text("of another time\n")
    assert adapt_run(run, number, 3, lambda *call: calls.append(call)) == ""
    kinds = ["adaptation.json", "trace.csv", *(["latents.csv"] if adapter else [])]
    assert {file.name for file in run.evaluations.iterdir()} == {f"{number}-{kind}" for kind in kinds}
    told = {"grid": 3, "trace_rows": 200, "latents_rows": 9 if adapter else None, "note": ""}
    assert seal_of(run, number).items() >= told.items()
    assert calls == [(step, 100) for step in range(1, 101)] * (2 if adapter else 1)
    policy, psi = load_with_psi(run, number)
    (found, found_latents), made = read_adaptation(run, number, 3), trace(policy, psi, BOAT)
    assert found.region.tolist() == made.region.tolist()
    assert np.isnan(found.distance).all() == (not adapter)
    for column in ("step", "reward", "distance", "rows"):
        np.testing.assert_allclose(getattr(found, column), getattr(made, column), rtol=1e-7)
    assert (found_latents is not None) == adapter
    if found_latents is not None:
        header, first, *_, last = (run.evaluations / f"{number}-latents.csv").read_text().splitlines()
        assert header == "x,y,region,psi_1,psi_2,phi_1,phi_2"
        assert first.startswith("-1,-1,ood,") and last.startswith("1,1,ood,")
        mapped = latents(policy, psi, BOAT, SPACE.grid(3))
        assert mapped is not None
        np.testing.assert_allclose(found_latents.psi, mapped.psi, rtol=1e-7)
        np.testing.assert_allclose(found_latents.phi, mapped.phi, rtol=1e-7)


BY_HAND = {
    "5-trace.csv": "region,step,reward,distance,rows\nind,-1,0.5,,3\nood,0,0.25,0.125,2\n",
    "5-latents.csv": "x,region,psi_1,psi_2,phi_1,phi_2\n0.5,ind,1,2,3,4\n1.5,ood,1,2,3,4\n",
    "5-adaptation.json": '{"grid": 2, "trace_rows": 2, "latents_rows": 2, "note": ""}\n',
}


@pytest.fixture
def by_hand(tmp_path: Path) -> Run:
    """A directory with nothing but a checkpoint's adaptation."""
    run = Run(tmp_path / "run", make_config({"method": "sparc", "env": BOAT}))
    run.evaluations.mkdir(parents=True)
    for name, text in BY_HAND.items():
        (run.evaluations / name).write_text(text)
    return run


def refused(run: Run, grid: int = 2) -> str:
    """Read what is not whole; give the reason."""
    remedy = f"`sparc evaluate RUN --adaptation --grid {grid} --checkpoint 5`."
    with pytest.raises(sparc.UserError) as caught:
        read_adaptation(run, 5, grid)
    message = str(caught.value)
    assert message.endswith(remedy) and "\n" not in message
    assert str(run.path) not in message  # it ends up in tables that are shown to others
    return message


def test_files_by_hand(by_hand: Run) -> None:
    found, mapped = read_adaptation(by_hand, 5, 2)
    assert found.region.tolist() == ["ind", "ood"] and found.step.tolist() == [-1.0, 0.0]
    assert np.isnan(found.distance[0]) and found.distance[1] == 0.125 and found.rows.tolist() == [3.0, 2.0]
    assert mapped is not None
    assert mapped.psi.tolist() == [[1.0, 2.0]] * 2 and mapped.phi.tolist() == [[3.0, 4.0]] * 2


@pytest.mark.parametrize("name", BY_HAND)
def test_files_that_are_not_whole_are_refused(by_hand: Run, name: str) -> None:
    path, text = by_hand.evaluations / name, BY_HAND[name]
    path.unlink()
    assert f"({name}: No such file" in refused(by_hand)
    for length in range(len(text) - (name.endswith("json"))):  # JSON can do without its last line break
        path.write_text(text[:length])  # cut anywhere, between two lines as well
        assert name in refused(by_hand)
    path.write_bytes(b"\xff\x00" * 20)
    assert name in refused(by_hand)
    path.write_text("[]")
    assert name in refused(by_hand)
    path.write_text(text)
    read_adaptation(by_hand, 5, 2)


@pytest.mark.parametrize("name", ["5-trace.csv", "5-latents.csv"])
def test_rows_that_were_not_written_are_refused(by_hand: Run, name: str) -> None:
    path, text = by_hand.evaluations / name, BY_HAND[name]
    path.write_text(text + text.splitlines()[-1] + "\n")
    assert f"{name} has 3 rows instead of 2" in refused(by_hand)
    path.write_text(text.replace(",2", ",two"))
    assert f"{name} has a cell in column " in refused(by_hand)


def test_another_grid_is_refused(by_hand: Run) -> None:
    assert "it is of a grid of 2, not 21" in refused(by_hand, grid=21)


def test_what_is_damaged_is_made_again_and_what_was_cut_off_has_no_seal(
    runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runs["sparc"]
    adapt_run(run, 200, 2)
    path = run.evaluations / "200-trace.csv"
    whole = path.read_text()
    path.write_text("".join(whole.splitlines(keepends=True)[:-1]))
    with pytest.raises(sparc.UserError, match="199 rows instead of 200"):
        read_adaptation(run, 200, 2)

    def cut_off(path: Path, *_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(adaptations, "write_columns", cut_off)
        adapt_run(run, 200, 2)
    with pytest.raises(sparc.UserError, match=r"200-adaptation\.json: No such file"):
        read_adaptation(run, 200, 2)
    adapt_run(run, 200, 2)
    assert path.read_text() == whole
    read_adaptation(run, 200, 2)


# Environments of others

YOUR_OWN = Path(__file__).parents[2] / "docs" / "environments" / "your-own.md"
RIGID = """
import sparc
from sparc.envs.boat.env import CURRENT, BoatVectorEnv
from sparc.envs.contextual import ContextualVectorEnv

class Rigid(BoatVectorEnv):
    _switch = ContextualVectorEnv._switch

sparc.register_env(
    "Rigid-v0", context_space=CURRENT, make="sparc.envs.boat.env:make_boat", make_vector=Rigid, max_episode_steps=40
)
"""


@pytest.fixture
def measured(
    tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], tuple[Run, str]]:
    """Train on the environment of someone's file and measure how the run adapts; all is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("sparc.envs.registry._entries", all_envs())
    monkeypatch.setattr("gymnasium.envs.registration.registry", dict(gym.registry))

    def measure(id: str, source: str) -> tuple[Run, str]:
        monkeypatch.delitem(sys.modules, "theirs", raising=False)
        (tmp_path / "theirs.py").write_text(source)
        run = Run.open(sparc.train("sparc", f"theirs:{id}", run_dir=tmp_path / "run", updates=10, **tiny))
        return run, adapt_run(run, 10, 3)

    return measure


def documented_class() -> str:
    """Return the class that the documentation shows."""
    found = re.search(r"```python\n# windy_point\.py\n(.*?)```", YOUR_OWN.read_text(), re.DOTALL)
    assert found
    return found[1]


def test_the_class_of_the_documentation_has_a_trace(measured: Callable[[str, str], tuple[Run, str]]) -> None:
    run, note = measured("WindyPoint-v0", documented_class())
    assert note == seal_of(run, 10)["note"] == ""
    found, mapped = read_adaptation(run, 10, 3)
    assert len(found.step) == seal_of(run, 10)["trace_rows"] == 200
    assert mapped is not None and len(mapped.psi) == 3


@pytest.mark.parametrize("id", ["WindyPoint-v0", "Rigid-v0"])
def test_what_cannot_be_switched_has_an_empty_trace_and_latents(
    measured: Callable[[str, str], tuple[Run, str]], id: str
) -> None:
    without = re.sub(r"    def set_context\(.*\n.*\n", "", documented_class())
    assert "set_context" not in without
    run, note = measured(id, RIGID if id == "Rigid-v0" else without)
    assert note == seal_of(run, 10)["note"]
    assert re.match(r"\w+ cannot switch .* in mid-episode; .* (_switch|set_context)\(\w+\)$", note)
    assert (run.evaluations / "10-trace.csv").read_text() == "region,step,reward,distance,rows\n"
    found, mapped = read_adaptation(run, 10, 3)
    assert found.region.shape == found.step.shape == found.rows.shape == (0,)
    assert mapped is not None and np.isfinite(mapped.phi).all()
    assert len(mapped.psi) == seal_of(run, 10)["latents_rows"] == len(get_env(run.config.env).context_space.grid(3))


def test_a_single_context_and_episodes_that_end_at_once_are_reasons_too(
    measured: Callable[[str, str], tuple[Run, str]],
) -> None:
    brief = documented_class().replace("False, False", "True, False").replace("_steps=100", "_steps=400")
    run, note = measured("WindyPoint-v0", brief)
    assert note == "all episodes ended long before their middle"
    assert len(read_adaptation(run, 10, 3)[0].step) == 0
    assert why_no_trace("Constant-v0", {}) == "there is only one context"
    assert why_no_trace(BOAT, {}) == ""


def test_a_switch_that_raises_is_a_failure_of_the_environment(
    measured: Callable[[str, str], tuple[Run, str]],
) -> None:
    faulty = documented_class().replace("self.context = np.array(context)", "raise IndexError('out of wind')")
    with pytest.raises(
        sparc.RunFailure,
        match=r"WindyPoint-v0 raised IndexError at step 50 \(\w+\.py:\d+\) with .*: out of wind; .*--debug",
    ):
        measured("WindyPoint-v0", faulty)


def test_settling_needs_no_jax() -> None:
    heavy = ["jax", "mujoco", "matplotlib"]
    code = f"import sys, sparc.acting.adaptation; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
