"""A user's template has little time and memory, no secret, and no way of its own to fail."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace

import pytest

from canary.errors import ConfigError
from canary.github import confined
from canary.github.comment import LIMIT
from canary.github.section import TEMPLATE, section
from canary.github.status import Source
from tests.unit.github.test_comment import comparison, slow

SOURCE = Source("b" * 40)
DOUBLED = (
    "{% set n = namespace(t='x') %}{% for i in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}"
)
HUNGRY = (
    "{{ 'x' * 10**10 }}",
    "{{ 'x' | center(10**10) }}",
    "{{ ('%' ~ 9999999999 ~ 'd') | format(1) }}",
    "{{ ('x\n' * 10**7) | indent(10**4) }}",
    "{{ [0] * 10**10 }}",
    "{{ (range(99999) | list) * 99999 }}",
    DOUBLED,
)
SLOW = (
    "{% for i in range(99999) %}{% for i in range(99999) %}x{% endfor %}{% endfor %}",
    "{{ 10 ** (10 ** 9) }}",
    "{{ lipsum(n=99999, min=999, max=1000) }}",
)
DEEP = (
    "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{% if 1 %}" * 500 + "{% endif %}" * 500,
    "{{ x." + "a." * 9999 + "b }}",
)


@pytest.mark.spread(4)
@pytest.mark.parametrize(
    ("template", "why"),
    [
        *((template, "it needs more than 512 MB of memory") for template in HUNGRY),
        *((template, "it takes more than 1 s") for template in SLOW),
        *((template, "RecursionError") for template in DEEP),
    ],
)
def test_a_template_without_end_is_ended_with_one_line(
    template: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = replace(confined.OF_TEMPLATES, cpu_s=1 if template in SLOW else 20)
    monkeypatch.setattr(confined, "OF_TEMPLATES", given)
    begun = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        section(comparison(), SOURCE, LIMIT, {TEMPLATE: template})
    problem = str(caught.value)
    assert problem.startswith(f"the comment template cannot be rendered: {why}")
    assert len(problem) < 400
    assert time.monotonic() - begun < 30


def test_a_template_that_waits_for_a_processor_in_vain_is_ended_by_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(confined, "OF_TEMPLATES", replace(confined.OF_TEMPLATES, wall_s=0.3))
    with pytest.raises(ConfigError, match=r"it takes more than 0\.3 s"):
        section(slow(), SOURCE, LIMIT, {TEMPLATE: SLOW[0]})


def test_a_template_of_a_user_cannot_make_more_than_its_share_of_the_comment() -> None:
    assert len(section(slow(), SOURCE, 5000, {TEMPLATE: "{{ 'line\n' * 10**6 }}"})) <= 5000


def test_the_process_of_a_template_knows_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    said = confined.confined(subprocess.getoutput, "env")
    assert "PATH=" in said
    assert "secret" not in said
    assert "GITHUB" not in said


def test_a_process_of_a_template_that_dies_is_one_clear_line() -> None:
    with pytest.raises(ConfigError, match="its process ended with exit code -6"):
        confined.confined(os.abort)  # type: ignore[arg-type]


def test_a_template_of_a_user_says_what_ours_says_of_any_text() -> None:
    odd = comparison(line="Error: \ud800 \U0001f600 \x1b[2J @everyone")
    own = {TEMPLATE: '{% extends "comment.md.jinja" %}'}
    assert section(odd, SOURCE, LIMIT, own) == section(odd, SOURCE, LIMIT)
