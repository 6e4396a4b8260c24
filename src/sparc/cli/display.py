"""What a person sees in the terminal: progress bars and tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from sparc.contexts import Finite
from sparc.envs.declared import short_list
from sparc.envs.measures import RETURN, Criteria
from sparc.envs.registry import EnvEntry, get_env
from sparc.methods import all_methods
from sparc.report.figures.maps import axis_label
from sparc.runs import checkpoint
from sparc.text import MISSING, joined, plural, short

if TYPE_CHECKING:  # these bring JAX, and the bar says that it is being loaded
    from sparc.acting.evaluate import Evaluation
    from sparc.envs.contextual import ProgressCall
    from sparc.runs.run import Run
    from sparc.suites.suite import Suite

SECONDS_BETWEEN_LINES = 30  # of progress, where there is no terminal
READS = {"observation": "o", "history": "o, h", "context": "o, c"}
SHOWN_LOSSES = {"critic_loss": "critic", "actor_loss": "actor", "adapter_loss": "adapter"}


class WithNumbers(Progress):
    """A progress bar with lines of numbers below it: both on one line do not fit into 80 columns."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the bar, then the numbers."""
        yield from super().get_renderables()
        for task in self.tasks:
            yield Text(task.fields["numbers"], style="dim")


class TrainingBar:
    """Live on a terminal; elsewhere a line per stage, per evaluation and now and then."""

    def __init__(self, run: Run):
        self.config, self.checkpoints = run.config, run.checkpoints
        self.is_first = run.lineage.parent is None
        self.console = Console(stderr=True)
        self.stage = ""  # the last one that has its line
        self.evaluated: int | None = None  # the updates of the last evaluation that has its line
        self.printed = monotonic()
        self.bar = WithNumbers(
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("[cyan]{task.fields[speed]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=self.console,
            disable=not self.console.is_terminal,
        )

    def __enter__(self) -> TrainingBar:
        begun = max(checkpoint.numbers(self.checkpoints), default=0)
        stage = f"loading JAX, making environments{', compiling' if begun else ''}"
        self.bar.start()
        self.print_line(f"{self.config.method} on {self.config.env}: {stage}")
        self.task = self.bar.add_task(
            f"{self.config.method} · {self.config.env}",
            total=self.config.updates,
            completed=begun,
            speed="",
            numbers=stage,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def report(self, record: dict[str, Any]) -> None:
        """Take a record of the training loop."""
        if "note" in record:
            self.console.print(record["note"], style="yellow", markup=False, soft_wrap=True)
            return
        parts, stage = [f"{record['env_steps']:,} env steps"], ""
        if record["updates"] == 0:
            filling = record["env_steps"] < self.config.random_steps
            stage = ("random actions" if self.is_first else "first steps") if filling else "compiling"
            if filling and not record.get("workers", 1):
                stage = "starting workers"
            parts.append(stage)
        if "workers" in record:
            parts.append(f"{plural(int(record['workers']), 'worker')} {record['workers_steps_per_s']:,.0f}/s")
            if "achieved_steps_per_update" in record:
                parts.append(f"{record['achieved_steps_per_update']:.3g} steps/update")
        if record["episode_return"] is not None:
            parts.append(f"return {record['episode_return']:,.1f}")
        if record["evaluation"] is not None:
            parts.append(f"IND eval {get_env(self.config.env).criteria.outcome(record['evaluation'])}")
        losses = [f"{name} {record[key]:.3g}" for key, name in SHOWN_LOSSES.items() if key in record]
        phase = "" if record["phase"] == "train" else f" ({record['phase']})"
        self.bar.update(
            self.task,
            completed=record["updates"],
            total=record["total"],
            description=f"{self.config.method}{phase} · {self.config.env}",
            speed=f"{record['updates_per_s']:.0f}/s" if record["updates"] else "",
            numbers=" · ".join(parts) + ("\nlosses: " + " · ".join(losses) if losses else ""),
        )
        evaluated = record["evaluation"]["updates"] if record["evaluation"] is not None else None
        news = stage not in ("", self.stage) or evaluated not in (None, self.evaluated)
        if news or monotonic() - self.printed >= SECONDS_BETWEEN_LINES:
            self.stage, self.evaluated = stage, evaluated
            self.print_line(f"{record['updates']}/{record['total']} updates, {' · '.join(parts + losses)}")

    def print_line(self, line: str) -> None:
        """Print a line, where there is no terminal."""
        self.printed = monotonic()
        if not self.console.is_terminal:
            print(line, file=sys.stderr, flush=True)


@contextmanager
def step_bar(title: str, unit: str = "steps") -> Iterator[ProgressCall]:
    """Show how many of an episode's steps, or of other things, are done: a bar, or a line now and then in a file."""
    console = Console(stderr=True)
    if not console.is_terminal:
        printed = monotonic()

        def print_now_and_then(done: int, most: int) -> None:
            nonlocal printed
            if monotonic() - printed >= SECONDS_BETWEEN_LINES:
                printed = monotonic()
                print(f"{title}: {done:,}{f' of {most:,}' if most else ''} {unit}", file=sys.stderr, flush=True)

        yield print_now_and_then
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, most: bar.update(task, completed=done, total=most or None)


def summary_table(
    evaluations: Mapping[str, Evaluation],
    title: str,
    scores: Mapping[str, str] | None = None,
    criteria: Criteria | None = None,
) -> None:
    """Print IND and OOD returns, mean ± standard deviation over the contexts, the lowest, and scores if there are.

    Below them the measures, with titles and units of what the environment declares.
    """
    table = Table(title=title, title_justify="left")
    table.add_column("method", no_wrap=True)
    for region in ("IND", "OOD"):
        table.add_column(f"{region} return", justify="right", no_wrap=True)
        table.add_column("lowest", justify="right", style="dim", no_wrap=True)
    if scores:
        table.add_column("OOD score", justify="right", no_wrap=True)
    for name, evaluation in evaluations.items():
        cells = []
        summary = evaluation.summary()
        for region in ("ind", "ood"):
            part = summary.get(region)
            spread = f" ± {short(part['std'])}" if part and part["contexts"] > 1 else ""
            cells += [f"{short(part['mean'])}{spread}", short(part["min"])] if part else ["–", "–"]
        table.add_row(name, *cells, *([scores[name]] if scores else []))
    Console().print(table)
    if measured := {name: evaluation for name, evaluation in evaluations.items() if evaluation.measures}:
        measure_table(measured, criteria or Criteria())
    counts = {region: part["contexts"] for region, part in next(iter(evaluations.values())).summary().items()}
    spread = " and ".join(f"{count} {region.upper()}" for region, count in counts.items())
    print(f"mean ± standard deviation over {spread} contexts")


def measure_table(evaluations: Mapping[str, Evaluation], criteria: Criteria) -> None:
    """Print the mean of every measure, IND and OOD apart."""
    table = Table()
    table.add_column("measure", no_wrap=True)
    for name in evaluations:
        table.add_column(f"{name} IND", justify="right")
        table.add_column("OOD", justify="right")
    summaries = [evaluation.summary() for evaluation in evaluations.values()]
    for name in next(iter(evaluations.values())).measures:
        means = [summary.get(region, {}).get(name) for summary in summaries for region in ("ind", "ood")]
        written = criteria[name].number if name in criteria.measures else short
        table.add_row(criteria[name].heading, *("–" if mean is None else written(mean) for mean in means))
    Console(markup=False).print(table)  # [s] is a unit


def environment_table(entries: Mapping[str, EnvEntry]) -> None:
    """Print ids with what they are, context names, units, training and test ranges."""
    table = Table(show_lines=True)
    table.add_column("environment", no_wrap=True)
    table.add_column("what it is and its context")
    for entry in entries.values():
        space = entry.context_space
        of_tests = space.as_tested().test
        if isinstance(space.train, Finite) and isinstance(of_tests, Finite):
            trained, tested = (f"{len(region.values):,}" for region in (space.train, of_tests))
            lines = [f"{space.size} features: {trained} contexts, tested {tested}"]
        else:
            ranges = (
                [f"{region.low[i]:g} … {region.high[i]:g}" for region in (space.train, space.test)]
                for i in range(space.size)
            )
            lines = [
                f"{axis_label(space, i)}: {trained}, tested {tested}" for i, (trained, tested) in enumerate(ranges)
            ]
        if entry.criteria.judged_by != (RETURN,):
            lines.append(f"judged by {joined([entry.criteria[name].title for name in entry.criteria.judged_by])}")
        if entry.variants:
            lines.append(f"test variants: {short_list(entry.variants)}")
        table.add_row(entry.id, "\n".join([entry.summary, *lines]))
    Console(markup=False).print(table)  # [m/s] is a unit


def suite_table(suites: Mapping[str, Suite]) -> None:
    """Print the suites and how big they are."""
    table = Table()
    for column in ("suite", "runs", "updates each", "what it answers"):
        table.add_column(column, justify="right" if column in ("runs", "updates each") else "left")
    for name, suite in suites.items():
        table.add_row(name, str(len(suite.members())), f"{suite.updates:,}", suite.title)
    Console().print(table)


def method_table() -> None:
    """Print the methods and what they read at test time."""
    table = Table()
    for column in ("method", "reads at test time", "what it is"):
        table.add_column(column)
    for name, entry in all_methods().items():
        table.add_row(name, READS[entry.reads], entry.summary)
    Console().print(table)


def policy_table(found: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the policies that come with sparc, by name, with what they reach in and out of distribution."""
    table = Table()
    for column in ("policy", "method", "updates", "IND", "OOD", "contexts, trained on"):
        right = column in ("IND", "OOD", "updates")
        table.add_column(column, justify="right" if right else "left", no_wrap=column == "policy")
    for name, contract in found.items():
        tested = contract["results"][0] if contract["results"] else {}
        criteria = get_env(contract["env"]).criteria
        reached = [criteria.outcome(tested[part]) if part in tested else MISSING for part in ("ind", "ood")]
        context, train = contract["context"], contract["context"]["train"]
        rows = zip(context["names"], train["low"], train["high"], context["units"], strict=True)
        ranges = ", ".join(f"{feature} {low:g} to {high:g} {unit}".rstrip() for feature, low, high, unit in rows)
        contexts = f"{train['contexts']:,} of a finite set" if "contexts" in train else ranges
        table.add_row(name, contract["method"], f"{contract['checkpoint']:,}", *reached, contexts)
    Console().print(table)
    print("IND and OOD: the mean return in and out of distribution, or what the environment is judged by")
