"""Speed, measured on one core beside the same core's matrix-product rate; each bench returns one dictionary."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from sparc.machine import children

SECONDS = 4.0  # of measuring per figure
COLD_BYTES = 8 << 20  # more than a core's own caches hold, less than the last-level cache


BACKENDS = ("jax", "numpy", "onnx", "c")  # of the bench policy


class BenchArgs(NamedTuple):
    """What is measured."""

    env: str = "WindHalfCheetah-v5"
    method: str = "sparc"
    preset: str = "mujoco"
    steps: int = 0  # rollout: at least so many steps
    run: Path | None = None  # evaluate: this run's environment and policy instead
    backend: str = "jax"  # policy: what acts
    workers: int = 20  # workers: so many of them, in real time
    seconds: float = 30.0  # workers, device: without a break


def machine() -> dict[str, Any]:
    """Name what was measured on."""
    from sparc.runs.sessions import session

    described = session(0)
    return {**described["machine"], "jax": described["versions"]["jax"], "mujoco": described["versions"]["mujoco"]}


def rate(call: Callable[[], Any], seconds: float = SECONDS, clock: Callable[[], float] = time.perf_counter) -> float:
    """Call again and again, give the calls per second of the best of several stretches: the least disturbed one."""
    call()
    best, end = 0.0, clock() + seconds
    while clock() < end:
        began, calls = clock(), 0
        while (elapsed := clock() - began) < seconds / 8:
            call()
            calls += 1
        best = max(best, calls / elapsed)
    return best


# Matrix products


def products(method: Any, batch: Any) -> Counter[tuple[int, int, int]]:
    """Count the matrix products (m, k, n) of `policy_delay` updates, one of which improves the actor, by tracing."""
    import jax
    import numpy as np
    from jax.interpreters.partial_eval import dce_jaxpr

    state = method.init(np.random.default_rng(0))
    first = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), batch)
    found: Counter[tuple[int, int, int]] = Counter()

    def walk(jaxpr: Any) -> None:
        for equation in jaxpr.eqns:
            if equation.primitive.name == "dot_general":
                (contract, _), _ = equation.params["dimension_numbers"]
                left, out = equation.invars[0].aval, equation.outvars[0].aval
                k = 1
                for axis in contract:
                    k *= left.shape[axis]
                n = out.shape[-1]
                found[(out.size // n, k, n)] += 1
            for value in equation.params.values():
                for inner in value if isinstance(value, tuple | list) else (value,):
                    if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                        walk(getattr(inner, "jaxpr", inner))

    for update in range(method.config.policy_delay):
        learn = partial(method.learn, improve=update == 0)
        traced = jax.make_jaxpr(learn)(state, first, jax.random.key(0)).jaxpr
        walk(dce_jaxpr(traced, [True] * len(traced.outvars))[0])  # without gradients that nobody asks for
    return found


def flops(found: Counter[tuple[int, int, int]]) -> int:
    """Add up multiplications and additions."""
    return sum(2 * m * k * n * times for (m, k, n), times in found.items())


def sgemm_gflops(found: Counter[tuple[int, int, int]], cold: bool = False) -> float:
    """Measure NumPy's float32 products at the update's own shapes, weighted as the update uses them.

    Normally all three matrices stay in the core's own caches. With `cold`, the largest one of each product, of most
    products the weights, is another one at each call, out of several that only the last-level cache has room for. So it
    is in an update, which uses all other weights in between.
    """
    import numpy as np

    seconds = 0.0
    for (m, k, n), times in found.items():
        if 2 * m * k * n * times > 0.01 * flops(found):  # the shapes that matter
            shapes = ((m, k), (k, n), (m, n))
            sizes = [4 * rows * columns for rows, columns in shapes]
            sets = -(-COLD_BYTES // max(sizes)) if cold else 1
            largest = [np.ones(shapes[np.argmax(sizes)], np.float32) for _ in range(sets)]
            others = [np.ones(shape, np.float32) for shape in shapes]
            matrices = cycle([[*others[: np.argmax(sizes)], one, *others[np.argmax(sizes) + 1 :]] for one in largest])

            def multiply(matrices: Iterator[list[Any]] = matrices) -> None:
                a, b, out = next(matrices)
                np.matmul(a, b, out=out)

            seconds += times / rate(multiply, 0.4)
    counted = sum(2 * m * k * n * t for (m, k, n), t in found.items() if 2 * m * k * n * t > 0.01 * flops(found))
    return counted / seconds / 1e9


# Benches


def trainer(folder: str, args: BenchArgs) -> Any:
    """Begin a run, its replay warmed up."""
    from sparc.config import make_config
    from sparc.runs.run import Run
    from sparc.training.loop import Trainer

    config = make_config({"method": args.method, "env": args.env, "random_steps": 5_000}, args.preset)
    run = Run.create(config, Path(folder) / "run")
    made = Trainer(run, lambda record: None)
    run.close()  # nothing of a bench is logged
    while made.replay.size < config.random_steps:
        made.collect(random=True)
    return made


def draw(made: Any) -> Any:
    """Draw a chunk's minibatches, as the loop does."""
    import numpy as np

    config, method = made.config, made.method
    return made.replay.sample(
        np.random.default_rng(0),
        (config.chunk, config.batch_size),
        history=method.history_rows,
        next_history=method.wants_next_history,
    )


