"""Filling the model cache: what is fetched, without code and without showing the token."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from canary.errors import MachineError, UsageError
from canary.gate.prefetch import prefetch

HUB = "training_type: sft\nmodel_name: org/model\nmodel_revision: abc\ndataset_name: org/data\n"


def fetched(tmp_path: Path, config: str, **environ: str) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []

    def download(**values: Any) -> str:
        calls.append(values)
        return ""

    (tmp_path / "canary.yaml").write_text(config)
    known = {"CANARY_MODEL_CACHE": str(tmp_path / "cache"), **environ}
    prefetch(["canary.yaml"], tmp_path, known, download, lambda line: None)
    return calls


def test_model_and_data_of_a_config_go_into_the_hub_folder(tmp_path: Path) -> None:
    model, data = fetched(tmp_path, HUB, HF_TOKEN="hf_x")
    assert (model["repo_id"], model["repo_type"], model["revision"]) == (
        "org/model",
        "model",
        "abc",
    )
    assert (data["repo_id"], data["repo_type"]) == ("org/data", "dataset")
    assert model["cache_dir"] == str(tmp_path / "cache" / "hub")
    assert model["token"] == "hf_x"


def test_the_reward_model_of_ppo_is_fetched_too(tmp_path: Path) -> None:
    ppo = "training_type: ppo\nppo:\n  reward_model: "
    (one,) = fetched(tmp_path, ppo + "org/reward\n")
    assert (one["repo_id"], one["repo_type"], one["revision"]) == ("org/reward", "model", None)
    assert one["ignore_patterns"] == ["*.py"]
    assert fetched(tmp_path, ppo + "embedded/reward\n") == []


def test_code_of_a_model_stays_out_unless_its_config_trusts_it(tmp_path: Path) -> None:
    assert fetched(tmp_path, HUB)[0]["ignore_patterns"] == ["*.py"]
    trusting = fetched(tmp_path, HUB + "trust_remote_code: true\n")
    assert trusting[0]["ignore_patterns"] == []


def test_what_is_embedded_or_local_is_not_fetched(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").touch()
    config = "training_type: sft\ndataset_name: data.jsonl\n"
    assert fetched(tmp_path, config) == []


def test_without_a_cache_it_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="model-cache"):
        fetched(tmp_path, HUB, CANARY_MODEL_CACHE="")


def test_a_refusal_names_the_remedy_and_not_the_token(tmp_path: Path) -> None:
    def download(**values: Any) -> str:
        raise OSError(f"401 for token {values['token']}")

    (tmp_path / "canary.yaml").write_text(HUB)
    environ = {"CANARY_MODEL_CACHE": str(tmp_path), "HF_TOKEN": "hf_secretsecret"}
    with pytest.raises(MachineError, match="needs HF_TOKEN") as caught:
        prefetch(["canary.yaml"], tmp_path, environ, download, lambda line: None)
    assert "hf_secret" not in str(caught.value)


OFFLINE = """
import sys
from pathlib import Path
from canary.config.load import load_config
from canary.training.data.sources import read_source
from canary.protocol.spec import WorkloadSpec

spec = object.__new__(WorkloadSpec)
object.__setattr__(spec, "config", load_config(sys.argv[1]).config)
object.__setattr__(spec, "cache_dir", Path(sys.argv[2]))
try:
    print(list(read_source(spec)["text"]))
except Exception as error:
    print(type(error).__name__, error)
"""


def offline(tmp_path: Path, config: str) -> str:
    """What a process without network reads as the config's data set."""
    (tmp_path / "canary.yaml").write_text(config)
    environ = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub")}
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, str(tmp_path / "canary.yaml"), str(tmp_path / "own")],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_a_data_set_that_prefetch_left_is_read_without_network(tmp_path: Path) -> None:
    """As `snapshot_download` lays it out: a file is a link to a blob."""
    place = tmp_path / "hub" / "datasets--org--name"
    snapshot = place / "snapshots" / ("a" * 40)
    for folder in (place / "refs", place / "blobs", snapshot):
        folder.mkdir(parents=True)
    (place / "refs" / "main").write_text("a" * 40)
    (place / "blobs" / "b1").write_text(json.dumps({"text": "four"}) + "\n")
    (snapshot / "data.jsonl").symlink_to("../../blobs/b1")
    config = "training_type: sft\ndataset_name: org/{}\n"
    assert offline(tmp_path, config.format("name")) == str(["four"])
    pinned = config.format("name") + f"dataset_revision: {'a' * 40}\n"
    assert offline(tmp_path, pinned) == str(["four"])
    assert "is not a local file or folder, and the Hugging Face" in offline(
        tmp_path, config.format("other")
    )
