"""Makes states runnable: a worktree for a commit, an environment for a set of packages.

No state uses what another one built: each has its own caches of builds. Downloads are shared.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from canary.bisect.search import CannotRun
from canary.campaign.environments import new_environment
from canary.campaign.side import Side, run_child
from canary.config.schema import CanaryConfig
from canary.errors import MachineError, UsageError, printable
from canary.machine.packages import installed_packages
from canary.record import jsonio

PYTHON = re.compile(r"python[\d.]*")
OWN = ("XDG_CACHE_HOME", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Variables of caches that hold builds."""
ROWS = ("HF_DATASETS_CACHE", "HF_MODULES_CACHE")
"""Also of a user's command: rows that its code prepared, and copies of a model's own code."""
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
"""With one of these, prepared datasets can only come from the shared cache."""
DOWNLOADS = {
    "PIP_CACHE_DIR": ("pip", ("http*",)),
    "UV_CACHE_DIR": ("uv", ("archive-v*", "wheels-v*", "simple-v*", "flat-index-v*")),
}
"""Each installer's cache: its default folder, and what in it are downloads."""
PIP = (sys.executable, "-m", "pip")
TOLD = {
    "index-url": ("PIP_INDEX_URL", "UV_DEFAULT_INDEX"),
    "extra-index-url": ("PIP_EXTRA_INDEX_URL", "UV_INDEX"),
    "find-links": ("PIP_FIND_LINKS", "UV_FIND_LINKS"),
    "no-index": ("PIP_NO_INDEX", "UV_NO_INDEX"),
}
"""Where packages come from: a setting of pip, and the variables of pip and uv."""
LISTED = re.compile(r"^Available versions: (.*)$", re.MULTILINE)
SEEN = """
import importlib.metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        found[name] = None
print(json.dumps(found))
"""


def digest(value: Any) -> str:
    """Return a short hash of plain data."""
    return hashlib.sha256(jsonio.dumps(value).encode()).hexdigest()[:16]


def shown(version: Version | None) -> str:
    """Return a version for people."""
    return "not installed" if version is None else str(version)


def installed() -> dict[str, Version]:
    """Return the packages of this Python that have a release of their own."""
    found: dict[str, Version] = {}
    for name, version in installed_packages().items():
        with contextlib.suppress(InvalidVersion):
            found[canonicalize_name(name)] = Version(version)
    return found


def own_caches(folder: Path, base: Mapping[str, str], *, command: bool) -> dict[str, str]:
    """Return environment variables that keep a state's builds in `folder`; makes the folders.

    `command`: the canary is a user's command, which may cache rows that its own code prepared.
    """
    shared = Path(base.get("XDG_CACHE_HOME") or Path(base.get("HOME", "~"), ".cache").expanduser())
    # Both would follow XDG_CACHE_HOME, and hold downloads.
    own = {"HF_HOME": str(shared / "huggingface"), "TORCH_HOME": str(shared / "torch"), **base}
    rows = ROWS if command and not any(base.get(name) for name in OFFLINE) else ()
    for variable in (*OWN, *rows, *DOWNLOADS):
        own[variable] = str(folder / variable.lower())
        (folder / variable.lower()).mkdir(parents=True, exist_ok=True)
    for variable, (name, downloads) in DOWNLOADS.items():
        cache = Path(base.get(variable) or shared / name)
        for place in (one for pattern in downloads for one in cache.glob(pattern)):
            Path(own[variable], place.name).symlink_to(place.resolve(), target_is_directory=True)
    # Compiled files of a commit stay in its folder, where no other commit looks.
    own.pop("PYTHONPYCACHEPREFIX", None)
    return own


def require_plain_python(config: CanaryConfig) -> None:
    """Raise UsageError if a config's command names the Python of one place, which is never that of
    a state's own environment."""
    first = config.command[0] if config.command else ""
    if Path(first).is_absolute() and PYTHON.fullmatch(Path(first).name):
        raise UsageError(
            f"`command` begins with {first}: it would not use the packages under test",
            "write `python` there",
        )


