"""`canary bisect --packages` with real installations; only the training is replaced: it reads a
number from the packages of its environment."""

from __future__ import annotations

import functools
import json
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from canary.bisect import answer as answer_module
from canary.bisect import bench
from canary.bisect.finding import Wish
from canary.bisect.packages import bench as packages_bench
from canary.bisect.packages import run
from canary.bisect.packages.answer import (
    PackagesAnswered,
    exit_code_of,
    packages_text,
    sentence_of,
)
from canary.bisect.packages.fit import Installed, installed_in
from canary.bisect.packages.installer import Installer
from canary.bisect.packages.request import PackagesRequest
from canary.bisect.packages.run import run_packages
from canary.campaign import environments
from canary.campaign.environments import packages_of
from canary.campaign.side import Side, run_child
from canary.errors import MachineError
from canary.record.types import RunRecord
from tests.unit.bisect.packages.wheelhouse import add_wheel
from tests.unit.bisect.workshop import Repository, failed, looked
from tests.unit.comparing import altered, write

CONFIG = "name: theirs\ncommand: [python, train.py]\n"
LOSS = """
import importlib.metadata as m
import importlib.util as u
names = ("tiny-a", "tiny-b", "tiny-c")
have = {name: int(m.version(name).split(".")[1]) for name in names}
import tiny_a, tiny_b, tiny_c
print(EXPRESSION)
"""


@dataclass(frozen=True)
class ReadingSide(Side):
    """A side whose loss is what its Python prints."""

    def run_with(self, settings: Sequence[str], on_event: object = None) -> RunRecord:
        expression = (self.folder / "loss.txt").read_text()
        text = LOSS.replace("EXPRESSION", expression)
        command = [str(self.python), "-c", text]
        code, out, err = run_child(command, self.folder, self.environment)
        number = sum(1 for _ in self.output_dir.parents[2].rglob("metrics.json"))
        made = looked(number, float(out)) if code == 0 else failed(number, err.splitlines()[-1])
        config = {**made.config, "exact": True}
        made = made.model_copy(update={"config": config, "launches": []})
        made = altered(made, "perf", "step_time", "count", to=0)
        write(self.output_dir / made.run_id / "metrics.json", made)
        return made


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tiny-a 1.0 ... 1.7, tiny-b and tiny-c 1.0 ... 1.2; tiny-c 1.1 needs tiny-b 1.1."""
    folder = tmp_path_factory.mktemp("house") / "wheels"
    notes = {"Homepage": "https://example.org", "Release Notes": "https://example.org/a/notes"}
    for minor in range(8):
        code = "raise ImportError('not here')" if minor == 3 else ""
        add_wheel(folder, "tiny-a", f"1.{minor}", code, urls=notes)
    add_wheel(folder, "tiny-a", "1.8rc1")
    add_wheel(folder, "tiny-a", "1.5.1", tag=("cp27", "none", "any"))
    for minor in range(3):
        add_wheel(folder, "tiny-b", f"1.{minor}")
        add_wheel(folder, "tiny-c", f"1.{minor}")
    add_wheel(folder, "tiny-d", "1.0")
    return folder


of_the_tests = functools.cache(lambda *folders: installed_in(folders))
"""The packages that the tests run with: hundreds, and the same below every set."""


def installed_over(folders: Sequence[str | Path]) -> Installed:
    own, *others = folders
    return {**of_the_tests(*others), **installed_in([own])}


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run, "Side", ReadingSide)
    monkeypatch.setattr(bench, "Side", ReadingSide)
    monkeypatch.setattr(packages_bench, "installed_in", installed_over)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.chdir(tmp_path)


def bisected(
    wheels: Path, expression: str, good: str, bad: str, said: list[str] | None = None
) -> PackagesAnswered:
    """Bisect in the working directory; the loss is the value of an expression."""
    Path("good.txt").write_text(good.replace(" ", "\n"))
    Path("bad.txt").write_text(bad.replace(" ", "\n"))
    Path("loss.txt").write_text(expression)
    Path("config.yaml").write_text(CONFIG)
    request = PackagesRequest(
        Path("config.yaml"),
        Path("good.txt"),
        Path("bad.txt"),
        Wish("first_loss"),
        find_links=wheels,
        output_dir=Path("out"),
    )
    return run_packages(request, (said if said is not None else []).append)


@pytest.fixture
def unpacked(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheels, unpacked instead of installed by pip, which takes a second for each set. Nor are
    there commands of the tests' own packages, or pages."""

    def installed(
        self: Installer, pins: Sequence[str], python: Path, environ: object, local: bool
    ) -> str | None:
        for name, version in (pin.split("==") for pin in pins):
            file = wheels / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
            if not file.exists():
                return f"no {file.name}"
            with zipfile.ZipFile(file) as archive:
                archive.extractall(packages_of(python.parent.parent))
        return None

    monkeypatch.setattr(Installer, "_installed", installed)
    monkeypatch.setattr(environments, "_add_scripts", lambda folder, without: None)
    monkeypatch.setattr(answer_module, "leave_report", lambda compared, folder: "")
    return wheels


GOOD = "tiny-a==1.0 tiny-b==1.0 tiny-c==1.0"
BAD = "tiny-a==1.7 tiny-b==1.2 tiny-c==1.2"


