import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from sparc.config import make_config
from sparc.errors import RunFailure, UserError
from sparc.methods import get_method
from sparc.methods.spec import Spec
from sparc.runs import checkpoint
from sparc.runs.checkpoint import (
    ARRAYS,
    FORMAT,
    META,
    POLICY,
    flatten,
    load,
    load_meta,
    numbers,
    prune,
    read_arrays,
    save,
    section,
    unflatten,
)

SOME = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b.c": np.array([2**63], np.uint64),
    "none": np.zeros((0, 3)),
}
SHIPPED = {"policy.weight": np.arange(4, dtype=np.float32)}
# of a version that chose by the mean of the scores: it has no "choice"
META_OF = {"phase": "train", "scores": [[10, 1.25, -0.1]], "config": {"env": "Boot-ü", "n": None}}


def same(first: checkpoint.Arrays, second: checkpoint.Arrays) -> bool:
    def bits(arrays: checkpoint.Arrays) -> dict[str, tuple[Any, ...]]:
        return {name: (array.shape, array.dtype, array.tobytes()) for name, array in arrays.items()}

    return bits(first) == bits(second)


def flip(file: Path, offset: int, bit: int = 0) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 1 << bit
    file.write_bytes(data)


# What goes in comes out


def test_save_then_load(tmp_path: Path) -> None:
    path = save(tmp_path, 10, SOME, SHIPPED, META_OF)
    assert path == tmp_path / "10"
    arrays, meta = load(path)
    assert same(arrays, SOME)
    assert {name: meta[name] for name in META_OF} == META_OF
    assert (meta["updates"], meta["format"]) == (10, FORMAT)
    assert load_meta(path) == meta
    assert same(read_arrays(path, POLICY, meta), SHIPPED)


def test_views_and_transposed_arrays_are_saved_as_they_look(tmp_path: Path) -> None:
    big = np.arange(24, dtype=np.float64).reshape(4, 6)
    arrays, _ = load(save(tmp_path, 1, {"t": big.T, "step": big[:, ::2], "scalar": np.array(3.0)}, {}, {}))
    np.testing.assert_array_equal(arrays["t"], big.T)
    np.testing.assert_array_equal(arrays["step"], big[:, ::2])
    assert arrays["scalar"].shape == ()


def test_files_are_safetensors_and_json_and_nothing_else(tmp_path: Path) -> None:
    path = save(tmp_path, 10, SOME, SHIPPED, META_OF)
    assert sorted(file.name for file in path.iterdir()) == sorted([ARRAYS, POLICY, META])
    assert same(load_file(path / ARRAYS), SOME) and same(load_file(path / POLICY), SHIPPED)
    assert json.loads((path / META).read_text())["checkpoint"]["scores"] == META_OF["scores"]


def test_object_arrays_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="object"):
        save(tmp_path, 10, {"pickle me": np.array([{}], dtype=object)}, {}, {})
    assert numbers(tmp_path) == []


def learner_state() -> Any:
    """Return a method's whole state with random numbers, and the method."""
    small = {"width": 8, "latent": 4, "history_length": 6, "num_quantiles": 3}
    method = get_method("sparc")(make_config({"method": "sparc", "env": "any"} | small), Spec(3, 2, (0.0,), (1.0,)))
    rng = np.random.default_rng(0)
    template = jax.eval_shape(lambda: method.init(np.random.default_rng(0)))
    return template, jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape) * 9, leaf.dtype), template)


def test_a_learners_state_comes_back_bit_for_bit(tmp_path: Path) -> None:
    template, state = learner_state()
    arrays = flatten(state, "state")
    assert len(arrays) == len(jax.tree.leaves(state))  # no two leaves share a name
    for part in ("expert", "adapter", "critics", "targets", "log_temperature", "optimisers"):
        assert any(name.startswith(f"state.{part}") for name in arrays)
    loaded, _ = load(save(tmp_path, 10, arrays | {"collector.obs": np.ones(2)}, {}, {}))
    again = unflatten(template, loaded, "state")
    assert jax.tree.structure(again) == jax.tree.structure(state)
    assert same(flatten(again, ""), flatten(state, ""))
    assert any(leaf.dtype == jnp.int32 for leaf in jax.tree.leaves(again.optimisers))  # Adam's counters
    assert list(section(loaded, "collector.")) == ["obs"]


