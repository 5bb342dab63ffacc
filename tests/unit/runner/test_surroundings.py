"""What surrounds a training process: its environment, the length of its look, a warm Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.bisect.states import own_caches
from canary.config.load import load_config
from canary.config.spans import steps_of
from canary.errors import UsageError
from canary.protocol.job import Listener
from canary.record.folder import RunFolder
from canary.runner.child_environment import child_environment, needs_hub, require_training_stack
from canary.runner.run import _job
from canary.runner.session import Session
from canary.runner.warm import _key


def test_a_missing_training_stack_names_the_extra() -> None:
    require_training_stack(("json",))
    with pytest.raises(UsageError, match=r'no_such_package.*pip install "rlhf-canary\[train\]"'):
        require_training_stack(("json", "no_such_package"))


def test_the_hub_is_off_unless_a_name_lies_there(tmp_path: Path) -> None:
    embedded = load_config(None).config
    assert not needs_hub(embedded)
    assert child_environment(embedded, tmp_path, None, {})["HF_HUB_OFFLINE"] == "1"
    hub = load_config(None, ["model_name=EleutherAI/pythia-70m"]).config
    assert needs_hub(hub)
    assert "HF_HUB_OFFLINE" not in child_environment(hub, tmp_path, None, {})


def test_a_look_can_be_deterministic_and_one_device_is_seen(tmp_path: Path) -> None:
    config = load_config(None, ["threads=3"]).config
    looked = child_environment(config, tmp_path, "GPU-aa", {"PATH": "p"})
    timed = load_config(None, ["look_steps=0"]).config
    assert looked["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert "CUBLAS_WORKSPACE_CONFIG" not in child_environment(timed, tmp_path, "GPU-aa", {})
    assert looked["CUDA_VISIBLE_DEVICES"] == "GPU-aa"
    assert (looked["OMP_NUM_THREADS"], looked["PATH"]) == ("3", "p")
    on_cpu = load_config(None, ["device=cpu"]).config
    assert child_environment(on_cpu, tmp_path, None, {})["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(
    ("settings", "looked", "steps"),
    [
        (["max_steps=30"], 10, 30),
        (["max_steps=30", "exact=true"], 12, 12),
        (["max_steps=6", "exact=true"], 12, 6),
    ],
)
def test_a_look_is_at_most_a_third_of_a_training_that_goes_on_after_it(
    settings: list[str], looked: int, steps: int, tmp_path: Path
) -> None:
    session = Session(load_config(None, settings), RunFolder.create(tmp_path, "run"), Listener())
    assert _job(session, 0, tmp_path).look_steps == looked
    assert steps_of(session.config) == steps


BASE = {"HOME": "/home/a", "PATH": "/bin"}


def test_commits_with_separate_caches_of_builds_share_the_imports(tmp_path: Path) -> None:
    keys = {
        _key(own_caches(tmp_path / name, BASE, command=False) | {"PYTHONPATH": name})
        for name in ("one", "two")
    }
    assert len(keys) == 1


def test_another_folder_of_caches_is_another_import_if_the_hub_follows_it() -> None:
    one, two = (BASE | {"XDG_CACHE_HOME": name} for name in ("/a", "/b"))
    assert _key(one) != _key(two)
    assert _key(one | {"HF_HOME": "/h"}) == _key(two | {"HF_HOME": "/h"})
    assert _key(one | {"HF_HOME": "/h"}) != _key(one | {"HF_HOME": "/i"})