def test_package_and_version_are_found(wheels: Path) -> None:
    found = bisected(wheels, "3.0 if have['tiny-a'] >= 5 else 2.0", GOOD, BAD)
    assert sentence_of(found) == "Found: tiny-a 1.5 changed first_loss (the loss of step 1)."
    assert exit_code_of(found) == 0
    text = packages_text(found, "text", 200)
    assert "last good: tiny-a 1.4" in text
    assert "release notes: https://example.org/a/notes" in text
    assert "tiny-a==1.3" in text, "the version that does not import is told"
    document = json.loads(Path("out", "bisect.json").read_text())
    assert document["culprit"]["package"] == "tiny-a"
    assert document["culprit"]["first_bad"] == "1.5"
    assert [found["package"] for found in document["candidates"]] == ["tiny-a"]
    assert document["culprit"]["last_good"] == "1.4"
    assert document["status"] == "found"
    assert "**Found: tiny-a 1.5" in packages_text(found, "markdown")


def test_two_that_are_needed_together_are_found_with_their_versions(unpacked: Path) -> None:
    found = bisected(
        unpacked, "3.0 if have['tiny-a'] >= 6 and have['tiny-c'] >= 2 else 2.0", GOOD, BAD
    )
    assert (
        sentence_of(found)
        == "Found: tiny-a 1.6 and tiny-c 1.2 together changed first_loss (the loss of step 1)."
    )
    assert "tiny-a shows it only together with tiny-c" in packages_text(found, "text", 200)


def test_a_release_that_does_not_exist_is_named(unpacked: Path) -> None:
    with pytest.raises(MachineError, match=r"the bad end .* does not run: tiny-a==9\.9 does not"):
        bisected(unpacked, "2.0", GOOD, "tiny-a==9.9 tiny-b==1.2 tiny-c==1.2")


def test_it_goes_on_after_an_interruption(unpacked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Path] = []
    real = ReadingSide.run_with

    def stopping(side: ReadingSide, settings: Sequence[str], on_event: object = None) -> RunRecord:
        if len(ran) == 5:
            raise KeyboardInterrupt
        ran.append(side.output_dir)
        return real(side, settings, on_event)

    expression = "3.0 if have['tiny-a'] >= 5 else 2.0"
    monkeypatch.setattr(ReadingSide, "run_with", stopping)
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        bisected(unpacked, expression, GOOD, BAD, said)
    assert said[-1].startswith("to continue: ")
    first = len(ran)
    ran.clear()
    monkeypatch.setattr(ReadingSide, "run_with", real)
    found = bisected(unpacked, expression, GOOD, BAD)
    assert sentence_of(found) == "Found: tiny-a 1.5 changed first_loss (the loss of step 1)."
    again = sum(1 for _ in Path("out").rglob("metrics.json"))
    assert again == sum(stage.found.launches for _, stage in found.stages)
    assert first == 5


def both(unpacked: Path, root: Path, expressions: Sequence[str]) -> PackagesAnswered:
    """Bisect commits, each with its own expression, and packages."""
    made = Repository(root)
    files = {"config.yaml": CONFIG}
    commits = [
        made.commit(f"c{number}", {**files, "loss.txt": text})
        for number, text in enumerate(expressions)
    ]
    Path("good.txt").write_text(GOOD.replace(" ", "\n"))
    Path("bad.txt").write_text(BAD.replace(" ", "\n"))
    request = PackagesRequest(
        Path("config.yaml"),
        Path("good.txt"),
        Path("bad.txt"),
        Wish("first_loss"),
        find_links=unpacked,
        output_dir=root.parent / "out",
        commits=True,
        good_commit=commits[0],
        bad_commit=commits[-1],
    )
    return run_packages(request, lambda line: None)


USES = "3.0 if have['tiny-a'] >= 5 else 2.0"


@pytest.mark.parametrize(
    ("expressions", "answer"),
    [
        (
            ["2.0", "2.0 ", "3.0", "3.0 "],
            r"Found: \w+ c2 \(2026-01-01\) changed first_loss \(.+ 1\)\.",
        ),
        (
            [USES, USES + " ", USES],
            r"Found: tiny-a 1\.5 changed first_loss \(.+ 1\)\.",
        ),
        (
            ["2.0", "2.0 ", USES, USES + " "],
            r"Found: \w+ c2 \(2026-01-01\) and tiny-a 1\.5 together changed first_loss \(.+ 1\)\.",
        ),
    ],
    ids=["code", "packages", "both"],
)
@pytest.mark.slow
def test_code_and_packages_at_once(
    unpacked: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    expressions: Sequence[str],
    answer: str,
) -> None:
    (tmp_path / "theirs").mkdir()
    monkeypatch.chdir(tmp_path / "theirs")
    found = both(unpacked, tmp_path / "theirs", expressions)
    assert re.fullmatch(answer, sentence_of(found))
    assert exit_code_of(found) == 0
    assert found.stages[0][0] == "axis"
    assert (found.commit is not None) == ("c2" in answer)
    assert "Still possible" not in packages_text(found, "text")
    document = json.loads((tmp_path / "out" / "bisect.json").read_text())
    assert bool(document["commit"]) == ("c2" in answer)
