"""The numbers in README.md and results/README.md are those of the tables beside them."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from sparc.cli.demo import random_return
from sparc.report.continual import chains, measure, region_mask
from sparc.report.measured import mean_of
from sparc.report.stats import mean_sem
from sparc.suites.results import EnvResults
from sparc.suites.tables import read

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "continual.md"
ROBOTS = ("WindHalfCheetah-v5", "WindHopper-v5", "WindWalker2d-v5")
LAPS = [(region, name) for region in ("ood", "ind") for name in ("completed", "clean", "ratio")]
FORZA, MIXED = "RaceCars-forza-v0", "RaceCars-mixed-2-v0"
RACES = {  # the heading in results/README.md: folder and test
    "Unseen cars": ("race-cars", FORZA),
    "Updated physics": ("race-physics-update", f"{FORZA}, updated"),
    "Power and mass": ("race-power-mass", "RacePowerMass-forza-v0"),
    "Dirt": ("race-cars", MIXED),
    "22 km": ("race-long", "RaceCars-spring-v0"),
}


@cache
def parts(folder: str) -> dict[str, EnvResults]:
    return read(ROOT / "results" / folder).parts


def rows(file: str, heading: str) -> dict[str, list[str]]:
    """Return the cells of the first table below a heading, by method, without marks for the best."""
    text = (ROOT / file).read_text()
    below = re.split(r"\n#+ ", text[re.search(rf"^#+ {re.escape(heading)}$", text, re.MULTILINE).end() :])[0]  # type: ignore[union-attr]
    found = {}
    for line in below.splitlines():
        if line.startswith("|") and not set(line) <= set("|- "):
            name, *cells = (cell.strip().replace("**", "") for cell in line.strip().strip("|").split("|"))
            found[name.split(" (")[0]] = cells
    return found


@pytest.mark.parametrize("heading", RACES)
def test_the_laps_in_the_results_are_those_of_the_tables(heading: str) -> None:
    folder, test = RACES[heading]
    part, written = parts(folder)[test], rows("results/README.md", heading)
    assert set(part.returns) <= set(written)
    for key in part.returns:
        for cell, (region, name) in zip(written[key], LAPS, strict=True):
            mean, sem, seeds = mean_of(part, key, region, name)
            digits = 3 if name == "ratio" else 1
            spread = f" ± {sem:.{digits}f}" if seeds > 1 else ""
            assert cell == f"{mean:.{digits}f}{spread}", (heading, key, region, name)


def test_the_returns_of_robots_in_the_results_are_those_of_the_tables() -> None:
    written = rows("results/README.md", "Robots in the wind, the paper's preset")
    for place, env in enumerate(ROBOTS):
        part = parts("mujoco-paper")[env]
        for key in part.returns:
            ood, ind = (part.matrix(key, region).mean() for region in ("ood", "ind"))
            assert written[key][place] == f"{ood:,.0f} ({ind:,.0f})", (env, key)


def test_the_runs_under_way_in_the_results_are_those_of_the_tables() -> None:
    written = rows("results/README.md", "Robots in the wind, preset `fast`: under way")
    shown = {
        (key, env): cell for key, cells in written.items() for env, cell in zip(ROBOTS, cells, strict=True) if cell
    }
    found = {}
    for env in ROBOTS:
        part = parts("mujoco")[env]
        for key, seeds in part.returns.items():
            for seed, returns in seeds.items():
                ind, ood = (returns[cells].mean() for cells in (part.ind, ~part.ind))
                found[f"{key}, seed {seed}", env] = f"{ind:,.0f} / {ood:,.0f}"
    assert {place: cell for place, cell in shown.items() if place[0]} == found


def test_the_first_page_shows_the_demo_of_the_results() -> None:
    first, whole = rows("README.md", "Results"), rows("results/README.md", "The demo")
    part = parts("smoke")["DriftingBoat-v0"]
    zero, top = random_return(21, 0), part.matrix("oracle", "ood").mean()
    assert len(part.returns) == 5
    for key in part.returns:
        ind, ood = (part.matrix(key, region)[0] for region in ("ind", "ood"))
        score = f"{(ood.mean() - zero) / (top - zero):.0%}"
        shown = [*(f"{values.mean():.1f} ± {values.std(ddof=1):.1f}" for values in (ind, ood)), score]
        assert first[key][1:] == whole[key] == shown, key


STAGES = {  # a table's first column in docs/continual.md: folder and stage
    "the corner alone": ("continual-boat", "shifted"),
    "the box twice as large": ("continual-boat", "larger"),
    "the larger box": ("continual-cheetah", "larger"),
    "the headwinds": ("continual-cheetah", "shifted"),
}
ROWS = {  # a row's name there: method, and what follows the stage's name
    "SPARC": ("sparc", ""),
    "SPARC, `--keep 0.25`": ("sparc", "-quarter"),
    "SPARC, `--keep 0`": ("sparc", "-emptied"),
    "SPARC, `--no-context`": ("sparc", "-unlabelled"),
    "RMA, both phases": ("rma", ""),
    "RMA, φ alone": ("rma", "-adapter"),
    "Only Obs": ("only-obs", ""),
    "History Input": ("history-input", ""),
    "Oracle": ("oracle", ""),
}


@pytest.mark.parametrize("title", STAGES)
def test_the_returns_of_stages_in_the_docs_are_those_of_the_tables(title: str) -> None:
    folder, stage = STAGES[title]
    results = read(ROOT / "results" / folder)
    (env,) = results.envs
    digits = 1 if env == "DriftingBoat-v0" else 0

    def text(values: np.ndarray) -> str:
        mean, sem = mean_sem(values)
        return f"{mean:,.{digits}f} ± {sem:,.{digits}f}"

    own = {chain.last: measure(results, env, chain) for chain in chains(results, env)}
    head, *lines = re.search(rf"^\| {title}.*?\n\n", DOCS.read_text(), re.MULTILINE | re.DOTALL)[0].splitlines()[:-1]  # type: ignore[index]
    assert len(lines) > 4 and "new region" in head
    for line in lines[1:]:
        name, *cells = (cell.strip().replace("**", "") for cell in line.strip("|").split("|"))
        method, rest = ROWS[re.sub(r" \(.*", "", name)]
        found = own[f"{method} {stage}{rest}"]
        shown = [text(values) for values in (found.zero_shot, found.learned, found.before, found.after)]
        part, mask = results.envs[env], region_mask(results, env, stage)
        anew = [returns[mask].mean() for returns in part.returns.get(f"{method} {stage}-anew", {}).values()]
        assert cells == [*shown, text(np.array(anew)) if anew and not rest else ""], (title, name)