def beside_peak(made: Any, batch: Any, chunk: Callable[[], None]) -> dict[str, Any]:
    """Measure chunks of updates, and SGEMM before and after them."""
    found = products(made.method, batch)
    before, before_cold = sgemm_gflops(found), sgemm_gflops(found, cold=True)
    updates_per_s = rate(chunk, 2 * SECONDS) * made.config.chunk
    sgemm, cold = max(before, sgemm_gflops(found)), max(before_cold, sgemm_gflops(found, cold=True))
    flops_per_update = flops(found) / made.config.policy_delay
    gflops = updates_per_s * flops_per_update / 1e9
    return {
        "updates_per_s": round(updates_per_s, 1),
        "mflop_per_update": round(flops_per_update / 1e6, 1),
        "gflops": round(gflops, 1),
        "sgemm_gflops": round(sgemm, 1),
        "fraction_of_peak": round(gflops / sgemm, 3),
        "cold_sgemm_gflops": round(cold, 1),
        "fraction_of_cold_peak": round(gflops / cold, 3),
    }


def bench_learner(args: BenchArgs) -> dict[str, Any]:
    """Updates alone, on a batch that is already there."""
    import jax
    import jax.numpy as jnp

    with tempfile.TemporaryDirectory() as folder:
        made = trainer(folder, args)
        batch = draw(made)

        def chunk() -> None:
            made.state, _ = made.scan(made.state, batch, made.key, jnp.int32(0))
            jax.block_until_ready(made.state)

        return beside_peak(made, batch, chunk)


def bench_train(args: BenchArgs) -> dict[str, Any]:
    """The whole loop: environment steps, acting, replay, sampling, updates."""
    with tempfile.TemporaryDirectory() as folder:
        made = trainer(folder, args)

        def chunk() -> None:
            made.collect(random=False)
            made.learn()

        result = beside_peak(made, draw(made), chunk)
        return result | {"env_steps_per_s": round(result["updates_per_s"] * made.config.steps_per_update, 1)}


def bench_rollout(args: BenchArgs) -> dict[str, Any]:
    """Environment steps per second: the simulation alone, and with the policy acting and the replay filling.

    Where the environment is simulated by processes of its own, also their memory before and after the former.
    """
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        made = trainer(folder, args)
        venv, config = made.collector.venv, made.config
        action = np.zeros(venv.action_space.shape, np.float32)
        counted: Counter[str] = Counter()

        def step() -> None:
            _, _, terminated, truncated, _ = venv.step(action)
            counted["env_steps"] += venv.num_envs
            if (ended := terminated | truncated).any():
                before = venv.contexts.copy()
                venv.reset(options={"reset_mask": ended})
                counted["context_changes"] += int((venv.contexts != before).any(axis=1).sum())

        acting = rate(lambda: made.collect(random=False)) * config.chunk * config.steps_per_update
        memory = simulator_memory()
        alone = rate(step) * venv.num_envs
        while counted["env_steps"] < args.steps:
            step()
        result: dict[str, Any] = {
            "num_envs": venv.num_envs,
            "env_steps_per_s": round(alone, 1),
            "env_steps_per_s_with_policy": round(acting, 1),
            "env_steps": counted["env_steps"],
            "context_changes": counted["context_changes"],
        }
        if memory is not None:
            result["simulator_mb"] = {"before": memory, "after": simulator_memory()}
        return result


