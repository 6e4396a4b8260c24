"""What people would use instead of SPARC, on the same environments, by processor time.

python benchmarks/rivals.py setup                                     the libraries, in an environment of their own
python benchmarks/rivals.py train crossq WindHalfCheetah-v5 --minutes 20
python benchmarks/rivals.py figure --runs RUN RUN2                    all that was trained, beside runs of `sparc train`

Rivals keep their libraries' defaults. Only the environment and the seed are ours, and how many frames are stacked.
"""

from __future__ import annotations

import argparse
import csv
import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src")]

import numpy as np  # noqa: E402

from sparc.envs.registry import get_env, make_env  # noqa: E402
from sparc.errors import UserError  # noqa: E402
from sparc.files import replace, write_table  # noqa: E402
from sparc.report.figures.style import Style, grouped, method_style, new_figure, with_looks, write  # noqa: E402

FOLDER = HERE.parent / "runs" / "rivals"
VENV = FOLDER / ".venv"
PACKAGES = {"sbx-rl": "0.28.0", "stable-baselines3": "2.9.2", "sb3-contrib": "2.9.2"}
TORCH = os.environ.get("RIVALS_TORCH", "torch==2.13.0")  # name a CPU build: the usual ones bring gigabytes of CUDA
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
FRAMES = 4  # stacked: the number of Mnih et al. (2015), which most use
GRID = 21  # contexts per feature, as in `sparc evaluate`
RESOLUTIONS = (180, 130, 100)  # dots per inch
COLUMNS = {
    "method": str, "env": str, "seed": int, "processor_s": float, "evaluation_s": float, "steps": int, "return": float,
    "ind": float, "ood": float,
}  # fmt: skip
Row = dict[str, Any]


class Rival(NamedTuple):
    """An algorithm of another library."""

    title: str
    module: str
    algorithm: str
    policy: str
    look: Style
    frames: int = 1


RIVALS = {
    "crossq": Rival("CrossQ (SBX)", "sbx", "CrossQ", "MlpPolicy", Style("#0072B2", "s", (0, (5, 1.5)))),
    "tqc": Rival("TQC (SBX)", "sbx", "TQC", "MlpPolicy", Style("#009E73", "v", (0, (3, 1, 1, 1)))),
    "tqc-frames": Rival(
        f"TQC, {FRAMES} frames stacked (SBX)", "sbx", "TQC", "MlpPolicy", Style("#CC79A7", "^", (0, (7, 1.5, 1, 1.5))),
        FRAMES,
    ),
    "recurrent-ppo": Rival(
        "Recurrent PPO (SB3-Contrib)", "sb3_contrib", "RecurrentPPO", "MlpLstmPolicy",
        Style("#444444", "D", (0, (1, 1.2))),
    ),
}  # fmt: skip


# Training


class Clock:
    """Processor time of this process, evaluations apart."""

    def __init__(self) -> None:
        self.began, self.evaluation_s = time.process_time(), 0.0

    @property
    def processor_s(self) -> float:
        """Seconds of training so far, compiling included."""
        return time.process_time() - self.began - self.evaluation_s

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Count what happens inside as evaluation."""
        began = time.process_time()
        yield
        self.evaluation_s += time.process_time() - began


class Playing:
    """A rival's policy without noise, as `sparc.evaluate` wants one: rows side by side, each with its own memory."""

    reads = "nothing"  # but observations

    def __init__(self, model: Any, space: Any, frames: int):
        self.model, self.space, self.frames = model, space, frames
        self.reset()

    def reset(self) -> None:
        """Forget the episodes before."""
        self.stack: Any = None
        self.state: Any = None
        self.first = True

    def act(self, obs: np.ndarray, context: np.ndarray | None = None) -> np.ndarray:
        """Choose actions (N, A) for observations (N, O)."""
        start = np.full(len(obs), self.first)
        if self.frames > 1:
            obs = self.stacked(obs)
        action, self.state = self.model.predict(obs, state=self.state, episode_start=start, deterministic=True)
        self.first = False
        return np.asarray(action)

    def stacked(self, obs: np.ndarray) -> np.ndarray:
        """Return the last observations of each row, (N, frames · O), stacked as in training."""
        from stable_baselines3.common.vec_env.stacked_observations import StackedObservations

        if self.first:
            self.stack = StackedObservations(len(obs), self.frames, self.space)
            return np.asarray(self.stack.reset(obs))
        return np.asarray(self.stack.update(obs, np.zeros(len(obs), bool), [{}] * len(obs))[0])


