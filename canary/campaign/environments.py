"""The Python and import path of one side, so that it runs only the code of its commit."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import site
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

from canary.campaign.side import run_child
from canary.errors import MachineError, UsageError
from canary.machine.packages import canonical

PARENT_PACKAGES = "zzz_canary_parent.pth"
"""Read after every other .pth file, so that packages installed by the side come first."""
CALLED = re.compile(r"[A-Za-z_]\w*(\.\w+)*\s*:\s*[A-Za-z_]\w*(\.\w+)*(\s*\[[^\]]*\])?")
"""What an entry point calls."""

WHERE = """
import importlib.util, json, sys
found = {}
for name in sys.argv[1:]:
    spec = importlib.util.find_spec(name)
    places = [spec.origin, *(spec.submodule_search_locations or [])] if spec else []
    found[name] = next((place for place in places if place), None)
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Editable:
    """A package that is installed in editable mode from a folder."""

    folder: Path
    modules: tuple[str, ...]


def editable_packages(repository: Path) -> list[Editable]:
    """Return packages of this Python that are installed in editable mode from a repository."""
    found = []
    for package in importlib.metadata.distributions():
        text = package.read_text("direct_url.json")
        document = json.loads(text) if text else {}
        if not document.get("dir_info", {}).get("editable"):
            continue
        folder = Path(unquote(urlparse(document.get("url", "")).path)).resolve()
        if folder.is_relative_to(repository):
            found.append(Editable(folder, _modules(package, folder)))
    return found


def _modules(package: importlib.metadata.Distribution, folder: Path) -> tuple[str, ...]:
    top = package.read_text("top_level.txt")
    if top:
        return tuple(top.split())
    inits = [*folder.glob("*/__init__.py"), *folder.glob("src/*/__init__.py")]
    return tuple(sorted(init.parent.name for init in inits))


def own_code_first(repository: Path, worktree: Path, base: Mapping[str, str]) -> dict[str, str]:
    """Return an environment that imports from the worktree instead of the user's checkout: it
    redirects absolute entries of PYTHONPATH and editable installs."""
    inside: list[Path] = []
    for package in editable_packages(repository):
        inside += [package.folder, package.folder / "src"]
    moved = [worktree / path.relative_to(repository) for path in inside]
    entries = [str(path) for path in moved if path.is_dir()]
    for entry in filter(None, base.get("PYTHONPATH", "").split(os.pathsep)):
        path = Path(entry)
        if path.is_absolute() and path.resolve().is_relative_to(repository):
            entry = str(worktree / path.resolve().relative_to(repository))
        entries.append(entry)
    environment = dict(base)
    if entries:
        environment["PYTHONPATH"] = os.pathsep.join(entries)
    return environment


def refuse_foreign_code(
    role: str, python: Path, folder: Path, environment: Mapping[str, str], repository: Path
) -> None:
    """Make sure that no package of the repository is imported from the user's checkout.

    Raises:
        UsageError: one is, so both sides would run the same code.
        MachineError: the side's Python does not start.
    """
    packages = editable_packages(repository)
    names = [name for package in packages for name in package.modules]
    if not names:
        return
    code, out, err = run_child([str(python), "-c", WHERE, *names], folder, environment)
    if code:
        raise MachineError(f"{role}: {python} does not work: {err.strip().splitlines()[-1:]}")
    for name, place in json.loads(out).items():
        if place and Path(place).resolve().is_relative_to(repository):
            raise UsageError(
                f"{name} is installed in editable mode: {role} would import it from {place}, "
                "not from its commit",
                "install it on each side: --setup 'pip install --no-deps -e .'",
            )


def own_environment(
    role: str, scratch: Path, folder: Path, setup: str, base: Mapping[str, str], log: Path
) -> tuple[Path, dict[str, str]]:
    """Make a virtual environment over this Python's packages and run `setup` in it.

    Returns its Python and the environment variables to run it with.

    Args:
        role: name of the side, for messages.
        scratch: folder for the environment.
        folder: working directory of the command.
        setup: a shell command; its `python` and `pip` are those of the new environment.
        base: environment variables.
        log: file for what the command prints.

    Raises:
        MachineError: the environment cannot be made, or the command failed.
    """
    python, environment = new_environment(role, scratch, base)
    code, out, err = run_child(["/bin/sh", "-c", setup], folder, environment)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(out + err, encoding="utf-8")
    if code:
        output = (err or out).strip().splitlines()
        raise MachineError(
            f"{role}: setup ended with exit code {code}: {output[-1] if output else 'no output'}",
            f"see {log}",
        )
    return python, environment


def new_environment(
    role: str,
    scratch: Path,
    base: Mapping[str, str],
    *,
    pip: bool = True,
    without: Collection[str] = (),
) -> tuple[Path, dict[str, str]]:
    """Make a virtual environment over this Python's packages.

    Returns its Python and the environment variables to run it with.

    Args:
        role: name of the side, for messages.
        scratch: folder for the environment.
        base: environment variables.
        pip: whether it gets a pip of its own.
        without: canonical names of packages of this Python that it does not see.

    Raises:
        MachineError: it cannot be made.
    """
    venv = scratch / f"{role}-env"
    command = [sys.executable, "-m", "venv", *([] if pip else ["--without-pip"]), str(venv)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stdout + done.stderr).strip().splitlines() or ["python -m venv failed"]
        raise MachineError(
            f"{role}: cannot make a virtual environment: {output[-1]}",
            "on Debian: apt install python3-venv",
        )
    places = [
        *site.getsitepackages(),
        *([site.getusersitepackages()] * bool(site.ENABLE_USER_SITE)),
    ]
    lines = [f"import site; site.addsitedir({one!r})" for one in places if Path(one).is_dir()]
    if without:
        lines.append(_without(frozenset(without), scratch / f"{role}-parent"))
    (packages_of(venv) / PARENT_PACKAGES).write_text("\n".join(lines) + "\n", encoding="utf-8")
    _add_scripts(venv / "bin", without)
    return existing_environment(role, scratch, base)


def packages_of(venv: Path) -> Path:
    """Return the folder of an environment's own packages."""
    return next(venv.glob("lib/python*/site-packages"))


def _add_scripts(folder: Path, without: Collection[str]) -> None:
    """Write the commands of this Python's packages, such as `torchrun`, for another Python. Those
    on the PATH would start this Python, which does not see what the environment installs."""
    for point in importlib.metadata.entry_points(group="console_scripts"):
        known = point.dist is not None and canonical(point.dist.metadata["Name"] or "")
        script = folder / point.name
        if known in without or script.exists() or Path(point.name).name != point.name:
            continue
        if not CALLED.fullmatch(point.value):
            continue
        top = point.attr.partition(".")[0]
        script.write_text(
            f"#!{folder / 'python'}\nimport sys\nfrom {point.module} import {top}\n"
            f"sys.exit({point.attr}())\n",
            encoding="utf-8",
        )
        script.chmod(0o755)


def _without(names: Collection[str], into: Path) -> str:
    """Return the line of a .pth file that hides the packages: it replaces each folder that holds
    one by a folder of links to everything else there."""
    hidden: dict[str, set[Path]] = {}
    for package in importlib.metadata.distributions():
        if canonical(package.metadata["Name"] or "") in names:
            place = str(package.locate_file(""))
            hidden.setdefault(place, set()).update(Path(file) for file in package.files or ())
    moved = {}
    for number, (place, files) in enumerate(hidden.items()):
        inside = {parent for file in files for parent in file.parents if parent.parts}
        moved[place] = str(into / str(number))
        _link(Path(place), into / str(number), Path(), files, inside)
    return f"import sys; sys.path[:] = [{moved!r}.get(place, place) for place in sys.path]"


def _link(source: Path, target: Path, inside: Path, files: set[Path], folders: set[Path]) -> None:
    """Link what a folder holds, but not `files`; `folders` hold some of them."""
    for entry in (source / inside).iterdir():
        name = inside / entry.name
        if name in files or entry.name == "__pycache__":
            continue
        if name in folders and entry.is_dir() and not entry.is_symlink():
            _link(source, target, name, files, folders)
        else:
            (target / inside).mkdir(parents=True, exist_ok=True)
            (target / name).symlink_to(entry)


def existing_environment(
    role: str, scratch: Path, base: Mapping[str, str]
) -> tuple[Path, dict[str, str]]:
    """Return the Python and environment variables of an environment that exists already."""
    venv = scratch / f"{role}-env"
    environment = {key: value for key, value in base.items() if key != "PYTHONHOME"}
    environment["VIRTUAL_ENV"] = str(venv)
    environment["PATH"] = f"{venv / 'bin'}{os.pathsep}{base.get('PATH', os.defpath)}"
    return venv / "bin" / "python", environment


def config_in(tree: Path, repository: Path, given: Path) -> Path:
    """Return where a commit has the config that the user named: in its worktree, unless it lies
    outside the repository. The commit may lack it."""
    inside = given.is_relative_to(repository)
    return tree / given.relative_to(repository) if inside else given


def folder_in(tree: Path, repository: Path, here: Path) -> Path:
    """Return the worktree's folder for the user's working directory; its root if it has none."""
    folder = tree / here.relative_to(repository)
    return folder if folder.is_dir() else tree


def own_python(
    role: str,
    tree: Path,
    repository: Path,
    folder: Path,
    setup: str | None,
    base: Mapping[str, str],
    log: Path,
) -> tuple[Path, dict[str, str]]:
    """Return the Python of a commit and its environment variables, after `setup`.

    Raises:
        UsageError: the commit would import code of the user's checkout.
        MachineError: setup failed.
    """
    if setup:
        python, environment = own_environment(role, tree.parent, folder, setup, base, log)
    else:
        python, environment = Path(sys.executable), own_code_first(repository, tree, base)
    refuse_foreign_code(role, python, folder, environment, repository)
    return python, environment
