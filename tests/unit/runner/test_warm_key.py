"""Which launches may share one warm Python: those whose imports would have the same effect."""

from __future__ import annotations

from pathlib import Path

from canary.bisect.states import own_caches
from canary.runner.warm import _key

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
