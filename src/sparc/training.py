"""The loop that owns time: collect → add → update → evaluate → checkpoint → log."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparc import checkpoint, select
from sparc.config import Config, make_config
from sparc.contexts import ContextSpace
from sparc.envs import get_env, make_vector_env
from sparc.errors import RunFailure
from sparc.evaluation import evaluate
from sparc.loading import check_contexts, make_spec, restored, wrap
from sparc.machine import keep_freed_memory
from sparc.methods import get_method
from sparc.methods.qr_sac import QrSac, State, scan_updates
from sparc.policy import Policy
from sparc.replay import Replay
from sparc.rollout import Collector
from sparc.runs import Run
from sparc.stopping import Stop

EVALUATION_SEED = 1_000_000  # the training evaluations begin from the same states each time
Report = Callable[[dict[str, Any]], None]


def train(method: str, env: str, *, preset: str | None = None, run_dir: str | Path | None = None,
          report: Report | None = None, **config: Any) -> Path:  # fmt: skip
    """Train a method on an environment and give the run directory; the keywords are the fields of `Config`.

    `report` is called with a dictionary of numbers after every chunk of updates, `print` for example.
    """
    settings = make_config({"method": method, "env": env, **config}, preset or get_env(env).preset)
    return proceed(Run.create(settings, Path(run_dir) if run_dir is not None else None), report)


def resume(run_dir: str | Path, updates: int | None = None, report: Report | None = None) -> Path:
    """Go on with a run from its newest sound checkpoint, to a higher number of updates if one is given."""
    return proceed(Run.open(run_dir), report, updates)


def proceed(run: Run, report: Report | None, updates: int | None = None) -> Path:
    """Train a new or an interrupted run until its number of updates, or until it is told to stop."""
    run.lock()
    try:
        run.reload()
        if updates is not None:
            run.extend(updates)
        with Stop() as stop:
            Trainer(run, report or (lambda record: None)).loop(stop)
    finally:
        run.close()
    return run.path


class Trainer:
    """A run in progress."""

    def __init__(self, run: Run, report: Report):
        keep_freed_memory()
        self.run, self.report, self.config = run, report, run.config
        config = self.config
        self.venv = make_vector_env(config.env, config.num_envs, threads=1, **config.env_options)
        self.spec = make_spec(self.venv)
        self.key = jax.random.key(config.seed)
        self.replay = Replay(
            run.replay,
            capacity=config.replay_capacity,
            lanes=config.num_envs,
            obs_size=self.spec.obs_size,
            action_size=self.spec.action_size,
            context_size=self.venv.context_space.size,
            history_length=config.history_length,
            n_step=config.n_step,
            discount=config.discount,
            margin=replay_margin(config),
        )
        self.updates = 0
        self.scores: dict[int, list[float]] = {}  # the phase's evaluations: updates → a return per setting
        self.evaluation: dict[str, Any] | None = None  # the phase's last one, as it is logged
        self.expert_from: int | None = None  # rma: the checkpoint that the second phase began from
        self.set_phase(get_method(config.method).phases[0])
        # one seed for each purpose: neighbouring seeds must not share networks, winds or starts
        networks, environments = np.random.SeedSequence(config.seed).spawn(2)
        self.state: State = self.method.init(np.random.default_rng(networks))
        self.collector = Collector(
            config.env, self.venv, self.make_policy(), environments.generate_state(self.venv.num_envs).tolist()
        )
        # what evaluations need and cannot have shows before the first update, not at the first evaluation
        entry = get_env(config.env)
        entry.ready(self.venv.context_space.settings, entry.options_of_test(config.env_options))
        if checkpoint.numbers(run.checkpoints):
            self.restore()
            run.begin(self.updates)
        else:
            run.begin(0)
            self.save()  # from here on there is always something to resume from

    def loop(self, stop: Stop) -> None:
        """Run to the end, or to the next whole chunk after a signal."""
        config = self.config
        self.began: float | None = None  # when the first chunk was done: compiling is no measure of speed
        while self.updates < config.updates and not stop.asked:
            if self.updates >= self.phase_end():
                self.next_phase()
            if self.replay.size < config.random_steps:
                self.collect(random=self.method.phase == self.method.phases[0])
                self.report(self.progress())
                continue
            self.collect(random=False)
            metrics = self.learn()
            if self.began is None:
                self.began, self.began_at = time.perf_counter(), self.updates
            ends = self.updates in (config.updates, self.phase_end())
            if self.updates % config.log_every == 0 or ends:
                self.log_training(metrics)
            if self.updates % config.evaluate_every == 0 or ends:
                self.evaluate()
                self.save()
            self.report(self.progress() | metrics)
        if stop.asked and self.updates < config.updates:
            self.save()

    # One chunk

    def collect(self, random: bool) -> None:
        """Let the rollout policy take the chunk's environment steps."""
        config = self.config
        self.collector.policy.actor = self.method.rollout_policy(self.state)
        vector_steps = config.chunk * config.steps_per_update // config.num_envs
        self.collector.collect(self.replay, vector_steps, jax.random.fold_in(self.key, 1), random)
        for note in self.venv.take_notes():
            self.report({"note": note})

    def learn(self) -> dict[str, float]:
        """Do the chunk's updates in one compiled call."""
        config = self.config
        # the generator depends on the number of updates alone: nothing random has to be remembered
        rng = np.random.default_rng([config.seed, self.updates])
        batch = self.replay.sample(
            rng,
            (config.chunk, config.batch_size),
            history=self.method.wants_history,
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

    def phase_end(self) -> int:
        """Give the number of updates at which the phase is over."""
        last = self.method.phase == self.method.phases[-1]
        return self.config.updates if last else self.config.expert_updates

    def next_phase(self) -> None:
        """Begin the next phase from the best checkpoint of this one, with an empty replay and new episodes."""
        self.expert_from = self.best_sound()
        if self.expert_from is not None:
            arrays, _ = checkpoint.load(self.run.checkpoints / str(self.expert_from))
            self.state = restored(self.method, arrays)
        phases = self.method.phases
        self.set_phase(phases[phases.index(self.method.phase) + 1])
        self.scores, self.evaluation = {}, None
        self.replay.clear()
        self.collector.restart()

    def best_sound(self) -> int | None:
        """Find the best checkpoint of the phase that can be read."""
        scores = dict(self.scores)
        while (number := select.best(scores)) is not None:
            if checkpoint.is_sound(self.run.checkpoints / str(number)):
                return number
            self.report({"note": f"Checkpoint {number} is damaged. Taking the next best one."})
            del scores[number]
        return None

    # Evaluation and logs

    def make_policy(self) -> Policy:
        """Wrap the policy that is evaluated and shipped."""
        return wrap(self.method, self.state, self.venv, self.config)

    def evaluate(self) -> None:
        """Run the predetermined IND settings and remember what checkpoints are chosen by."""
        space: ContextSpace = self.venv.context_space
        entry = get_env(self.config.env)
        rows = evaluate(
            self.make_policy(),
            self.config.env,
            space.settings,
            seed=EVALUATION_SEED,
            threads=1,
            **entry.options_of_test(self.config.env_options),
        )
        self.scores[self.updates] = rows.returns.tolist() if entry.score is None else entry.score(rows.measures)
        record = {f"return_{i}": float(value) for i, value in enumerate(rows.returns)}
        record |= {name: float(values[there].mean()) for name, values in rows.measures.items()
                   if (there := np.isfinite(values)).any()}  # fmt: skip
        self.evaluation = {"kind": "evaluation", "updates": self.updates, "phase": self.method.phase,
                           "mean_return": float(rows.returns.mean()), **record, **rows.counters}  # fmt: skip
        self.run.log(self.evaluation)

    def log_training(self, metrics: dict[str, float]) -> None:
        """Write a line of training metrics."""
        progress = {name: value for name, value in self.progress().items() if name not in ("evaluation", "total")}
        self.run.log({"kind": "train", **progress, **metrics, **self.venv.counters()})

    def progress(self) -> dict[str, Any]:
        """Say where the run is."""
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
        }

    # Checkpoints

    def save(self) -> None:
        """Write everything; keep the newest two, the Pareto front, and the expert that a second phase rests on."""
        self.replay.flush()
        arrays = checkpoint.flatten(self.state, "state")
        arrays |= {f"collector.{name}": np.asarray(array) for name, array in self.collector.get_state().items()}
        arrays |= {f"replay.{name}": np.asarray(array) for name, array in self.replay.cursor().items()}
        meta = {
            "config": self.config.to_dict(),
            "phase": self.method.phase,
            "scores": [[updates, *returns] for updates, returns in self.scores.items()],
            "expert_from": self.expert_from,
            "contexts": self.venv.context_space.fingerprint(),
        }
        folder = self.run.checkpoints
        checkpoint.save(folder, self.updates, arrays, meta)
        newest = [number for number in checkpoint.numbers(folder) if number <= self.updates][-2:]
        expert = [] if self.expert_from is None else [self.expert_from]
        checkpoint.prune(folder, {*newest, *select.pareto_front(self.scores), *expert})

    def restore(self) -> None:
        """Load the newest checkpoint that is sound; say so where a newer one is not."""
        for number in reversed(checkpoint.numbers(self.run.checkpoints)):
            try:
                arrays, meta = checkpoint.load(self.run.checkpoints / str(number))
                self.replay.seek(checkpoint.section(arrays, "replay."))
            except RunFailure as error:
                self.report({"note": f"{error} Trying the one before it."})
                continue
            check_contexts(self.run, meta, self.venv)
            self.updates = number
            self.expert_from = meta["expert_from"]
            self.scores = checkpoint.load_scores(meta)
            self.evaluation = self.run.evaluation(max(self.scores, default=-1))
            self.set_phase(meta["phase"])
            self.state = restored(self.method, arrays)
            self.collector.set_state(checkpoint.section(arrays, "collector."))
            return
        raise RunFailure(f"No checkpoint in {self.run.checkpoints} is sound: the run cannot be resumed, train it anew.")


def replay_margin(config: Config) -> int:
    """Count the vector steps after which a checkpoint need no longer be resumable: two intervals and a warm-up.

    Two, for the newest checkpoint may turn out damaged.
    """
    steps = (2 * config.evaluate_every + config.chunk) * config.steps_per_update + config.random_steps
    return -(-steps // config.num_envs)
