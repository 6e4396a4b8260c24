"""The run directory: its layout, its lock, its manifest and its metrics.

runs/<env>/<method>/seed<k>-<utc>/
  config.yaml  manifest.json  metrics.jsonl  tensorboard/  replay/  checkpoints/<updates>/  evaluations/
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from sparc import seals
from sparc.config import Config, make_config, read_config
from sparc.contexts import ContextSpace
from sparc.envs.registry import get_env, make_vector_env
from sparc.errors import RunFailure, UserError, cannot_write, describe_os_error, in_bytes, unknown
from sparc.files import Lock, is_held, replace
from sparc.methods import find_method, phase_span
from sparc.runs import checkpoint, select
from sparc.runs.board import Board
from sparc.runs.metrics import encode, read_metrics
from sparc.runs.sessions import differences, session
from sparc.runs.stages import Lineage, Stage

NETWORKS = 80  # arrays of width × width at least: actor, critics and targets of two layers, each with Adam's moments
# Fields that may change in the middle of a run: no array depends on them, and no step of it is repeated otherwise.
CHANGEABLE = (
    "learning_rate", "adapter_learning_rate", "critic_clip", "tau", "batch_size", "adapter_batch_size", "log_every",
)  # fmt: skip


class Run:
    """One run directory, opened for reading, or with `lock()` for training."""

    def __init__(self, path: Path, config: Config, lineage: Lineage | None = None):
        self.path, self.config = path, config
        self.lineage = lineage or Lineage((Stage(env_options=config.env_options),))
        self.parent = path / "parent"  # the checkpoint that a child began from
        self.checkpoints, self.replay = path / "checkpoints", path / "replay"
        self.evaluations, self.metrics = path / "evaluations", path / "metrics.jsonl"
        self.training, self.evaluating = path / ".lock", path / ".evaluating"  # locks
        self._made: list[Path] | None = None  # the folders that `create` made, innermost first
        self._board: Board | None = None
        self._lock: Lock | None = None
        self._manifest_noted = self._manifest_kept = False  # that it is damaged

    @classmethod
    def create(cls, config: Config, path: Path | None = None, lineage: Lineage | None = None) -> Run:
        """Make a new run directory; an existing one is never overwritten, a wrong name or option leaves none behind."""
        find_method(config.method)
        check_resources(config)
        paths = [path] if path is not None else default_paths(config, lineage)
        for path in paths:
            run = cls(path, config, lineage)
            folders = (run.checkpoints, run.replay, run.evaluations)
            mine = path / f".config.yaml.{uuid.uuid4().hex}"
            made = [folder for folder in (path, *path.parents) if not folder.exists()]
            try:
                path.mkdir(parents=True, exist_ok=True)
                # what a process killed in here leaves behind is no run yet
                names = {file.name for file in path.iterdir() if not file.name.startswith(".config.yaml.")}
                filled = [folder for folder in folders if folder.exists() and any(folder.iterdir())]
                if filled or names - {folder.name for folder in folders}:
                    raise FileExistsError
                for folder in folders:
                    folder.mkdir(exist_ok=True)
                mine.write_text(run.config_text())
                try:
                    os.link(mine, path / "config.yaml")  # this makes it a run; it fails where another was first
                finally:
                    mine.unlink()
                run._made = made
                return run
            except FileExistsError:
                continue
            except OSError as error:
                raise UserError(f"Cannot create the run directory {path}: {describe_os_error(error, path)}.") from error
        raise UserError(f"{path} exists: continue it with `sparc resume {path}`, or choose another --run-dir.")

    @property
    def allow(self) -> str:
        """What a command on the run ends with where it names a module: nothing is imported unasked."""
        return " --allow-import" if ":" in self.config.env + self.config.method else ""

    @property
    def resume_command(self) -> str:
        """The command that goes on with the run."""
        return f"sparc resume {self.path}{self.allow}"

    @classmethod
    def open(cls, path: Path | str) -> Run:
        """Open an existing run directory."""
        path = Path(path)
        if not (path / "config.yaml").is_file():
            if str(path).startswith("sparc:"):
                raise UserError("a policy by its name has no run: it goes with `sparc play`, `live` and `export`.")
            why = "it has no config.yaml" if path.exists() else "it does not exist"
            raise UserError(f"{path} is not a run directory: {why}.{_runs_below(path)}")
        values = read_config(path / "config.yaml")
        if "method" in values:
            find_method(str(values["method"]))  # it declares some of the fields
        lineage = Lineage.take(values, str(path / "config.yaml"))
        return cls(path, make_config(values), lineage)

    @property
    def space(self) -> ContextSpace:
        """The contexts that the run trains and is tested on; those of its parents' regions are in distribution too."""
        return self.lineage.space(get_env(self.config.env))

    def moved(self, path: Path) -> Run:
        """Rename a new run directory, once all that belongs into it is there, and return the run."""
        try:
            self.path.rename(path)
        except OSError as error:
            raise UserError(f"Cannot create the run directory {path}: {describe_os_error(error, path)}.") from error
        run = Run(path, self.config, self.lineage)
        run._made = None if self._made is None else [path, *self._made[1:]]
        return run

    def discard(self) -> None:
        """Remove a directory that `create` made, with the folders above it that it made if nothing else is in them."""
        if self._made is None:
            return
        with suppress(OSError):  # another run is in a folder above it, or the disk fails: the first error counts
            for file in self.path.iterdir():
                shutil.rmtree(file) if file.is_dir() else file.unlink()
            for folder in self._made:
                folder.rmdir()

    def write_config(self, config: Config) -> None:
        """Write the resolved config, all or nothing."""
        self.config = config
        replace(self.path / "config.yaml", self.config_text())

    def config_text(self) -> str:
        """Return what config.yaml holds: the fields of the config and, where there are any, the stages."""
        return yaml.safe_dump(self.config.to_dict() | self.lineage.to_dict(), sort_keys=False)

    def reload(self) -> None:
        """Read the config again: another process may have extended the run before this one got the lock."""
        self.config = Run.open(self.path).config

    def extend(self, updates: int) -> None:
        """Set a higher number of updates to train to."""
        if updates < self.config.updates:
            raise UserError(
                f"--updates {updates} is less than the run's own {self.config.updates}: a run can only be extended."
            )
        if updates > self.config.updates and not self.config.extendable:
            raise UserError(
                f"The learning rates of {self.path} fall until update {self.config.updates} (final_lr_fraction "
                f"{self.config.final_lr_fraction:g}), it cannot be extended: train a longer run anew."
            )
        self.write_config(dataclasses.replace(self.config, updates=updates))

    def change(self, values: Mapping[str, Any]) -> None:
        """Change fields of the config from the newest checkpoint on, and note that in the manifest."""
        before = self.config.to_dict()
        for name in values:
            if name not in before:
                raise unknown("config field", name, CHANGEABLE)
            if name not in CHANGEABLE:
                raise UserError(f"{name} cannot be changed in the middle of a run, only {', '.join(CHANGEABLE)}.")
        self.write_config(make_config({**before, **values}))
        after = self.config.to_dict()
        manifest = self.manifest()
        fields = {name: [before[name], after[name]] for name in values}
        manifest.setdefault("changes", []).append({"from_updates": self.updates(), "fields": fields})
        self.write_manifest(manifest)

    def verify_config(self, but: Iterable[str] = ()) -> None:
        """Hold the config against the newest checkpoint that can be read; fields that will be changed may differ."""
        for number in reversed(checkpoint.numbers(self.checkpoints)):
            try:
                meta = checkpoint.load_meta(self.checkpoints / str(number))
            except RunFailure:
                continue  # whoever loads that one is told
            return self.check_config(number, meta["config"], but)

    def check_config(self, updates: int, trained: Mapping[str, Any], but: Iterable[str] = ()) -> None:
        """Refuse a config.yaml that is not what a checkpoint was trained with and what `change` has noted since."""
        expected = make_config(trained).to_dict()
        for change in self.manifest().get("changes", []):
            if change["from_updates"] >= updates:
                expected |= {name: now for name, (_, now) in change["fields"].items()}
        now = self.config.to_dict()
        if self.config.extendable and now["updates"] > expected["updates"]:
            expected["updates"] = now["updates"]
        for name, value in now.items():
            if value != expected.get(name) and name not in but:
                openly = f", or change it openly, `sparc resume {self.path} --set {name}={value}`"
                raise UserError(
                    f"{self.path / 'config.yaml'} has {name}: {value}, but checkpoint {updates} was trained with "
                    f"{expected.get(name)}: put that back{openly if name in CHANGEABLE else ''}."
                )

    def lock(self, file: Path | None = None) -> None:
        """Take the run for this process, to train it or, with `evaluating`, to evaluate it; however the process ends,
        the lock goes with it.
        """
        self._lock = Lock(file or self.training, str(self.path))

    def is_locked(self) -> bool:
        """Return whether a process is training or evaluating the run just now."""
        return any(is_held(file) for file in (self.training, self.evaluating))

    def begin(self, updates: int, workers: Mapping[str, Any] | None = None) -> None:
        """Note who goes on from where, and with which workers; drop the metrics of updates that were never saved."""
        self.trim_metrics(updates)
        manifest = self.manifest()
        entry = session(updates, workers)
        if manifest["sessions"] and (others := differences(manifest["sessions"][-1], entry)):
            print(f"note: {'; '.join(others)}. The run goes on, but not bit for bit.", file=sys.stderr)
        manifest["sessions"].append(entry)
        self.write_manifest(manifest)
        self._board = Board(self.path / "tensorboard", first_step=updates + 1)

    def trim_metrics(self, updates: int) -> None:
        """Drop the metrics of later updates, and damaged lines, of which the old file is kept."""
        found = read_metrics(self.metrics)
        if found.note:
            print(f"note: {found.note}.", file=sys.stderr)
            self.keep_damaged(self.metrics)
        kept = [line for line in found.lines if line.record["updates"] <= updates]
        last = max((line.record["updates"] for line in kept), default=0)
        if updates - last >= self.config.log_every:
            print(f"note: {self.metrics} ends at update {last:,}, the run is at {updates:,}.", file=sys.stderr)
        lines = [line.text.decode() for line in kept]
        replace(self.metrics, "".join(f"{line}\n" for line in lines))

    def manifest(self) -> dict[str, Any]:
        """Read the manifest: method, environment, seed and one entry per process that trained."""
        file = self.path / "manifest.json"
        try:
            manifest: dict[str, Any] = json.loads(file.read_bytes())
            whole = all({"from_updates", "versions", "machine"} <= session.keys() for session in manifest["sessions"])
            if not whole or not seals.is_intact(manifest):
                raise ValueError
            return {name: value for name, value in manifest.items() if name != seals.SEAL}
        except FileNotFoundError:
            pass
        except (ValueError, LookupError, TypeError, AttributeError):
            if self._lock is not None and not self._manifest_kept:
                self._manifest_noted = self._manifest_kept = self.keep_damaged(file)
            elif not self._manifest_noted:  # a process that only reads keeps nothing
                self._manifest_noted = self.keep_damaged(file)
        about = {"method": self.config.method, "env": self.config.env, "seed": self.config.seed}
        return about | self.lineage.to_dict() | {"sessions": []}

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Write the manifest, all or nothing."""
        replace(self.path / "manifest.json", json.dumps(seals.seal(manifest), indent=1) + "\n")

    def keep_damaged(self, file: Path) -> bool:
        """Report a damaged file; a process that holds the run keeps it as it was, because it will be rewritten."""
        kept = ""
        if self._lock is not None:
            names = (file.with_name(f"{file.stem}.damaged-{number}{file.suffix}") for number in count(1))
            shutil.copyfile(file, copy := next(path for path in names if not path.exists()))
            kept = f" It is kept as {copy.name}."
        print(f"note: {file} is damaged, and what is lost of it is not used.{kept}", file=sys.stderr)
        return True

    def log(self, record: dict[str, Any], titles: Mapping[str, str] | None = None) -> None:
        """Append a line to metrics.jsonl and its numbers to TensorBoard; `kind` is train or evaluation.

        In TensorBoard, a number with a title goes by that.
        """
        line, titles = encode(record), titles or {}
        try:
            with self.metrics.open("ab") as file:
                file.write(line)
        except OSError as error:
            raise cannot_write(self.metrics, error, f"`sparc resume {self.path}`", len(line)) from error
        if self._board is not None:
            numbers = {titles.get(name, name): value for name, value in record.items() if isinstance(value, float)}
            self._board.add({f"{record['kind']}/{name}": value for name, value in numbers.items()}, record["updates"])

    def records(self, newest: int | None = None) -> list[dict[str, Any]]:
        """Return the sound lines of metrics.jsonl, or of its newest bytes."""
        return read_metrics(self.metrics, newest).records

    def evaluation(self, updates: int) -> dict[str, Any] | None:
        """Find what the evaluation after so many updates of training gave."""
        found = (line for line in self.records() if line["kind"] == "evaluation" and line["updates"] == updates)
        return next(found, None)

    def updates(self) -> int:
        """Return how far the run is: its newest checkpoint."""
        return max(checkpoint.numbers(self.checkpoints), default=0)

    def best(self) -> int | None:
        """Find the best checkpoint of the run's current phase by what its newest one knows; None without any."""
        there = checkpoint.numbers(self.checkpoints)
        if not there:
            return None
        try:
            meta = checkpoint.load_meta(self.checkpoints / str(there[-1]))
        except RunFailure as error:
            others = f", or choose another with --checkpoint {there[-2]}" if len(there) > 1 else ""
            raise RunFailure(
                f"{error} The newest one holds the scores that select the best: repeat it with "
                f"`sparc resume {self.path}`{others}."
            ) from error
        choice = {updates: value for updates, value in checkpoint.load_choice(meta).items() if updates in there}
        return select.best(choice, *phase_span(self.config, meta["phase"]))

    def choose(self, which: str | int) -> int:
        """Find the checkpoint meant by best, last or a number of updates."""
        there = checkpoint.numbers(self.checkpoints)
        if not there:
            raise UserError(f"{self.path} has no checkpoint yet: train it first, `sparc resume {self.path}`.")
        if str(which).isdecimal():
            if int(which) not in there:
                raise UserError(f"{self.path} has no checkpoint {which}: it has {', '.join(map(str, there))}.")
            return int(which)
        if which not in ("best", "last"):
            raise UserError(f"The checkpoint must be best, last or a number of updates, not '{which}'.")
        found = self.best() if which == "best" else None
        return there[-1] if found is None else found

    def close(self) -> None:
        """Close the writers and release the lock."""
        if self._board is not None:
            self._board.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def default_paths(config: Config, lineage: Lineage | None = None) -> list[Path]:
    """Name the run after its time, a child after its stage too; a number follows where several begin in one second."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    if lineage is not None and lineage.number > 1:
        stamp += f"-stage{lineage.number}"
    path = Path("runs") / config.env.split(":")[-1] / config.method.split(":")[-1] / f"seed{config.seed}-{stamp}"
    return [path, *(path.with_name(f"{path.name}-{number}") for number in range(2, 100))]


def check_resources(config: Config) -> None:
    """Make the environment once; refuse a run whose replay or minibatches are larger than the machine."""
    venv = make_vector_env(config.env, 1, **config.env_options)
    obs, action, contexts = venv.single_observation_space.shape, venv.single_action_space.shape, venv.context_space.size
    venv.close()
    step = int(np.prod(obs or ())) + int(np.prod(action or ()))
    margin = 2 * ((2 * config.evaluate_every + config.chunk) * config.steps_per_update + config.random_steps)
    rows = config.replay_capacity + margin + config.num_envs * (config.history_length + 1)
    batch = config.chunk * config.batch_size * step * (2 * config.history_length + config.n_step + 2)
    networks = NETWORKS * config.width * (config.width + step)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = shutil.disk_usage(Path.cwd()).free
    for needed, there, what, fields in (
        (4 * rows * (step + contexts + 4), free, "The replay needs {} of disk, {} are free", "replay_capacity"),
        (4 * (batch + networks), memory, "It needs {} of memory, the machine has {}", "width, batch_size or chunk"),
    ):
        if needed > there:
            raise UserError(f"{what.format(in_bytes(needed), in_bytes(there))}: choose a smaller {fields}.")


def _runs_below(path: Path) -> str:
    """Offer the newest run below a folder that is no run itself."""
    levels = ("*/config.yaml", "*/*/config.yaml", "*/*/*/config.yaml")
    below = sorted((file for level in levels for file in path.glob(level)), key=lambda file: file.stat().st_mtime)
    return f" Did you mean {below[-1].parent}?" if below else ""
