"""`canary bisect --packages` with real environments; only the training is replaced: it reads a
number from the packages of its environment."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from distlib.wheel import Wheel

from canary.bisect import bisect as bisect_module
from canary.bisect import states
from canary.bisect.answer import Answered, answer_text
from canary.bisect.bisect import Request, run_bisect
from canary.bisect.search import CannotRun
from canary.campaign import environments
from canary.campaign.environments import packages_of
from canary.campaign.side import Side, run_child
from canary.errors import MachineError, UsageError
from canary.record.types import RunRecord
from tests.unit.bisect.workshop import failed, looked
from tests.unit.comparing import altered, write

CONFIG = "name: theirs\ncommand: [python, train.py]\n"
LOSS = """
import importlib.metadata as m
names = ("tiny-a", "tiny-b", "tiny-c")
have = {name: int(m.version(name).split(".")[1]) for name in names}
import tiny_a, tiny_b, tiny_c
print(EXPRESSION)
"""


@dataclass(frozen=True)
class ReadingSide(Side):
    """A side whose loss is what its Python prints."""

    def run_with(self, settings: Sequence[str] = (), *shown: object) -> RunRecord:
        text = LOSS.replace("EXPRESSION", (self.folder / "loss.txt").read_text())
        code, out, err = run_child([str(self.python), "-c", text], self.folder, self.environment)
        number = sum(1 for _ in self.output_dir.parents[1].rglob("metrics.json"))
        made = looked(number, float(out)) if code == 0 else failed(number, err.splitlines()[-1])
        config = {**made.config, "exact": True}
        made = made.model_copy(update={"config": config, "launches": []})
        made = altered(made, "perf", "step_time", "count", to=0)
        write(self.output_dir / made.run_id / "metrics.json", made)
        return made


def add_wheel(
    folder: Path,
    name: str,
    version: str,
    code: str = "",
    tag: tuple[str, str, str] = ("py3", "none", "any"),
) -> None:
    """Build a wheel with one module into a folder, as `PIP_FIND_LINKS` takes it."""
    source = folder.parent / "sources" / f"{name}-{version}"
    info = source / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    module = source / f"{name.replace('-', '_')}.py"
    module.write_text(code or f"VERSION = {version!r}\n", "utf-8")
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    (info / "METADATA").write_text("\n".join(lines) + "\n", "utf-8")
    folder.mkdir(parents=True, exist_ok=True)
    wheel = Wheel()
    wheel.name, wheel.version, wheel.dirname = name.replace("-", "_"), version, str(folder)
    tags = {"pyver": [tag[0]], "abi": [tag[1]], "arch": [tag[2]]}
    wheel.build({"purelib": str(source), "prefix": str(source)}, tags)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tiny-a 1.0 ... 1.7, of which 1.3 does not import; tiny-b and tiny-c 1.0 ... 1.2."""
    folder = tmp_path_factory.mktemp("house") / "wheels"
    for minor in range(8):
        add_wheel(folder, "tiny-a", f"1.{minor}", "raise ImportError('x')" if minor == 3 else "")
    add_wheel(folder, "tiny-a", "1.8rc1")
    add_wheel(folder, "tiny-a", "1.5.1", tag=("cp27", "none", "any"))
    for minor in range(3):
        add_wheel(folder, "tiny-b", f"1.{minor}")
        add_wheel(folder, "tiny-c", f"1.{minor}")
    return folder


@pytest.fixture(autouse=True)
def _offline(wheels: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bisect_module, "Side", ReadingSide)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.chdir(tmp_path)


def bisected(expression: str, good: str, bad: str, said: list[str] | None = None) -> Answered:
    """Bisect in the working directory; the loss is the value of an expression."""
    Path("good.txt").write_text(good.replace(" ", "\n"))
    Path("bad.txt").write_text(bad.replace(" ", "\n"))
    Path("loss.txt").write_text(expression)
    Path("config.yaml").write_text(CONFIG)
    lists = Path("good.txt"), Path("bad.txt")
    request = Request(
        Path("config.yaml"), packages=lists, check="first_loss", output_dir=Path("out")
    )
    return run_bisect(request, (said if said is not None else []).append)


