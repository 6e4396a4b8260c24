"""What explains the returns of policies: when runs reach the paper's return, and what their experts get."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from sparc.report.page.data import ReportData, label_of
from sparc.report.page.tables import GAP, Cell, Note, Table, missing_seeds, row, spread
from sparc.report.stats import mean_sem
from sparc.suites.results import EXPERT, Curve
from sparc.text import MISSING, number


def last_phase(curve: Curve) -> Any:
    """Return which evaluations (T,) are of the policy that is shipped: RMA's first phase tests its expert."""
    return curve.phase == curve.phase[-1]


# When the paper's return is reached


def reached(data: ReportData) -> Table | None:
    """Return at which share of its budget each seed first reaches the paper's mean; None without such means."""
    paper = (data.manifest["reference"] or {}).get("ood", {})
    envs = [env for env in data.results.envs if env in paper]
    rows = [row(data, key, [reached_cell(data, env, key, paper[env].get(key)) for env in envs]) for key in data.names]
    if not any(cell.source for one in rows for cell in one.cells):
        return None
    note = (
        "The seeds whose evaluations in training, in distribution, come up to the mean that the paper has for the "
        "method out of distribution (in brackets). Below, seed by seed: after how many per cent of its updates; "
        f"{MISSING}: never."
    )
    return Table("Runs that reach the paper’s return, and when", {env: [] for env in envs}, rows, note)


def reached_cell(data: ReportData, env: str, key: str, value: list[float] | None) -> Cell:
    """Return how many seeds of a label reach a return, and after which share of their updates."""
    curves = data.parts[env].curves.get(key, {})
    if not curves or value is None:
        return GAP
    budgets = {member["seed"]: member["config"].get("updates") for member in data.results.members(env, key)}
    shares = [first_share(curve, value[0], budgets.get(seed)) for seed, curve in curves.items()]
    text = f"{sum(map(math.isfinite, shares))} of {len(shares)} ({number(value[0], data.digits[env])})"
    by_seed = (
        [Note(f"{' · '.join(number(100 * share) for share in shares)} %")] if any(map(math.isfinite, shares)) else []
    )
    return Cell(text, data.source(env, key), notes=[*by_seed, *missing_seeds(data, env, key)])


def first_share(curve: Curve, value: float, updates: float | None) -> float:
    """Return the share of a run's updates at which its policy first has at least this return; NaN if it never has."""
    found = np.flatnonzero(last_phase(curve) & (curve.returns >= value))
    return float(curve.updates[found[0]] / (updates or curve.updates[-1])) if len(found) else math.nan


# The policy and its expert


def experts(data: ReportData) -> Table | None:
    """Return the returns of policies beside those of their experts: of the test or, where no expert had one, before."""
    places = [(env, region) for env, part in data.results.envs.items() for region in part.regions]
    if not any(tested_pairs(data, *place, key) for place in places for key in data.names):
        return experts_in_training(data)
    known = [key for key in data.names if any(pairs(data, env, key) for env in data.results.envs)]
    labels = [key for key in data.names if key in known or any(tested_pairs(data, *place, key) for place in places)]
    rows = [row(data, key, [cell for place in places for cell in tested_cells(data, *place, key)]) for key in labels]
    note = (
        "The expert is the same network with the true context in the place of what the policy estimates from history, "
        "in the same contexts from the same starts; over the runs whose expert was tested. Below: the expert’s return "
        "minus the policy’s, within each run: what is lost by estimating."
    )
    columns = {f"{env}, {region.upper()}": ["policy", "expert"] for env, region in places}
    return Table("Policy and expert: mean return ± s.e.m. over seeds", columns, rows, note)


def tested_pairs(data: ReportData, env: str, region: str, key: str) -> list[tuple[float, float]]:
    """Return policy's and expert's mean return over the cells of a region, of each run whose expert was tested."""
    part = data.results.envs[env]
    cells = part.ind if region == "ind" else ~part.ind
    found = []
    for seed, returns in part.returns.get(key, {}).items():
        expert = part.measures.get(key, {}).get(seed, {}).get(EXPERT)
        if expert is not None and np.isfinite(expert[cells]).all():
            found.append((float(returns[cells].mean()), float(expert[cells].mean())))
    return found


def tested_cells(data: ReportData, env: str, region: str, key: str) -> list[Cell]:
    """Return the two cells of a label in a region of an environment."""
    found = tested_pairs(data, env, region, key)
    if not found:
        return [GAP, replace(GAP, edge=False)]
    count, planned = len(found), data.seeds(env, key)[1]
    policy, expert = zip(*found, strict=True)
    missing = [Note(f"{count} of {planned} seeds ⚠", warn=True)] if count < planned else []
    lost = spread(*mean_sem(np.subtract(expert, policy)), count, data.digits[env], signed=True)
    return [
        Cell(
            spread(*mean_sem(values), count, data.digits[env]),
            data.source(env, key),
            notes=notes,
            edge=values is policy,
        )
        for values, notes in ((policy, missing), (expert, [Note(lost), *missing]))
    ]


def experts_in_training(data: ReportData) -> Table | None:
    """Return the same from the evaluation in training of the checkpoints that are tested."""
    labels = [key for key in data.names if any(pairs(data, env, key) for env in data.results.envs)]
    envs = [env for env in data.results.envs if any(pairs(data, env, key) for key in labels)]
    if not labels:
        return None
    rows = [row(data, key, [cell for env in envs for cell in expert_cells(data, env, key)]) for key in labels]
    note = (
        "In distribution, in the settings that checkpoints are chosen by. The expert observes the context, which its "
        "policy estimates from history: what it gets more is lost by estimating."
    )
    title = "Policy and expert: mean return at the tested checkpoint ± s.e.m. over seeds"
    return Table(title, {env: ["policy", "expert"] for env in envs}, rows, note)


def pairs(data: ReportData, env: str, key: str) -> list[tuple[float, float]]:
    """Return policy's and expert's return of each run, by the evaluation of the checkpoint that was tested."""
    tested = {m["seed"]: m["checkpoint"] for m in data.members if m["env"] == env and label_of(m) == key}
    found = []
    for seed, curve in data.parts[env].curves.get(key, {}).items():
        at = np.flatnonzero(last_phase(curve) & (curve.updates == tested.get(seed)))
        found += [(float(curve.returns[i]), float(curve.values(EXPERT)[i])) for i in at[-1:]]
    return [pair for pair in found if all(map(math.isfinite, pair))]


def expert_cells(data: ReportData, env: str, key: str) -> list[Cell]:
    """Return the two cells of a label in an environment."""
    found = pairs(data, env, key)
    if not found:
        return [GAP, GAP]
    texts = [spread(*mean_sem(values), len(values), data.digits[env]) for values in zip(*found, strict=True)]
    notes = missing_seeds(data, env, key)
    return [Cell(text, data.source(env, key), notes=notes, edge=not i) for i, text in enumerate(texts)]
