import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparc.config import FIELDS, PRESETS, Config, make_config, read_config
from sparc.errors import UserError

WHO = {"method": "sparc", "env": "DriftingBoat-v0"}


def refused(**values: Any) -> str:
    """Return the message for a bad value: one line."""
    with pytest.raises(UserError) as caught:
        make_config(WHO | values)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("preset", "numbers"),
    [
        (
            "mujoco",
            {
                "batch_size": 32,
                "history_length": 50,
                "adapter_learning_rate": 3e-4,
                "learning_rate": 3e-4,
                "tau": 0.005,
                "critic_clip": 10,
                "discount": 0.99,
                "temperature": 0.01,
                "tune_temperature": False,
                "num_quantiles": 32,
                "updates": 3_000_000,
                "width": 256,
                "latent": 32,
                "random_steps": 5_000,
                "steps_per_update": 1,
                "evaluate_every": 10_000,
                "n_step": 1,
            },
        ),
        (
            "gran-turismo",
            {
                "batch_size": 1024,
                "history_length": 50,
                "adapter_learning_rate": 2.5e-4,
                "learning_rate": 2.5e-5,
                "tau": 0.005,
                "critic_clip": 10,
                "discount": 0.9896,
                "temperature": 0.01,
                "tune_temperature": False,
                "num_quantiles": 32,
                "updates": 9_000_000,
                "width": 2048,
                "latent": 64,
            },
        ),
    ],
)
def test_presets_carry_the_papers_numbers(preset: str, numbers: dict[str, Any]) -> None:
    config = make_config(WHO, preset)
    assert {name: getattr(config, name) for name in numbers} == numbers
    assert config.options == {"rollout_policy": "adapter"}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", ["sparc", "rma"])
def test_every_preset_is_a_valid_config(preset: str, method: str) -> None:
    assert make_config(WHO | {"method": method}, preset).method == method


def test_defaults_are_the_mujoco_preset() -> None:
    assert Config(**WHO) == make_config(WHO)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value", "limit"),
    [
        ("seed", -1, "at least 0"),
        ("seed", 2**31, f"at most {2**31 - 1}"),
        ("updates", 0, "at least 1"),
        ("width", 0, "at least 1"),
        ("latent", 0, "at least 1"),
        ("num_quantiles", 0, "at least 1"),
        ("history_length", 0, "at least 1"),
        ("batch_size", 0, "at least 1"),
        ("learning_rate", 0, "above 0"),
        ("adapter_learning_rate", -1e-3, "above 0"),
        ("discount", 1.01, "at most 1"),
        ("discount", -0.1, "at least 0"),
        ("n_step", 0, "at least 1"),
        ("tau", 0, "above 0"),
        ("tau", 1.5, "at most 1"),
        ("critic_clip", 0, "above 0"),
        ("temperature", 0, "above 0"),
        ("expert_updates", -50, "at least 0"),
        ("num_envs", 0, "at least 1"),
        ("steps_per_update", 0, "at least 1"),
        ("random_steps", 0, "at least 1"),
        ("replay_capacity", 0, "at least 1"),
        ("chunk", 0, "at least 1"),
        ("log_every", 0, "at least 1"),
        ("evaluate_every", 0, "at least 1"),
    ],
)
def test_a_value_out_of_range_names_field_limit_and_value(field: str, value: Any, limit: str) -> None:
    message = refused(**{field: value})
    assert message.startswith(field) and limit in message and str(value) in message


def test_the_edges_of_a_range_are_inside() -> None:
    assert make_config(WHO | {"discount": 1, "tau": 1, "seed": 2**31 - 1}).discount == 1.0
    assert make_config(WHO | {"discount": 0, "seed": 0}).discount == 0.0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("updates", "many"),
        ("updates", 1.5),
        ("updates", True),
        ("updates", None),
        ("updates", [50]),
        ("updates", float("inf")),
        ("updates", "nan"),
        ("learning_rate", "fast"),
        ("learning_rate", float("nan")),
        ("learning_rate", float("inf")),
        ("learning_rate", True),
        ("learning_rate", None),
        ("tune_temperature", 1),
        ("tune_temperature", "yes"),
        ("env", 5),
        ("method", None),
        ("env_options", "wind=1"),
        ("env_options", None),
        ("rollout_policy", ["adapter"]),
    ],
)
def test_a_value_of_the_wrong_type_names_the_field(field: str, value: Any) -> None:
    message = refused(**{field: value})
    assert message.startswith(f"{field} must be") and repr(value) in message


