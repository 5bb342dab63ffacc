"""Loading a config: what it refuses, in which words, and where each value came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.compare.thresholds import from_config
from canary.config.load import SECTIONS, load_config
from canary.config.render import show_text
from canary.config.schema import CanaryConfig
from canary.config.sections import SpeedConfig
from canary.config.trainers import OWN_KEYS, TRAINERS, users_of
from canary.errors import ConfigError
from tests.contract.tables import keys_table

ROOT = Path(__file__).parents[3]


def refused(path: Path | None, text: str | None = None, *settings: str) -> str:
    """The one line that a config's error prints."""
    if path is not None and text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path, settings)
    line = str(caught.value)
    assert "\n" not in line
    assert caught.value.exit_code == 2
    return line


def test_an_unknown_key_names_file_line_and_the_nearest_key(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    line = refused(file, "name: a\nmax_step: 5\n")
    assert line == f"unknown key 'max_step' in {file}:2 (did you mean 'max_steps'?)"


def test_an_unknown_key_inside_a_section_is_refused_too(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    line = refused(file, "profiler:\n  enable: true\n")
    assert "unknown key 'profiler.enable'" in line
    assert ":2" in line
    assert "did you mean 'profiler.enabled'?" in line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max_steps: many\n", "max_steps in @:1: input should be a valid integer, got 'many'"),
        ("max_steps: 0\n", "max_steps in @:1: input should be greater than or equal to 1, got 0"),
        ("batch_size: null\n", "batch_size in @:1: input should be a valid integer, got None"),
        ("device: tpu\n", "device in @:1: input has an unknown form, got 'tpu' (auto, cpu, cuda"),
        ("learning_rate: .nan\n", "learning_rate in @:1: input should be a finite number, got nan"),
        ("training_type: ppoo\n", "training_type in @:1: input should be 'sft', 'dpo', 'reward',"),
        ("report_to: wandb\n", "report_to in @:1: input should be a list, got 'wandb' (for"),
        ("profiler: 5\n", "profiler in @:1: input should be a mapping of keys, got 5"),
        ("name: a\nname: b\n", "@:2 repeats the key 'name' (keep one of them)"),
        ("thresholds:\n  base_tier: smoke\n  base_tier: perf\n", "@:3 repeats the key"),
        ("on: 1\n", "@:1 has a key that is not text in YAML: on (quote it, or use a known key)"),
        ('"a\\nb": 1\n', "unknown key 'a\\nb' in @:1 (see `canary config show`)"),
        ("name: [a\n", "@:2:1 is not YAML: did not find expected ',' or ']' (correct that line)"),
        ("", "@ is empty (`canary init canary.yaml` writes one to start from)"),
        (
            "- a\n- b\n",
            "@ has no `key: value` lines (`canary init canary.yaml` writes one to start",
        ),
        ("trainer_args: &a\n  x: *a\n", "@:1 nests more than 32 levels (flatten it; an anchor"),
        ("training_type: sft\nbeta: 0.1\n", "beta in @:2 is not used by training_type sft (remove"),
        ("data_collator: collate\n", "data_collator in @:1: input has an unknown form, got"),
        ("training_type: kto\nbatch_size: 1\n", "batch_size in @:2 is 1, but KTO estimates its KL"),
        ("lora_r: 4\n", "lora_r in @:1 has no effect without adapters (set use_peft: true, or"),
        ("use_peft: true\nload_in_4bit: true\nload_in_8bit: true\n", "load_in_4bit in @:2 and"),
        ("load_in_8bit: true\n", "load_in_8bit in @:1 needs an adapter (set use_peft: true)"),
        ("max_steps: 5\nmetrics_warmup_steps: 5\n", "metrics_warmup_steps in @:2 (5) leaves no"),
        ("model_revision: abc\n", "model_revision in @:1 has no effect on embedded/tiny (remove"),
        ("dataset_split: test\n", "dataset_split in @:1 'test' is not in embedded/tasks (its only"),
        ("warmup_steps: 101\n", "warmup_steps in @:1 is above max_steps (100) (lower it)"),
        ("max_prompt_length: 256\n", "max_prompt_length in @:1 (256) leaves no tokens for"),
        (
            "trainer_args:\n  per_device_train_batch_size: 2\n",
            "trainer_args.per_device_train_batch_size in @:2 is set by the config key batch_size",
        ),
        ("trainer_args:\n  since: 2020-01-01\n", "trainer_args.since in @:2 is a date, which JSON"),
        ("training_type: grpo\nnum_generations: 3\n", "num_generations in @:2 (3) does not divide"),
        (
            "max_steps: 1\nmetrics_warmup_steps: 1\n",
            "metrics_warmup_steps in @:2 (1) leaves no step to time: max_steps is 1, and 1 are",
        ),
        (
            "training_type: ppo\nreward_functions: [a:b]\nppo:\n  reward_model: org/rm\n",
            "ppo.reward_model in @:4 and reward_functions exclude each other",
        ),
        (
            "training_type: ppo\nppo:\n  adap_kl_ctrl: true\n  init_kl_coef: 0\n",
            "ppo.init_kl_coef in @:4 is 0 and would stay 0",
        ),
        ("device: cpu\ndtype: float16\n", "dtype in @:2 float16 needs a GPU (use bfloat16 or"),
    ],
)
def test_a_wrong_config_is_one_line_with_file_key_and_remedy(
    tmp_path: Path, text: str, expected: str
) -> None:
    file = tmp_path / "c.yaml"
    line = refused(file, text)
    assert line.startswith(expected.replace("@", str(file)))
    assert line.endswith((")", "got 0", "got nan", "got 'many'", "got 'ppoo'", "got 5"))


