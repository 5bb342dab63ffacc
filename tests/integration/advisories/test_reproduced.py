"""Known faults show in the affected versions, and in no other: ranges are tried on what is here."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from canary.advisories.advisory import Advisory, advisories
from canary.advisories.condition import Known, holds, in_range
from canary.advisories.facts import known_of
from canary.advisories.keys import PACKAGE
from canary.advisories.matching import matches
from canary.inputs import embedded
from canary.machine.packages import package_versions
from tests.integration.advisories.reproductions import REPRODUCTIONS
from tests.integration.conftest import run_config, settings

BY_ID = {one.id: one for one in advisories()}


def is_affected(one: Advisory) -> bool:
    """Whether the versions that are installed here have the fault."""
    versions = package_versions()
    others = {key: test for key, test in one.condition.items() if key.startswith(PACKAGE)}
    return in_range(versions[one.package], one.versions) and all(
        holds(key, test, Known(versions)) for key, test in others.items()
    )


@pytest.mark.train
@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_a_fault_shows_if_and_only_if_the_version_is_affected(name: str, tmp_path: Path) -> None:
    if package_versions()[BY_ID[name].package] is None:
        pytest.skip("not installed")
    assert REPRODUCTIONS[name](tmp_path) is is_affected(BY_ID[name])


@pytest.mark.train
def test_dpo_with_dropout_in_the_model_does_not_begin_at_ln_2(tmp_path: Path) -> None:
    """`trl-dropout-functional`, and the record tells that it applies for sure."""
    model = tmp_path / "model"
    shutil.copytree(Path(embedded.__file__).parent / "tiny", model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "attention_dropout": 0.3}))
    values = settings("dpo", model_name=str(model), max_steps=1, probe_steps=1, repeats=0)
    record = run_config(tmp_path, values).record()
    loss = record.exact["first_loss"]["loss"]
    assert loss is not None
    assert abs(loss - math.log(2)) > 1e-4
    sure = {one.advisory.id for one in matches(advisories(), known_of(record)) if not one.unknown}
    assert "trl-dropout-functional" in sure
