"""Suites: methods × environments × seeds × variations as a short YAML file; each member is an ordinary run directory.

runs/<suite>/suite.yaml                             the plan: what was asked for so far
runs/<suite>/<env>/<method>[-<variation>]/seed<k>   the members; those shared with another suite are in its folder
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sparc.config import FIELDS as CONFIG_FIELDS
from sparc.config import Config, field_value, make_config, read_config
from sparc.config import checked as checked_value
from sparc.envs.registry import get_env
from sparc.errors import UserError, unknown
from sparc.files import replace
from sparc.methods import find_method
from sparc.methods.phases import phase_options, with_further_phases
from sparc.runs.children import SHARE, child_config
from sparc.suites.older import with_new_names
from sparc.suites.results import env_of
from sparc.suites.stages import SuiteStage, check_regions, read_stages, variant_in

PROVIDED = Path(__file__).parent / "library"
PLAN = "suite.yaml"
MAX_MEMBERS = 2_000  # runs
BY_MEMBER = ("method", "env", "seed", "updates")  # config fields that the suite itself sets


@dataclass(frozen=True, eq=False)
class Member:
    """One run of a suite."""

    config: Config
    variation: str
    runs: str = ""  # the suite that it is shared with
    plain: bool = False  # the shared suite's own run, which the variation or stage does not differ from
    stage: SuiteStage | None = None  # what a suite of stages trains here
    parent: Member | None = None  # the member that it continues

    @property
    def env(self) -> str:
        """The environment's name without the module that it is registered in."""
        return self.config.env.split(":")[-1]

    @property
    def method(self) -> str:
        """The method's name without the module that it is registered in."""
        return self.config.method.split(":")[-1]

    @property
    def variant(self) -> str:
        """The variant of the environment that it trains in; nothing for the default."""
        return get_env(self.config.env).variant_of(self.config.env_options)

    @property
    def path(self) -> Path:
        """Where it lies, from the suite's folder."""
        name = f"{self.method}-{self.variation}" if self.variation and not self.plain else self.method
        home = Path("..", self.runs) if self.runs else Path()
        return home / self.env / name / f"seed{self.config.seed}"


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
    variants: list[str] = field(default_factory=list)  # of the environments: every run is tested in these as well
    runs: str = ""  # a suite whose runs, in the folder beside this one's, are this one's too
    reference: dict[str, Any] | None = None  # published values, see check_reference
    primary: list[list[str]] = field(default_factory=list)  # the pairs of labels that the suite was made to compare
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)  # see sparc.suites.stages
    workers: int = 0  # of each run that trains; 0: it collects in its own process

    def members(self) -> list[Member]:
        """Return all members, environment by environment."""
        if self.stages:
            return [
                member for env in self.envs for method in self.methods for member in self.stage_members(env, method)
            ]
        variations = self.variations or {"": {}}
        return [
            self.member(env, method, variation, fields, seed)
            for env in self.envs
            for method in self.methods
            for variation, fields in variations.items()
            for seed in self.seeds
        ]

    def stage_members(self, env: str, method: str) -> list[Member]:
        """Return the stages of a method in an environment, each with all seeds."""
        found: dict[tuple[str, int], Member] = {}
        entry = get_env(env)
        for name, stage in read_stages(self.stages).items():
            if stage.methods and method not in stage.methods:
                continue
            for seed in self.seeds:
                parent = found.get((stage.after, seed))
                if parent is None and stage.after:
                    continue  # its parent is not of this method
                runs = ""
                if parent is None:
                    options = entry.with_variant(self.config.get("env_options", {}), stage.variant)
                    own = {"env_options": options} if options or stage.variant else {}
                    config = self.resolve(env, method, own, seed, stage.updates)
                    runs = self.runs if stage.usual and config == self.resolve(env, method, {}, seed) else ""
                else:
                    updates = stage.updates or self.updates // SHARE
                    phases = find_method(method).phases
                    if len(phases) > 1 and not stage.only_adapter:
                        updates = with_further_phases(updates, phases, parent.config.chunk)["updates"]
                    changes = {"env_options": entry.with_variant(parent.config.env_options, stage.variant)}
                    config = child_config(parent.config, parent.parent is None, updates, stage.only_adapter, changes)
                found[name, seed] = Member(config, name, runs, plain=bool(runs), stage=stage, parent=parent)
        return list(found.values())

    def member(self, env: str, method: str, variation: str, fields: Mapping[str, Any], seed: int) -> Member:
        """Resolve a member's config; where runs are shared, find out whether the variation is one."""
        config = self.resolve(env, method, fields, seed)
        plain = bool(self.runs and variation) and config == self.resolve(env, method, {}, seed)
        return Member(config, variation, self.runs, plain)

    def resolve(
        self, env: str, method: str, fields: Mapping[str, Any], seed: int, updates: int | None = None
    ) -> Config:
        """Return the config of a run with these fields of its own."""
        updates = updates or self.updates
        values = {**self.config, **fields, "method": method, "env": env, "seed": seed, "updates": updates}
        phases = find_method(method).phases
        if len(phases) > 1:  # as much reinforcement learning as the others get, what comes after it on top
            chunk = checked_value(CONFIG_FIELDS["chunk"], field_value("chunk", values, self.preset))
            values |= with_further_phases(updates, phases, chunk)
        return make_config(values, self.preset)

    @property
    def tested_in(self) -> list[str]:
        """The variants of the environments that every run is tested in, besides the default: of stages, all theirs."""
        stages = read_stages(self.stages)
        trained = (variant_in(stages, name, get_env(env)) for env in self.envs for name in stages)
        return list(dict.fromkeys([*self.variants, *filter(None, trained)]))

    def scaled(self, **values: Any) -> Suite:
        """Replace the fields that are given."""
        return checked(dataclasses.replace(self, **{name: v for name, v in values.items() if v is not None}))

    def joined(self, others: Mapping[str, Any], order: Suite) -> Suite:
        """Add other methods, environments and seeds to this suite's; they stay in the order of another suite."""
        lists: dict[str, Any] = {}
        for name in LISTS:
            whole = getattr(order, name)
            both = dict.fromkeys([*others[name], *getattr(self, name)])
            lists[name] = sorted(both, key=lambda value: whole.index(value) if value in whole else len(whole))
        return dataclasses.replace(self, **lists)

    def commands(self) -> list[str]:
        """Return how to get this suite's results again."""
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


