"""The pages of the documentation, as tests read them: sentences, examples, links, paths."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
END = re.compile(r"(?<=[.!?])[)\"*]*\s+(?=[^a-z]|trl|bfloat16|torch|\w+\.md)")
"""The end of a sentence. Behind an abbreviation it goes on in lower case, as few names begin."""
MADE = ("canary_output", "build", "dist")
"""Folders that programs make: there on one machine and not on another."""
FOLDERS = tuple(
    f"{entry.name}/" for entry in ROOT.iterdir() if entry.is_dir() and entry.name not in MADE
)


def read(page: Path) -> str:
    """The text of a page."""
    return page.read_text(encoding="utf-8")


def name_of(page: Path) -> str:
    """The page as the repository names it."""
    return page.relative_to(ROOT).as_posix()


def examples(page: Path, language: str) -> list[str]:
    """The blocks of code of one language."""
    return re.findall(rf"```{language}\n(.*?)```", read(page), flags=re.DOTALL)


def sentences(page: str) -> Iterator[str]:
    """The sentences of paragraphs and lists; code, tables, headings and quotes are left out.

    A span of code is the one word that it reads as.
    """
    quotes = 0
    inside = ""
    for token in _parsed(page):
        quotes += {"blockquote_open": 1, "blockquote_close": -1}.get(token.type, 0)
        if token.type.endswith("_open"):
            inside = token.type
        elif token.type == "inline" and inside == "paragraph_open" and not quotes:
            yield from END.split(_words(token))


def length(sentence: str) -> int:
    """Its words; a dash or another sign alone is none."""
    return len([word for word in sentence.split() if re.search(r"\w", word)])


def paths(page: str) -> set[str]:
    """Files and folders of this repository: in backticks, and those of the code in examples."""
    spans = {
        child.content
        for token in _parsed(page)
        for child in token.children or []
        if child.type == "code_inline"
    }
    spans = {span for span in spans if span.startswith(FOLDERS) and re.fullmatch(r"[\w./-]+", span)}
    fences = "\n".join(token.content for token in _parsed(page) if token.type == "fence")
    spans |= set(re.findall(r"(?<!\S)(?:tests|bench|tools|canary|docs)/\w\S*", fences))
    return {span for span in spans if not span.endswith("...")}


def modules(page: str) -> set[str]:
    """Dotted names of this repository's packages, and what `python -m` and pytest are given."""
    shown = page.replace(r"\_", "_")
    named = re.findall(r"\b(?:canary|bench|tools|tests)(?:\.[a-zA-Z_]\w*)+", shown)
    return {name for name in named if not re.search(r"\.(?:ya?ml|json|md|py)$", name)}


def links(page: str) -> set[str]:
    """Targets of links, those of the web left out."""
    found = {
        str(child.attrGet("href") or child.attrGet("src"))
        for token in _parsed(page)
        for child in token.children or []
        if child.type in ("link_open", "image")
    }
    return {target for target in found if "://" not in target}


@functools.cache
def anchors(page: str) -> set[str]:
    """What GitHub calls the headings of a page."""
    tokens = _parsed(page)
    titles = [
        _words(after, code=True)
        for token, after in pairwise(tokens)
        if token.type == "heading_open"
    ]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@functools.cache
def _parsed(page: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page)


def _words(inline: Token, *, code: bool = False) -> str:
    parts = []
    for child in inline.children or []:
        if child.type == "code_inline":
            parts.append(child.content if code else "Code")
        elif child.type == "text":
            parts.append(child.content)
        elif child.type in ("softbreak", "hardbreak"):
            parts.append(" ")
    return "".join(parts)
