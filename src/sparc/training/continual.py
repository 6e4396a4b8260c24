"""`sparc.continue_run`: a child run, which goes on learning where its parent stopped, in a world that has changed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparc.config import Config
from sparc.envs.registry import EnvEntry, get_env, make_vector_env
from sparc.errors import RunFailure, UserError, cannot_write
from sparc.files import is_held
from sparc.methods import find_method
from sparc.methods.spec import Spec
from sparc.runs import checkpoint
from sparc.runs.children import child_config
from sparc.runs.load import check_env, make_spec
from sparc.runs.run import Run, default_paths
from sparc.runs.stages import KEEP, Lineage, Parent, Stage
from sparc.training.kept import keep_replays, old_rows, open_kept
from sparc.training.loop import Report, run_training
from sparc.training.stages import use_space
from sparc.training.workers.options import resolve

Ranges = Mapping[str, Sequence[float]]


def continue_run(
    run: str | Path,
    train_region: Ranges | None = None,
    *,
    names: Sequence[str] = (),
    variant: str | None = None,
    env_options: Mapping[str, Any] | None = None,
    keep: float = KEEP,
    updates: int | None = None,
    guard: bool = False,
    only_adapter: bool = False,
    no_context: bool = False,
    checkpoint: str | int = "best",
    run_dir: str | Path | None = None,
    report: Report | None = None,
    workers: int = 0,
    cluster: str | None = None,
    **changes: Any,
) -> Path:
    """Continue a run in another region, in other contexts or in a changed environment, as a new run: its child.

    The child begins with the networks of the parent's checkpoint and takes no random steps. The scale of contexts stays
    that of the first stage, and learning rates begin their schedule anew, at 0.3 of the first stage's. The parent is
    only read.

    Args:
        run: the parent's run directory, which may itself be a child.
        train_region: new ranges of context features, {"x": (-5, 5)}; others stay as they were.
        names: instead, the names of the contexts to train on, such as cars.
        variant: a variant of the environment to train in, such as "updated" physics; "default" for none.
        env_options: options of the environment that have changed.
        keep: the share of every minibatch that is drawn from what the stages before have seen; 0 forgets it.
        updates: the number of updates of the stage, by default a tenth of the parent's.
        guard: never let a policy be the best that is worse than the parent's in the settings of any stage.
        only_adapter: RMA: leave the expert as it is and train φ alone.
        no_context: SPARC, experimental: learn without the true contexts; each step is stored with the context that the
            parent's φ reads from the history. What is kept of earlier stages has its true ones.
        checkpoint: of the parent, to begin from: "best", "last" or a number of updates.
        run_dir: a new directory; by default `runs/<env>/<method>/seed<k>-<utc>-stage<n>`.
        report: as in `sparc.train`.
        workers: as in `sparc.train`.
        cluster: as in `sparc.train`.
        **changes: new values of config fields that `sparc.resume` can change as well, learning_rate=1e-4 for example.

    Returns:
        The child's run directory, which `sparc.resume`, `sparc.load` and the commands take as any other.

    Raises:
        UserError: the parent is being trained, or was trained in another environment; a region lies outside the test
            region or has unknown features; there is no replay to keep from; a value is wrong.
        RunFailure: the parent's checkpoint or replay is damaged, or as in `sparc.train`.
        KeyboardInterrupt, SystemExit: after a signal, as `sparc.train` does.

    Example:
        >>> child = sparc.continue_run(run, {"x": (0.5, 1), "y": (0.5, 1)}, updates=1_000)
    """
    options = resolve(workers, cluster)
    child = make_child(
        Run.open(run), Stage(dict(train_region or {}), tuple(names), dict(env_options or {})),
        variant=variant, keep=keep, updates=updates, guard=guard, only_adapter=only_adapter, no_context=no_context,
        which=checkpoint, path=Path(run_dir) if run_dir is not None else None, changes=changes,
    )  # fmt: skip
    return run_training(child, report, workers=options)


def make_child(
    parent: Run, stage: Stage, *, variant: str | None = None, keep: float = KEEP, updates: int | None = None,
    guard: bool = False, only_adapter: bool = False, no_context: bool = False, which: str | int = "best",
    path: Path | None = None, changes: Mapping[str, Any] | None = None,
) -> Run:  # fmt: skip
    """Create a child in a new directory, with all that it needs of its parent; `stage` has what changes."""
    entry = get_env(parent.config.env)
    check_arguments(parent, stage, keep, guard, only_adapter)
    number = parent.choose(which)
    if number == 0 and parent.lineage.parent is None:
        raise UserError(f"checkpoint 0 of {parent.path} is untrained: train it first, `sparc resume`, or name another.")
    folder = parent.checkpoints / str(number)
    _, meta = checkpoint.load(folder)  # compares all checksums
    parent.check_config(number, meta["config"])
    check_env(parent, meta, entry)
    if no_context:
        check_estimates(parent, meta)
    if "env_options" in (changes or {}):
        raise UserError("env_options of a child are given by --env-options, in Python env_options=: not as a change.")
    options = entry.with_variant({**parent.config.env_options, **stage.env_options}, variant or "")
    first = parent.lineage.parent is None
    config = child_config(parent.config, first, updates, only_adapter, {**(changes or {}), "env_options": options})
    if keep:
        old_rows(keep, config.batch_size)  # says if the share is too small or too large
    begins = Parent(
        parent.path.resolve().name, number, meta["checksums"][checkpoint.ARRAYS], float(keep), guard, only_adapter,
        no_context,
    )  # fmt: skip
    stages = (*parent.lineage.stages, Stage(stage.ranges, stage.names, options))
    lineage = Lineage(stages, begins)
    spec = check_sizes(parent, lineage, config, entry, meta)

    target = path or next(free for free in default_paths(config, lineage) if not free.exists())
    if target.exists() and any(target.iterdir()):
        raise UserError(f"{target} exists: continue it with `sparc resume {target}`, or choose another --run-dir.")
    # made beside its place, so that a run with its name has all that it needs, whenever this process is killed
    beside = target.with_name(f".{target.name}.new")
    if is_held(beside / ".lock"):
        raise UserError(f"{target} is being made by another process: wait for it, or choose another --run-dir.")
    shutil.rmtree(beside, ignore_errors=True)
    child = Run.create(config, beside, lineage)
    try:
        child.lock()
        copy_checkpoint(folder, child.parent)
        if keep:
            keep_replays(parent, child)
            check_kept(parent, child, spec)
        return child.moved(target)
    except BaseException:
        child.discard()
        raise
    finally:
        child.close()


def check_arguments(parent: Run, stage: Stage, keep: float, guard: bool, only_adapter: bool) -> None:
    """Refuse what cannot be, before anything is written."""
    if is_held(parent.training):
        raise UserError(f"{parent.path} is being trained: wait until it is done, or stop it, then continue it.")
    if stage.ranges and stage.names:
        raise UserError("a stage trains on ranges or on names: leave out --train-region or --train-cars.")
    if not (isinstance(keep, int | float) and 0.0 <= keep < 1.0):
        raise UserError(f"--keep must be a share of at least 0 and less than 1, not {keep}.")
    entry = find_method(parent.config.method)
    if only_adapter and len(entry.phases) == 1:
        raise UserError(f"{entry.title} trains in one phase: leave out --only-adapter.")
    if guard and len(entry.phases) > 1 and not only_adapter:
        raise UserError(
            f"{entry.title}'s first phase replaces the parent's policy, which --guard could not keep: add "
            "--only-adapter, or leave out --guard."
        )


def check_estimates(parent: Run, meta: checkpoint.Meta) -> None:
    """Refuse to read contexts back from a policy that has no φ and ψ, or from one of two phases."""
    entry = find_method(parent.config.method)
    if len(entry.phases) > 1:
        raise UserError(f"--no-context needs one phase, and {entry.title} has {len(entry.phases)}: leave it out.")
    if not meta.get("spec", {}).get("psi"):
        why = "observes the context" if entry.privileged else "learns without contexts as it is"
        raise UserError(f"--no-context reads contexts back from φ(h), and {entry.title} {why}: leave it out.")


def check_sizes(parent: Run, lineage: Lineage, config: Config, entry: EnvEntry, meta: checkpoint.Meta) -> Spec:
    """Return the Spec of the child's environment; refuse regions it cannot have and networks that do not fit it."""
    space = lineage.space(entry)
    venv = make_vector_env(config.env, 1, **config.env_options)
    try:
        use_space(venv, config.env, space)
        spec = make_spec(venv)
    finally:
        venv.close()
    before = meta.get("spec", spec.to_dict())  # checkpoints of format 1 have none
    for size, what in (("obs_size", "observations"), ("action_size", "actions")):
        if (now := getattr(spec, size)) != before[size]:
            raise UserError(
                f"{config.env} has {now} {what} with these options, but the networks of {parent.path} are made for "
                f"{before[size]}: a child has the sizes of its parent."
            )
    return spec


def check_kept(parent: Run, child: Run, spec: Spec) -> None:
    """Compare the rows that a child keeps with their checksums."""
    try:
        open_kept(child, spec)
    except RunFailure as error:
        raise RunFailure(
            f"The replay of {parent.path}, or what it keeps of an earlier stage, is damaged: continue without it, "
            "--keep 0."
        ) from error


def copy_checkpoint(source: Path, target: Path) -> None:
    """Copy the parent's checkpoint into the child, which then depends on nothing outside of it."""
    try:
        shutil.copytree(source, target, copy_function=shutil.copyfile)
    except OSError as error:
        raise cannot_write(target, error, "continue with --run-dir on another disk", 0) from error
