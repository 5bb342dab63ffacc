"""Markdown as GitHub shows it, and a view that fills any template with one text."""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from cmarkgfm import github_flavored_markdown_to_html
from cmarkgfm.cmark import Options
from jinja2 import nodes

from canary.report.render import TEMPLATES, environment, tidy

INLINE = ("code", "strong")
MENTION = re.compile(
    r"@\w|#\d|gh-\d|://|www\.|(?<![^\W_])(?=\d*[a-f])[0-9a-f]{7,40}(?![^\W_])", re.IGNORECASE
)
"""What GitHub links after Markdown is rendered: mentions, references, addresses, commits."""
OWN = set(
    re.findall(
        r"\w+",
        "confidence count difference_headings headings left_out link mark more_places needed "
        "next_steps operator_headings operators_title phase_headings pictures report status "
        "steps url verdict why yaml",
    )
)
"""Names whose values are the program's own: a template may show them as they are."""
FALSE = frozenset(("bare", "passed"))
COLUMNS = re.compile(r'\{\{ (?:view\.)?(\w+).*join\(" \| "\) \}\} \|\n(\|[-:|]+)\n')
"""A table's heading of one value, and the line below it."""


def shown(markdown: str) -> str:
    """Return the HTML of GitHub's parser, with raw HTML as it is."""
    return str(github_flavored_markdown_to_html(markdown, Options.CMARK_OPT_UNSAFE))


def layout(page: str) -> list[str]:
    """Return the tags of a page, in order, without those of code and of bold text."""
    tags: list[str] = re.findall(r"</?[a-zA-Z!][a-z0-9]*", page)
    return [tag for tag in tags if tag.strip("</") not in INLINE]


def mentions(page: str) -> list[str]:
    """Return what GitHub would link in a page."""
    text = html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"<code>.*?</code>", " ", page)))
    return MENTION.findall(text)


@dataclass(frozen=True, eq=False)
class Filled:
    """Any object that a template asks for; its texts are all the same."""

    _text: str
    _widths: dict[str, int]
    """Values in each element of a sequence, by the sequence's name."""
    _lengths: dict[str, int]
    """Elements of a sequence that is not of two."""
    _empty: frozenset[str]
    _name: str = ""

    def __str__(self) -> str:
        own = "own\n" if self._name == "yaml" else "own"
        return own if self._name in OWN else self._text

    def __bool__(self) -> bool:
        return self._name not in self._empty

    def __len__(self) -> int:
        return 2

    def __getattr__(self, name: str) -> Filled:
        if name.startswith("_") or name in ("alters_data", "unsafe_callable"):
            raise AttributeError(name)
        return replace(self, _name=name)

    def __getitem__(self, key: object) -> Any:
        return tuple(self)[key] if isinstance(key, slice) and key.start else self

    def __iter__(self) -> Iterator[Any]:
        if not self:
            return iter(())
        width = self._widths.get(self._name, 0)
        length = self._lengths.get(self._name, 2)
        return iter((((self,) * width) if width else self,) * length)

    def __call__(self, *_: object) -> Filled:
        return self

    def __add__(self, other: object) -> Filled:
        return self


def templates() -> list[str]:
    """Return the Markdown templates."""
    return sorted(path.name for path in TEMPLATES.glob("*.md.jinja"))


def filled(template: str, text: str, empty: frozenset[str] = FALSE) -> str:
    """Return a template with the text in each place, and without the parts named `empty`."""
    names, widths, lengths = _shape(template)
    view = Filled(text, widths, lengths, empty)
    given = {name: replace(view, _name=name) for name in names}
    return tidy(environment().get_template(template).render(given))


@functools.cache
def _shape(template: str) -> tuple[set[str], dict[str, int], dict[str, int]]:
    """Return a template's variables, and the widths and lengths of its sequences."""
    source = (TEMPLATES / template).read_text(encoding="utf-8")
    if template == "comment.md.jinja":  # it extends this one
        source += (TEMPLATES / "comparison.md.jinja").read_text(encoding="utf-8")
    tree = environment().parse(source)
    widths = {"config": 3, "environment": 3}  # a macro unpacks these
    for loop in tree.find_all(nodes.For):
        if isinstance(loop.target, nodes.Tuple) and isinstance(loop.iter, nodes.Getattr):
            widths[loop.iter.attr] = len(loop.target.items)
    lengths = {name: line.count("|") - 1 for name, line in COLUMNS.findall(source)}
    return {found.name for found in tree.find_all(nodes.Name)}, widths, lengths