@pytest.mark.parametrize("key", sorted(OWN_KEYS)[::6])
def test_a_trainer_argument_with_a_key_of_its_own_names_that_key(key: str) -> None:
    line = refused(None, None, f"trainer_args.{key}=1")
    own = OWN_KEYS[key]
    used = "dpo" in (users_of(own) or ("dpo",))
    remedy = f"set {own} instead" if used else f"remove it; dpo does not use {own}"
    assert line == f"trainer_args.{key} in --set is set by the config key {own} ({remedy})"


def test_a_learning_rate_is_a_number_however_yaml_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("learning_rate: 1e-4\n")
    assert load_config(file).config.learning_rate == 1e-4


def test_text_that_would_take_the_process_down_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    deep = refused(file, "name: " + "[" * 200_000)
    hint = "flatten it; an anchor must not contain itself"
    assert deep == f"{file}:1 nests more than 32 levels ({hint})"
    lines = ["trainer_args:", "  a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for above, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"  {name}: &{name} [{', '.join([f'*{above}'] * 10)}]")
    assert "expands to more than 10000 values" in refused(file, "\n".join(lines))
    assert len(refused(file, f"max_steps: {'x' * 5000}")) < 300


def test_settings_win_and_are_checked_like_files() -> None:
    loaded = load_config(None, ["max_steps=20", "thresholds.max_nan_steps=2", "learning_rate=1e-4"])
    assert loaded.config.max_steps == 20
    assert from_config(loaded.config.thresholds).max_nan_steps == 2
    assert loaded.config.learning_rate == 1e-4
    assert loaded.origins["max_steps"] == "--set"
    assert loaded.origins["thresholds.max_nan_steps"] == "--set"


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("beeta=1", "unknown key 'beeta' in --set (did you mean 'beta'?)"),
        ("probe_steps=8", "unknown key 'probe_steps' in --set (write `look_steps` instead)"),
        (
            "repeats=0",
            "repeats in --set: input should be greater than or equal to 1, got 0 "
            "(write `exact: true` instead)",
        ),
        ("max_steps", "--set max_steps is not key=value (for example --set max_steps=20)"),
        ("name=[a", "--set name=[a: the value is not YAML (quote special characters)"),
        (
            "thresholds={max_nan_steps: 1, max_nan_steps: 2}",
            "--set repeats the key 'thresholds.max_nan_steps' (keep one of them)",
        ),
    ],
)
def test_a_wrong_setting_is_one_line_too(setting: str, expected: str) -> None:
    assert refused(None, None, setting) == expected


