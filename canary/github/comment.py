"""The text of the comment: a headline, then one section per canary between marks. No I/O.

A section's mark is an invisible HTML comment with a versioned JSON object. Other jobs keep a
section's text as it is, and read only its mark.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from canary.baseline.comparability import slug
from canary.compare.report import VERDICTS, WORST_FIRST, Check, Verdict
from canary.github.section import section
from canary.github.status import Answer, Source
from canary.report.escape import markdown_cell, markdown_code
from canary.report.view import verdict_count

ACCEPTED = "accepted"
"""Shown in the headline instead of the verdict of an accepted change."""
LONGEST_NAME = 60
"""Characters of a canary's name in the headline."""
LIMIT = 60_000
"""Characters of a comment; GitHub refuses more than 65,536."""
FIRST_LINE = 300
"""Characters of the first line of a section that does not fit."""
OMITTED = "(omitted for length; the full report is in the run's artifacts)"
LEAST = 4_000
"""Characters that a section may have, however many there are: the last ones are then left out."""
MOST_PLAIN = 3
"""Canaries without a table."""
FOLDED = ("no-baseline", "pass")
"""Verdicts whose sections are folded below a table."""
LONGEST_WORDS = 240
"""Characters of an answer in the table."""
ORDER = (*WORST_FIRST[:3], ACCEPTED, *WORST_FIRST[3:])
"""Groups of the headline, the worst first."""
BEGIN = re.compile(r"<!-- rlhf-canary:section (?P<fields>\{[^\n]{1,900}\}) -->\n")
"""A section's mark."""
END = "<!-- rlhf-canary:end -->\n"


class Section(BaseModel):
    """A canary's part of the comment; its mark holds every field but `text`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    version: Literal[1]
    name: Annotated[str, Field(pattern=r"^[a-z0-9._-]+$")]
    """The canary's name in the headline."""
    sha: Annotated[str, Field(pattern=r"^[0-9a-f]+$")]
    age: tuple[int, int]
    """Run and attempt; see `Source.age`."""
    verdict: Verdict
    accepted: bool
    """Whether someone accepted the change."""
    key: Annotated[str, Field(pattern=r"^[a-z0-9._-]+$")]
    """Made of the config's path."""
    checks: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    """Digest of the names and statuses of its checks."""
    text: str = Field("", exclude=True)

    @property
    def marked(self) -> str:
        """The text between its marks."""
        fields = self.model_dump_json(exclude_defaults=True)
        return f"<!-- rlhf-canary:section {fields} -->\n{self.text.rstrip()}\n{END}"

    @property
    def word(self) -> str:
        """Its group in the headline."""
        return ACCEPTED if self.accepted else self.verdict

    @property
    def words(self) -> str:
        """The answer, for a cell of a table; empty if its section begins otherwise."""
        first = self.text.strip().partition("\n")[0]
        found = re.fullmatch(r"\*\*\S+ (?:[A-Z][a-z]+: )?(.*)\*\*", first)
        words = found[1] if found else ""
        return (
            words
            if len(words) <= LONGEST_WORDS
            else f"{words[:LONGEST_WORDS].rpartition(' ')[0]} …"
        )


def parse(body: str) -> list[Section]:
    """Return the sections of a comment that have a valid mark; line breaks may be GitHub's CRLF."""
    body = body.replace("\r\n", "\n")
    found = []
    for begin in BEGIN.finditer(body):
        end = body.find(END.rstrip(), begin.end())
        try:
            one = Section.model_validate_json(begin["fields"])
        except ValueError:  # its version or form is unknown
            continue
        if end >= 0:
            found.append(one.model_copy(update={"text": body[begin.end() : end]}))
    return found


