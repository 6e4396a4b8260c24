"""`sparc export`: a run's checkpoint as a folder that acts without JAX, its environment or this package.

policy.safetensors  contract.json  check.safetensors  sparc_policy.py  policy.onnx  README.md
policy.c  policy.h  policy_weights.h      with --c
policy.mjs                                with --js
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sparc.deploy import runtime
from sparc.deploy.c_source import HEADER, NUMBERS, SOURCE, c_files
from sparc.deploy.contract import Contract, make_contract
from sparc.deploy.graph import Arrays, build_model
from sparc.deploy.library import is_export
from sparc.deploy.readme import readme
from sparc.envs.registry import EnvEntry
from sparc.errors import RunFailure, UserError
from sparc.files import replace
from sparc.runs.run import Run

RUNTIME, MODEL, SCRIPT, README = "sparc_policy.py", "policy.onnx", "policy.mjs", "README.md"
EVERY_FILE = (runtime.CONTRACT, runtime.WEIGHTS, runtime.CHECK, RUNTIME, MODEL, SCRIPT, SOURCE, HEADER, NUMBERS, README)
KNOWN_ENCODERS = ("none", "raw-context", "context-encoder", "history-adapter")


class Written(NamedTuple):
    """The files of an export, and the names of those of an earlier one in the same folder that it has no more."""

    files: list[Path]
    removed: list[str]


class Exported(NamedTuple):
    """A policy with everything that an export says of it."""

    contract: Contract
    weights: Arrays
    check: Arrays | None


def from_run(run: Run, which: str | int = "best", with_context: bool = False, check: bool = True) -> Exported:
    """Take the policy out of a run's checkpoint; with `check`, record what it does in its environment."""
    from sparc.runs import checkpoint
    from sparc.runs.load import POLICY_NAME, PSI_NAME, find_env, load_with_psi

    number = run.choose(which)
    policy, psi = load_with_psi(run, number)
    spec = policy.spec
    if spec.encoder not in KNOWN_ENCODERS:
        raise UserError(
            f"The policy of {run.path} has an encoder of its own, '{spec.encoder}', which no runtime knows: only those "
            "of the methods that come with sparc can be exported."
        )
    if spec.reads == "context" and not with_context:
        raise UserError(
            f"The policy of {run.path} reads the true context ({', '.join(spec.context_names)}), which a robot cannot "
            "know: export an adapter (sparc, rma after its second phase), or add --with-context if you can measure it."
        )
    entry = find_env(run.config.env)
    contract = make_contract(run, number, spec, entry)
    weights = checkpoint.flatten(policy.actor, POLICY_NAME) | checkpoint.flatten(psi, PSI_NAME)
    contract["network"]["parameters"] = sum(array.size for name, array in weights.items() if name.startswith("policy."))
    if psi is None:
        contract["network"]["psi"] = None
    arrays = record_check(contract, policy, run, entry) if check else None
    return Exported(contract, weights, arrays)


def record_check(contract: Contract, policy: Any, run: Run, entry: EnvEntry | None) -> Arrays:
    """Record the check and note in the contract how it was made."""
    from sparc.deploy.trace import record

    remedy = "install it, or leave the recorded check out with --no-check"
    if entry is None:
        raise UserError(f"{run.config.env} is not installed, and the check is recorded in it: {remedy}.")
    try:
        found = record(policy, entry, run.config.env_options)
    except UserError as error:  # its simulator is missing
        raise UserError(f"{str(error).rstrip('.')}. The check is recorded in {entry.id}: {remedy}.") from error
    contract["check"] = found.about
    contract["inputs"]["obs"] |= {"seen_low": found.seen_low, "seen_high": found.seen_high}
    return found.arrays


def from_folder(folder: Path) -> Exported:
    """Read an export, to write it again with other runtimes."""
    try:
        contract = runtime.read_contract(folder)
        weights = runtime.read_tensors(folder, runtime.WEIGHTS, contract)
        runtime.Policy(contract, weights)
        recorded = runtime.CHECK in contract["checksums"]
        return Exported(contract, weights, runtime.read_tensors(folder, runtime.CHECK, contract) if recorded else None)
    except runtime.PolicyError as error:
        raise UserError(f"{error}.") from error


def write(exported: Exported, folder: Path, onnx: bool = True, c: bool = False, js: bool = False) -> Written:
    """Write an export; an earlier one in the same folder is replaced, any other folder must be empty."""
    from safetensors.numpy import save

    contract, weights, check = exported
    tensors = {runtime.WEIGHTS: weights} | ({runtime.CHECK: check} if check is not None else {})
    files: dict[str, bytes] = {
        name: save({key: np.array(array, order="C") for key, array in arrays.items()})
        for name, arrays in tensors.items()
    }
    contract = contract | {"checksums": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}}
    files[RUNTIME] = Path(runtime.__file__).read_bytes()
    if onnx:
        files[MODEL] = build_model(contract, weights).SerializeToString()
    if c:
        files |= {name: text.encode() for name, text in c_files(contract, weights).items()}
    if js:
        files[SCRIPT] = (Path(__file__).parent / "templates" / SCRIPT).read_bytes()
    files[README] = readme(contract, set(files)).encode()
    files[runtime.CONTRACT] = (json.dumps(contract, indent=1, allow_nan=False) + "\n").encode()
    return place(files, folder)


def place(files: dict[str, bytes], folder: Path) -> Written:
    """Write files into a folder, the contract last: where it is, the rest is whole."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not is_export(folder) and any(folder.iterdir()):
            raise UserError(f"{folder} is neither empty nor an export: choose another --to.")
        removed = [name for name in EVERY_FILE if name not in files and (folder / name).exists()]
        for name in (runtime.CONTRACT, *EVERY_FILE):  # files of an earlier export must not pass for this one's
            (folder / name).unlink(missing_ok=True)
        for name, data in files.items():
            replace(folder / name, data)
    except FileExistsError:
        raise UserError(f"{folder} is a file: choose another --to.") from None
    except OSError as error:
        raise RunFailure(f"Cannot write the export {folder}: {error.strerror}.") from error
    return Written([folder / name for name in files], removed)