def test_trainer_defaults_are_filled_in_and_say_so() -> None:
    dpo = load_config(None)
    assert (dpo.config.beta, dpo.origins["beta"]) == (0.1, "dpo default")
    assert dpo.config.num_generations is None
    grpo = load_config(ROOT / "configs" / "grpo_smoke.yaml").config
    assert (grpo.num_generations, grpo.max_length) == (4, None)
    lora = load_config(None, ["use_peft=true"])
    assert (lora.config.lora_r, lora.origins["lora_r"]) == (8, "LoRA default")


def test_show_prints_every_key_with_its_origin() -> None:
    text = show_text(load_config(None, ["seed=7"]))
    for key in CanaryConfig.model_fields:
        assert f"\n{key}:" in f"\n{text}"
    assert any(line.startswith("seed: 7 ") and "--set" in line for line in text.splitlines())


def test_every_field_is_described_and_tables_name_known_fields() -> None:
    for key, field in CanaryConfig.model_fields.items():
        assert field.description, key
        assert f"`{key}`" in keys_table() or key in SECTIONS
    dotted = {f"speed.{key}" for key in SpeedConfig.model_fields}
    for row in TRAINERS.values():
        assert row.uses | row.defaults.keys() <= {*CanaryConfig.model_fields, *dotted}
    assert set(OWN_KEYS.values()) <= set(CanaryConfig.model_fields)


@pytest.mark.parametrize(
    ("steps", "look", "warmup"), [(100, 12, 4), (20, 12, 2), (4, 12, 0), (100, 0, 10), (20, 0, 4)]
)
def test_short_runs_leave_fewer_steps_out_of_their_speeds(
    steps: int, look: int, warmup: int
) -> None:
    settings = [f"max_steps={steps}", f"look_steps={look}"]
    assert load_config(None, settings).config.metrics_warmup_steps == warmup


def test_a_warm_up_must_leave_a_step_to_time_after_the_look(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    text = "max_steps: 30\nmetrics_warmup_steps: {}\n"
    line = refused(file, text.format(20))
    assert line.endswith("max_steps is 30, and 10 are looked at (set it below 20)")
    for kept in (text.format(19), text.format(20) + "exact: true\n"):
        file.write_text(kept)
        assert load_config(file).config.max_steps == 30


def test_a_canary_that_ends_after_its_look_needs_a_look(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    line = refused(file, "exact: true\nlook_steps: 0\n")
    assert line.startswith(f"exact in {file}:1 is true and look_steps is 0: nothing would be")
    for text in ("exact: true\n", "exact: true\ncommand: [python, train.py]\n"):
        file.write_text(text)
        assert load_config(file).config.exact


def test_a_key_of_ppo_is_not_proposed_to_another_trainer(tmp_path: Path) -> None:
    file = tmp_path / "canary.yaml"
    file.write_text("training_type: dpo\nppo_epochs: 2\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert "did you mean" not in str(caught.value)
    assert "'ppo.ppo_epochs' is only for training_type ppo" in str(caught.value)


@pytest.mark.parametrize("setting", ["nproc=2", "trainer_args={steps_per_generation: 2}"])
def test_groups_may_lie_on_several_ranks_or_steps(tmp_path: Path, setting: str) -> None:
    file = tmp_path / "grpo.yaml"
    file.write_text("training_type: grpo\nbatch_size: 2\nnum_generations: 4\n")
    assert load_config(file, [setting]).config.num_generations == 4
