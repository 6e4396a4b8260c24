"""The contract of an export: everything that whoever puts a policy on a robot must know, as plain values for JSON.

Its fields are described in contract.schema.json.
"""

from __future__ import annotations

import hashlib
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from sparc.acting.settling import settling
from sparc.contexts import Box, Finite
from sparc.deploy.runtime import FORMAT, KIND
from sparc.envs.declared import Signals
from sparc.envs.registry import EnvEntry
from sparc.errors import UserError
from sparc.methods.spec import Spec
from sparc.runs.adaptations import SEAL, file_of, read_adaptation, read_seal
from sparc.runs.run import Run
from sparc.runs.sessions import session
from sparc.runs.tests import read_written

Contract = dict[str, Any]

SCHEMA = Path(__file__).with_name("contract.schema.json")
PADDING_NOTE = "rows of zeros before the first step after a reset"
WARNING = "validated in simulation only"


def describe_policy(spec: Spec) -> Contract:
    """Return the part of a contract that a runtime needs to act: sizes, bounds, scales and networks."""
    from sparc.methods.nets import CONVOLUTIONS, FILTERS, LOG_STD_RANGE
    from sparc.methods.normalization import MIN_STD

    reads_history = spec.reads == "history"
    normalisation = None
    if spec.observation_clip is not None:
        normalisation = {
            "formula": "clip((obs - mean) / max(sqrt(variance), min_std), -clip, clip)",
            "arrays": ["policy.norm.mean", "policy.norm.variance"],
            "min_std": MIN_STD,
            "clip": spec.observation_clip,
        }
    convolutions = [{"kernel": kernel, "stride": stride, "filters": FILTERS} for kernel, stride in CONVOLUTIONS]
    history = {
        "length": spec.history_length,
        "width": spec.obs_size + spec.action_size,
        "dtype": "float32",
        "row": "the observation as given to the policy, then the unit action",
        "order": "oldest first",
        "contains": "the steps t-H to t-1, never step t",
        "padding": PADDING_NOTE,
        "action": "unit actions in [-1, 1] as executed, before they are scaled to low and high",
    }
    return {
        "reads": spec.reads,
        "inputs": {
            "obs": {"size": spec.obs_size, "dtype": "float32", "names": None, "units": None, "seen_low": None,
                    "seen_high": None, "normalisation": normalisation},
            "history": history if reads_history else None,
        },
        "outputs": {
            "action": {"size": spec.action_size, "dtype": spec.action_dtype, "names": None, "units": None,
                       "low": list(spec.action_low), "high": list(spec.action_high),
                       "formula": "clip(middle + half * unit, low, high), middle and half of low and high"},
        },
        "context": {
            "read": spec.reads == "context",
            "names": list(spec.context_names), "units": list(spec.context_units),
            "centre": list(spec.context_centre), "half_range": list(spec.context_half_range),
            "train": None, "test": None,
        },
        "network": {
            "encoder": spec.encoder, "width": spec.width, "latent": spec.latent,
            "convolutions": convolutions if reads_history else [],
            "log_std_range": list(LOG_STD_RANGE), "psi": spec.psi,
        },
    }  # fmt: skip


def spec_of(contract: Contract) -> Spec:
    """Return the Spec that a contract was made from, to build the policy in JAX again."""
    obs, action, history = contract["inputs"]["obs"], contract["outputs"]["action"], contract["inputs"]["history"]
    context, network = contract["context"], contract["network"]
    return Spec(
        obs_size=obs["size"],
        action_size=action["size"],
        context_centre=tuple(context["centre"]),
        context_half_range=tuple(context["half_range"]),
        context_names=tuple(context["names"]),
        context_units=tuple(context["units"]),
        action_low=tuple(action["low"]),
        action_high=tuple(action["high"]),
        action_dtype=action["dtype"],
        history_length=history["length"] if history else 1,  # a Policy remembers at least a step, also unread
        width=network["width"],
        latent=network["latent"],
        observation_clip=obs["normalisation"]["clip"] if obs["normalisation"] else None,
        reads=contract["reads"],
        encoder=network["encoder"],
        psi=network["psi"],
    )


