"""Which packages a process has imported."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from canary.machine.packages import imported_packages, loaded_libraries


class Site:
    """A folder of installed packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, name: str, *modules: str, tops: str = "", origin: object = None) -> None:
        """Install version 1.5 of a package with these files; `tops`: its `top_level.txt`."""
        info = self.folder / f"{name}-1.5.dist-info"
        info.mkdir(parents=True)
        for module in modules:
            (self.folder / module).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / module).write_text("")
        lines = [f"{file},sha256=0,0" for file in (*modules, f"{info.name}/METADATA")]
        (info / "RECORD").write_text("\n".join(lines))
        if tops:
            (info / "top_level.txt").write_text(f"{tops}\n")
        if origin is not None:
            (info / "direct_url.json").write_text(json.dumps({"url": "file:///x", **origin}))  # type: ignore[dict-item]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Site(tmp_path)
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_package_counts_only_if_it_was_imported(site: Site) -> None:
    site.add("Planted.One", "planted_one/__init__.py")
    site.add("planted_two", "planted_two.py")
    assert {"planted-one", "planted-two"}.isdisjoint(imported_packages())
    importlib.import_module("planted_one")
    assert imported_packages()["planted-one"] == "1.5"
    assert "planted-two" not in imported_packages()
    importlib.import_module("planted_two")
    assert imported_packages()["planted-two"] == "1.5"


def test_a_package_is_found_by_the_modules_that_it_installs(site: Site) -> None:
    """As PyYAML, which is imported as `yaml`."""
    site.add("planted_yaml_wheel", "planted_yaml/__init__.py")
    site.add("planted_old_wheel", "planted_old/__init__.py", tops="planted_old")
    importlib.import_module("planted_yaml")
    importlib.import_module("planted_old")
    assert {"planted-yaml-wheel", "planted-old-wheel"} <= imported_packages().keys()


def test_packages_that_share_a_namespace_count_each_for_itself(site: Site) -> None:
    site.add("planted_space_a", "planted_space/a/__init__.py", tops="planted_space")
    site.add("planted_space_b", "planted_space/b/__init__.py", tops="planted_space")
    importlib.import_module("planted_space.b")
    assert "planted-space-b" in imported_packages()
    assert "planted-space-a" not in imported_packages()


@pytest.mark.parametrize("origin", [{"dir_info": {"editable": True}}, {"vcs_info": {}}])
def test_a_package_that_runs_from_a_folder_is_the_users_code(site: Site, origin: object) -> None:
    site.add("planted_own", "planted_own/__init__.py", origin=origin)
    site.add("liger_kernel", "liger_kernel/__init__.py", origin=origin)
    importlib.import_module("planted_own")
    importlib.import_module("liger_kernel")
    assert "planted-own" not in imported_packages()
    assert imported_packages()["liger-kernel"] == "1.5", "it decides about a training"


def test_a_local_file_is_no_package_of_the_same_name(site: Site, tmp_path: Path) -> None:
    site.add("planted_shadow", "planted_shadow/__init__.py")
    local = tmp_path / "local"
    local.mkdir()
    (local / "planted_shadow.py").write_text("")
    sys.path.insert(0, str(local))
    importlib.import_module("planted_shadow")
    assert "planted-shadow" not in imported_packages()


def test_a_lazy_module_stays_lazy(site: Site, tmp_path: Path) -> None:
    site.add("planted_lazy", "planted_lazy.py")
    (tmp_path / "planted_lazy.py").write_text("raise SystemExit('it was imported')")
    spec = importlib.util.find_spec("planted_lazy")
    assert spec is not None
    assert spec.loader is not None
    loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["planted_lazy"] = module
    loader.exec_module(module)
    imported_packages()


def test_tools_that_only_measure_are_left_out() -> None:
    importlib.import_module("psutil")
    importlib.import_module("numpy")
    assert "numpy" in imported_packages()
    assert "psutil" not in imported_packages()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists what is loaded")
def test_a_native_library_counts_if_it_is_loaded() -> None:
    """As those of CUDA: torch loads them, and Python imports nothing of them."""
    importlib.import_module("numpy")
    assert any("/numpy" in file for file in loaded_libraries())