@pytest.mark.parametrize("change", ["shape", "dtype", "missing"])
def test_a_checkpoint_that_does_not_fit_is_named(change: str) -> None:
    template = {"w": jnp.zeros((2, 3))}
    wrong = {"shape": np.zeros((3, 2), np.float32), "dtype": np.zeros((2, 3), np.float64)}
    arrays = {} if change == "missing" else {"s['w']": wrong[change]}
    with pytest.raises(RunFailure, match=r"s\['w'\] should be \(2, 3\) float32") as caught:
        unflatten(template, arrays, "s")
    assert "\n" not in str(caught.value)


# Damage


@pytest.mark.parametrize("where", [0.0, 0.1, 0.3, 0.5, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("bit", [0, 7])
def test_a_flipped_bit_in_the_arrays_is_found(tmp_path: Path, where: float, bit: int) -> None:
    path = save(tmp_path, 10, SOME, SHIPPED, META_OF)
    flip(path / ARRAYS, int(where * ((path / ARRAYS).stat().st_size - 1)), bit)
    with pytest.raises(RunFailure, match="10 is damaged"):
        load(path)


@pytest.mark.parametrize("bit", [0, 1, 5])
def test_a_flipped_bit_anywhere_in_the_json_is_found(tmp_path: Path, bit: int) -> None:
    path = save(tmp_path, 10, SOME, SHIPPED, META_OF)
    sound, meta = (path / META).read_bytes(), load_meta(path)
    undetected = []
    for offset in range(len(sound)):
        flip(path / META, offset, bit)
        try:
            if load_meta(path) != meta:  # the case of a digit in \u00fc changes nothing
                undetected.append(sound[max(0, offset - 10) : offset + 10])
        except RunFailure as error:
            assert "10 is damaged" in str(error) and "\n" not in str(error)
        (path / META).write_bytes(sound)
    assert not undetected


@pytest.mark.parametrize("name", [ARRAYS, POLICY, META])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut short", "longer", "folder"])
def test_a_missing_or_cut_file_is_found(tmp_path: Path, name: str, damage: str) -> None:
    path = save(tmp_path, 10, SOME, SHIPPED, META_OF)
    file = path / name
    data = file.read_bytes()
    file.unlink()
    if damage == "folder":
        file.mkdir()
    elif damage != "missing":
        file.write_bytes({"empty": b"", "cut short": data[:-1], "longer": data + b"x"}[damage])
    with pytest.raises(RunFailure, match="10 is damaged") as caught:
        load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["null", "[]", '{"checkpoint": 3, "sha256": ""}', '{"checkpoint": {}}', "{}"])
def test_json_of_another_shape_is_damage(tmp_path: Path, text: str) -> None:
    path = save(tmp_path, 10, SOME, SHIPPED, META_OF)
    (path / META).write_text(text)
    with pytest.raises(RunFailure, match="10 is damaged"):
        load(path)


@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_damage_to_the_policy_is_named_like_damage_to_the_arrays(tmp_path: Path, damage: str) -> None:
    path = save(tmp_path, 10, SOME, SHIPPED, META_OF)
    meta = load_meta(path)
    if damage == "flipped":
        flip(path / POLICY, -1)
    else:
        (path / POLICY).unlink()
    for read in (lambda: load(path), lambda: read_arrays(path, POLICY, meta)):
        with pytest.raises(RunFailure, match=r"10 is damaged.*policy\.safetensors") as caught:
            read()
        assert "\n" not in str(caught.value)
    assert not checkpoint.is_sound(path)


def test_the_policy_is_read_without_the_rest(tmp_path: Path) -> None:
    path = save(tmp_path, 10, SOME, SHIPPED, META_OF)
    (path / ARRAYS).unlink()
    assert same(read_arrays(path, POLICY, load_meta(path)), SHIPPED)


def test_arrays_of_another_checkpoint_are_found(tmp_path: Path) -> None:
    first, second = (
        save(tmp_path, 10, SOME, SHIPPED, META_OF),
        save(tmp_path, 20, SOME | {"a": np.ones(1)}, {}, META_OF),
    )
    shutil.copy(second / ARRAYS, first / ARRAYS)
    with pytest.raises(RunFailure, match="10 is damaged"):
        load(first)


def test_a_newer_format_asks_for_a_newer_sparc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "FORMAT", FORMAT + 1)
    path = save(tmp_path, 10, SOME, SHIPPED, META_OF)
    monkeypatch.undo()
    with pytest.raises(UserError, match=rf"format {FORMAT + 1}.*upgrade sparc-rl") as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_a_damaged_checkpoint_of_the_same_number_is_replaced(tmp_path: Path) -> None:
    path = save(tmp_path, 10, SOME, SHIPPED, META_OF)
    flip(path / ARRAYS, 100)
    (path / META).unlink()
    save(tmp_path, 10, {"a": np.ones(3)}, SHIPPED, {"phase": "again"})
    arrays, meta = load(path)
    assert same(arrays, {"a": np.ones(3)}) and meta["phase"] == "again"
    assert [entry.name for entry in tmp_path.iterdir()] == ["10"]


