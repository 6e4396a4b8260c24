"""`sparc.train` and `sparc.resume`: training from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparc.config import make_config
from sparc.envs.registry import get_env
from sparc.methods import find_method
from sparc.runs.run import Run
from sparc.runs.stages import first_stage
from sparc.training.loop import Report, run_training
from sparc.training.workers.options import resolve, resolve_again


def train(method: str, env: str, *, preset: str | None = None, run_dir: str | Path | None = None,
          train_region: Mapping[str, Sequence[float]] | None = None, report: Report | None = None,
          workers: int = 0, cluster: str | None = None, **config: Any) -> Path:  # fmt: skip
    """Train a method on an environment.

    Args:
        method: a method's name, see `sparc methods`, or "module:name", which imports the module first.
        env: an environment's id, see `sparc envs`, or "module:Id".
        preset: the preset that the config starts from; by default the environment's own.
        run_dir: a new directory; by default `runs/<env>/<method>/seed<k>-<utc>`.
        train_region: ranges of context features to train on, {"x": (0.5, 1)}; by default the environment's own.
        report: called with a dictionary of numbers after every chunk of updates; `print`, for example.
        workers: how many processes collect experience, asynchronously; 0: this one does, in step with learning. They
            import the environment by its name: one of your own must be in a module, "module:Id".
        cluster: where the workers run, HOST:PORT of an existing Ray cluster; by default "local", on this machine.
        **config: fields of `sparc.config.Config` and the method's own options, as in `sparc train --help`.

    Returns:
        The run directory, for `sparc.load`, `sparc.resume` and the commands.

    Raises:
        UserError: a name, a field or its value is wrong, `run_dir` holds a run already, Ray is not installed, or nobody
            answers at `cluster`.
        RunFailure: the environment, all workers or learning broke down. A run that has a checkpoint by then can be
            resumed; of another one nothing is left.
        KeyboardInterrupt, SystemExit: after Ctrl-C or SIGTERM (exit code 143), once the run is saved.

    Example:
        >>> run = sparc.train("sparc", "DriftingBoat-v0", preset="light", seed=1)
    """
    find_method(method)  # it declares some of the config's fields
    settings = make_config({"method": method, "env": env, **config}, preset or get_env(env).preset)
    stage, options = first_stage(settings, train_region or {}), resolve(workers, cluster)
    run = Run.create(settings, Path(run_dir) if run_dir is not None else None, stage)
    return run_training(run, report, workers=options)


def resume(run_dir: str | Path, updates: int | None = None, report: Report | None = None, *,
           workers: int | None = None, cluster: str | None = None, **changes: Any) -> Path:  # fmt: skip
    """Continue a run from its newest sound checkpoint, without workers bit for bit as if it had not been interrupted.

    Args:
        run_dir: the run directory.
        updates: a higher number of updates to train until; by default the run's own.
        report: as in `sparc.train`.
        workers: as in `sparc.train`; by default as many as the session before.
        cluster: as in `sparc.train`; by default that of the session before, "local" returns to this machine.
        **changes: new values of config fields, learning_rate=1e-4 for example; the manifest keeps the old ones.

    Returns:
        The run directory.

    Raises:
        UserError: there is no such run, another process trains it, its environment or its config.yaml has changed
            since, a field cannot be changed, or the run cannot be extended because its learning rates fall to zero.
        RunFailure: no checkpoint is sound, or the environment or learning broke down.
        KeyboardInterrupt, SystemExit: after a signal, as `sparc.train` does.

    Example:
        >>> sparc.resume("runs/DriftingBoat-v0/sparc/seed1", updates=20_000)
    """
    run = Run.open(run_dir)
    return run_training(run, report, updates, changes, resolve_again(run, workers, cluster))