class Training:
    """A rival's run: <rival>-<env>-seed<k> with .csv, its evaluations, .json, its settings, .zip, the best model."""

    def __init__(self, rival: str, env: str, seed: int, minutes: float, folder: Path):
        from sparc.training.evaluations import Evaluator

        self.rival, self.env, self.seed, self.budget = RIVALS[rival], env, seed, 60.0 * minutes
        self.stem = folder / f"{rival}-{env}-seed{seed}"
        self.labels = {"method": rival, "env": env, "seed": seed}
        self.rows: list[Row] = []
        self.evaluator, self.space = Evaluator(env, {}), make_env(env).observation_space
        self.algorithm = getattr(import_module(self.rival.module), self.rival.algorithm)

    def file(self, kind: str) -> Path:
        """Return one of the run's files."""
        return self.stem.with_name(f"{self.stem.name}.{kind}")  # an environment's id may have a dot

    def run(self, every: float) -> None:
        """Train until the budget is used up, evaluate every so many seconds of it, and test the best model."""
        from stable_baselines3.common.callbacks import BaseCallback
        from stable_baselines3.common.monitor import Monitor
        from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

        training, due = self, every

        class Budget(BaseCallback):
            def _on_step(self) -> bool:
                nonlocal due
                spent = training.clock.processor_s
                if spent >= min(due, training.budget):
                    training.evaluate(self.model, spent)
                    due = spent + every
                return spent < training.budget

        self.clock = Clock()
        env: Any = DummyVecEnv([lambda: Monitor(make_env(self.env))])  # what the libraries make of a single one
        env = VecFrameStack(env, self.rival.frames) if self.rival.frames > 1 else env
        model = self.algorithm(self.rival.policy, env, seed=self.seed)
        with self.clock.evaluating():
            self.describe(model)
        model.learn(sys.maxsize, callback=Budget())  # ended by the clock; no default depends on the number of steps
        self.test()

    def evaluate(self, model: Any, spent: float) -> None:
        """Note the mean return in the settings that sparc chooses checkpoints by, from the same starts."""
        with self.clock.evaluating():
            playing = Playing(model, self.space, self.rival.frames)
            mean = self.evaluator.run(playing, self.evaluator.space.choice_rows).returns.mean()
            row = {"processor_s": round(spent, 1), "steps": model.num_timesteps, "return": round(mean, 2)}
            self.rows.append(self.labels | row)
            if best(self.rows, self.budget) is self.rows[-1]:
                model.save(self.file("zip"))
        self.rows[-1]["evaluation_s"] = round(self.clock.evaluation_s, 1)
        save_rows(self.file("csv"), self.rows)
        print(f"{spent / 60:6.1f} min {model.num_timesteps:9,} steps  return {mean:,.0f}", flush=True)

    def test(self) -> None:
        """Test the best model in and out of distribution."""
        from sparc.acting.evaluate import evaluate

        playing = Playing(self.algorithm.load(self.file("zip")), self.space, self.rival.frames)
        tested = evaluate(playing, self.env, self.evaluator.space.grid(GRID), threads=1).summary()
        best(self.rows, self.budget).update({part: round(tested[part]["mean"], 2) for part in ("ind", "ood")})
        save_rows(self.file("csv"), self.rows)
        print(f"best model: {tested['ind']['mean']:,.0f} IND, {tested['ood']['mean']:,.0f} OOD", flush=True)

    def describe(self, model: Any) -> None:
        """Note the settings in force: the defaults of the algorithm and its policy."""
        from sparc.runs.sessions import package_versions, session

        now = session(0)
        about = self.labels | {
            "minutes": self.budget / 60,
            "frames": self.rival.frames,
            "algorithm": defaults(self.algorithm),
            "policy": defaults(type(model.policy)),
            "networks": {name: arch for name, arch in vars(model.policy).items() if name.startswith("net_arch")},
            "packages": now["versions"] | package_versions((*PACKAGES, "flax", "torch")),
            **{name: now[name] for name in ("commit", "machine", "flags")},
        }
        replace(self.file("json"), json.dumps(about, indent=1) + "\n")


def best(rows: Sequence[Row], budget: float) -> Row:
    """Return the row of the model that is tested, by the rule of sparc's checkpoints, over time instead of updates."""
    late = [row for row in rows if 3 * row["processor_s"] > 2 * budget] or rows
    return max(late, key=lambda row: (row["return"], row["processor_s"]))