def sections_of(answers: Sequence[Answer], source: Source) -> list[Section]:
    """Return a section per answer, by name; they share the comment's limit of length."""
    limit = max(LIMIT // max(1, len(answers)) - 600, LEAST)
    found = [
        Section(
            version=1,
            name=slug(answer.title)[:LONGEST_NAME],
            sha=source.sha,
            age=source.age,
            verdict=answer.comparison.verdict,
            accepted=bool(answer.comparison.accepted),
            key=answer.key,
            checks=_digest(answer.comparison.checks),
            text=section(
                answer.comparison,
                source,
                limit,
                answer.note,
                answer.hint,
            ),
        )
        for answer in answers
    ]
    return _by_name(found)


def _digest(checks: Sequence[Check]) -> str:
    told = sorted((check.name, check.status) for check in checks)
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


def _by_name(sections: Iterable[Section]) -> list[Section]:
    return sorted(sections, key=lambda one: (one.name, one.key))


def merged(bodies: Sequence[str], new: Sequence[Section]) -> list[Section] | None:
    """Return the new sections and those of our comments; None if later runs wrote all of them.

    Of two sections of one canary the later run's stays. Those of an older commit go: they would
    look like an answer on this one.
    """
    newest: dict[str, Section] = {}
    for one in (*(there for body in bodies for there in parse(body)), *new):
        same = newest.get(one.key, one)
        if one.sha == new[0].sha and one.age >= same.age:
            newest[one.key] = one
    if not any(newest[one.key] is one for one in new):
        return None
    return _by_name(newest.values())


def says_the_same(body: str, sections: Sequence[Section]) -> bool:
    """Return whether the comment has just these sections, with equal verdicts and checks. Never if
    one of them may be accepted: that needs an answer on its own commit."""
    return sorted(map(_news, parse(body))) == sorted(map(_news, sections)) and not any(
        one.verdict in ("changed", "regression") for one in sections
    )


def _news(one: Section) -> tuple[str, str, bool, str]:
    return one.key, one.verdict, one.accepted, one.checks


def has_sections(body: str, wanted: Sequence[Section]) -> bool:
    """Return whether the comment has these sections, or those of later runs or other commits."""
    there = {one.key: one for one in parse(body)}
    return all(
        one.key in there and (there[one.key].sha != one.sha or there[one.key].age >= one.age)
        for one in wanted
    )


def comment_of(sections: Sequence[Section]) -> str:
    """Return the text; sections that do not fit keep their first line, or only their mark."""
    if len(sections) > MOST_PLAIN:
        return _overview(sorted(sections, key=lambda one: ORDER.index(one.word)))
    marked = [section.marked for section in sections]
    headline = f"{_headline(sections)}\n\n" if len(sections) > 1 else ""
    body = headline + "\n".join(marked)
    for most in (FIRST_LINE, 0) if len(sections) > 1 else ():
        for place in sorted(range(len(marked)), key=lambda place: -len(marked[place])):
            if len(body) <= LIMIT:
                return body
            first = sections[place].text.strip().split("\n", 1)[0][:most]
            left_out = f"{first}\n\n{OMITTED}".strip()
            marked[place] = sections[place].model_copy(update={"text": left_out}).marked
            body = headline + "\n".join(marked)
    return body


def _headline(sections: Sequence[Section]) -> str:
    """Return `**❌ regression: dpo · pass: sft, grpo**`, the worst first."""
    groups: dict[str, list[str]] = {}
    for one in sections:
        groups.setdefault(one.word, []).append(one.name)
    words = " · ".join(
        f"{markdown_cell(verdict)}: {', '.join(map(markdown_code, groups[verdict]))}"
        for verdict in ORDER
        if verdict in groups
    )
    worst = min(sections, key=lambda one: ORDER.index(one.word))
    return f"**{VERDICTS[worst.verdict].mark} {words}**"


def _overview(sections: Sequence[Section]) -> str:
    """Return the comment with a table, given the sections in order. Of what does not fit, the last
    sections keep only their mark, then the table loses its last rows."""
    cuts = [(kept, len(sections)) for kept in range(len(sections), -1, -1)]
    cuts += [(0, rows) for rows in range(len(sections) - 1, -1, -1)]
    bodies = (_laid_out(sections, *cut) for cut in cuts)
    return next(body for body in bodies if len(body) <= LIMIT)


def _laid_out(sections: Sequence[Section], kept: int, rows: int) -> str:
    """Return the comment with so many whole sections and rows of the table."""
    shown = sections[:kept]
    mark = VERDICTS[sections[0].verdict].mark
    headline = f"**{mark} {len(sections)} canaries: {_counts(sections)}**"
    lines = [headline, "", *_table(sections[:rows])]
    if rows < len(sections):
        lines.append(f"| and {len(sections) - rows} more | | |")
    lines += ["", *(_titled(one) for one in shown if one.word not in FOLDED)]
    folded = [one for one in shown if one.word in FOLDED]
    if folded:
        lines.append(f"<details><summary>{_counts(folded)}</summary>\n")
        lines += [*map(_titled, folded), "</details>\n"]
    if kept < len(sections):
        lines.append(f"{len(sections) - kept} of {len(sections)} sections {OMITTED}\n")
    lines += [one.model_copy(update={"text": ""}).marked for one in sections[kept:]]
    return "\n".join(lines)


def _titled(section: Section) -> str:
    return f"#### {markdown_code(section.name)}\n\n{section.marked}"


def _table(sections: Sequence[Section]) -> Iterator[str]:
    yield "| canary | result | answer |"
    yield "|---|---|---|"
    for one in sections:
        mark = VERDICTS[one.verdict].mark
        yield f"| {markdown_code(one.name)} | {mark}&nbsp;{markdown_cell(one.word)} | {one.words} |"


def _counts(sections: Sequence[Section]) -> str:
    counts = Counter(one.word for one in sections)
    words = (verdict_count(word, counts[word]) for word in ORDER if counts[word])
    return ", ".join(map(markdown_cell, words))
