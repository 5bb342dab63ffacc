"""The body of the one comment: a headline, then a section a canary between marks. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from canary.baseline.comparability import slug
from canary.github.section import section
from canary.github.source import WORST_FIRST, Answer, Source
from canary.report.escape import markdown_cell, markdown_code
from canary.report.view import VERDICT_MARKS

MARKER = "<!-- rlhf-canary -->"
"""First line of our comment."""
ACCEPTED = "accepted"
"""Stands in a section's mark for the verdict of a change that someone accepted."""
BY_HAND = (0, 1)
"""Age of what a person posts, outside of any run: it replaces, and is replaced by, anything."""
LONGEST_NAME = 60
"""Characters of a canary's name in the headline."""
LIMIT = 60_000
"""Characters of a comment; GitHub refuses more than 65,536."""
BEGIN = re.compile(
    r"<!-- rlhf-canary:section (?P<name>[a-z0-9._-]+) (?P<sha>[0-9a-f]+) "
    r"(?P<run>\d+)\.(?P<attempt>\d+) (?P<verdict>[a-z-]+)(?: (?P<key>[a-z0-9._-]+))? -->\n"
)
END = "<!-- rlhf-canary:end -->\n"


@dataclass(frozen=True)
class Section:
    """A canary's part of the comment, as it stands on GitHub."""

    name: str
    """As shown in the headline."""
    sha: str
    age: tuple[int, int]
    verdict: str
    text: str
    key: str
    """By the config's path; empty in comments of older versions, which had the name alone."""

    @property
    def marked(self) -> str:
        """Between its marks."""
        run = f"{self.age[0]}.{self.age[1]}"
        return (
            f"<!-- rlhf-canary:section {self.name} {self.sha} {run} {self.verdict} {self.key} -->\n"
            f"{self.text.rstrip()}\n{END}"
        )

    def is_of(self, other: Section) -> bool:
        """Whether both speak of one canary. What a person posts names the canary alone."""
        by_hand = BY_HAND in (self.age, other.age)
        return self.key == other.key or (by_hand and self.name == other.name)


def parse(body: str) -> list[Section]:
    """The sections of a comment; line breaks as GitHub returns them are understood."""
    body = body.replace("\r\n", "\n")
    found = []
    for begin in BEGIN.finditer(body):
        end = body.find(END.rstrip(), begin.end())
        if end < 0:
            continue
        found.append(
            Section(
                begin["name"],
                begin["sha"],
                (int(begin["run"]), int(begin["attempt"])),
                begin["verdict"],
                body[begin.end() : end],
                begin["key"] or "",
            )
        )
    return found


def sections_of(
    answers: Sequence[Answer], source: Source, own: Mapping[str, str] | None = None
) -> list[Section]:
    """A section an answer, sharing the comment's limit.

    Raises:
        ConfigError: the user's template cannot be rendered.
    """
    limit = LIMIT // max(1, len(answers)) - 600
    return [
        Section(
            slug(answer.canary)[:LONGEST_NAME],
            source.sha,
            source.age,
            ACCEPTED if answer.comparison.accepted else answer.comparison.verdict,
            section(answer.comparison, source, limit, own, answer.note),
            answer.key,
        )
        for answer in answers
    ]


def merged(body: str, new: Sequence[Section]) -> str | None:
    """The comment with the new sections in it; None where a later run has said it already.

    Sections of other canaries stay as long as they speak of the same commit: those of an older one
    would pass for an answer on this. Those of an older version of ours have no key, and go.
    """
    kept = [section for section in parse(body) if section.sha == new[0].sha and section.key]
    fresh = [
        section
        for section in new
        if section.age == BY_HAND
        or all(other.age <= section.age for other in kept if other.is_of(section))
    ]
    if not fresh:
        return None
    others = [other for other in kept if not any(other.is_of(section) for section in fresh)]
    return _body(sorted([*others, *fresh], key=lambda section: (section.name, section.key)))


def has_sections(body: str, wanted: Sequence[Section]) -> bool:
    """Whether the comment holds these sections, or later ones."""
    there = {section.key: section for section in parse(body)}
    return all(
        section.key in there
        and (there[section.key].sha != section.sha or there[section.key].age >= section.age)
        for section in wanted
    )


def _body(sections: Sequence[Section]) -> str:
    marked = [section.marked for section in sections]
    headline = f"{_headline(sections)}\n\n" if len(sections) > 1 else ""
    body = f"{MARKER}\n{headline}" + "\n".join(marked)
    while len(body) > LIMIT and len(marked) > 1:
        longest = max(range(len(marked)), key=lambda place: len(marked[place]))
        short = sections[longest]
        first = short.text.strip().split("\n", 1)[0]
        left_out = f"{first}\n\n(left out for length; the run keeps the whole report)"
        marked[longest] = replace(short, text=left_out).marked
        body = f"{MARKER}\n{headline}" + "\n".join(marked)
    return body


def _headline(sections: Sequence[Section]) -> str:
    """`**❌ regression: dpo · pass: sft, grpo**`, the worst first."""
    groups: dict[str, list[str]] = {}
    for one in sections:
        groups.setdefault(one.verdict, []).append(one.name)
    order = [*WORST_FIRST[:3], ACCEPTED, *WORST_FIRST[3:]]
    known = [verdict for verdict in order if verdict in groups]
    words = " · ".join(
        f"{markdown_cell(verdict)}: {', '.join(map(markdown_code, groups[verdict]))}"
        for verdict in known
    )
    mark = VERDICT_MARKS.get(known[0], VERDICT_MARKS["changed"]) if known else ""
    return f"**{mark} {words}**"
