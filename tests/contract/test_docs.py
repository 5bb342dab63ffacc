"""Every page against the program and the repository: tables, examples, paths, links, sentences."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from markdown_it import MarkdownIt
from typer.main import get_command

from canary.cli import app
from canary.config.load import load_config
from canary.config.trainers import TRAINERS, users_of
from canary.pytest_plugin import Canary
from tests.contract.generated import PARTS, part
from tests.contract.pages import (
    DOCS,
    PAGES,
    ROOT,
    anchors,
    examples,
    length,
    links,
    modules,
    paths,
    read,
    sentences,
)

RECORDS = ROOT / "baselines" / "examples"
LONGEST = 25
"""Words of a sentence. Write at most 20; what is longer than this fails."""
MOST_PAGES = 25
OF_A_USER = {"configs/small.yaml", ".github/workflows/canary.yml"}
"""Paths in a user's own repository."""


@pytest.mark.parametrize("name", PARTS)
def test_a_generated_part_is_current(name: str) -> None:
    """`UPDATE_GOLDEN=1` writes it."""
    page, make = PARTS[name]
    found = part(read(page), name)
    assert found is not None, f"{page.name} has no place for it"
    if os.environ.get("UPDATE_GOLDEN"):
        text = read(page)
        page.write_text(text[: found.start(2)] + make() + text[found.end(2) :], encoding="utf-8")
    found = part(read(page), name)
    assert found is not None
    assert found[2] == make()


def test_sentences_are_short() -> None:
    for page in PAGES:
        assert not [one for one in sentences(read(page)) if length(one) > LONGEST], page


def shell_lines() -> list[str]:
    """Every `canary ...` line of the shell examples, once."""
    lines = [
        line.split("   #")[0].rstrip("\\").strip()
        for page in PAGES
        for block in examples(page, "bash")
        for line in block.replace("\\\n", " ").splitlines()
    ]
    lines = [re.sub(r"^(?:[A-Z_]+=\S+ )+", "", line) for line in lines]
    return sorted({line for line in lines if line.startswith("canary ")})


def test_every_command_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verb, options and arguments; nothing runs. There are two runs for `latest~1`."""
    monkeypatch.setattr("canary.record.runs.run_folders", lambda root: [root / "1", root / "2"])
    verbs: Any = get_command(app)
    for line in shell_lines():
        words = shlex.split(line.split(" # ")[0])[1:]
        command = verbs
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        with command.make_context(line, words) as context:
            assert context.command is command


def blocks() -> list[tuple[str, str]]:
    """The language and text of each block of code."""
    return [
        (token.info, token.content)
        for page in PAGES
        for token in MarkdownIt("commonmark").parse(read(page))
        if token.type == "fence"
    ]


def test_every_block_of_code_can_be_parsed() -> None:
    for language, text in blocks():
        if language == "python":
            compile(text, "<page>", "exec")
        elif language == "yaml":
            list(yaml.compose_all(text))
        elif language == "json":
            json.loads(text)
        elif language == "toml":
            tomllib.loads(text)
        elif language == "jinja":
            jinja2.Environment(autoescape=True).parse(text)
        elif language == "bash":
            subprocess.run(["bash", "-n"], input=text, text=True, check=True)
        else:
            assert language in ("", "text", "console", "markdown", "diff", "groovy"), language


def test_the_python_of_the_reference_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "canary_output" / "RUN"
    run.mkdir(parents=True)
    shutil.copy(RECORDS / "sft_smoke_again.json", run / "metrics.json")
    shutil.copy(RECORDS / "sft_smoke.json", tmp_path / "baseline.json")
    monkeypatch.chdir(tmp_path)
    for code in examples(DOCS / "record.md", "python"):
        exec(compile(code, "record.md", "exec"), {})
    assert capsys.readouterr().out


def test_every_path_in_backticks_exists() -> None:
    named = {path for page in PAGES for path in paths(read(page))} - OF_A_USER
    assert not [path for path in named if not (ROOT / path).exists()]


def test_every_module_and_test_that_a_page_names_exists() -> None:
    missing = []
    for name in {name for page in PAGES for name in modules(read(page))}:
        module = name
        while module and not _is_module(module):
            module = module.rpartition(".")[0]
        rest = name[len(module) + 1 :]
        if name.startswith("canary.") and hasattr(Canary, rest):
            continue  # A method of the fixture `canary`.
        if "." in rest or (rest and not _mentions(module, rest)):
            missing.append(name)
    assert not missing


def _is_module(name: str) -> bool:
    place = ROOT / name.replace(".", "/")
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()


def _mentions(module: str, name: str) -> bool:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return re.search(rf"\b{name}\b", Path(spec.origin).read_text(encoding="utf-8")) is not None


def test_every_link_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in links(read(page)):
            name, _, anchor = target.partition("#")
            there = (page.parent / name).resolve() if name else page
            if not there.exists() or (anchor and anchor not in anchors(read(there))):
                broken.append((page.name, target))
    assert not broken


def test_the_index_leads_to_every_page() -> None:
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert links(read(DOCS / "README.md")) >= pages - {"README.md"}


CONFIGS = [
    pytest.param(block, id=f"{page}-{place}")
    for page in ("exec.md", "import.md")
    for place, block in enumerate(examples(DOCS / page, "yaml"))
    if block.startswith("name: ")
]


@pytest.mark.parametrize("block", CONFIGS)
def test_a_config_to_paste_is_one(block: str, tmp_path: Path) -> None:
    (tmp_path / "canary.yaml").write_text(block)
    config = load_config(tmp_path / "canary.yaml").config
    assert config.name
    assert config.command


def test_there_are_few_pages() -> None:
    assert len(list(DOCS.rglob("*.md"))) <= MOST_PAGES


def words(page: Path) -> dict[str, str]:
    """Word -> meaning, of tables with these two columns."""
    return dict(re.findall(r"^\| ([a-z][a-z, -]*) \| ([^|]+) \|$", read(page), flags=re.MULTILINE))


def test_a_word_means_the_same_to_users_and_to_authors() -> None:
    ours, theirs = words(DOCS / "README.md"), words(ROOT / "ARCHITECTURE.md")
    shared = (set(ours) & set(theirs)) - {"word"}
    assert len(shared) > 15
    assert {word: ours[word] for word in shared} == {word: theirs[word] for word in shared}


def test_keys_for_code_of_ones_own_name_the_trainers_that_use_them() -> None:
    page = read(DOCS / "trainers.md")
    section = page.partition("## Code of your own\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([a-z, ]+) \|", section, re.M)
    assert len(rows) == 3
    for key, told in rows:
        named = set(told.removeprefix("all but ").split(", "))
        some = set(TRAINERS) - named if told.startswith("all but ") else named
        assert set(users_of(key)) == (set(TRAINERS) if told == "all" else some), key
