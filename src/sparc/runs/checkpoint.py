"""Checkpoints: arrays as safetensors, the rest as JSON with a format version and checksums; no pickle.

The policy's arrays have a file of their own, which with the Spec in the JSON is all that loading a policy reads. The
other file has the whole state of training.

A checkpoint is written beside its place and then renamed, so a folder `checkpoints/<updates>` is always whole: a
process killed at any moment leaves the ones before it untouched.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from sparc.errors import RunFailure, UserError, cannot_write
from sparc.files import sync
from sparc.seals import checksum, digest

FORMAT = 2  # raise it when an older sparc could no longer read what is written; since 2: the Spec and the policy's file
ARRAYS, POLICY, META = "arrays.safetensors", "policy.safetensors", "checkpoint.json"

Arrays = dict[str, np.ndarray]
Meta = dict[str, Any]


def save(folder: Path, updates: int, arrays: Arrays, policy: Arrays, meta: Meta) -> Path:
    """Write checkpoint `updates` into the folder, all or nothing; one of that name is replaced."""
    from safetensors.numpy import save as pack

    target, beside, size = folder / str(updates), folder / f".{updates}.new", 0
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        files = {ARRAYS: arrays, POLICY: policy}
        checksums = {}
        for file, content in files.items():
            # safetensors wants contiguous arrays and no views; its own files would be readable by their owner alone
            packed = pack({name: np.array(array, order="C") for name, array in content.items()})
            checksums[file], size = hashlib.sha256(packed).hexdigest(), size + len(packed)
            (beside / file).write_bytes(packed)
        meta = {**meta, "format": FORMAT, "updates": updates, "checksums": checksums}
        (beside / META).write_text(json.dumps({"sha256": digest(meta), "checkpoint": meta}, indent=1))
        for path in (*(beside / file for file in files), beside / META, beside):
            sync(path)
        replaced = retire(target)
        try:
            beside.rename(target)
        except OSError:
            if replaced is not None:
                replaced.rename(target)
            raise
        sync(folder)
        if replaced is not None:
            shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        how = f"`sparc resume {folder.parent}`, which goes on from the checkpoint before it"
        raise cannot_write(target, error, how, size) from error
    except Exception:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return target


def load(checkpoint: Path) -> tuple[Arrays, Meta]:
    """Read the state of training and compare all checksums; RunFailure if damaged, UserError if it is newer."""
    meta = load_meta(checkpoint)
    if POLICY in meta["checksums"]:  # since format 2
        check_file(checkpoint, POLICY, meta)
    return read_arrays(checkpoint, ARRAYS, meta), meta


def read_arrays(checkpoint: Path, file: str, meta: Meta) -> Arrays:
    """Read a file of arrays and compare its checksum."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    check_file(checkpoint, file, meta)
    try:
        return load_file(checkpoint / file)
    except (OSError, ValueError, SafetensorError) as error:
        raise damaged(checkpoint, error) from error


def check_file(checkpoint: Path, file: str, meta: Meta) -> None:
    """Compare a file with its checksum; RunFailure if it is missing or damaged."""
    try:
        if checksum(checkpoint / file) != meta["checksums"][file]:
            raise ValueError(f"the checksum of {file} is wrong")
    except (OSError, ValueError, KeyError) as error:
        raise damaged(checkpoint, error) from error


def load_meta(checkpoint: Path) -> Meta:
    """Read only the JSON part."""
    try:
        outer = json.loads((checkpoint / META).read_text())
        meta: Meta = outer["checkpoint"]
        if digest(meta) != outer["sha256"]:  # of every format: a flipped bit must not pass for a newer sparc
            raise ValueError(f"the checksum of {META} is wrong")
        newer = meta["format"] > FORMAT
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(checkpoint, error) from error
    if newer:
        raise UserError(
            f"Checkpoint {checkpoint} has format {meta['format']}, this version of sparc reads up to {FORMAT}: "
            f"upgrade sparc-rl."
        )
    return meta


def is_sound(checkpoint: Path) -> bool:
    """Return whether there is such a checkpoint and nothing of it is damaged."""
    try:
        load(checkpoint)
    except RunFailure:
        return False
    return True


def damaged(checkpoint: Path, error: Exception) -> RunFailure:
    """Return what is wrong with a checkpoint, and that there are others."""
    return RunFailure(f"Checkpoint {checkpoint} is damaged: {error}. The others in {checkpoint.parent} may be sound.")


def load_scores(meta: Meta) -> dict[int, list[float]]:
    """Read the evaluations of a checkpoint's phase: updates → a return per setting."""
    return {int(row[0]): row[1:] for row in meta["scores"]}


def load_choice(meta: Meta) -> dict[int, float]:
    """Read what the checkpoints of a phase are chosen by: updates → a number, more is better.

    Versions before had the scores alone, and chose by their mean.
    """
    if rows := meta.get("choice"):
        return {int(updates): value for updates, value in rows}
    return means(load_scores(meta))


def means(scores: dict[int, list[float]]) -> dict[int, float]:
    """Return the mean over the settings of each evaluation."""
    return {updates: sum(score) / len(score) for updates, score in scores.items()}


def numbers(folder: Path) -> list[int]:
    """List the checkpoints in a folder by their number of updates, oldest first."""
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdecimal() and path.is_dir())


def prune(folder: Path, keep: set[int]) -> None:
    """Delete all but these, and what an earlier process left half done."""
    for number in numbers(folder):
        if number not in keep:
            remove(folder / str(number))
    for path in folder.glob(".*"):
        shutil.rmtree(path, ignore_errors=True)


def remove(checkpoint: Path) -> None:
    """Delete a checkpoint; renamed first, so that none is ever half there under its name."""
    if (retired := retire(checkpoint)) is not None:
        shutil.rmtree(retired, ignore_errors=True)


def retire(checkpoint: Path) -> Path | None:
    """Take a checkpoint out of the count, if it is there, and give its new place."""
    if not checkpoint.exists():
        return None
    retired = checkpoint.with_name(f".{checkpoint.name}.old")
    shutil.rmtree(retired, ignore_errors=True)
    return checkpoint.rename(retired)


def flatten(tree: Any, prefix: str) -> Arrays:
    """Name each array of a pytree by its path."""
    import jax

    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {prefix + jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def unflatten(template: Any, arrays: Arrays, prefix: str) -> Any:
    """Put named arrays back into a pytree of the template's structure."""
    import jax
    import jax.numpy as jnp

    def pick(path: Any, leaf: Any) -> Any:
        name = prefix + jax.tree_util.keystr(path)
        if name not in arrays or arrays[name].shape != leaf.shape or arrays[name].dtype != leaf.dtype:
            found = f"{arrays[name].shape} {arrays[name].dtype}" if name in arrays else "nothing"
            raise RunFailure(
                f"The checkpoint does not fit its config: {name} should be {leaf.shape} {leaf.dtype}, found {found}. "
                "It may be of another version of sparc-rl: go on with that one, or train anew."
            )
        return jnp.asarray(arrays[name])

    return jax.tree_util.tree_map_with_path(pick, template)


def section(arrays: Arrays, prefix: str) -> Arrays:
    """Take the arrays whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
