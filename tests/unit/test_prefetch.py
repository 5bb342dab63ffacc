"""Filling the model cache: what is fetched, without code and without showing the token."""

from __future__ import annotations

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