def is_command(config: CanaryConfig) -> bool:
    """Return whether the canary is a user's command."""
    return config.training_type == "exec"


def set_side(side: Side, wanted: Mapping[str, Version | None], place: Path) -> Side:
    """Return a canary with a set of packages: a new environment over those of this Python.

    `wanted`: its packages; None: it must not see that one.

    Raises:
        CannotRun: a release does not install, or the environment's Python sees others.
    """
    here = installed()
    # What this Python has in the same version is not installed again.
    other = {name: version for name, version in wanted.items() if here.get(name) != version}
    try:
        python, environ = new_environment(
            "set", place, side.environment, pip=False, without=other.keys() & here.keys()
        )
        install(
            [f"{name}=={version}" for name, version in other.items() if version], python, environ
        )
        code, out, err = run_child([str(python), "-c", SEEN, *wanted], side.folder, environ)
    except MachineError as error:
        raise CannotRun(error.message.removeprefix("set: ")) from error
    if code:
        raise CannotRun(f"its Python does not start: {_last_line(err)}")
    for name, found in json.loads(out).items():
        if (None if found is None else Version(found)) != wanted[name]:
            now = found or "not installed"
            raise CannotRun(f"its Python sees {name} {now}, wanted {shown(wanted[name])}")
    return replace(side, python=python, environment=environ)


def install(pins: list[str], python: Path, environ: Mapping[str, str]) -> None:
    """Install exact releases, without their dependencies, with uv if it is there, else with pip.

    Raises:
        CannotRun: a release does not exist for this Python, or does not build.
    """
    uv = shutil.which("uv", path=environ.get("PATH"))
    command = [*PIP, "--python", str(python), "install", "--ignore-installed", "--no-deps"]
    command = [uv, "pip", "install", "--python", str(python), "--no-deps"] if uv else command
    for some in (pins, *([pin] for pin in pins)):
        code, out, err = run_child([*command, *some], Path.cwd(), environ) if some else (0, "", "")
        if not code and some is pins:
            return
        if code and len(some) == 1:
            raise CannotRun(f"{some[0]} does not install: {_last_line(err or out)}")


def releases_of(name: str, environ: Mapping[str, str], *, pre: bool) -> list[Version]:
    """Return the releases of a package that fit this Python.

    Raises:
        CannotRun: pip cannot tell.
    """
    command = [*PIP, "index", "versions", name, *(["--pre"] if pre else [])]
    code, out, err = run_child(command, Path.cwd(), environ)
    listed = LISTED.search(out)
    if code or listed is None:
        raise CannotRun(f"the releases of {name} are not known: {_last_line(err or out)}")
    found = []
    for text in listed[1].split(","):
        with contextlib.suppress(InvalidVersion):
            found.append(Version(text.strip()))
    return found


def installers(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables for pip and uv: what one of them is told about indexes holds for both.

    Raises:
        UsageError: this Python has no pip.
    """
    if importlib.util.find_spec("pip") is None:
        raise UsageError("this Python has no pip, which lists releases", "python -m ensurepip")
    _, out, _ = run_child([*PIP, "config", "list"], Path.cwd(), environ)
    lines = (line.partition("=") for line in out.splitlines())
    settings = {name.rpartition(".")[2]: value.strip("'") for name, _, value in lines}
    told = dict(environ)
    for setting, (of_pip, of_uv) in TOLD.items():
        for name, value in ((of_uv, settings.get(setting)), (of_pip, environ.get(of_uv))):
            if value:
                told.setdefault(name, value)
    return told


def _last_line(output: str) -> str:
    """Return the line of an output that says most."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["no output"]
    errors = [line for line in lines if line.lower().startswith("error")]
    return printable((errors or lines)[-1])[:300]