def provided() -> dict[str, Suite]:
    """Read the suites that come with the package."""
    return {path.stem: read_suite(path) for path in sorted(PROVIDED.glob("*.yaml"))}


def find_suite(name: str) -> Suite:
    """Read a suite by its name, or a user's own from its file."""
    if is_file(name):
        return read_suite(Path(name))
    names = [path.stem for path in PROVIDED.glob("*.yaml")]
    if name not in names:
        raise unknown("suite", name, sorted(names), "`sparc suite list`, or name a YAML file")
    return read_suite(PROVIDED / f"{name}.yaml")


def fixed_length(config: Config) -> str:
    """Return why a member cannot get another number of updates; empty if it can."""
    entry = find_method(config.method)
    if len(entry.phases) > 1:
        return f"{entry.title}'s second phase cannot be undone"
    return "" if config.extendable else "learning rates that fall to the end of a run cannot rise again"


def is_file(name: str) -> bool:
    """Return whether the name is that of a user's own file, not of a provided suite."""
    return Path(name).suffix in (".yaml", ".yml") or Path(name).is_file()


def read_suite(path: Path) -> Suite:
    """Read and check a suite file."""
    values = with_new_names(read_config(path, "suite file"))
    values.setdefault("name", path.stem)
    for key in values:
        if key not in FIELDS:
            raise UserError(f"{path}: {unknown('suite field', key, FIELDS, 'docs/suites.md')}")
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
    for name in ("config", "variations"):
        if not isinstance(getattr(suite, name), dict):
            raise UserError(f"{name} must hold `name: value` lines.")
    stages = read_stages(suite.stages)
    of_each = max(len(suite.variations), len(suite.stages), 1)
    members = len(suite.methods) * len(suite.envs) * len(suite.seeds) * of_each
    if members > MAX_MEMBERS:
        raise UserError(f"a suite has at most {MAX_MEMBERS:,} runs, not {members:,}: leave out seeds or methods.")
    for method in suite.methods:
        find_method(str(method))
    for env in suite.envs:
        get_env(str(env))
    for variation, fields in suite.variations.items():
        if not isinstance(fields, dict):
            raise UserError(f"variation '{variation}' must hold config fields, e.g. {{history_length: 25}}.")
        if not isinstance(variation, str):  # YAML reads off, no and 0 as other things
            raise UserError(f"a variation's name must be text, not {variation!r}: put it in quotes.")
        if not variation or "/" in variation:
            raise UserError(f"a variation's name becomes part of a folder's name: '{variation}' cannot.")
    for fields in (suite.config, *suite.variations.values()):
        lengths = [name for method in suite.methods for name in phase_options(find_method(method).phases)]
        if taken := [name for name in (*BY_MEMBER, *lengths) if name in fields]:
            raise UserError(f"config and variations cannot set {', '.join(taken)}: the suite has a field for it.")
    for name, low in (("grid", 2), ("episodes", 1), ("workers", 0)):
        value = getattr(suite, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise UserError(f"{name} must be a whole number of at least {low}, not {value!r}.")
    if suite.stages and (suite.variations or suite.variants):
        raise UserError(
            "a suite of stages has no variations or variants: leave them out; a stage may have a variant of its own."
        )
    check_regions(stages, suite.envs)
    check_default(suite)
    check_variants(suite)
    check_primary(suite)
    check_reference(suite.reference)
    paths = [member.path for member in suite.members()]  # every config checks itself
    if twice := [path for path in paths if paths.count(path) > 1]:
        raise UserError(f"two members are the same run, {twice[0].as_posix()}: leave one out.")
    return suite


def check_variants(suite: Suite) -> None:
    """Refuse variants that an environment does not have, before anything is trained."""
    if not isinstance(suite.variants, list):
        raise UserError(f"variants must be a list, not {suite.variants!r}.")
    for env in suite.envs:
        entry = get_env(env)
        for name in suite.variants:
            if not entry.variant_of(entry.resolve_test_options({}, entry.variant_options(str(name)))):
                raise UserError(f"variants cannot name '{name}': it is what {env} is tested in anyway.")


def check_default(suite: Suite) -> None:
    """Refuse a config in a variant where stages have variants: tests in the default would not be of the config."""
    for env in suite.envs if suite.stages and suite.tested_in else ():
        if name := get_env(env).variant_of(suite.config.get("env_options", {})):
            raise UserError(
                f"config sets the variant '{name}' of {env} for all stages: give it to the first one instead."
            )


def check_primary(suite: Suite) -> None:
    """Refuse primary endpoints that are no pairs of labels; a part of the suite's methods may be run alone."""
    pairs = suite.primary if isinstance(suite.primary, list) else [suite.primary]
    for pair in pairs:
        words = isinstance(pair, list) and len(pair) == 2 and all(isinstance(name, str) and name for name in pair)
        if not words or pair[0] == pair[1]:
            raise UserError(
                f"primary must be a list of pairs, as in [[sparc, rma], [sparc, history-input]], not {pair!r}."
            )
        for name in pair:
            find_method(name.split()[0])


def check_reference(reference: Any) -> None:
    """Refuse published values that the report could not show: of returns out of distribution, or of measures.

    title, updates; note, of what they can tell; ood: environment → method → [mean, s.e.m.]; measures: environment, or
    "environment, variant" → region → method → measure → [mean, s.e.m.] or [mean], as they are shown.
    """
    if reference is None:
        return
    try:
        int(reference["updates"]), str(reference["title"])
        returns = list(reference.get("ood", {}).items())
        measured = [(test, of) for test, regions in reference.get("measures", {}).items() for of in regions.values()]
        for test, methods in [*returns, *measured]:
            get_env(env_of(str(test)))
            for label in methods:
                find_method(str(label).split()[0])
        for mean, sem in (pair for _, methods in returns for pair in methods.values()):
            float(mean), float(sem)
        for numbers in (found for _, methods in measured for values in methods.values() for found in values.values()):
            [float(number) for number in numbers[:2]]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UserError(
            "reference must hold title, updates and ood: {environment: {method: [mean, s.e.m.]}}, or measures: "
            "{environment: {region: {method: {measure: [mean, s.e.m.]}}}}."
        ) from None