def test_numbers_may_come_as_strings() -> None:
    config = make_config(WHO | {"updates": "1e6", "learning_rate": "3e-4", "batch_size": 64.0, "discount": 1})
    assert (config.updates, config.learning_rate, config.batch_size, config.discount) == (1_000_000, 3e-4, 64, 1.0)
    assert [type(getattr(config, name)) for name in ("updates", "batch_size", "discount")] == [int, int, float]


@pytest.mark.parametrize(
    ("wrong", "right"), [("batchsize", "batch_size"), ("learning_rte", "learning_rate"), ("Discount", "discount")]
)
def test_an_unknown_field_names_the_nearest(wrong: str, right: str) -> None:
    message = refused(**{wrong: 1})
    assert f"'{wrong}'" in message and f"did you mean '{right}'?" in message


def test_an_unknown_choice_names_the_nearest() -> None:
    assert refused(rollout_policy="expret") == "unknown rollout_policy 'expret': did you mean 'expert'?"


def test_an_unknown_preset_names_the_nearest_or_all() -> None:
    with pytest.raises(UserError, match=r"unknown preset 'zzz': choose one of mujoco, gran-turismo"):
        make_config({"method": "sparc", "env": "X-v0"}, "zzz")
    with pytest.raises(UserError, match=r"unknown preset 'mujoko': did you mean 'mujoco'\?"):
        make_config(WHO, "mujoko")


@pytest.mark.parametrize("missing", ["method", "env"])
def test_a_missing_method_or_environment_is_named(missing: str) -> None:
    with pytest.raises(UserError, match=missing):
        make_config({name: value for name, value in WHO.items() if name != missing})


def test_a_field_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(UserError, match="7"):
        make_config(WHO | {7: 1})  # type: ignore[dict-item]


@pytest.mark.parametrize("field", ["updates", "log_every", "evaluate_every", "expert_updates"])
def test_rhythms_must_be_multiples_of_the_chunk(field: str) -> None:
    message = refused(
        **{"method": "rma", "chunk": 20, "updates": 2000, "log_every": 100, "evaluate_every": 200, field: 130}
    )
    assert message == f"{field} (130) must be a multiple of chunk (20): take 120 or 140."


def test_a_rhythm_below_the_chunk_names_only_what_is_possible() -> None:
    assert refused(updates=30).endswith("must be a multiple of chunk (50): take 50.")


def test_the_steps_of_a_chunk_must_be_shared_by_the_environments() -> None:
    message = refused(num_envs=7)
    assert "chunk × steps_per_update (50)" in message and "num_envs (7)" in message
    assert make_config(WHO | {"num_envs": 100, "steps_per_update": 2}).num_envs == 100


@pytest.mark.parametrize(("updates", "expert"), [(3_000_000, 2_250_000), (1000, 750), (250, 150), (100, 50)])
def test_three_quarters_of_rmas_updates_go_to_the_expert(updates: int, expert: int) -> None:
    small = {"log_every": 50, "evaluate_every": 50}
    assert make_config(WHO | small | {"method": "rma", "updates": updates}).options == {"expert_updates": expert}
    assert "expert_updates" not in make_config(WHO | small | {"updates": updates}).options  # sparc has one phase


def test_rmas_own_number_of_expert_updates_is_kept_when_the_run_is_extended() -> None:
    config = make_config(WHO | {"method": "rma", "updates": 1000, "expert_updates": 400})
    assert config.options["expert_updates"] == 400
    resolved = make_config(WHO | {"method": "rma", "updates": 1000})
    assert dataclasses.replace(resolved, updates=2000).options["expert_updates"] == 750


