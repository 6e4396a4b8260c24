"""Suites: methods × environments × seeds × variations as a short YAML file; each member is an ordinary run directory.

runs/<suite>/suite.yaml                             the plan: what was asked for so far
runs/<suite>/<env>/<method>[-<variation>]/seed<k>   the members; those of a suite that tests another's are in its folder
"""

from __future__ import annotations

import dataclasses
import fcntl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sparc.config import FIELDS as CONFIG_FIELDS
from sparc.config import Config, make_config, read_config
from sparc.config import checked as checked_value
from sparc.envs import get_env, make_vector_env
from sparc.errors import UserError, nearest
from sparc.methods import check_method
from sparc.results import env_of
from sparc.runs import replace

PROVIDED = Path(__file__).parent
PLAN = "suite.yaml"
SECOND_PHASE = 1 / 3  # of its reinforcement learning RMA gets on top, for its adapter
BY_MEMBER = ("method", "env", "seed", "updates", "expert_updates")  # config fields that the suite itself sets


@dataclass(frozen=True, eq=False)
class Member:
    """One run of a suite."""

    config: Config
    variation: str
    runs: str = ""  # the suite that it is shared with
    plain: bool = False  # the shared suite's own run, which the variation does not differ from

    @property
    def path(self) -> Path:
        """Where it lies, from the suite's folder."""
        config = self.config
        name = f"{config.method}-{self.variation}" if self.variation and not self.plain else config.method
        home = Path("..", self.runs) if self.runs else Path()
        return home / config.env.split(":")[-1] / name / f"seed{config.seed}"


@dataclass(frozen=True)
class Suite:
    """What is to be run. `updates` are updates of reinforcement learning, the same for every method."""

    name: str
    methods: list[str]
    envs: list[str]
    seeds: list[int]
    updates: int
    title: str = ""
    about: str = ""
    preset: str = "mujoco"
    config: dict[str, Any] = field(default_factory=dict)  # fields of all members
    variations: dict[str, dict[str, Any]] = field(default_factory=dict)  # name → fields
    grid: int = 21
    episodes: int = 1
    physics: list[str] = field(default_factory=list)  # races: tested in these as well, besides that of training
    runs: str = ""  # a suite whose runs, in the folder beside this one's, are this one's too
    reference: dict[str, Any] | None = None  # published values, see check_reference

    def members(self) -> list[Member]:
        """Give all members, environment by environment."""
        variations = self.variations or {"": {}}
        return [
            self.member(env, method, variation, fields, seed)
            for env in self.envs
            for method in self.methods
            for variation, fields in variations.items()
            for seed in self.seeds
        ]

    def member(self, env: str, method: str, variation: str, fields: Mapping[str, Any], seed: int) -> Member:
        """Resolve a member's config; where runs are shared, find out whether the variation is one."""
        config = self.resolve(env, method, fields, seed)
        plain = bool(self.runs and variation) and config == self.resolve(env, method, {}, seed)
        return Member(config, variation, self.runs, plain)

    def resolve(self, env: str, method: str, fields: Mapping[str, Any], seed: int) -> Config:
        """Give the config of a run with these fields of its own."""
        values = {**self.config, **fields, "method": method, "env": env, "seed": seed, "updates": self.updates}
        if method == "rma":  # as much reinforcement learning as the others get
            chunk = make_config(values | {"method": "sparc"}, self.preset).chunk
            second = max(round(self.updates * SECOND_PHASE / chunk), 1) * chunk
            values |= {"expert_updates": self.updates, "updates": self.updates + second}
        return make_config(values, self.preset)

    def scaled(self, **values: Any) -> Suite:
        """Replace the fields that are given."""
        return checked(dataclasses.replace(self, **{name: v for name, v in values.items() if v is not None}))

    def joined(self, plan: Suite, order: Suite) -> Suite:
        """Add this suite's members to a plan's; methods, environments and seeds stay in the order of a third."""
        lists: dict[str, Any] = {}
        for name in LISTS:
            whole = getattr(order, name)
            both = dict.fromkeys([*getattr(plan, name), *getattr(self, name)])
            lists[name] = sorted(both, key=lambda value: whole.index(value) if value in whole else len(whole))
        return dataclasses.replace(self, **lists)

    def commands(self) -> list[str]:
        """Say how to get this suite's results again."""
        words = ["sparc suite run", self.name if (PROVIDED / f"{self.name}.yaml").exists() else f"{self.name}.yaml"]
        whole = find_suite(self.name) if not words[1].endswith(".yaml") else None
        for name in ("updates", *LISTS):
            value = getattr(self, name)
            if whole is None or value != getattr(whole, name):
                words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
        return [" ".join(words), f"sparc suite report {words[1]}"]

    def write(self, folder: Path) -> None:
        """Write the plan into the suite's folder."""
        folder.mkdir(parents=True, exist_ok=True)
        replace(folder / PLAN, yaml.safe_dump(dataclasses.asdict(self), sort_keys=False, allow_unicode=True))


