"""The loop that owns time: collect → add → update → evaluate → checkpoint → log."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparc.acting.policy import Policy
from sparc.envs.guard import EnvFailure
from sparc.envs.measures import RETURN
from sparc.envs.registry import get_env
from sparc.errors import RunFailure
from sparc.machine import Stop, keep_freed_memory, processor_seconds
from sparc.methods import find_method, get_method, phase_span
from sparc.methods.qr_sac import QrSac, State, scan_updates
from sparc.runs import checkpoint, select
from sparc.runs.load import check_env, policy_arrays, restored
from sparc.runs.run import Run
from sparc.training.diagnostics import Recorder, adapter_errors, dormant_units, q_bias, setting_titles
from sparc.training.evaluations import by_stage, evaluation_points, mean_over, stage_evaluators
from sparc.training.kept import mixture
from sparc.training.layout import SHELVES, drop_layouts, open_replay
from sparc.training.replay import Replay
from sparc.training.sources import SourceFailure, open_source
from sparc.training.stages import inherited, not_worse, stage_seed
from sparc.training.workers.options import NO_WORKERS, WorkerOptions

STOPPING = "stopping: the run is saved after this chunk or evaluation; a second signal interrupts at once"
DIAGNOSIS_SEED = 1  # parts what is measured from what is learned from
LEARNING = ("entropy", "temperature", "critic_gradient_norm", "critic_clipped")  # metrics that an evaluation repeats
Report = Callable[[dict[str, Any]], None]


def run_training(
    run: Run, report: Report | None, updates: int | None = None, changes: Mapping[str, Any] | None = None,
    workers: WorkerOptions | None = None,
) -> Path:  # fmt: skip
    """Train a new or an interrupted run until its number of updates.

    After Ctrl-C or SIGTERM, finish the chunk, save, then raise KeyboardInterrupt or SystemExit(143).
    """
    tell = report or (lambda record: None)
    run.lock()
    try:
        run.reload()
        run.verify_config(but=changes or ())
        if updates is not None:
            run.extend(updates)
        if changes:
            run.change(changes)
        with Stop(lambda: tell({"note": STOPPING})) as stop:
            trainer = Trainer(run, tell, workers or NO_WORKERS)
            try:
                trainer.loop(stop)
            finally:
                trainer.close()
    except EnvFailure as error:
        if not checkpoint.numbers(run.checkpoints):
            raise
        raise EnvFailure(f"{error} Repair it, then go on from the last checkpoint: `{run.resume_command}`.") from error
    finally:
        run.close()
        if not checkpoint.numbers(run.checkpoints):  # it failed before there was anything to resume from
            run.discard()
    stop.raise_signal()
    return run.path


class Trainer:
    """A run in progress."""

    def __init__(self, run: Run, report: Report, workers: WorkerOptions = NO_WORKERS):
        keep_freed_memory()
        self.processor_began = processor_seconds()
        self.processor_before: float | None = 0.0  # seconds of earlier sessions; None if they did not note them
        self.run, self.report, self.config, self.workers = run, report, run.config, workers
        *self.earlier, self.evaluator = stage_evaluators(run)
        with ExitStack() as opened:
            for evaluator in (*self.earlier, self.evaluator):
                opened.callback(evaluator.close)
            self.collector = open_source(run, workers)
            opened.callback(self.collector.close)
            self.set_up()
            self.opened = opened.pop_all()

    def set_up(self) -> None:
        """Make the networks and the replay, or read them from the last checkpoint."""
        run, config, parent = self.run, self.config, self.run.lineage.parent
        self.spec = self.collector.spec
        self.seed = stage_seed(run)
        self.key = jax.random.key(self.seed)
        self.replay = open_replay(run.replay, config, self.spec, self.collector.shelves)
        self.batches = mixture(run, self.replay, self.spec)
        self.scores: dict[int, list[float]] = {}  # the phase's evaluations: updates → a return per setting
        self.choice: dict[int, float] = {}  # likewise: updates → what the best checkpoint is chosen by
        self.evaluation: dict[str, Any] | None = None  # the phase's last one, as it is logged
        self.expert_from: int | None = None  # the checkpoint that a second phase began from
        self.guarded: list[float] | None = None  # what the parent's policy reaches in each stage, where it is guarded
        phases = list(find_method(config.method).phases)
        self.set_phase(phases[-1 if parent and parent.only_adapter else 0])
        self.updates = self.phase_span()[0]
        # one seed for each purpose: neighbouring seeds must not share networks, winds or starts
        networks, environments = np.random.SeedSequence(self.seed).spawn(2)
        self.state: State = (
            self.method.init(np.random.default_rng(networks)) if parent is None else inherited(self.method, run.parent)
        )
        self.collector.start(self.replay, self.method, self.state, environments)
        if checkpoint.numbers(run.checkpoints):
            self.restore()
            run.begin(self.updates, self.workers.to_dict())
        else:
            run.metrics.unlink(missing_ok=True)  # of a process that was killed before it saved anything
            run.begin(self.updates, self.workers.to_dict())
            if parent is not None:
                self.evaluate({})  # the parent's policy, before it learns from what is new
            self.save()  # from here on there is always something to resume from

    def loop(self, stop: Stop) -> None:
        """Run to the end, or to the next whole chunk after a signal; save too where no more experience comes."""
        try:
            self.train_until(stop)
        except SourceFailure:
            self.save()
            raise
        if stop.asked and self.updates < self.config.updates:
            try:
                self.collector.finish()
            finally:
                self.save()

    def train_until(self, stop: Stop) -> None:
        """Collect, learn, evaluate and save until the last update, or until somebody asks to stop."""
        config = self.config
        self.began: float | None = None  # when the first chunk was done: compiling is no measure of speed
        while self.updates < config.updates and not stop.asked:
            if self.updates >= self.phase_span()[1]:
                self.next_phase()
            if (short := self.replay.size < config.random_steps) or self.collector.starting:
                new = self.method.phase == self.method.phases[0] and self.run.lineage.parent is None
                self.collect(random=short and new)
                self.report(self.progress())
                continue
            self.collect(random=False)
            metrics = self.learn()
            if self.began is None:
                self.began, self.began_at = time.perf_counter(), self.updates
            evaluations = evaluation_points(config, *self.phase_span())
            if self.updates % config.log_every == 0 or self.updates == max(evaluations):
                self.log_training(metrics)
            if self.updates in evaluations:
                self.evaluate(metrics)
                self.save()
            self.report(self.progress() | metrics)

    def close(self) -> None:
        """Close the environments, and end the workers."""
        self.opened.close()

    # One chunk

    def collect(self, random: bool) -> None:
        """Take in the chunk's experience."""
        self.collector.collect(self.method, self.state, self.updates, random)
        for note in self.collector.notes():
            self.report({"note": note})
        if self.collector.must_save:
            self.save()

    def learn(self) -> dict[str, float]:
        """Do the chunk's updates in one compiled call."""
        config = self.config
        # the generator depends on the number of updates alone: nothing random has to be remembered
        rng = np.random.default_rng([self.seed, self.updates])
        batch = self.batches.sample(
            rng,
            (config.chunk, config.batch_size),
            history=self.method.history_rows,
            next_history=self.method.wants_next_history,
        )
        update_key = jax.random.fold_in(self.key, 2)
        self.state, means = self.scan(self.state, batch, update_key, jnp.int32(self.updates))
        self.updates += config.chunk
        metrics = {name: float(value) for name, value in means.items()}
        if bad := [name for name, value in metrics.items() if not np.isfinite(value)]:
            raise RunFailure(
                f"{', '.join(bad)} became NaN or infinite before update {self.updates}, and would again in a resumed "
                f"run: begin a new one, `sparc train` with the same options and a lower learning rate, for instance "
                f"--learning-rate {config.learning_rate / 3:.1g}."
            )
        return metrics

    # Phases

    def set_phase(self, phase: str) -> None:
        """Make the method of a phase and its compiled update."""
        self.method: QrSac = get_method(self.config.method)(self.config, self.spec, phase)
        self.scan = scan_updates(self.method)
        self.q_value = jax.jit(self.method.q_value)

    def phase_span(self) -> tuple[int, int]:
        """Return the updates between which the phase lies."""
        return phase_span(self.config, self.method.phase)

    def next_phase(self) -> None:
        """Begin the next phase from the best checkpoint of this one, with an empty replay and new episodes."""
        self.expert_from = self.best_sound()
        if self.expert_from is not None:
            arrays, _ = checkpoint.load(self.run.checkpoints / str(self.expert_from))
            self.state = restored(self.method, arrays)
        self.state = self.method.frozen(self.state)
        phases = self.method.phases
        self.set_phase(phases[phases.index(self.method.phase) + 1])
        self.scores, self.choice, self.evaluation = {}, {}, None
        self.replay.clear()
        self.collector.restart()

    def best_sound(self) -> int | None:
        """Find the best checkpoint of the phase that can be read."""
        choice = self.candidates()
        while (number := select.best(choice, *self.phase_span())) is not None:
            if checkpoint.is_sound(self.run.checkpoints / str(number)):
                return number
            self.report({"note": f"Checkpoint {number} is damaged. Taking the next best one."})
            del choice[number]
        return None

    def candidates(self) -> dict[int, float]:
        """Return what the phase's checkpoints on the disk are chosen by, as `checkpoint.load_choice` does."""
        there = checkpoint.numbers(self.run.checkpoints)
        choice = self.choice or checkpoint.means(self.scores)
        return {updates: value for updates, value in choice.items() if updates in there}

    # Evaluation and logs

    def make_policy(self) -> Policy:
        """Wrap the policy that is evaluated and shipped."""
        return Policy(self.method.policy(self.state), self.method.describe(self.state))

    def evaluate(self, metrics: dict[str, float]) -> None:
        """Run the predetermined and the choice settings side by side and remember what checkpoints are chosen by.

        What is logged is the mean over the choice settings, the return in each predetermined one, and what explains it.
        """
        space = self.evaluator.space
        settings, policy = slice(len(space.settings)), self.make_policy()
        recorder = Recorder(policy, len(space.evaluated))
        rows = self.evaluator.run_all(policy, recorder)
        stages = [*((other, other.run_all(policy)) for other in self.earlier), (self.evaluator, rows)]
        self.scores[self.updates] = [score for evaluator, found in stages for score in evaluator.scores(found)]
        values = [evaluator.value(found) for evaluator, found in stages]
        if accepted := self.accept(values):
            self.choice[self.updates] = float(np.mean(values))
        record = {f"return_{i}": float(value) for i, value in enumerate(rows.returns[settings])}
        means = [evaluator.means(found) for evaluator, found in stages]
        if self.earlier:
            record |= by_stage(means, self.evaluator.criteria.judged_by) | {"accepted": float(accepted)}
        overall = mean_over(means)
        record |= {name: value for name, value in overall.items() if name != RETURN}
        variants = {name: Policy(actor, self.method.spec) for name, actor in self.method.variants(self.state).items()}
        record |= self.evaluator.compare(rows, variants) | self.diagnose(policy, recorder)
        record |= {name: metrics[name] for name in LEARNING if name in metrics}
        self.evaluation = {"kind": "evaluation", "updates": self.updates, "phase": self.method.phase,
                           "mean_return": overall[RETURN], **record, **rows.counters,
                           **self.cost()}  # fmt: skip
        self.run.log(self.evaluation, setting_titles(space, rows.labels))

    def accept(self, values: list[float]) -> bool:
        """Return whether a policy that reaches these values in the stages may become the best."""
        if self.run.lineage.parent is None or not self.run.lineage.parent.guard:
            return True
        if self.guarded is None:
            self.guarded = values  # of the parent's policy, which is evaluated first
        return not_worse(values, self.guarded)

    def diagnose(self, policy: Policy, recorder: Recorder) -> dict[str, float]:
        """Measure how far φ is from ψ, and the critics from the returns of the recorded evaluation."""
        found: dict[str, float] = {}
        expert = self.method.variants(self.state).get("expert")
        # as for learning, the generator depends on the number of updates alone, but it is another one
        rng = np.random.default_rng([self.seed, self.updates, DIAGNOSIS_SEED])
        if expert is not None and self.replay.size:
            found |= adapter_errors(policy.actor, expert, self.replay, rng)
        if self.replay.size:
            found |= dormant_units(policy.actor, self.state.critics[0], self.state.norm, self.replay, rng)
        if recorder.steps:
            length = self.config.history_length if self.state.critics[0].encoder.reads == "history" else 0
            value = partial(self.q_value, self.state)
            found |= q_bias(recorder.recording(), self.config.discount, length, value)
        return found

    def log_training(self, metrics: dict[str, float]) -> None:
        """Write a line of training metrics."""
        progress = {name: value for name, value in self.progress().items() if name not in ("evaluation", "total")}
        self.run.log({"kind": "train", **progress, **metrics, **self.collector.counters()})

    def progress(self) -> dict[str, Any]:
        """Return where the run is."""
        seconds = time.perf_counter() - self.began if self.began is not None else 0.0
        recent = self.collector.recent
        return {
            "updates": self.updates,
            "total": self.config.updates,
            "phase": self.method.phase,
            "env_steps": self.collector.steps,
            "episodes": self.collector.episodes,
            "episode_return": float(np.mean(recent)) if recent else None,
            "evaluation": self.evaluation,
            "updates_per_s": (self.updates - self.began_at) / seconds if seconds else 0.0,
            **self.collector.numbers(),
            **self.cost(),
        }

    def cost(self) -> dict[str, float]:
        """Return the processor time of the run so far: all sessions, with compiling, evaluations and simulators.

        The start of Python is not in it, nor work that was lost because a process was killed.
        """
        if self.processor_before is None:
            return {}
        own = processor_seconds() - self.processor_began
        return {"processor_s": self.processor_before + own + self.collector.processor_s}

    # Checkpoints

    def save(self) -> None:
        """Write everything; keep the newest two, the Pareto front, the best, and the expert of a second phase."""
        self.replay.flush()
        arrays = checkpoint.flatten(self.state, "state")
        arrays |= {f"collector.{name}": np.asarray(array) for name, array in self.collector.get_state().items()}
        arrays |= {f"replay.{name}": np.asarray(array) for name, array in self.replay.cursor().items()}
        meta = {
            "spec": self.method.describe(self.state).to_dict(),
            "config": self.config.to_dict(),
            "phase": self.method.phase,
            "scores": [[updates, *returns] for updates, returns in self.scores.items()],
            "choice": [[updates, value] for updates, value in self.choice.items()],
            "expert_from": self.expert_from,
            "contexts": self.run.space.fingerprint(),
            "revision": get_env(self.config.env).revision,
            "lineage": self.run.lineage.to_dict(),
            "guarded": self.guarded,
            **({SHELVES: self.collector.shelves} if self.collector.shelves else {}),
            **self.cost(),
        }
        folder = self.run.checkpoints
        checkpoint.save(folder, self.updates, arrays, policy_arrays(self.method, self.state), meta)
        newest = [number for number in checkpoint.numbers(folder) if number <= self.updates][-2:]
        further = (select.best(self.candidates(), *self.phase_span()), self.expert_from)
        kept = {*newest, *select.pareto_front(self.scores), *(number for number in further if number is not None)}
        checkpoint.prune(folder, kept)
        drop_layouts(self.run.replay, [folder / str(number) for number in newest])

    def restore(self) -> None:
        """Load the newest checkpoint that is sound; say so where a newer one is not."""
        damaged: RunFailure | None = None  # its replay
        for number in reversed(checkpoint.numbers(self.run.checkpoints)):
            try:
                arrays, meta = checkpoint.load(self.run.checkpoints / str(number))
            except RunFailure as error:
                self.report({"note": f"{error} Trying the one before it."})
                continue
            try:
                replay = self.layout_of(meta)
                replay.seek(checkpoint.section(arrays, "replay."))
            except RunFailure as error:
                if str(error) != str(damaged):  # several checkpoints have one file
                    self.report({"note": f"{error}"})
                damaged = error
                continue
            check_env(self.run, meta, get_env(self.config.env))
            self.updates = number
            self.expert_from, self.guarded = meta["expert_from"], meta.get("guarded")
            self.processor_before = meta.get("processor_s")
            self.scores = checkpoint.load_scores(meta)
            self.choice = {int(updates): value for updates, value in meta.get("choice", [])}
            self.evaluation = self.run.evaluation(max(self.scores, default=-1))
            if self.scores and self.evaluation is None:
                self.report({"note": f"{self.run.metrics} lacks the evaluation at update {max(self.scores):,}."})
            self.set_phase(meta["phase"])
            self.state = restored(self.method, arrays)
            if further := replay.roll_forward():
                self.report({"note": f"{further:,} steps that workers delivered after checkpoint {number} are kept."})
            if moved := replay is not self.replay:
                self.replay.take_over(replay)
            known = checkpoint.section(arrays, "collector.")
            # the environments of this process were not there when workers went on: they begin new episodes
            known = {name: known[name] for name in ("recent", "counts")} if further or moved else known
            self.collector.set_state(known)
            if moved:
                self.save()
            return
        if damaged is not None:
            raise RunFailure(
                f"{self.run.path} cannot be resumed without its replay. Its policies are intact: `sparc continue "
                f"{self.run.path} --keep 0` goes on from the best one in a new run."
            ) from damaged
        raise RunFailure(f"No checkpoint in {self.run.checkpoints} is sound: the run cannot be resumed, train it anew.")

    def layout_of(self, meta: Mapping[str, Any]) -> Replay:
        """Return the replay of a checkpoint: this session's, or one of another layout."""
        shelves = meta.get(SHELVES, 0)
        same = shelves == self.collector.shelves
        return self.replay if same else open_replay(self.run.replay, self.config, self.spec, shelves)