def defaults(made: Any) -> dict[str, Any]:
    """Return the default settings of a class, those that are numbers and words."""
    found = {name: value.default for name, value in inspect.signature(made.__init__).parameters.items()}
    hidden = ("verbose", "stats_window_size", "_init_setup_model")
    return {name: value for name, value in found.items() if isinstance(value, int | float | str) and name not in hidden}


def save_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write a table, all or nothing: what was measured before a kill stays."""
    write_table(path, COLUMNS, ([row.get(name, "") for name in COLUMNS] for row in rows))


# The figure


def read_rows(path: Path) -> list[Row]:
    """Return the evaluations of a rival."""
    with path.open(newline="") as file:
        return [{name: kind(row[name]) for name, kind in COLUMNS.items() if row[name]} for row in csv.DictReader(file)]


def run_rows(path: Path) -> list[Row]:
    """Return the evaluations of a run of `sparc train`, and what `sparc evaluate` found in it."""
    from sparc.methods import find_method
    from sparc.runs.metrics import read_metrics
    from sparc.runs.run import Run
    from sparc.runs.tests import read_summary

    run = Run.open(path)
    phase = find_method(run.config.method).last_phase  # RMA's first phase tests the expert, not what is shipped
    records = read_metrics(run.metrics).records
    progress = [(line["updates"], line["env_steps"]) for line in records if line["kind"] == "train"]
    labels = {"method": run.config.method, "env": run.config.env, "seed": run.config.seed}
    rows = {}
    for line in records:
        if line["kind"] == "evaluation" and line["phase"] == phase:
            steps = max((steps for updates, steps in progress if updates <= line["updates"]), default=0)
            cost = {"processor_s": round(line["processor_s"], 1), "steps": steps}
            rows[line["updates"]] = labels | cost | {"return": round(line["mean_return"], 2)}
    for file in run.evaluations.glob(f"*-grid{GRID}.json"):
        summary = read_summary(file.with_suffix(""))
        if (row := rows.get(int(file.name.split("-")[0]))) is not None:  # else of another phase
            row |= {part: round(summary[part]["mean"], 2) for part in ("ind", "ood")}
    return list(rows.values())


def about_run(path: Path) -> dict[str, Any]:
    """Return the settings of a run of `sparc train`, as its rivals note theirs."""
    from sparc.runs.run import Run

    run = Run.open(path)
    last = run.manifest()["sessions"][-1]
    return (
        run.config.to_dict() | {"packages": last["versions"]} | {of: last[of] for of in ("commit", "machine", "flags")}
    )


def shown(method: str) -> tuple[str, Style]:
    """Return what a method or rival is called, and how it is drawn."""
    from sparc.methods import find_method

    if method in RIVALS:
        return RIVALS[method].title, RIVALS[method].look
    entry = find_method(method)
    return entry.title, method_style(entry) or Style("#0d0887", "P", "-")


@with_looks
def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw return against processor minutes, a panel per environment and a line per seed."""
    from matplotlib.lines import Line2D

    envs = list(dict.fromkeys(row["env"] for row in rows))
    methods = sorted({row["method"] for row in rows}, key=lambda name: (name in RIVALS, [*RIVALS, name].index(name)))
    figure, panels = new_figure(1, len(envs), 3.4, max(4.6, 2.6 * len(envs)))
    for panel, env in zip(panels.flat, envs, strict=True):
        for method in methods:
            look = shown(method)[1]
            lines = {"color": look.colour, "ls": look.dash, "lw": look.width, "zorder": 1 + look.width}
            for x, y in curves(rows, env, method):
                panel.plot(x, y, marker=look.marker, ms=3.5, markevery=max(1, len(x) // 7), **lines)
        panel.set(title=env, xlabel="processor minutes", xlim=(0, None))
        panel.yaxis.set_major_formatter(grouped)
    panels[0, 0].set_ylabel("IND return")
    handles = []
    for method in methods:
        (title, look), seeds = shown(method), {row["seed"] for row in rows if row["method"] == method}
        line = {"color": look.colour, "ls": look.dash, "lw": look.width, "marker": look.marker, "ms": 3.5}
        label = f"{title}, {len(seeds)} seed{'s' * (len(seeds) > 1)}"
        handles.append(Line2D([], [], label=label, **line))  # type: ignore[arg-type]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, handlelength=3.2)
    write(figure, path, RESOLUTIONS, {"Software": None})


def curves(rows: Sequence[Row], env: str, method: str) -> Iterator[tuple[list[float], list[float]]]:
    """Yield processor minutes and returns of each seed."""
    own = [row for row in rows if row["env"] == env and row["method"] == method]
    for seed in sorted({row["seed"] for row in own}):
        of = [row for row in own if row["seed"] == seed]
        yield [row["processor_s"] / 60 for row in of], [row["return"] for row in of]


def tested(rows: Sequence[Row]) -> str:
    """Return a line for each model that was tested on the grid."""
    lines = []
    for row in rows:
        if "ind" in row:
            made = f"{shown(row['method'])[0]} | {row['env']} | {row['seed']} | {row['processor_s'] / 60:.1f}"
            lines.append(f"| {made} | {row['steps']:,} | {row['ind']:,.0f} | {row['ood']:,.0f} |")
    return "\n".join(["| method | environment | seed | minutes | steps | IND | OOD |", "|" + "---|" * 7, *lines])


# The command line


def setup() -> None:
    """Install the rivals and this package; what both need, in the versions that this package is locked to."""
    python = str(VENV / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)
    words = [f"{name}=={version}" for name, version in PACKAGES.items()]
    lock = ["-c", str(HERE.parent / "requirements.lock")]
    pip = [python, "-m", "pip", "--disable-pip-version-check", "-q", "install"]
    subprocess.run([*pip, *lock, TORCH, *words, "-e", str(HERE.parent)], check=True)


def train(args: argparse.Namespace) -> None:
    """Train one rival, in the rivals' environment and with one thread."""
    if not (VENV / "bin" / "python").exists():
        raise UserError("the rivals are not installed: python benchmarks/rivals.py setup")
    if Path(sys.prefix).resolve() != VENV.resolve() or not ONE_THREAD.items() <= os.environ.items():
        sys.stdout.flush()
        python = str(VENV / "bin" / "python")
        os.execve(python, [python, str(Path(__file__).resolve()), *sys.argv[1:]], {**os.environ, **ONE_THREAD})
    training = Training(args.rival, args.env, args.seed, args.minutes, args.folder)
    if training.file("csv").exists():
        raise UserError(f"{training.file('csv')} exists: remove it, or choose another --folder.")
    args.folder.mkdir(parents=True, exist_ok=True)
    training.run(60.0 * args.every)


def figure(args: argparse.Namespace) -> None:
    """Write the table of all evaluations, what was run how, and the figure."""
    rows = [row for path in args.runs for row in run_rows(path)]
    files = sorted(args.folder.glob("*.csv"))
    rows += [row for path in files for row in read_rows(path)]
    if not rows:
        raise UserError(f"nothing was trained in {args.folder}: python benchmarks/rivals.py train …")
    args.out.mkdir(parents=True, exist_ok=True)
    save_rows(args.out / "rivals.csv", rows)
    about = [about_run(path) for path in args.runs]
    about += [json.loads(path.with_name(path.name.removesuffix(".csv") + ".json").read_text()) for path in files]
    replace(args.out / "rivals.json", json.dumps(about, indent=1) + "\n")
    draw(rows, args.out / "rivals.png")
    print(tested(rows))


def parse(words: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("setup", help=f"install the rivals into {VENV.relative_to(HERE.parent)}")
    training = commands.add_parser("train", help="train one rival")
    training.add_argument("rival", choices=RIVALS)
    training.add_argument("env", help="an environment's id, see `sparc envs`")
    training.add_argument("--seed", type=int, default=0)
    training.add_argument("--minutes", type=float, default=20.0, help="of processor time, without evaluations")
    training.add_argument("--every", type=float, default=1.0, help="minutes between two evaluations (default 1)")
    drawing = commands.add_parser("figure", help="write rivals.csv, rivals.json and rivals.png")
    drawing.add_argument("--runs", type=Path, nargs="*", default=[], help="runs of `sparc train` to draw as well")
    drawing.add_argument("--out", type=Path, default=HERE / "results")
    for command in (training, drawing):
        command.add_argument("--folder", type=Path, default=FOLDER, help="of what is trained (default runs/rivals)")
    args = parser.parse_args(words)
    if args.what == "train":
        for name in ("minutes", "every"):
            if not getattr(args, name) > 0:
                parser.error(f"--{name} must be above 0, not {getattr(args, name):g}")
        try:
            get_env(args.env)
        except UserError as error:
            parser.error(str(error))
    return args


def main() -> None:
    """Do what is asked."""
    args = parse(sys.argv[1:])
    try:
        setup() if args.what == "setup" else {"train": train, "figure": figure}[args.what](args)
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