@pytest.fixture
def unpacked(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheels, unpacked instead of installed by pip, which takes a second for each set. Nor are
    there commands of the tests' own packages, or pages."""

    def install(pins: list[str], python: Path, environ: Mapping[str, str]) -> None:
        for name, version in (pin.split("==") for pin in pins):
            file = wheels / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
            if not file.exists():
                raise CannotRun(f"{name}=={version} does not install: no {file.name}")
            with zipfile.ZipFile(file) as archive:
                archive.extractall(packages_of(python.parent.parent))

    monkeypatch.setattr(states, "install", install)
    monkeypatch.setattr(environments, "_add_scripts", lambda folder, without: None)
    monkeypatch.setattr(bisect_module, "leave_report", lambda compared, folder: "")


GOOD = "tiny-a==1.0 tiny-b==1.0 tiny-c==1.0"
BAD = "tiny-a==1.7 tiny-b==1.2 tiny-c==1.2"
FROM_FIVE = "3.0 if have['tiny-a'] >= 5 else 2.0"


@pytest.mark.slow
def test_package_and_version_are_found() -> None:
    found = bisected(FROM_FIVE, GOOD, BAD)
    text = answer_text(found, "text", 200)
    assert text.startswith("Found: tiny-a 1.5 changed first_loss (the loss of step 1).\n")
    assert found.exit_code == 0
    assert "last good: tiny-a 1.4" in text
    assert "tiny-a==1.3" in text, "the version that does not import is told"
    document = json.loads(Path("out", "bisect.json").read_text())
    assert document["status"] == "found"
    assert document["culprit"]["package"] == "tiny-a"
    assert document["culprit"]["first_bad"] == "1.5"
    assert document["culprit"]["last_good"] == "1.4"
    assert [stage["title"] for stage in document["stages"]] == ["package", "version of tiny-a"]
    assert Path("out", "version-of-tiny-a", "comparison.json").is_file()


@pytest.mark.usefixtures("unpacked")
def test_two_that_are_needed_together_are_found_with_their_versions() -> None:
    found = bisected("3.0 if have['tiny-a'] >= 6 and have['tiny-c'] >= 2 else 2.0", GOOD, BAD)
    assert found.document["first_line"] == (
        "Found: tiny-a 1.6 and tiny-c 1.2 together changed first_loss (the loss of step 1)."
    )
    assert found.exit_code == 0


@pytest.mark.slow
@pytest.mark.usefixtures("unpacked")
def test_another_package_that_shows_it_too_is_told() -> None:
    either = "3.0 if have['tiny-a'] >= 6 or have['tiny-c'] >= 2 else 2.0"
    found = bisected(either, GOOD, BAD)
    assert "another one shows it too" in answer_text(found, "text", 200)


@pytest.mark.usefixtures("unpacked")
def test_a_release_that_does_not_exist_is_named() -> None:
    with pytest.raises(MachineError, match=r"the bad end .* does not run: tiny-a==9\.9 does not"):
        bisected("2.0", GOOD, "tiny-a==9.9 tiny-b==1.2 tiny-c==1.2")


@pytest.mark.slow
@pytest.mark.usefixtures("unpacked")
def test_it_goes_on_after_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Path] = []
    real = ReadingSide.run_with

    def stopping(side: ReadingSide, settings: Sequence[str], *shown: object) -> RunRecord:
        if len(ran) == 5:
            raise KeyboardInterrupt
        ran.append(side.output_dir)
        return real(side, settings, *shown)

    monkeypatch.setattr(ReadingSide, "run_with", stopping)
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        bisected(FROM_FIVE, GOOD, BAD, said)
    assert said[-1].startswith("to continue: ")
    monkeypatch.setattr(ReadingSide, "run_with", real)
    found = bisected(FROM_FIVE, GOOD, BAD)
    assert found.document["first_line"].startswith("Found: tiny-a 1.5 ")
    runs = [row for stage in found.document["stages"] for row in stage["runs"] if row["run"]]
    assert sum(1 for _ in Path("out").rglob("metrics.json")) == len(runs)


def test_what_an_installer_is_told_holds_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"PATH": "/usr/bin", "PIP_CONFIG_FILE": "/dev/null"}
    told = states.installers({**base, "PIP_INDEX_URL": "https://a.example"})
    assert told["UV_DEFAULT_INDEX"] == "https://a.example"
    told = states.installers({**base, "UV_FIND_LINKS": "/x", "PIP_INDEX_URL": "https://a.example"})
    assert told["PIP_FIND_LINKS"] == "/x"


def test_uv_installs_where_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def child(command: list[str], folder: Path, environment: object) -> tuple[int, str, str]:
        ran.append(command)
        return 0, "", ""

    monkeypatch.setattr(states, "run_child", child)
    (tmp_path / "uv").write_text("#!/bin/sh\n")
    (tmp_path / "uv").chmod(0o755)
    for place in (str(tmp_path), "/nowhere"):
        states.install(["tiny-a==1.0"], Path("/python"), {"PATH": place})
    assert [command[0] == str(tmp_path / "uv") for command in ran] == [True, False]
    for command in ran:
        assert {"--no-deps", "install", "/python"} <= {*command}
        assert command[-1] == "tiny-a==1.0"


def test_what_shadows_a_set_is_noticed(tmp_path: Path) -> None:
    shadow = tmp_path / "shadow" / "tiny_a-9.dist-info"
    shadow.mkdir(parents=True)
    (shadow / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-a\nVersion: 9\n")
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(shadow.parent)}
    side = Side("", "", Path("c.yaml"), tmp_path, Path(), environ, tmp_path / "out")
    with pytest.raises(CannotRun, match=r"its Python sees tiny-a 9, wanted not installed"):
        states.set_side(side, {"tiny-a": None}, tmp_path)


@pytest.mark.parametrize("asked", [{"good": "HEAD~1"}, {"setup": "make"}])
def test_what_does_not_go_with_packages_is_refused(asked: dict[str, str]) -> None:
    lists = Path("good.txt"), Path("bad.txt")
    with pytest.raises(UsageError, match=r"--good REF or --packages|--setup does not go"):
        run_bisect(Request(Path("c.yaml"), packages=lists, **asked), print)  # type: ignore[arg-type]
