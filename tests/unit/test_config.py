"""Loading a config: what it refuses, in which words, and where each value came from."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from canary.config.load import load_config
from canary.config.render import json_schema, markdown_table, resolved_yaml, show_text
from canary.config.samples import sample_yaml, write_sample
from canary.config.schema import OWN_KEYS, TRAINER_FIELDS, CanaryConfig
from canary.errors import ConfigError, UsageError

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "configs").rglob("*.yaml"))


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
        ("max_steps: many\n", "max_steps in {file}:1: input should be a valid integer, got 'many'"),
        ("max_steps: 0\n", "max_steps in {file}:1"),
        ("max_steps: true\n", "max_steps in {file}:1"),
        ("use_peft: 'yes'\n", "use_peft in {file}:1"),
        ("device: tpu\n", "device in {file}:1"),
        ("learning_rate: .nan\n", "learning_rate in {file}:1"),
        ("training_type: ppoo\n", "training_type in {file}:1"),
        ("thresholds:\n  max_nan_steps: -1\n", "thresholds.max_nan_steps in {file}:2"),
        ("name: a\nname: b\n", "{file}:2 has the key 'name' twice (keep one of them)"),
        ("name: [a\n", "{file}:2:1 is not YAML"),
        ("", "{file} is empty"),
        ("- a\n- b\n", "{file} holds no `key: value` lines"),
        ("training_type: sft\nbeta: 0.1\n", "beta in {file}:2 is not used by training_type sft"),
        ("max_new_tokens: 8\n", "max_new_tokens in {file}:1 is not used by training_type dpo"),
        ("lora_r: 4\n", "lora_r in {file}:1 has no effect without adapters (set use_peft: true"),
        ("load_in_4bit: true\nload_in_8bit: true\n", "load_in_8bit exclude each other"),
        ("max_steps: 5\n", "metrics_warmup_steps"),
        (
            "trainer_args:\n  per_device_train_batch_size: 2\n",
            "trainer_args.per_device_train_batch_size in {file}:2 has a key of its own "
            "(set batch_size instead)",
        ),
        (
            "training_type: grpo\nnum_generations: 3\n",
            "num_generations in {file}:2 (3) does not divide",
        ),
        ("profiler: {enabled: true, start_step: 99}\n", "beyond max_steps (100)"),
        ("profiler: {enabled: true}\n", "not available in this version"),
        ("device: cpu\ndtype: float16\n", "float16 needs a GPU"),
    ],
)
def test_a_wrong_config_is_one_line_with_file_key_and_remedy(
    tmp_path: Path, text: str, expected: str
) -> None:
    file = tmp_path / "c.yaml"
    assert expected.format(file=file) in refused(file, text)


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    (tmp_path / "dpo_smoke.yaml").write_text("name: a\n")
    assert f"did you mean {tmp_path / 'dpo_smoke.yaml'}?" in refused(tmp_path / "dpo_smok.yaml")
    assert "init-config" in refused(tmp_path / "zzz")
    assert "is a folder" in refused(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert "is not a text file" in refused(tmp_path / "binary.yaml")


def test_settings_win_and_are_checked_like_files() -> None:
    loaded = load_config(None, ["max_steps=20", "thresholds.max_nan_steps=2", "learning_rate=1e-4"])
    assert loaded.config.max_steps == 20
    assert loaded.config.thresholds.max_nan_steps == 2
    assert loaded.config.learning_rate == 1e-4
    assert loaded.origins["max_steps"] == "--set"
    assert loaded.origins["thresholds.max_nan_steps"] == "--set"
    assert refused(None, None, "beeta=1") == "unknown key 'beeta' in --set (did you mean 'beta'?)"
    assert "is not key=value" in refused(None, None, "max_steps")
    assert "not YAML" in refused(None, None, "name=[a")


def test_extends_lays_files_over_each_other_and_keeps_their_lines(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("max_steps: 50\nthresholds:\n  max_nan_steps: 1\n")
    top = tmp_path / "top.yaml"
    top.write_text("extends: base.yaml\nthresholds:\n  max_inf_steps: 2\n")
    loaded = load_config(top)
    assert loaded.config.max_steps == 50
    assert loaded.config.thresholds.max_nan_steps == 1
    assert loaded.config.thresholds.max_inf_steps == 2
    assert loaded.origins["max_steps"] == f"{tmp_path / 'base.yaml'}:1"
    assert loaded.origins["thresholds.max_inf_steps"] == f"{top}:3"
    assert loaded.origins["seed"] == "default"


def test_a_circle_of_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n")
    assert "circle: a.yaml -> b.yaml -> a.yaml" in refused(tmp_path / "a.yaml")


def test_trainer_defaults_are_filled_in_and_say_so() -> None:
    dpo = load_config(None)
    assert (dpo.config.beta, dpo.origins["beta"]) == (0.1, "dpo default")
    assert dpo.config.num_generations is None
    grpo = load_config(ROOT / "configs" / "grpo_smoke.yaml").config
    assert (grpo.num_generations, grpo.max_length) == (4, None)
    lora = load_config(None, ["use_peft=true"])
    assert (lora.config.lora_r, lora.origins["lora_r"]) == (8, "LoRA default")


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: str(path.relative_to(ROOT / "configs")))
def test_every_sample_loads_fits_the_schema_and_reads_back_resolved(
    path: Path, tmp_path: Path
) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), json.loads(json_schema()))
    loaded = load_config(path)
    again = tmp_path / "config.yaml"
    again.write_text(resolved_yaml(loaded))
    assert load_config(again).config == loaded.config


def test_samples_exist_for_every_trainer_and_tier() -> None:
    names = {path.stem for path in SAMPLES if path.parent.name == "configs"}
    wanted = {f"{kind}_{tier}" for kind in ("sft", "dpo", "grpo") for tier in ("smoke", "perf")}
    assert wanted | {"sft_nightly", "dpo_nightly", "grpo_nightly", "dpo_lora_smoke"} <= names


def test_the_committed_samples_are_the_ones_that_init_config_writes() -> None:
    for kind in ("sft", "dpo", "grpo"):
        for tier in ("smoke", "perf", "nightly"):
            assert (ROOT / f"configs/{kind}_{tier}.yaml").read_text() == sample_yaml(kind, tier)


def test_a_sample_never_overwrites_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    write_sample(file, "sft", "perf")
    assert load_config(file).config.max_steps == 500
    with pytest.raises(ConfigError, match="--force"):
        write_sample(file, "sft", "perf")
    write_sample(file, "dpo", "smoke", force=True)
    assert load_config(file).config.training_type == "dpo"
    with pytest.raises(UsageError, match="did you mean grpo"):
        write_sample(tmp_path / "x.yaml", "grop", "smoke")


def test_show_prints_every_key_with_its_origin() -> None:
    text = show_text(load_config(None, ["seed=7"]))
    for key in CanaryConfig.model_fields:
        assert f"\n{key}:" in f"\n{text}"
    assert any(line.startswith("seed: 7 ") and "--set" in line for line in text.splitlines())


def test_every_field_is_described_and_tables_name_known_fields() -> None:
    for key, field in CanaryConfig.model_fields.items():
        assert field.description, key
        assert f"`{key}`" in markdown_table() or key in ("profiler", "thresholds")
    assert set(TRAINER_FIELDS) <= set(CanaryConfig.model_fields)
    assert set(OWN_KEYS.values()) <= set(CanaryConfig.model_fields)


def test_a_config_cannot_be_changed() -> None:
    config = load_config(None).config
    with pytest.raises(ValueError, match="frozen"):
        config.max_steps = 3  # type: ignore[misc]
