"""Environments of sets: what they see, what they hide, and where packages come from."""

from __future__ import annotations

import os
import subprocess
import sys
from email.message import Message
from importlib import metadata
from pathlib import Path

import pytest
from packaging.version import Version

from canary.bisect.model import CannotRun
from canary.bisect.packages import installer as installing
from canary.bisect.packages.bench import Contents, PackageBench, release_notes
from canary.bisect.packages.installer import Installer, installer_for
from canary.campaign import environments
from canary.campaign.environments import new_environment
from canary.campaign.side import Side
from tests.unit.bisect.packages.wheelhouse import add_wheel

PIP = (sys.executable, "-m", "pip")


def printed(python: Path, environment: dict[str, str], code: str) -> str:
    """What a Python prints."""
    done = subprocess.run(
        [str(python), "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_an_environment_hides_packages_of_its_parent_and_nothing_else(tmp_path: Path) -> None:
    python, environment = new_environment(
        "set", tmp_path, {**os.environ}, pip=False, without=["packaging", "ruamel-yaml"]
    )
    code = """
import importlib.metadata as m, importlib.util as u, pydantic, sys
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
print([version(n) for n in ("packaging", "ruamel.yaml", "pydantic")][:2], version("pydantic"))
print(u.find_spec("packaging"), bool(u.find_spec("jinja2")))
"""
    first, second = printed(python, environment, code).splitlines()
    assert first == f"[None, None] {metadata.version('pydantic')}"
    assert second == "None True"
    import packaging

    assert Path(packaging.__file__).is_file(), "this Python keeps it"


def test_a_hostile_entry_point_writes_no_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [
        metadata.EntryPoint(name, value, "console_scripts")
        for name, value in [
            ("../escaped", "os:getcwd"),
            ("..", "os:getcwd"),
            ("/tmp/escaped", "os:getcwd"),
            ("odd", "os;import shutil:getcwd"),
            ("python", "os:getcwd"),
        ]
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda **_: points)
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python").write_text("the real one")
    environments._add_scripts(folder, ())
    assert [path.name for path in folder.iterdir()] == ["python"]
    assert (folder / "python").read_text() == "the real one"
    assert not (tmp_path / "escaped").exists()


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Wheels of two packages."""
    folder = tmp_path / "house"
    for version in ("1.0", "1.1", "2.0rc1"):
        add_wheel(folder, "tiny-a", version)
    add_wheel(folder, "tiny-a", "1.2", tag=("cp27", "none", "any"))
    add_wheel(folder, "tiny-b", "1.0", "", requires=["tiny-a>=1.1"])
    (folder / "notes.txt").write_text("not a package")
    return folder


def quiet_pip(house: Path) -> Installer:
    """An installer with pip and a folder."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    environ |= {"PIP_NO_INDEX": "1", "PATH": "/usr/bin:/bin"}
    return installer_for(house, environ, house)


def bench_of(house: Path, tmp_path: Path, sets: dict[int, dict[str, str]]) -> PackageBench:
    """A workbench of the sets with these versions; an empty one is absent."""

    def contents(state: int) -> Contents:
        versions = {name: Version(text) for name, text in sets[state].items() if text}
        return Contents(
            f"set {state}", versions, [n for n, text in sets[state].items() if not text]
        )

    code = Side("", "", Path("c.yaml"), tmp_path, Path(), {**os.environ}, tmp_path / "out")
    return PackageBench(contents, ["one", "two"], code, quiet_pip(house))


@pytest.mark.slow
def test_each_set_has_its_own_environment_and_conflicts_are_refused(
    house: Path, tmp_path: Path
) -> None:
    bench = bench_of(
        house,
        tmp_path,
        {
            0: {"tiny-a": "1.0", "tiny-b": ""},
            3: {"tiny-a": "1.1", "tiny-b": "1.0"},
            1: {"tiny-a": "1.0", "tiny-b": "1.0"},
            2: {"tiny-a": "1.2", "tiny-b": ""},
        },
    )
    try:
        for state, version in ((0, "1.0"), (3, "1.1")):
            side = bench.side(state)
            code = "import tiny_a; print(tiny_a.VERSION)"
            assert printed(side.python, dict(side.environment), code) == version
            assert bench.side(state) is side
            assert side.output_dir == tmp_path / "out" / "runs" / f"{state}"
        with pytest.raises(CannotRun, match=r"tiny-b 1\.0 requires tiny-a>=1\.1, but tiny-a is 1"):
            bench.side(1)
        with pytest.raises(CannotRun, match=r"tiny-a==1\.2 does not install: "):
            bench.side(2)
        places = {path.name for path in side.python.parents[2].parent.iterdir() if path.is_dir()}
        assert places == {"0", "3"}, "an environment that cannot run is removed"
    finally:
        bench.close()
    assert not side.python.exists()


def test_what_shadows_a_set_is_noticed(house: Path, tmp_path: Path) -> None:
    shadow = tmp_path / "shadow" / "tiny_a-9.dist-info"
    shadow.mkdir(parents=True)
    (shadow / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-a\nVersion: 9\n")
    bench = bench_of(house, tmp_path, {0: {"tiny-a": "1.0"}, 3: {"tiny-a": ""}})
    bench.code.environment["PYTHONPATH"] = str(shadow.parent)  # type: ignore[index]
    try:
        with pytest.raises(CannotRun, match=r"its Python sees tiny-a 9, wanted 1\.0"):
            bench.side(0)
        with pytest.raises(CannotRun, match="its Python sees tiny-a 9, wanted not installed"):
            bench.side(3)
    finally:
        bench.close()


def test_names_of_a_set_are_never_options_of_an_installer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[list[str]] = []

    def child(command: list[str], folder: Path, environment: object) -> tuple[int, str, str]:
        ran.append(command)
        return 0, "", ""

    monkeypatch.setattr(installing, "run_child", child)
    for uv in (None, "/bin/uv"):
        made = Installer(PIP, uv, {}, tmp_path, {"here": frozenset({Version("1")})})
        made.install({"here": Version("1"), "there": Version("2+cpu")}, Path("/python"), {})
    for command in ran:
        assert "--no-deps" in command
        assert ("--no-index" in command) == ("here==1" in command)
        assert command[-1] in ("here==1", "there==2+cpu")
    assert len(ran) == 4


@pytest.mark.parametrize(
    ("environ", "uv"),
    [
        ({}, True),
        ({"UV_FIND_LINKS": "/x", "PIP_INDEX_URL": "https://a.example"}, True),
        ({"PIP_INDEX_URL": "https://a.example"}, False),
    ],
)
def test_uv_installs_unless_only_pip_knows_the_index(
    environ: dict[str, str], uv: bool, tmp_path: Path
) -> None:
    program = tmp_path / "uv"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    base = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PIP_CONFIG_FILE": os.devnull}
    made = installer_for(None, {**base, **environ}, tmp_path)
    assert bool(made.uv) == uv


class Described:
    """A distribution with some addresses."""

    def __init__(self, *lines: str) -> None:
        self.metadata = Message()
        for line in lines:
            self.metadata["Project-URL"] = line


@pytest.mark.parametrize(
    ("lines", "address"),
    [
        (["Homepage, https://a.example", "Changelog, https://a.example/c"], "https://a.example/c"),
        (["Changelog, javascript:alert(1)"], None),
        (["Changelog, file:///etc/passwd"], None),
        (["Changelog, https://a.example/\x1b[2J"], None),
        (["Changelog, https://a.example/" + "x" * 400], None),
        (["Changelog, http://[::1"], None),
    ],
)
def test_release_notes_are_web_addresses(lines: list[str], address: str | None) -> None:
    assert release_notes(Described(*lines)) == address  # type: ignore[arg-type]
