"""Config files: reading, `extends`, the committed samples, and what is written back."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

import jsonschema
import pytest
import yaml

from canary.compare.thresholds import from_config
from canary.config.load import load_config
from canary.config.render import json_schema, resolved_yaml
from canary.config.samples import KINDS, SAMPLES, sample_yaml, write_sample
from canary.config.source import read_file
from canary.errors import ConfigError, UsageError
from tests.unit.config.test_config import refused

CONFIGS = Path(__file__).parents[3] / "configs"


@functools.cache
def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(json_schema()))


def test_a_missing_file_names_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "dpo_smoke.yaml").write_text("name: a\n")
    wrong = tmp_path / "dpo_smok.yaml"
    near = tmp_path / "dpo_smoke.yaml"
    assert refused(wrong) == f"no config at {wrong} (did you mean '{near}'?)"
    wrong = tmp_path / "zzz"
    hint = "`canary init canary.yaml` writes one to start from"
    assert refused(wrong) == f"no config at {wrong} ({hint})"


def test_files_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    assert refused(tmp_path) == f"{tmp_path} is a folder (name a YAML file in it)"
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert refused(binary) == f"{binary} is not text (a config is a YAML file)"
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop)
    assert refused(loop).startswith(f"cannot read {loop}: Too many levels of symbolic links")
    assert refused(Path("a\0b")) == "'a\\x00b' is not a file name (check the path)"


def test_extends_lays_files_over_each_other_and_keeps_their_lines(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("max_steps: 50\nthresholds:\n  max_nan_steps: 1\n")
    top = tmp_path / "top.yaml"
    top.write_text("extends: base.yaml\nthresholds:\n  max_inf_steps: 2\n")
    loaded = load_config(top)
    assert loaded.config.max_steps == 50
    assert from_config(loaded.config.thresholds).max_nan_steps == 1
    assert from_config(loaded.config.thresholds).max_inf_steps == 2
    assert loaded.origins["max_steps"] == f"{tmp_path / 'base.yaml'}:1"
    assert loaded.origins["thresholds.max_inf_steps"] == f"{top}:3"
    assert loaded.origins["seed"] == "default"


def test_a_replaced_mapping_leaves_no_origins(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("trainer_args: {x: {y: 1}}\n")
    (tmp_path / "top.yaml").write_text("extends: base.yaml\ntrainer_args:\n  x: 2\n")
    loaded = load_config(tmp_path / "top.yaml")
    assert loaded.origins["trainer_args.x"] == f"{tmp_path / 'top.yaml'}:3"
    assert "trainer_args.x.y" not in loaded.origins


def test_merge_keys_keep_the_lines_of_what_they_merge(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("thresholds:\n  <<: {max_nan_steps: 2}\n  max_inf_steps: 1\n")
    loaded = load_config(file)
    assert from_config(loaded.config.thresholds).max_nan_steps == 2
    assert loaded.origins["thresholds.max_nan_steps"] == f"{file}:2"
    assert not [key for key in loaded.origins if "<<" in key]


def test_a_circle_of_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n")
    assert "circle: a.yaml -> b.yaml -> a.yaml" in refused(tmp_path / "a.yaml")


@pytest.mark.parametrize("kind", KINDS)
def test_every_sample_loads_fits_the_schema_and_reads_back_resolved(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "sample.yaml"
    path.write_text(sample_yaml(kind))
    validator().validate(yaml.safe_load(path.read_text()))
    loaded = load_config(path)
    assert (loaded.config.training_type, loaded.config.thresholds.base_tier) == (kind, "smoke")
    again = tmp_path / "config.yaml"
    again.write_text(resolved_yaml(loaded))
    assert load_config(again).config == loaded.config


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "ladder_ppo.yaml"])
def test_a_sample_has_the_name_steps_and_limits_of_its_file(name: str) -> None:
    """A sample is written by copying another one."""
    sample, path = load_config(CONFIGS / name).config, Path(name)
    kind, *lora, tier = path.stem.split("_")
    assert sample.name == path.stem + ("_hub" if path.parent.name else "")
    assert (sample.training_type, sample.use_peft) == (kind, lora == ["lora"])
    steps = 500 if tier == "perf" else 100
    assert (sample.thresholds.base_tier, sample.max_steps) == (tier, steps)


@pytest.mark.parametrize(
    ("kind", "extended"), [("device", True), ("pipe", False), ("large", False), ("large", True)]
)
def test_a_config_that_never_ends_is_refused(tmp_path: Path, kind: str, extended: bool) -> None:
    """A stranger's matrix or config may name any file."""
    file = tmp_path / "it.yaml"
    if kind == "device":
        file.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        with file.open("w") as stream:
            stream.truncate(2 << 20)
    said = "larger than 1 MiB" if kind == "large" else "not a regular file"
    where = ""
    if extended:
        (tmp_path / "mine.yaml").write_text("extends: it.yaml\n")
        where = f", which {tmp_path}/mine.yaml:1 extends"
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / ("mine.yaml" if extended else "it.yaml"))
    assert caught.value.message == f"cannot read {file}{where}: {said}"


