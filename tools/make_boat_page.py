"""Make docs/boat.html: the boat with SPARC and Only Obs in plain JavaScript, weights inside, one file without a server.

python tools/make_boat_page.py RUN_SPARC RUN_ONLY_OBS     from two runs on DriftingBoat-v0
python tools/make_boat_page.py                            anew, with the weights that are in it
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from sparc.envs.boat import env as boat
from sparc.errors import UserError
from sparc.files import replace
from sparc.methods import nets
from sparc.methods.normalization import MIN_STD
from sparc.methods.registry import find_method
from sparc.runs import checkpoint
from sparc.runs.run import Run

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "boat.html"
PARTS = Path(__file__).parent / "boat_page"
SHARED = ROOT / "src" / "sparc" / "watch" / "live" / "page"
SCRIPTS = (
    SHARED / "draw.js",
    SHARED / "boat.js",
    SHARED / "pad.js",
    SHARED / "charts.js",
    PARTS / "policy.js",
    PARTS / "demo.js",
)
ENV, METHODS = "DriftingBoat-v0", ("sparc", "only-obs")
MOST = 1_000_000  # bytes


def describe(path: Path, method: str) -> dict[str, Any]:
    """Return the policy of a run's best checkpoint: its Spec, and its weights as float32 in base64."""
    run = Run.open(path)
    if (run.config.method, run.config.env) != (method, "DriftingBoat-v0"):
        raise UserError(
            f"{path} is {run.config.method} on {run.config.env}: give a run of {method} on DriftingBoat-v0."
        )
    number = run.choose("best")
    folder = run.checkpoints / str(number)
    meta = checkpoint.load_meta(folder)
    arrays = checkpoint.read_arrays(folder, checkpoint.POLICY, meta)
    kept = {name: array for name, array in arrays.items() if name != "policy.norm.count"}
    return {
        "spec": {**meta["spec"], "min_std": MIN_STD},
        "convolutions": nets.CONVOLUTIONS,
        "seed": run.config.seed,
        "updates": number,
        "arrays": {
            name: {
                "shape": array.shape,
                "data": base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode(),
            }
            for name, array in sorted(kept.items())
        },
    }


def render(policies: dict[str, Any]) -> str:
    """Return the page of two policies."""
    colours = {name: str(find_method(name).colour) for name in METHODS}
    region = {
        name: {"low": box.low.tolist(), "high": box.high.tolist()}
        for name, box in (("train", boat.CURRENT.train), ("test", boat.CURRENT.test))
    }
    world = {
        "dt": boat.DT, "speed": boat.SPEED, "limit": boat.LIMIT, "reach": boat.REACH, "tolerance": boat.TOLERANCE,
    }  # fmt: skip
    data = json.dumps({"world": world, **region, "colours": colours, "policies": policies}, separators=(",", ":"))
    script = "\n".join(path.read_text().replace("'use strict';\n", "") for path in SCRIPTS)
    script = f"'use strict';\n{script}"
    style = Template((PARTS / "page.css").read_text()).substitute(
        sparc_colour=colours["sparc"], only_obs_colour=colours["only-obs"]
    )
    made = ", ".join(
        f"{find_method(name).title}: seed {policies[name]['seed']}, {policies[name]['updates']:,} updates"
        for name in METHODS
    )
    return Template((PARTS / "page.html").read_text()).substitute(
        style=style,
        style_hash=digest(style),
        script=script,
        script_hash=digest(script),
        data=data.replace("<", "\\u003c"),
        made=escape(f"{made}."),
        history=policies["sparc"]["spec"]["history_length"],
    )


def digest(text: str) -> str:
    """Return what a Content-Security-Policy knows a script or a style by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def policies_of(page: str) -> dict[str, Any]:
    """Return the policies in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    if found is None:
        raise UserError("the page has no policies in it: make it from two runs.")
    return dict(json.loads(found[1])["policies"])


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, help="a run of SPARC and one of Only Obs (default those in it)")
    parser.add_argument("--out", type=Path, default=PAGE)
    parsed = parser.parse_args()
    if len(parsed.runs) not in (0, len(METHODS)):
        parser.error("give two runs, or none")
    if parsed.runs:
        policies = {name: describe(run, name) for name, run in zip(METHODS, parsed.runs, strict=True)}
    else:
        policies = policies_of(PAGE.read_text())
    page = render(policies)
    size = len(page.encode())
    if size > MOST:
        raise UserError(f"the page would have {size:,} bytes, more than {MOST:,}: train smaller networks.")
    replace(parsed.out, page)
    print(f"{parsed.out}: {size:,} bytes")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"make_boat_page: {error}") from None
