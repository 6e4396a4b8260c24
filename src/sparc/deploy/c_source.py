"""The C99 form of a policy: policy.c is the same for all, policy.h has its sizes, policy_weights.h its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sparc.deploy.contract import Contract
from sparc.deploy.graph import Arrays

TEMPLATE = Path(__file__).parent / "templates" / "policy.c"
SOURCE, HEADER, NUMBERS = "policy.c", "policy.h", "policy_weights.h"
PER_LINE = 8


def c_files(contract: Contract, weights: Arrays) -> dict[str, str]:
    """Return the text of the C files by name."""
    numbers = "\n".join(declarations(contract, weights))
    return {
        SOURCE: TEMPLATE.read_text(),
        HEADER: header(contract),
        NUMBERS: f"/* The weights of a policy, for policy.c alone. */\n\n{numbers}\n",
    }


def sizes(contract: Contract) -> dict[str, Any]:
    """Return the constants that policy.c is compiled with."""
    network, history = contract["network"], contract["inputs"]["history"]
    normalisation, contexts = contract["inputs"]["obs"]["normalisation"], len(contract["context"]["names"])
    read = contexts if contract["context"]["read"] else 0
    found: dict[str, Any] = {
        "OBS": contract["inputs"]["obs"]["size"],
        "ACTIONS": contract["outputs"]["action"]["size"],
        "HISTORY": history["length"] if history else 0,
        "CONTEXTS": read,
        "WIDTH": network["width"],
        "LATENT": network["latent"],
        "JOINED": {"none": 0, "raw-context": contexts}.get(network["encoder"], network["latent"]),
        "ENCODES_CONTEXT": int(network["encoder"] == "context-encoder"),
        "NORMALISES": int(normalisation is not None),
    }
    if normalisation:
        found["CLIP"] = f"{float(normalisation['clip'])!r}f"
    if history:
        steps, largest = history["length"], 0
        for layer in network["convolutions"]:
            steps = -(-steps // layer["stride"])
            largest = max(largest, steps * layer["filters"])
        found["SCRATCH"] = largest
    return found


def header(contract: Contract) -> str:
    """Return policy.h."""
    period, values = contract["control"]["period_s"], sizes(contract)
    defines = "\n".join(f"#define SPARC_{name} {value}" for name, value in values.items())
    timed = (
        f"#define SPARC_PERIOD_S {period!r} /* of the control loop */" if period else "/* The period is not known. */"
    )
    context = " const float *context," if values["CONTEXTS"] else ""
    inputs, outputs = contract["inputs"]["obs"], contract["outputs"]["action"]
    ring = ""
    if values["HISTORY"]:
        ring = (
            "    float embedded[SPARC_HISTORY][SPARC_LATENT]; /* a ring */\n"
            "    float last_obs[SPARC_OBS];\n    int oldest;\n"
        )
    return f"""\
/* {contract["method"]} on {contract["env"]}, checkpoint {contract["checkpoint"]}: see contract.json.
 *
 *     sparc_policy policy;
 *     sparc_reset(&policy);                   before each episode and after a pause
 *     sparc_act(&policy, obs, action);        once per period
 *
 * obs:    {signals(inputs)}
 * action: {signals(outputs)} */

#ifndef SPARC_POLICY_H
#define SPARC_POLICY_H

{defines}
{timed}

typedef struct {{
{ring}    int steps; /* whether it has acted since the reset */
}} sparc_policy;

/* Forgets the history. */
void sparc_reset(sparc_policy *policy);

/* Chooses the action[SPARC_ACTIONS] for obs[SPARC_OBS], in the units of the contract, and remembers both.
 * Returns 0, or 1 + the index of the first number that is not finite; then nothing has changed. */
int sparc_act(sparc_policy *policy, const float *obs,{context} float *action);

/* Says, before the next sparc_act, that another action[SPARC_ACTIONS] was executed than the one it chose.
 * Returns as sparc_act. */
int sparc_executed(sparc_policy *policy, const float *action);

#endif
"""


def signals(part: dict[str, Any]) -> str:
    """Return names and units for a comment."""
    if part["names"] is None:
        return f"{part['size']} numbers that nobody has named"
    pairs = zip(part["names"], part["units"], strict=True)
    return "; ".join(f"{name} [{unit}]" for name, unit in pairs).replace("*/", "")


def declarations(contract: Contract, weights: Arrays) -> Iterator[str]:
    """Yield the static arrays of policy_weights.h."""
    action, context = contract["outputs"]["action"], contract["context"]
    low, high = (np.array(action[name], action["dtype"]) for name in ("low", "high"))
    bounds = {"middle": (high + low) / 2, "half": (high - low) / 2, "low": low, "high": high}
    half = sizes(contract)["HISTORY"]
    for name, value in bounds.items():
        yield array(f"action_{name}", value)
    if contract["inputs"]["obs"]["normalisation"]:
        least = np.float32(contract["inputs"]["obs"]["normalisation"]["min_std"])
        yield array("norm_mean", weights["policy.norm.mean"])
        yield array("norm_std", np.maximum(np.sqrt(weights["policy.norm.variance"]), least))
    if context["read"]:
        yield array("context_centre", np.array(context["centre"]))
        yield array("context_half_range", np.array(context["half_range"]))
    layers = {f"{part}{index}": f"trunk.{part}.layers[{index}]" for part in ("observe", "decide") for index in (0, 1)}
    if contract["network"]["encoder"] == "context-encoder":
        layers |= {f"context{index}": f"encoder.mlp.layers[{index}]" for index in (0, 1)}
    if half:
        layers |= {"embed": "encoder.embed", "out": "encoder.out"}
        count = len(contract["network"]["convolutions"])
        layers |= {f"convolution{index}": f"encoder.convolutions[{index}]" for index in range(count)}
    for name, layer in layers.items():
        for part in ("weight", "bias"):
            yield array(f"{name}_{part}", weights[f"policy.{layer}.{part}"])
    for part in ("weight", "bias"):
        yield array(f"head_{part}", weights[f"policy.trunk.head.{part}"][..., : action["size"]])
    if half:
        rows = ", ".join(
            f"{{{layer['kernel']}, {layer['stride']}, {layer['filters']}, convolution{index}_weight, "
            f"convolution{index}_bias}}"
            for index, layer in enumerate(contract["network"]["convolutions"])
        )
        kind = "const struct { int kernel, stride, filters; const float *weight, *bias; }"
        yield f"static {kind} convolutions[] = {{{rows}}};"


def array(name: str, values: Any) -> str:
    """Return a static array; nine digits are enough for every bit of a float."""
    flat = [literal(value) for value in np.asarray(values, np.float32).ravel()]
    lines = (", ".join(flat[i : i + PER_LINE]) for i in range(0, len(flat), PER_LINE))
    return f"static const float {name}[{len(flat)}] = {{\n" + ",\n".join(lines) + "};"


def literal(value: np.float32) -> str:
    """Return a float in C, with a point."""
    text = f"{value:.9g}"
    return text + ("f" if "." in text or "e" in text else ".0f")
