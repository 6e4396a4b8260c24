"""`sparc bench`: speed, measured in a process of its own."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from sparc.cli.benches import BACKENDS, BENCHES, BenchArgs, machine
from sparc.cli.parser import Commands, parse_float, parse_int
from sparc.cli.train import PRESET_HELP
from sparc.errors import RunFailure, UserError, unknown

TIME_TO_RETURN = "time-to-return"  # reads runs instead of measuring, see runs/time_to_return.py
NAMES = (*BENCHES, TIME_TO_RETURN)
ONE_CORE = ("learner", "train", "rollout", "replay", "policy")
WITH_WORKERS = ("workers", "device")  # which have processes of their own: those need the other cores
ONE_THREAD = (*ONE_CORE, *WITH_WORKERS)
ALONE = "SPARC_BENCH_CHILD"  # set in the process that measures
EXAMPLES = f"""\
sparc bench learner --env WindHalfCheetah-v5
sparc bench train --env WindHopper-v5
sparc bench rollout --env RaceCars-forza-v0 --steps 1e6
sparc bench policy --backend numpy
sparc bench evaluate RUN
sparc bench workers --workers 20 --seconds 600
sparc bench device --seconds 60
sparc bench {TIME_TO_RETURN} RUN RUN2 --return 8000"""


def add(commands: Commands) -> None:
    """Add the command."""
    bench = commands.add("bench", measure, "measure speed; prints one JSON object", EXAMPLES)
    bench.add_argument(
        "what", nargs="?", default="learner", type=parse_name, metavar="WHAT",
        help=f"{', '.join(NAMES)} (default learner)",
    )  # fmt: skip
    bench.add_argument(
        "runs", nargs="*", type=Path, metavar="RUN",
        help=f"evaluate: a run directory (default an untrained policy); {TIME_TO_RETURN}: one or more",
    )  # fmt: skip
    bench.add_argument("--env", help="an environment id (default WindHalfCheetah-v5)")
    bench.add_argument("--method", help="a method (default sparc)")
    bench.add_argument("--preset", metavar="NAME", help=PRESET_HELP)
    bench.add_argument("--backend", metavar="NAME", help=f"policy: {', '.join(BACKENDS)} (default jax)")
    bench.add_argument(
        "--return", dest="value", type=parse_float, metavar="RETURN",
        help=f"{TIME_TO_RETURN}: the mean return of a training evaluation",
    )  # fmt: skip
    bench.add_argument(
        "--steps", type=parse_int(), metavar="N",
        help="rollout: at least N steps, to see whether memory stays flat, e.g. 1e6",
    )  # fmt: skip
    bench.add_argument(
        "--workers", type=parse_int(), metavar="N",
        help=f"workers: so many of them in real time (default {BenchArgs().workers})",
    )  # fmt: skip
    bench.add_argument(
        "--seconds", type=parse_int(), metavar="S",
        help=f"workers, device: measure so long without a break (default {BenchArgs().seconds:.0f})",
    )  # fmt: skip


def parse_name(text: str) -> str:
    """Read the name of a bench."""
    if text not in NAMES:
        raise unknown("bench", text, NAMES, "`sparc bench --help`")
    return text


def measure(parsed: argparse.Namespace) -> int:
    """`sparc bench`."""
    given = {name: value for name in ("env", "method", "preset") if (value := getattr(parsed, name)) is not None}
    takes_runs = ("evaluate", TIME_TO_RETURN)
    if parsed.runs and parsed.what not in takes_runs:
        names = " and ".join(f"`sparc bench {name}`" for name in takes_runs)
        raise UserError(f"only {names} take a run, not `{parsed.what}`: use --env, --method, --preset")
    if parsed.what == "evaluate" and len(parsed.runs) > 1:
        raise UserError(f"`sparc bench evaluate` takes one run, not {len(parsed.runs)}")
    if given and (parsed.runs or parsed.what == TIME_TO_RETURN):
        raise UserError(f"--{next(iter(given))} does not go with a run, which has its own: leave one of them out")
    if parsed.steps and parsed.what != "rollout":
        raise UserError(f"--steps is for `sparc bench rollout`, not for `{parsed.what}`")
    if parsed.workers is not None and parsed.what != "workers":
        raise UserError(f"--workers is for `sparc bench workers`, not for `{parsed.what}`")
    if parsed.seconds is not None and parsed.what not in WITH_WORKERS:
        names = " and ".join(f"`sparc bench {name}`" for name in WITH_WORKERS)
        raise UserError(f"--seconds is for {names}, not for `{parsed.what}`")
    if parsed.value is not None and parsed.what != TIME_TO_RETURN:
        raise UserError(f"--return is for `sparc bench {TIME_TO_RETURN}`, not for `{parsed.what}`")
    if parsed.backend is not None and parsed.what != "policy":
        raise UserError(f"--backend is for `sparc bench policy`, not for `{parsed.what}`")
    if parsed.backend not in (None, *BACKENDS):
        raise unknown("backend", parsed.backend, BACKENDS, "`sparc bench --help`")
    if parsed.what == TIME_TO_RETURN:
        return time_to_return(parsed.runs, parsed.value)

    from sparc.config import make_config
    from sparc.envs.registry import get_env
    from sparc.methods import find_method
    from sparc.runs.run import Run

    args = BenchArgs(**given, steps=parsed.steps or 0, run=parsed.runs[0] if parsed.runs else None)
    args = args._replace(
        backend=parsed.backend or args.backend, workers=parsed.workers or args.workers,
        seconds=parsed.seconds or args.seconds,
    )  # fmt: skip
    if args.run:
        Run.open(args.run)
    else:
        args = args._replace(preset=parsed.preset or get_env(args.env).preset)
        find_method(args.method)
        make_config({"method": args.method, "env": args.env}, args.preset)
    if parsed.what in WITH_WORKERS:
        from sparc.envs.real_time import real_time_id
        from sparc.training.workers.options import WorkerOptions

        real_time_id(args.env)
        WorkerOptions(args.workers).check()
    print(measure_alone(parsed.what, args))
    return 0


def time_to_return(runs: list[Path], value: float | None) -> int:
    """`sparc bench time-to-return`: a table to read, and one JSON object on the standard output."""
    from sparc.runs.time_to_return import table, times_to_return

    if not runs or value is None:
        example = f"`sparc bench {TIME_TO_RETURN} RUN --return 8000`"
        raise UserError(f"{TIME_TO_RETURN} needs {'--return' if runs else 'a run'}, for example {example}")
    found = times_to_return(runs, value)
    print(table(found), file=sys.stderr)
    print(json.dumps({"bench": TIME_TO_RETURN, **found}, indent=1))
    return 0


def measure_alone(what: str, args: BenchArgs) -> str:
    """Measure in a fresh process, whose libraries have not started threads yet; on one core, where that is enough."""
    if os.environ.get(ALONE):
        about = {"env": args.env, "method": args.method, "preset": args.preset}
        if args.run:
            about = {"run": str(args.run)}
        return json.dumps(BENCHES[what](args) | {"bench": what, **about, "machine": machine()}, indent=1)
    environment = os.environ | {ALONE: "1"}
    if what in ONE_THREAD:
        environment |= {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NPROC")}
    command = [sys.executable, "-m", "sparc", "bench", what]
    if args.run:
        command.append(str(args.run))
    else:
        command += ["--env", args.env, "--method", args.method, "--preset", args.preset]
    if what == "policy":
        command += ["--backend", args.backend]
    if what == "workers":
        command += ["--workers", str(args.workers)]
    if what in WITH_WORKERS:
        command += ["--seconds", f"{args.seconds:.0f}"]
    if args.steps:
        command += ["--steps", str(args.steps)]
    pin = (lambda: os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})) if what in ONE_CORE else None
    # nothing has started threads in this process: pinning between fork and exec is safe
    child = subprocess.run(command, env=environment, capture_output=True, text=True, preexec_fn=pin, check=False)
    if child.returncode:
        reason = (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1].removeprefix("sparc: ")
        if child.returncode == UserError.exit_code:
            raise UserError(reason)
        raise RunFailure(f"The bench '{what}' failed: {reason}")
    return child.stdout.rstrip()