def test_where_no_samples_lie_the_shipped_ones_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in SAMPLES:
        assert read_file(Path("configs", name)) == (CONFIGS / name).read_text()
    (tmp_path / "mine.yaml").write_text("extends: configs/sft_perf.yaml\nname: mine\n")
    assert load_config("mine.yaml").config.max_steps == 500
    with pytest.raises(ConfigError, match=r"did you mean 'configs/sft_perf\.yaml'\?"):
        load_config("configs/sft_pref.yaml")
    for other in ("configs/hub/grpo_smoke.yaml", "configs/custom_smoke.yaml", "sft_smoke.yaml"):
        with pytest.raises(ConfigError, match="no config at"):
            load_config(other)


def test_a_file_of_the_users_own_goes_before_the_shipped_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a path that is not typed from the working directory means that file alone."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="no config at"):
        load_config(tmp_path / "configs" / "sft_smoke.yaml")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "sft_smoke.yaml").write_text("name: own\n")
    assert load_config("configs/sft_smoke.yaml").config.name == "own"


def test_without_a_file_the_dpo_smoke_sample_runs() -> None:
    assert load_config(None).config == load_config(CONFIGS / "dpo_smoke.yaml").config
    assert load_config(None).source is None


def test_the_json_schema_is_one_and_refuses_what_loading_refuses() -> None:
    jsonschema.Draft202012Validator.check_schema(validator().schema)
    for wrong in ({"max_step": 5}, {"max_steps": 0}, {"profiler": {"enable": True}}):
        with pytest.raises(jsonschema.ValidationError):
            validator().validate(wrong)


def test_a_sample_never_overwrites_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    write_sample(file, "sft")
    with pytest.raises(ConfigError, match="--force"):
        write_sample(file, "sft")
    write_sample(file, "dpo", force=True)
    assert load_config(file).config.training_type == "dpo"
    with pytest.raises(UsageError, match="did you mean 'grpo'"):
        write_sample(tmp_path / "x.yaml", "grop")


def test_the_resolved_config_reads_back_equal_whatever_it_holds(tmp_path: Path) -> None:
    file = tmp_path / "line\nbreak.yaml"
    file.write_text(
        'description: "a\\nb # c: é"\ntrainer_args: {optim: "no", "a b": [1, x], n: null}\n'
    )
    loaded = load_config(file, ["learning_rate=1e-5", "trainer_args.d={e: 1}"])
    again = tmp_path / "config.yaml"
    again.write_text(resolved_yaml(loaded), encoding="utf-8")
    assert load_config(again).config == loaded.config
    assert "learning_rate: 1.0e-05" in again.read_text(encoding="utf-8")
    assert "# --set\n" in again.read_text(encoding="utf-8")


def test_a_sample_for_a_command_says_where_the_command_goes(tmp_path: Path) -> None:
    file = tmp_path / "my project" / "canary.yaml"
    write_sample(file, "exec")
    config = load_config(file).config
    assert config.name == "my-project"
    assert config.training_type == "exec"
    assert config.command == ("python", "train.py")
    assert "# your command" in file.read_text()


@pytest.mark.parametrize("folder", ["2024", "true", "null", "1e5", "0x1f", "1.0"])
def test_the_name_of_a_folder_stays_text_in_yaml(tmp_path: Path, folder: str) -> None:
    file = tmp_path / folder / "canary.yaml"
    write_sample(file, "exec")
    assert load_config(file).config.name == folder


def test_a_program_is_no_config(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    assert "(a program runs with: canary exec -- python " in refused(tmp_path / "train.py")
