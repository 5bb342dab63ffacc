"""The condition of an advisory: tests on facts, each true, false or not known. Pure.

    trainer: [sft, dpo]                       one of these
    training.gradient_accumulation_steps: ">1"
    model.model_type: "!=llama"
    package.vllm: ">=0.10,<0.12"              the version of another package
    package.liger-kernel: installed

All of them must hold. A fact that nobody knows makes the condition unknown, never true.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from canary.advisories.keys import ANY_TRAINER, KEYS, PACKAGE, TRAINER, TRAINER_NAMES, Scalar

Test: TypeAlias = Scalar | list[Scalar]
Condition: TypeAlias = Mapping[str, Test]
Fact: TypeAlias = Scalar | Sequence[Scalar] | None
"""A value, several values of which one is enough, or None: there is no such thing."""
COMPARED = re.compile(r"(>=|<=|>|<|!=)\s*(.+)")
INSTALLED = "installed"
LONGEST_VERSION = 100


@dataclass(frozen=True)
class Known:
    """What is known of a training. A fact that is missing here is not known."""

    packages: Mapping[str, str | None] = field(default_factory=dict)
    """Versions; None for a package that is not installed."""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    """By the keys of `keys.KEYS`."""


def wrong_test(key: str, test: Test) -> str | None:
    """Return what is wrong with a test, or None."""
    if key.startswith(PACKAGE):
        if test == INSTALLED:
            return None
        return None if isinstance(test, str) and _specifier(test) else f"{test!r} is no range"
    if key not in KEYS:
        return f"there is no key {key!r}"
    if test == []:
        return "an empty list can never hold"
    if key == TRAINER:
        unknown = [name for name in _listed(test) if name not in TRAINER_NAMES]
        return f"there is no trainer {unknown[0]!r}" if unknown else None
    for one in _listed(test):
        compared = COMPARED.fullmatch(one) if isinstance(one, str) else None
        if compared and compared[1] != "!=" and _number(compared[2]) is None:
            return f"{one!r} compares with no number"
    return None


def holds(key: str, test: Test, known: Known) -> bool | None:
    """Return whether one test holds; None if the fact is not known."""
    if key.startswith(PACKAGE):
        return _package_holds(key.removeprefix(PACKAGE), str(test), known.packages)
    if key not in known.facts:
        return None
    fact = known.facts[key]
    values = fact if isinstance(fact, list | tuple) else [fact]
    return any(_equals(value, one) for value in values for one in _listed(test))


def unknown_tests(condition: Condition, known: Known) -> tuple[str, ...] | None:
    """Return the tests, in words, that nobody can decide; None if one is false."""
    unknown = []
    for key, test in condition.items():
        answer = holds(key, test, known)
        if answer is False:
            return None
        if answer is None:
            unknown.append(words(key, test))
    return tuple(unknown)


def in_range(version: str | None, versions: str) -> bool:
    """Return whether a version is in a range; local parts such as `+cpu` do not count."""
    if not version or len(version) > LONGEST_VERSION:
        return False
    try:
        return SpecifierSet(versions).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def words(key: str, test: Test) -> str:
    """Return a test as people say it."""
    if key.startswith(PACKAGE):
        name = key.removeprefix(PACKAGE)
        return f"{name} is installed" if test == INSTALLED else f"{name} is {test}"
    called = KEYS[key].words
    if test is True or test is False:
        return f"{called} {'is' if test else 'is not'} on"
    if test == ANY_TRAINER:
        return "the trainer is based on transformers.Trainer"
    *most, last = (_said(one) for one in _listed(test))
    said = f"{', '.join(most)} or {last}" if most else last
    return f"{called} {said}" if COMPARED.match(said) else f"{called} is {said}"


def _said(one: Scalar) -> str:
    compared = COMPARED.fullmatch(one) if isinstance(one, str) else None
    return f"{compared[1]} {compared[2]}" if compared else str(one)


def _listed(test: Test) -> list[Scalar]:
    return test if isinstance(test, list) else [test]


def _package_holds(name: str, test: str, packages: Mapping[str, str | None]) -> bool | None:
    if name not in packages:
        return None
    if test == INSTALLED:
        return packages[name] is not None
    return in_range(packages[name], test)


def _equals(value: object, test: Scalar) -> bool:
    compared = COMPARED.fullmatch(test) if isinstance(test, str) else None
    if compared is None:
        return value == test and isinstance(value, bool) == isinstance(test, bool)
    sign, other = compared[1], compared[2]
    if sign == "!=":
        return str(value) != other
    number, limit = _number(value), _number(other)
    if number is None or limit is None:
        return False
    return {
        ">": number > limit,
        ">=": number >= limit,
        "<": number < limit,
        "<=": number <= limit,
    }[sign]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _specifier(text: str) -> SpecifierSet | None:
    try:
        found = SpecifierSet(text)
    except InvalidSpecifier:
        return None
    return found if len(found) else None
