"""The README of an export: how to call it, in twenty lines."""

from __future__ import annotations

from sparc.deploy.contract import Contract


def readme(contract: Contract, files: set[str]) -> str:
    """Return the text for the files that are there."""
    period = contract["control"]["period_s"]
    pace = f"once every {period:g} s" if period else "once per control step"
    context = ", context=context" if contract["context"]["read"] else ""
    history = contract["inputs"]["history"]
    lines = [
        f"# {contract['method']} on {contract['env']}, checkpoint {contract['checkpoint']:,}",
        "",
        f"A trained policy, to be called {pace}. `contract.json` has names, units, bounds, history and results;",
        f"{contract['warning']}. Nothing here is executed by loading it.",
        "",
        "```python",
        "import sparc_policy                          # one file, needs NumPy alone",
        'policy = sparc_policy.load(".")',
        "policy.reset()                               # before each episode and after a pause",
        f"action = policy.act(obs{context})"
        + " " * (21 - len(context))
        + "# (O,) or (N, O); act(obs, executed=…) if overruled",
        "```",
        "",
    ]
    if history:
        lines.append(
            f"It keeps the last {history['length']} observations and actions itself; call it with a constant period."
        )
    if "policy.onnx" in files:
        names = "obs, history → action, next_history" if history else "obs → action"
        names = "obs, context → action" if contract["context"]["read"] else names
        lines.append(f"`policy.onnx`: {names}; normalisation, scaling and clipping inside; history is zeros at first.")
    if "policy.c" in files:
        lines.append("`policy.c`: C99 without malloc; `cc -std=c99 -O2 -c policy.c`, link with -lm; see `policy.h`.")
    if "policy.mjs" in files:
        lines.append("`policy.mjs`: browsers and Node; `policy = await load('.')`, then as above.")
    if "check.safetensors" in files:
        lines.append("Test it: `python sparc_policy.py .`, or all runtimes with `sparc export --check .`")
    return "\n".join(lines) + "\n"