@pytest.mark.parametrize(
    "values",
    [{"updates": 100, "expert_updates": 150}, {"updates": 100, "expert_updates": 100}, {"updates": 50}],
    ids=["more", "all", "one chunk"],
)
def test_rma_needs_updates_for_its_second_phase(values: dict[str, int]) -> None:
    assert "expert_updates" in refused(method="rma", **values)


@pytest.mark.parametrize("values", [{"replay_capacity": 10, "random_steps": 50}, {"replay_capacity": 5_000}])
def test_the_replay_must_hold_the_random_steps(values: dict[str, int]) -> None:
    """Learning waits for that many transitions: a replay that never holds them would wait for ever."""
    message = refused(**values)
    assert "replay_capacity" in message and "random_steps" in message


def test_a_config_is_frozen_and_shares_nothing_with_its_source() -> None:
    options = {"change_probability": 0.1}
    config = make_config(WHO | {"env_options": options})
    options["change_probability"] = 0.9
    assert config.env_options == {"change_probability": 0.1}
    assert make_config(WHO).env_options is not make_config(WHO).env_options
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 1  # type: ignore[misc]


def test_yaml_round_trip(tmp_path: Path) -> None:
    values = {"method": "rma", "env_options": {"change_probability": 0.01}, "learning_rate": 2.5e-5}
    config = make_config(WHO | values, "light")
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config.to_dict(), sort_keys=False))
    assert make_config(read_config(file)) == config
    assert list(config.to_dict()) == [*FIELDS, "expert_updates"]


def test_yaml_that_a_person_writes(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("learning_rate: 1e-4  # YAML takes this for text\nupdates: 1e5\ntune_temperature: true\n")
    config = make_config(WHO | read_config(file))
    assert (config.learning_rate, config.updates, config.tune_temperature) == (1e-4, 100_000, True)


@pytest.mark.parametrize(
    "content", [None, b"", b"- a\n- b\n", b"just text", b"a: [1", b"\xff\xfe\x00a", b"a: 2024-13-45"]
)
def test_an_unreadable_config_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "bad.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=r"bad\.yaml") as caught:
        read_config(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: [1\nb: 3\n", ("expected ',' or ']'", "line 2, column 2")),
        (b"a: b: c\n", ("mapping values are not allowed here", "line 1, column 5")),
        (b"a: 1\n\tb: 2\n", ("found character '\\t'", "line 2, column 1")),
        (b"a: 1\nb: \x07\n", ("special characters are not allowed", "position 8")),
        (b"a: 1\nb: \xff\n", ("invalid start byte", "position 8")),
    ],
)
def test_a_fault_in_a_yaml_file_has_a_place(tmp_path: Path, content: bytes, words: tuple[str, ...]) -> None:
    file = tmp_path / "bad.yaml"
    file.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_config(file, "suite file")
    message = str(caught.value)
    assert message.startswith(f"Cannot read the suite file {file}: ") and "\n" not in message
    assert all(word in message for word in words)


def test_every_field_has_a_help_text() -> None:
    assert all(field.metadata["help"] for field in FIELDS.values())


@pytest.mark.parametrize("options", [{"num_envs": 3}, {"threads": 2}, {"max_episode_steps": -1}])
def test_what_sparc_sets_itself_is_no_option_of_an_environment(options: dict[str, int]) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        make_config({"method": "sparc", "env": "any", "env_options": options})


def test_an_option_of_another_method_is_refused() -> None:
    with pytest.raises(UserError, match="rollout_policy is an option of sparc, not of oracle: leave it out"):
        make_config({"method": "oracle", "env": "any", "rollout_policy": "expert"})


def test_config_files_of_older_runs_have_the_options_of_all_methods() -> None:
    old = {"rollout_policy": "adapter", "expert_updates": 0}
    assert make_config(WHO | old) == make_config(WHO)
    assert make_config(WHO | {"method": "oracle"} | old).options == {}
    rma = WHO | {"method": "rma", "updates": 1000}
    assert make_config(rma | old | {"expert_updates": 400}).options == {"expert_updates": 400}