# All or nothing


def full_disk(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


class Killed(BaseException):
    """Ends a save without a chance to clean up."""


def killed(*_: Any, **__: Any) -> None:
    raise Killed


@pytest.mark.parametrize("step", ["sync", "digest"])
@pytest.mark.parametrize("number", [10, 20])
def test_a_full_disk_leaves_the_checkpoints_before_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    save(tmp_path, 10, SOME, SHIPPED, META_OF)
    monkeypatch.setattr(checkpoint, step, full_disk)
    with pytest.raises(RunFailure, match=r"the disk is full, .* free; make room") as caught:
        save(tmp_path, number, {"a": np.ones(3)}, {}, {})
    monkeypatch.undo()
    assert str(tmp_path / str(number)) in str(caught.value) and "\n" not in str(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["10"]
    assert same(load(tmp_path / "10")[0], SOME)


def test_a_failed_rename_leaves_the_one_it_would_have_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 10, SOME, SHIPPED, META_OF)
    rename = Path.rename

    def fail_into_place(self: Path, target: Path) -> Path:
        return full_disk() if self.name.endswith(".new") else rename(self, target)  # type: ignore[return-value]

    monkeypatch.setattr(Path, "rename", fail_into_place)
    with pytest.raises(RunFailure):
        save(tmp_path, 10, {"a": np.ones(3)}, {}, {})
    monkeypatch.undo()
    assert same(load(tmp_path / "10")[0], SOME)


@pytest.mark.parametrize("step", ["sync"])
def test_a_process_killed_while_saving_leaves_nothing_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    save(tmp_path, 10, SOME, SHIPPED, META_OF)
    monkeypatch.setattr(checkpoint, step, killed)
    with pytest.raises(Killed):
        save(tmp_path, 20, {"a": np.ones(3)}, {}, {})
    monkeypatch.undo()
    assert numbers(tmp_path) == [10]
    assert same(load(tmp_path / "10")[0], SOME)
    save(tmp_path, 20, {"a": np.ones(3)}, {}, {})  # the next process is not in its way
    assert numbers(tmp_path) == [10, 20]
    prune(tmp_path, {10, 20})
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["10", "20"]


LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np
from sparc.runs.checkpoint import save
from sparc.errors import RunFailure
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    save(Path(sys.argv[1]), 20, {"a": np.ones(100_000)}, {}, {})
except RunFailure as error:
    print(error)
"""


def test_a_file_that_the_system_cuts_short_is_a_failure_in_one_line(tmp_path: Path) -> None:
    save(tmp_path, 10, SOME, SHIPPED, META_OF)
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"Cannot write {tmp_path / '20'}") and done.stdout.count("\n") == 1
    assert "sparc resume" in done.stdout
    assert [entry.name for entry in tmp_path.iterdir()] == ["10"]
    assert same(load(tmp_path / "10")[0], SOME)


def test_a_mistake_in_the_program_is_not_called_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        save(tmp_path, 10, SOME, SHIPPED, {"not json": object()})
    assert list(tmp_path.iterdir()) == []


# Housekeeping


def test_numbers_counts_only_whole_checkpoints_in_their_order(tmp_path: Path) -> None:
    for updates in (100, 20, 3):
        save(tmp_path, updates, {"a": np.ones(1)}, {}, {})
    (tmp_path / ".40.new").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "50").touch()
    assert numbers(tmp_path) == [3, 20, 100]
    assert numbers(tmp_path / "not there") == []


def test_prune_keeps_what_it_is_told(tmp_path: Path) -> None:
    for updates in (10, 20, 30, 40):
        save(tmp_path, updates, {"a": np.full(1, updates)}, {}, {})
    (tmp_path / ".50.new").mkdir()
    (tmp_path / ".10.old").mkdir()
    prune(tmp_path, {20, 40, 60})
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["20", "40"]
    assert load(tmp_path / "20")[0]["a"] == 20