FIELDS = {field.name: field for field in dataclasses.fields(Suite)}
LISTS = ("methods", "envs", "seeds")
TEXTS = ("name", "title", "about", "preset", "runs")
# what the members of one folder have in common
EXPERIMENT = ("preset", "config", "variations", "grid", "episodes", "physics", "runs")


def provided() -> dict[str, Suite]:
    """Read the suites that come with the package."""
    return {path.stem: read_suite(path) for path in sorted(PROVIDED.glob("*.yaml"))}


def find_suite(name: str) -> Suite:
    """Read a suite by its name, or a user's own from its file."""
    if is_file(name):
        return read_suite(Path(name))
    names = [path.stem for path in PROVIDED.glob("*.yaml")]
    if name not in names:
        known = ", ".join(sorted(names))
        raise UserError(f"There is no suite '{name}': choose one of {known}, or a YAML file.{nearest(name, names)}")
    return read_suite(PROVIDED / f"{name}.yaml")


def is_file(name: str) -> bool:
    """Tell a user's own file from the name of a suite."""
    return Path(name).suffix in (".yaml", ".yml") or Path(name).is_file()


def read_suite(path: Path) -> Suite:
    """Read and check a suite file."""
    values = read_config(path, "suite file")
    values.setdefault("name", path.stem)
    for key in values:
        if key not in FIELDS:
            raise UserError(
                f"{path}: there is no suite field '{key}'.{nearest(str(key), FIELDS)} Fields: {', '.join(FIELDS)}."
            )
    if missing := [key for key in ("methods", "envs", "seeds", "updates") if key not in values]:
        raise UserError(f"{path} lacks {' and '.join(missing)}.")
    try:
        values["updates"] = checked_value(CONFIG_FIELDS["updates"], values["updates"])  # 3e5 is text to YAML
        return checked(Suite(**values))
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def checked(suite: Suite) -> Suite:
    """Refuse what cannot be run, before anything is."""
    for name in TEXTS:
        if not isinstance(getattr(suite, name), str):
            raise UserError(f"{name} must be text, not {getattr(suite, name)!r}: put it in quotes.")
    for name in LISTS:
        values = getattr(suite, name)
        if not isinstance(values, list) or not values:
            raise UserError(f"{name} must be a list with at least one entry, not {values!r}.")
        if len(set(map(str, values))) < len(values):
            raise UserError(f"{name} has an entry twice: {', '.join(map(str, values))}.")
    for method in suite.methods:
        check_method(str(method))
    for env in suite.envs:
        get_env(str(env))
    for name in ("config", "variations"):
        if not isinstance(getattr(suite, name), dict):
            raise UserError(f"{name} must hold `name: value` lines.")
    for variation, fields in suite.variations.items():
        if not isinstance(fields, dict):
            raise UserError(f"variation '{variation}' must hold config fields, e.g. {{history_length: 25}}.")
        if not isinstance(variation, str):  # YAML reads off, no and 0 as other things
            raise UserError(f"a variation's name must be text, not {variation!r}: put it in quotes.")
        if not variation or "/" in variation:
            raise UserError(f"a variation's name becomes part of a folder's name: '{variation}' cannot.")
    for fields in (suite.config, *suite.variations.values()):
        if taken := [name for name in BY_MEMBER if name in fields]:
            raise UserError(f"config and variations cannot set {', '.join(taken)}: the suite has a field for it.")
    for name, low in (("grid", 2), ("episodes", 1)):
        value = getattr(suite, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise UserError(f"{name} must be a whole number of at least {low}, not {value!r}.")
    check_physics(suite)
    check_reference(suite.reference)
    paths = [member.path for member in suite.members()]  # every config checks itself
    if twice := [path for path in paths if paths.count(path) > 1]:
        raise UserError(f"two members are the same run, {twice[0].as_posix()}: leave one out.")
    return suite


def check_physics(suite: Suite) -> None:
    """Refuse another physics than races have, before anything is trained."""
    if not isinstance(suite.physics, list):
        raise UserError(f"physics must be a list, not {suite.physics!r}.")
    if not suite.physics:
        return
    from sparc.envs.racing import RACES
    from sparc.envs.racing.tasks import PHYSICS

    others = PHYSICS[1:]  # the first is that of training
    for name in suite.physics:
        if name not in others:
            raise UserError(f"physics can name {', '.join(others)}, not {name!r}.{nearest(str(name), others)}")
    for env in suite.envs:
        if get_env(env).id not in RACES:
            raise UserError(f"physics goes with races, and {env} is none.")


def check_reference(reference: Any) -> None:
    """Refuse published values that the report could not show: of returns out of distribution, or of laps.

    title, updates; note, of what they can tell; ood: environment → method → [mean, s.e.m.]; laps: environment, or
    "environment, updated physics" → region → method → measure → [mean, s.e.m.] or [mean], shares in percent.
    """
    if reference is None:
        return
    try:
        int(reference["updates"]), str(reference["title"])
        returns = list(reference.get("ood", {}).items())
        laps = [(test, of) for test, regions in reference.get("laps", {}).items() for of in regions.values()]
        for test, methods in [*returns, *laps]:
            get_env(env_of(str(test)))
            for label in methods:
                check_method(str(label).split()[0])
        for mean, sem in (pair for _, methods in returns for pair in methods.values()):
            float(mean), float(sem)
        for numbers in (found for _, methods in laps for measures in methods.values() for found in measures.values()):
            [float(number) for number in numbers[:2]]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError(
            "reference must hold title, updates and ood: {environment: {method: [mean, s.e.m.]}}, or laps for races."
        ) from None


def folder_of(name: str, run_dir: Path | None) -> Path:
    """Say where a suite's runs lie."""
    return run_dir or Path("runs") / Path(name).stem


def planned(name: str, folder: Path) -> Suite:
    """Read what was asked for so far in a suite's folder."""
    if not (folder / PLAN).is_file():
        find_suite(name)  # says if there is none of that name
        raise UserError(f"{folder} holds no suite yet: run it first, `sparc suite run {name}`.")
    return read_suite(folder / PLAN)


def enrol(name: str, folder: Path, **given: Any) -> Suite:
    """Say what to run, and make it part of the folder's plan.

    What is not given is the suite's own, but for the updates: a folder keeps its number. A name alone goes on with the
    plan; a user's file says itself what to run.
    """
    written = is_file(name)
    known = written or (PROVIDED / f"{name}.yaml").exists() or not (folder / PLAN).is_file()
    suite = find_suite(name) if known else planned(name, folder)  # a user's suite by the name of its folder
    given = {key: value for key, value in given.items() if value is not None}
    if suite.runs:
        suite = as_long(suite, folder.parent / suite.runs / PLAN, given.get("updates"))
    if written:
        given = {key: getattr(suite, key) for key in ("updates", *LISTS)} | given
    wanted = suite.scaled(**given)  # refuses what is wrong before a folder is made
    if not (folder / PLAN).is_file():
        try_environments(wanted)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several runners may share a folder
        if not (folder / PLAN).is_file():
            wanted.write(folder)
            return wanted
        plan = planned(name, folder)
        if other := [key for key in EXPERIMENT if getattr(plan, key) != getattr(suite, key)]:
            raise UserError(f"{folder} holds a suite with another {' and '.join(other)}: choose another --run-dir.")
        if not given:
            return plan
        updates = given.get("updates", plan.updates)
        if updates != plan.updates and (why := fixed_length(plan, updates)):
            raise UserError(
                f"{folder} was run with --updates {plan.updates}, not {updates}, and {why}: choose another --run-dir."
            )
        wanted = suite.scaled(**(given | {"updates": updates}))
        wanted.joined(plan, suite).write(folder)
        return wanted


def try_environments(suite: Suite) -> None:
    """Make every environment once: what a simulator lacks is said once, not by every member."""
    wanted = {(member.config.env, repr(member.config.env_options)): member.config for member in suite.members()}
    for config in wanted.values():
        make_vector_env(config.env, 1, **config.env_options).close()


def fixed_length(plan: Suite, updates: int) -> str:
    """Say why the runs of a plan cannot have this other number of updates; nothing if they can."""
    if updates < plan.updates:
        return "a run can only be extended"
    if "rma" in plan.methods:
        return "RMA's second phase cannot be undone"
    if any(member.config.final_rate != 1.0 for member in plan.members()):
        return "learning rates that fall to the end of a run cannot rise again"
    return ""


def as_long(suite: Suite, plan: Path, updates: int | None) -> Suite:
    """Give a suite that shares another's runs their number of updates; refuse one that would train them on."""
    if not plan.is_file():
        find_suite(suite.runs)  # says if there is none of that name
        return suite
    shared = read_suite(plan).updates
    if updates not in (None, shared):
        raise UserError(f"The runs in {plan.parent} have {shared} updates, not {updates}: leave --updates out.")
    return dataclasses.replace(suite, updates=shared)


def cost(config: Config) -> float:
    """Estimate a member's time in arbitrary units, so that the longest can begin first.

    Measured on one core with the preset mujoco: microseconds per update, of which those of the history grow with H.
    """
    plain, history = COSTS.get(config.method, COSTS["sparc"])
    return config.updates * (plain + history * config.history_length / 50)


COSTS = {"sparc": (3800, 1700), "rma": (3300, 400), "only-obs": (3600, 0), "history-input": (4300, 5500),
         "oracle": (3700, 0)}  # fmt: skip


def longest_first(members: list[Member]) -> Iterator[Member]:
    """Order members so that no core waits long at the end."""
    yield from sorted(members, key=lambda member: -cost(member.config))