def simulator_memory() -> float | None:
    """Return the resident memory of the processes that this one has started, MB; None without any."""
    status = [Path(f"/proc/{pid}/status").read_text() for pid in children()]
    kilobytes = [int(line.split()[1]) for text in status for line in text.splitlines() if line.startswith("VmRSS:")]
    return round(1.024e-3 * sum(kilobytes), 2) if kilobytes else None


def bench_replay(args: BenchArgs) -> dict[str, Any]:
    """Bytes per step, and the time to store and to draw."""
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        made = trainer(folder, args)
        config, replay = made.config, made.replay
        rng = np.random.default_rng(0)
        size = sum(file.stat().st_size for file in (Path(folder) / "run" / "replay").iterdir())
        draws = rate(lambda: replay.sample(rng, (config.chunk, config.batch_size), history=True, next_history=False))
        return {
            "bytes_per_step": replay.bytes_per_step,
            "file_bytes_per_step_of_capacity": round(size / config.replay_capacity, 1),
            "history_length": config.history_length,
            "sample_ms_per_update": round(1e3 / draws / config.chunk, 4),
        }


def bench_policy(args: BenchArgs) -> dict[str, Any]:
    """The time from one observation to one action, history kept, in JAX or in a runtime of exports."""
    import numpy as np

    from sparc.deploy.export import from_run, write
    from sparc.deploy.runners import CPolicy, OnnxPolicy, numpy_start
    from sparc.deploy.runtime import load

    with tempfile.TemporaryDirectory() as folder:
        made, target = trainer(folder, args), Path(folder) / "export"
        policy = made.make_policy()
        obs = np.random.default_rng(0).normal(size=policy.obs_size).astype(np.float32)
        context = {"context": made.evaluator.space.centre} if policy.reads == "context" else {}
        about: dict[str, Any] = {"backend": args.backend}
        if args.backend != "jax":
            made.save()
            began = time.process_time()
            exported = from_run(made.run, "last", with_context=True, check=False)
            write(exported, target, onnx=args.backend == "onnx", c=args.backend == "c")
            about |= {"export_processor_s": round(time.process_time() - began, 2)}
            about["parameters"] = exported.contract["network"]["parameters"]
        if args.backend == "c":
            policy = CPolicy(target)
            about["microseconds_inside_c"] = round(1e6 * policy.seconds(obs, **context), 1)
        elif args.backend == "onnx":
            policy = OnnxPolicy(target)
        elif args.backend == "numpy":
            about |= numpy_start(target)
            policy = load(target)

        def act() -> None:
            policy.act(obs, **context)

        return about | {
            "microseconds_per_action": round(1e6 / rate(act), 1),
            "processor_microseconds_per_action": round(1e6 / rate(act, clock=time.process_time), 1),
        }


def bench_evaluate(args: BenchArgs) -> dict[str, Any]:
    """The full grid on all cores, with a run's best checkpoint, or with an untrained policy, which races give up."""
    from sparc.acting.evaluate import evaluate
    from sparc.envs.registry import get_env
    from sparc.machine import usable_cores
    from sparc.runs.load import load
    from sparc.runs.run import Run

    if args.run:
        config, policy = Run.open(args.run).config, load(args.run)
    else:
        with tempfile.TemporaryDirectory() as folder:
            made = trainer(folder, args)
            config, policy = made.config, made.make_policy()
    entry = get_env(config.env)
    contexts = entry.context_space.grid(21)
    options = entry.resolve_test_options(config.env_options)
    entry.prepare_tests(contexts, options)  # the AI's laps, which are kept, are not timed
    began = time.perf_counter()
    rows = evaluate(policy, config.env, contexts, **options)
    seconds = time.perf_counter() - began
    return {
        "env": config.env,
        "method": config.method,
        "seconds": round(seconds, 2),
        "cells": len(contexts),
        "env_steps": int(rows.lengths.sum()),
        "cores": usable_cores(),
    }


def bench_workers(args: BenchArgs) -> dict[str, Any]:
    """What collecting with workers costs the learner."""
    from sparc.cli.bench_workers import measure

    return measure(args)


def bench_device(args: BenchArgs) -> dict[str, Any]:
    """A robot and its learner on one machine."""
    from sparc.cli.bench_device import measure

    return measure(args)


BENCHES: dict[str, Callable[[BenchArgs], dict[str, Any]]] = {
    "learner": bench_learner,
    "train": bench_train,
    "rollout": bench_rollout,
    "replay": bench_replay,
    "policy": bench_policy,
    "evaluate": bench_evaluate,
    "workers": bench_workers,
    "device": bench_device,
}
