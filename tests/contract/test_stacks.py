"""The table of stacks against its results, the results against the pins, CI against both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import noxfile
from bench.stacks import PARTNERS, TRAINERS
from bench.stacks_table import PAGE, stored, with_table

ROOT = Path(__file__).parents[2]
RESULTS = stored()
EVERYWHERE = ("sft", "dpo", "reward", "grpo")


def pins(path: str) -> dict[str, str]:
    """Packages of a file of exact pins."""
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    found = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(pair) == 2 for pair in found), f"{path}: every package has an exact version"
    return {name.lower(): version for name, version in found}


def test_the_table_of_the_page_is_the_generated_one() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_table(page, RESULTS), "run python -m bench.stacks_table --write"


def test_every_stack_has_results_and_no_other() -> None:
    assert tuple(RESULTS) == noxfile.STACKS


@pytest.mark.parametrize("trl", noxfile.STACKS)
def test_results_are_of_the_pinned_packages(trl: str) -> None:
    path = "constraints.txt" if trl == noxfile.NEWEST else f"requirements/stacks/{trl}.txt"
    pinned = pins(path)
    assert pinned["trl"] == trl
    assert RESULTS[trl]["packages"] == {name: pinned[name] for name in PARTNERS}


@pytest.mark.parametrize("trl", noxfile.STACKS)
def test_every_trainer_was_tried_and_none_fails(trl: str) -> None:
    found = RESULTS[trl]["trainers"]
    assert sorted(found) == sorted(TRAINERS)
    outcomes = {kind: result["outcome"] for kind, result in found.items()}
    assert set(outcomes.values()) <= {"works", "works with a note", "not offered"}
    for kind in EVERYWHERE:
        assert outcomes[kind].startswith("works"), kind
    for result in found.values():
        assert bool(result["notes"]) == (result["outcome"] == "works with a note")


def test_make_stacks_tries_the_oldest_and_the_newest() -> None:
    recipe = re.search(r"(?m)^stacks:.*\n\t(.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert recipe
    asked = recipe.group(1).partition(" -- ")[2].split()
    assert asked == [noxfile.OLDEST, noxfile.NEWEST, "--quick"]
    assert set(EVERYWHERE) <= set(noxfile.QUICK)


def test_the_extra_takes_the_oldest_stack() -> None:
    import tomllib

    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = pins(f"requirements/stacks/{noxfile.OLDEST}.txt")
    for line in project["optional-dependencies"]["train"]:
        wanted = Requirement(line)
        assert oldest[wanted.name] in wanted.specifier, line


def test_arguments_of_the_newest_stack_are_in_the_list() -> None:
    from bench.stacks_arguments import OF_TRL, installed_arguments
    from canary.training.adapt import known_arguments

    installed = installed_arguments()
    assert len(installed) == len(OF_TRL)
    for name, arguments in installed.items():
        assert arguments <= known_arguments(name), "run nox -s stacks -- --write"
