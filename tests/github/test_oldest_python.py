"""The oldest patch version that is allowed: Debian 12's own python3, 3.11.2, runs the packages of
these tests and all of the canary that a job without torch imports."""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SYSTEM = Path("/usr/bin/python3")
OLD = (3, 11, 4)
"""What Debian 12 has is older, and lacks what came with this one."""


def run(
    *arguments: str, stdin: str = "", paths: tuple[Path, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """The system's own Python, with nothing of ours but what is named."""
    return subprocess.run(
        [str(SYSTEM), "-B", *arguments],
        input=stdin,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, paths))}
        | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@functools.cache
def system_version() -> tuple[int, ...]:
    """Of the system's own Python; empty where there is none."""
    if not SYSTEM.exists():
        return ()
    done = run("-c", "import sys; print(*sys.version_info[:3])")
    return tuple(map(int, done.stdout.split()))


@pytest.fixture
def old_python() -> None:
    """Skips where the system's own Python is not an old one."""
    found = system_version()
    if not (3, 11) <= found < OLD:
        shown = ".".join(map(str, found)) or "missing"
        pytest.skip(f"{SYSTEM} is {shown}: an older 3.11 than {'.'.join(map(str, OLD))} is asked")


@pytest.mark.usefixtures("old_python")
def test_every_file_of_the_repository_is_understood() -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "for name in sys.stdin.read().split():\n"
        "    compile(Path(name).read_text(encoding='utf-8'), name, 'exec')"
    )
    files = [str(path) for folder in ("canary", "tests") for path in (ROOT / folder).rglob("*.py")]
    done = run("-c", program, stdin="\n".join(files))
    assert done.returncode == 0, done.stderr


def without_torch() -> list[str]:
    """The modules of all packages but the one that trains, and the demo's project."""
    files = {path.relative_to(ROOT) for path in (ROOT / "canary").rglob("*.py")}
    files = {file for file in files if not {"training", "demo_project"} & {*file.parts}}
    found = {".".join(file.with_suffix("").parts) for file in files}
    leave_out = ("sitecustomize", "__init__", "__main__")
    return sorted(name for name in found if not name.endswith(leave_out))


def site_packages() -> Path:
    """Where this Python finds pydantic: compiled for all 3.11."""
    if sys.version_info[:2] != system_version()[:2]:
        pytest.skip("the packages here are for another minor version of Python")
    spec = importlib.util.find_spec("pydantic")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parents[1]


@pytest.mark.usefixtures("old_python")
def test_all_that_runs_without_torch_is_imported_and_answers() -> None:
    modules = without_torch()
    assert len(modules) > 150
    program = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    paths = (ROOT, site_packages())
    done = run("-c", program, *modules, paths=paths)
    assert done.returncode == 0, done.stderr
    examples = ROOT / "baselines" / "examples"
    sides = (str(examples / "sft_smoke_again.json"), str(examples / "sft_smoke.json"))
    answer = run("-m", "canary", "compare", *sides, paths=paths)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith(("Pass", "Learns the same"))


def test_no_tar_is_unpacked_by_what_an_old_python_lacks() -> None:
    """`filter=` of tarfile and shutil, wherever no test of an old Python comes by."""
    for folder in ("canary", "tests", "scripts", "bench"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if not re.search(r"\bfilter\s*=", text):
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    unpacks = node.func.attr in ("extract", "extractall", "unpack_archive")
                    filtered = any(word.arg == "filter" for word in node.keywords)
                    assert not (unpacks and filtered), f"{path}:{node.lineno}"
