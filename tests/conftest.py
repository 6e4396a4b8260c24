"""What several tests share: a cache of compiled programs, a tiny configuration, the real command line, and needs."""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import sparc  # does not load JAX, which reads what is set here when it is loaded
from sparc.envs.registry import all_envs
from sparc.runs import checkpoint
from sparc.runs.run import Run

# Compiling takes most of a short run's time. The programs are kept between runs of the tests and shared by the workers
# of pytest-xdist and by the processes that tests start.
COMPILED = Path(__file__).resolve().parents[1] / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(COMPILED))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# Two processes may meet at one file of the cache; then JAX warns and compiles.
CACHE_WARNING = "ignore:Error reading persistent compilation cache entry"

# What a test needs, by the fixtures it uses; `make check` leaves these out (the markers are in pyproject.toml).
MARKERS = {
    "browser": "browser",
    "torcs": "torcs",
    "opengl": "video",
    "_no_screen": "video",
    "sparc_start": "process",
    "finished": "slow",  # trains a run
    "tiny_run": "slow",
    "runs": "slow",  # trains a run of several methods
    "measured": "slow",  # trains on an environment of its own
    "trained": "slow",  # trains methods to be exported
}
ENVIRONMENTS = sorted(all_envs())  # as sparc ships them, before tests register their own
SPARC = (sys.executable, "-m", "sparc")
TINY = {
    "width": 16,
    "latent": 8,
    "history_length": 5,
    "num_quantiles": 4,
    "batch_size": 8,
    "adapter_batch_size": 0,
    "final_lr_fraction": 1.0,
    "num_envs": 5,
    "random_steps": 50,
    "replay_capacity": 400,
    "chunk": 10,
    "log_every": 20,
    "evaluate_every": 100,
}


def skip_or_fail(reason: str) -> None:
    """Skip a test that the machine lacks something for; fail it where all tests are required, as in CI."""
    if os.environ.get("SPARC_REQUIRE_ALL"):
        pytest.fail(f"{reason} (required: SPARC_REQUIRE_ALL is set)", pytrace=False)
    pytest.skip(reason)


def pytest_configure(config: pytest.Config) -> None:
    assert "jax" not in sys.modules, "JAX was loaded before its cache was set"
    config.addinivalue_line("filterwarnings", CACHE_WARNING)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests by the fixtures they use, directly or through others."""
    for item in items:
        for name in MARKERS.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(MARKERS[name])


@pytest.fixture(scope="session")
def tiny_fields() -> dict[str, Any]:
    """The fields of a configuration that trains in no time."""
    return TINY


@pytest.fixture
def tiny() -> dict[str, Any]:
    """A copy of them for one test."""
    return dict(TINY)


@pytest.fixture
def tiny_yaml(tmp_path: Path, tiny: dict[str, Any]) -> Path:
    """The same as a file for `sparc train --config`."""
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny))
    return path


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_fields: dict[str, Any]) -> Path:
    """A run of 20 updates with the checkpoints 10 and 20; copy it before changing it."""
    fields = {**tiny_fields, "evaluate_every": 10, "updates": 20}
    return sparc.train("only-obs", "DriftingBoat-v0", run_dir=tmp_path_factory.mktemp("finished") / "run", **fields)


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """The same, to break: `run` in the directory where commands run."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture(scope="session")
def assert_same_run() -> Callable[..., None]:
    """Compare the newest checkpoints of two runs bit for bit, and their metrics but speed; what is named may differ."""

    def contents(run: Path, but: tuple[str, ...]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        folder = run / "checkpoints" / str(checkpoint.numbers(run / "checkpoints")[-1])
        arrays, meta = checkpoint.load(folder)
        arrays |= checkpoint.read_arrays(folder, checkpoint.POLICY, meta)
        del meta["checksums"]  # of the file, whose header has no fixed order
        meta.pop("processor_s", None)
        but = ("updates_per_s", "processor_s", *but)
        kept = {name: array for name, array in arrays.items() if name not in but}
        bits = {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in kept.items()}
        records = [{k: v for k, v in record.items() if k not in but} for record in Run.open(run).records()]
        return bits | {"meta": meta}, records

    def compare(run: Path, other: Path, but: tuple[str, ...] = ()) -> None:
        (ours, our_records), (theirs, their_records) = contents(run, but), contents(other, but)
        assert ours.keys() == theirs.keys()
        assert [name for name in ours if ours[name] != theirs[name]] == []
        assert our_records == their_records

    return compare


@pytest.fixture
def sparc_start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the real command line: `sparc_start("train", …, cwd=…, env={…})`; env is added to this process's own.

    With command=, other words take the place of `python -m sparc`.
    """
    started: list[subprocess.Popen[str]] = []
    source = str(Path(sparc.__file__).resolve().parents[1])

    def start(
        *args: object, command: tuple[str, ...] = SPARC, env: dict[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
        full = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": CACHE_WARNING, **(env or {})}
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": tmp_path, "text": True}
        process = subprocess.Popen([*command, *map(str, args)], env=full, **{**pipe, **options})
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def sparc_cli(
    sparc_start: Callable[..., subprocess.Popen[str]],
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the real command line to its end, in a temporary directory: `sparc_cli("train", …).returncode`."""

    def run(*args: object, timeout: float = 120, **options: Any) -> subprocess.CompletedProcess[str]:
        process = sparc_start(*args, **options)
        out, err = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """A function that trains a method on the boat, once per session."""
    from exporting import train_on_boat

    return functools.cache(lambda method: train_on_boat(method, tmp_path_factory.mktemp("trained") / method))


@pytest.fixture(scope="session")
def boat_export(trained: Callable[[str], Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole export of SPARC on the boat; tests that change it copy it first."""
    from sparc.deploy.export import from_run, write

    folder = tmp_path_factory.mktemp("export") / "boat"
    write(from_run(trained("sparc")), folder, c=True, js=True)
    return folder


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Train a tiny run of a method in an environment, once: `tiny_run("sparc")`."""
    made: dict[tuple[str, str], Path] = {}

    def train(method: str, env: str = "DriftingBoat-v0") -> Path:
        if (method, env) not in made:
            folder = tmp_path_factory.mktemp("tiny") / f"{method}-{env}"
            made[method, env] = sparc.train(method, env, run_dir=folder, updates=10, **TINY)
        return made[method, env]

    return train


@pytest.fixture(scope="session")
def torcs() -> Any:
    """The racing simulator, or why there is none."""
    from sparc.envs.racing.torcs.installation import find_torcs
    from sparc.errors import UserError

    try:
        return find_torcs()
    except UserError as error:
        return skip_or_fail(str(error))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        skip_or_fail("needs a browser: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1"):
        options.add_argument(argument)
    options.add_argument("--window-size=1366,768")
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")  # no way out
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=Service(executable_path=driver))
    yield chrome
    chrome.quit()


@pytest.fixture
def quiet(browser: Any) -> Iterator[Any]:
    """The browser; whatever is done in it, the console must stay silent and nothing be loaded."""
    browser.get_log("browser")
    yield browser
    assert browser.get_log("browser") == []
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []
