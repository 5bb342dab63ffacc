"""What `pip install` brings without a checkout: the wheel is built, unpacked and used elsewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.contract.ci_jobs import without_charts
from tests.contract.pages import PAGES

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "canary")
NAMED = sorted(
    {name for page in PAGES for name in re.findall(r"configs/[\w/]+\.yaml", page.read_text())}
)
SIDES = ("current", "baseline")
OTHERS = {"configs/small.yaml"}
"""Of a user's own repository."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = {"nvidia-ml-py": "pynvml", "PyGithub": "github", "PyYAML": "yaml"}
"""Modules that are not called like their package."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an installed package."""
    folder = tmp_path_factory.mktemp("package")
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    if importlib.util.find_spec("setuptools") and Version(version("setuptools")) >= Version("77"):
        command.append("--no-build-isolation")  # else pip fetches the one that pyproject asks for
    done = subprocess.run(
        [*command, "--wheel-dir", str(folder), str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def canary(installed: Path, place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "canary", *arguments],
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_wheel_is_the_package_and_nothing_else(installed: Path) -> None:
    """No test, no builder: each file is one of `canary`, or describes the package."""
    (info,) = installed.glob("*.dist-info")
    source = installed.parent / "source"
    wheel = {
        path.relative_to(installed): path.read_bytes()
        for path in installed.rglob("*")
        if path.is_file() and not path.is_relative_to(info)
    }
    wanted = [path for path in (source / "canary").rglob("*") if path.is_file()]
    assert wheel == {path.relative_to(source): path.read_bytes() for path in wanted}
    assert (info / "licenses" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    for path in wheel:
        assert not re.search(
            r"(^|/)(tests?/|conftest\.py$|test_\w*\.py$|build_\w*\.py$)", str(path)
        )
        imported = re.findall(rb"(?m)^\s*(?:from|import) (bench|tests|tools)\b", wheel[path])
        assert not (path.suffix == ".py" and imported), path


def test_every_config_that_the_docs_name_can_be_had_from_the_package(
    installed: Path, tmp_path: Path
) -> None:
    program = (
        "import sys, canary\n"
        "from canary.config.load import load_config\n"
        "print(canary.__file__, *(load_config(name).config.name for name in sys.argv[1:]))"
    )
    names = [name for name in NAMED if name not in OTHERS]
    assert len(names) > 5
    done = subprocess.run(
        [sys.executable, "-c", program, *names],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    where, *found = done.stdout.split()
    assert Path(where).is_relative_to(installed)
    assert found == [Path(name).stem for name in names]


def test_a_sample_of_the_package_runs_and_says_that_it_does(
    installed: Path, tmp_path: Path
) -> None:
    nothing = ("--set", "model_name=./none", "-o", "out")
    done = canary(installed, tmp_path, "run", "configs/sft_lora_smoke.yaml", *nothing)
    assert "note: configs/sft_lora_smoke.yaml does not exist; using the package's" in done.stderr
    assert "model './none' does not exist" in done.stderr


def test_init_config_writes_where_there_is_no_checkout(installed: Path, tmp_path: Path) -> None:
    wrote = canary(installed, tmp_path, "init", "canary.yaml", "--type", "sft")
    assert wrote.returncode == 0, wrote.stderr
    assert (tmp_path / "canary.yaml").read_text() == (
        ROOT / "configs" / "sft_smoke.yaml"
    ).read_text()


def test_the_small_model_of_the_docs_is_a_folder_that_a_config_can_name(
    installed: Path, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "trainers.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^cp -r .*tiny_dir.*$", page, flags=re.MULTILINE)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    surroundings = os.environ | {"PYTHONPATH": str(installed), "PATH": path}
    subprocess.run(["bash", "-c", command], cwd=tmp_path, env=surroundings, check=True)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        entry.name for entry in (tmp_path / "tiny").iterdir()
    }
    done = canary(
        installed, tmp_path, "run", "--set", "model_name=./tiny", "--set", "dataset_name=./none"
    )
    assert "dataset './none' does not exist" in done.stderr


def test_pytest_finds_the_plugin_of_the_package(installed: Path, tmp_path: Path) -> None:
    sides = [ROOT / "baselines" / "examples" / "own_script" / f"{side}.json" for side in SIDES]
    current, baseline = map(str, sides)
    (tmp_path / "test_team.py").write_text(
        "import canary.compare.report as ours\n"
        f"def test_place(): assert ours.__file__.startswith({str(installed)!r})\n"
        "def test_run(canary):\n"
        f"    canary.assert_no_regression_of_run({current!r}, baseline={baseline!r})\n"
    )
    environ = os.environ | {"PYTHONPATH": str(installed)}
    environ["PYTHONPATH"] += f"{os.pathsep}{without_charts(tmp_path)['PYTHONPATH']}"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-rA", "-p", "no:hypothesispytest"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert re.search(r"^plugins: .*\brlhf-canary-", done.stdout, re.M), done.stdout
    assert "PASSED test_team.py::test_place" in done.stdout
    assert "FAILED test_team.py::test_run - Failed: Regression: 0 EOS" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    "line", [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["train"]]
)
def test_a_dependency_is_one_that_the_package_itself_imports(line: str) -> None:
    name = Requirement(line).name
    imported = re.compile(rf"(?m)^\s*(import|from) {MODULES.get(name, name)}\b")
    sources = (ROOT / "canary").rglob("*.py")
    assert any(imported.search(path.read_text(encoding="utf-8")) for path in sources)