def make_contract(run: Run, number: int, spec: Spec, entry: EnvEntry | None) -> Contract:
    """Return the contract of a run's checkpoint; the checksums and what was seen are filled in by the export."""
    about = {
        "format": FORMAT,
        "kind": KIND,
        "method": run.config.method,
        "env": run.config.env,
        "env_revision": entry.revision if entry else None,
        "env_options": run.config.env_options,
        "run": run.path.name,
        "seed": run.config.seed,
        "checkpoint": number,
        "config_sha256": hashlib.sha256(yaml.safe_dump(run.config.to_dict()).encode()).hexdigest(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": session(0)["versions"],
        "checksums": {},
        "control": {
            "period_s": entry.period if entry else None,
            "note": "call the policy once per period, always with the same period; after a pause call reset()",
        },
    }
    contract = about | describe_policy(spec)
    if entry is not None:
        name_signals(contract["inputs"]["obs"], entry.observation, f"observation= of {entry.id}")
        name_signals(contract["outputs"]["action"], entry.action, f"action= of {entry.id}")
        space = run.lineage.space(entry)
        contract["context"] |= {"train": region(space.train), "test": region(space.test)}
        if space.earlier:  # of the stages before, in distribution too
            contract["context"]["earlier"] = [region(found) for found in space.earlier]
    return contract | {
        "results": results(run, number),
        "settling_steps": settling_steps(run, number),
        "check": None,
        "warning": WARNING,
    }


def name_signals(part: dict[str, Any], signals: Signals | None, what: str) -> None:
    """Put names and units into an input or output of the contract."""
    if signals is None:
        return
    if len(signals) != part["size"]:
        raise UserError(f"{what} names {len(signals)} elements, but there are {part['size']}: correct register_env.")
    part["names"], part["units"] = (list(column) for column in zip(*signals, strict=True))


def region(found: Box | Finite) -> dict[str, Any]:
    """Return the bounds of a region of contexts, and how many there are if they are finite."""
    bounds = {"low": found.low.tolist(), "high": found.high.tolist()}
    return bounds | ({"contexts": len(found.values)} if isinstance(found, Finite) else {})


def results(run: Run, number: int) -> list[dict[str, Any]]:
    """Return what the evaluations of a checkpoint gave, IND and OOD; empty if there is none."""
    found = []
    for path in sorted(run.evaluations.glob(f"{number}-grid*.json")):
        content = read_written(path.with_suffix(""))  # refuses one that was changed since
        try:
            kept = {name: content[name] for name in ("grid", "episodes", "options")}
            found.append(kept | {part: without_nan(summary) for part, summary in content["summary"].items()})
        except (KeyError, AttributeError, TypeError) as error:
            raise UserError(f"The evaluation {path} is damaged ({error}): delete it and evaluate again.") from error
    return found


def without_nan(numbers: dict[str, float]) -> dict[str, float | None]:
    """Return numbers for JSON, which has no NaN."""
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()}


def settling_steps(run: Run, number: int) -> dict[str, dict[str, float | None]] | None:
    """Return after how many steps reward and latent settle when the context is switched; None if nobody measured it."""
    if not (file := file_of(run.evaluations, number, SEAL)).is_file():
        return None
    try:
        grid = read_seal(file)["grid"]
    except ValueError as error:
        again = f"`sparc evaluate {run.path} --adaptation`"
        raise UserError(
            f"The adaptation of checkpoint {number} is damaged ({error}): measure it again, {again}."
        ) from error
    trace, _ = read_adaptation(run, number, grid)
    return {
        str(place): {
            name: settling(trace.step[rows], values[rows]) for name, values in
            (("reward", trace.reward), ("latent", trace.distance))
        }
        for place in np.unique(trace.region) for rows in (trace.region == place,)
    }  # fmt: skip
