"""Tables of continual learning: what each stage learned, kept and lost."""

from __future__ import annotations

import numpy as np

from sparc.arrays import Array
from sparc.envs.measures import RETURN, Measure
from sparc.report.continual import Chain, Measures, chains, judged_by, measure
from sparc.report.page.data import ReportData
from sparc.report.page.measures import Numbers, column_head
from sparc.report.page.tables import GAP, Cell, Row, Table, spread
from sparc.report.stats import mean_sem
from sparc.text import number

COLUMNS = {
    "in the new region": ["zero-shot", "after"],
    "in the regions before": ["before", "after"],
    "over all": ["average", "forgetting", "backward transfer"],
    "against training anew": ["forward transfer", "updates", "updates anew"],
    "dormant units, %": ["first", "last"],
}
NOTE = (
    "Zero-shot: before the stage, of the policy that it begins from. Forgetting: how much worse it is than the best of "
    "the stages before, in their regions. Backward transfer: how much better it is there than right after each stage. "
    "Forward transfer: how far the learning curve of the stage is better than that of training anew, 1 at most; "
    "updates: until the value in the new region is within 2 % of what training anew ends with. Both only for methods "
    "that were trained anew and have one phase: in the first of two, an expert is evaluated that observes the context. "
    "Dormant: units of the actor whose mean activation on the stage’s own replay is at most 2.5 % of their layer’s, at "
    "its first and last evaluation. –: no such number, or no seed reaches it."
)


def numbers(data: ReportData) -> Numbers | None:
    """Return a table per environment that has stages, for each measure that it is judged by; None without any."""
    envs = [env for env in data.results.envs if chains(data.results, env)]
    if not envs:
        return None
    introduction = (
        "Continual learning: each row is a stage that goes on from another one’s policy in a new region, or in another "
        "variant of the environment. Means ± s.e.m. over seeds, over the cells of a region, in the variant that its "
        "stage trains in."
    )
    tables = [table(data, env, name) for env in envs for name in judged_by(data.results, env)]
    return Numbers(introduction, "", tables)


def answers(data: ReportData) -> list[tuple[str, str]]:
    """Return what each stage of the suite's first method brought: the stage, and a sentence; nothing without stages."""
    found = []
    for env in data.results.envs:
        all_chains = chains(data.results, env)
        for chain in (chain for chain in all_chains if chain.method == all_chains[0].method):
            parts = [changes(data, env, chain, name) for name in judged_by(data.results, env)]
            if said := "; ".join(filter(None, parts)):
                where = f" in {env}" if len(data.results.envs) > 1 else ""
                found.append((data.names[chain.last] + where, f"{said}."))
    return found


def changes(data: ReportData, env: str, chain: Chain, name: str) -> str:
    """Return how a measure changed in the new region and in those before; nothing where there are no seeds."""
    found, shown = measure(data.results, env, chain, name), data.measure(env, name)
    if not found.seeds:
        return ""
    new, old = (
        " → ".join(number(shown.scale * float(np.nanmean(values)), shown.digits) for values in pair)
        for pair in ((found.zero_shot, found.learned), (found.before, found.after))
    )
    unit = f" {shown.unit}" if shown.unit else ""
    return f"{shown.title} {new}{unit} in the new region, {old}{unit} in the {region_word(chain)} before"


def region_word(chain: Chain) -> str:
    """Return what a stage was trained on before."""
    return "region" if len(chain.stages) == 2 else "regions"


def table(data: ReportData, env: str, name: str = RETURN) -> Table:
    """Return a row for every continued stage."""
    rows, shown = [], data.measure(env, name)
    for chain in chains(data.results, env):
        found = measure(data.results, env, chain, name)
        cells = row_cells(found, shown, name) if found.seeds else [GAP] * sum(map(len, COLUMNS.values()))
        rows.append(Row(data.names[chain.last], cells, data.is_reference(chain.last)))
    title = f"{env}: what each stage learned, kept and lost, by {column_head(shown)}"
    return Table(title, COLUMNS, rows, NOTE)


def row_cells(found: Measures, shown: Measure, name: str) -> list[Cell]:
    """Return the cells of a stage."""
    digits = shown.digits + (name == RETURN)  # of returns, tables have as few as tell methods apart
    values: list[tuple[Array, int, bool]] = [
        *((shown.scale * of, digits, False) for of in (found.zero_shot, found.learned, found.before, found.after)),
        (shown.scale * found.average, digits, False),
        (shown.scale * found.forgetting, digits, True), (shown.scale * found.backward, digits, True),
        (found.forward, 2, True), (found.updates, 0, False), (found.updates_anew, 0, False),
        (100 * found.dormant_first, 0, False), (100 * found.dormant, 0, False),
    ]  # fmt: skip
    firsts = np.cumsum([0, *map(len, COLUMNS.values())])
    return [
        cell(numbers, decimals, signed, index in firsts) for index, (numbers, decimals, signed) in enumerate(values)
    ]


def cell(values: Array, decimals: int, signed: bool, edge: bool) -> Cell:
    """Return a mean over the seeds that have a value, and how many these are where some have none."""
    there = values[np.isfinite(values)]
    if not len(there):
        return Cell(edge=edge)
    text = spread(*mean_sem(there), len(there), decimals, signed)
    return Cell(text + (f" ({len(there)} of {len(values)})" if len(there) < len(values) else ""), edge=edge)
