"""Sentences of the program: short, and without phrases that a reader has to translate."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_WORDS = 22
PHRASES = re.compile(
    r"\b(?:told from|tells? of|tells? apart|not excluded|has no place|in force|wherefrom"
    r"|whoever|whatever (?:it|they|the)|of one's own|that which)\b"
    r"|\b(?:one|two|once|twice|rows?|bytes|seconds|tokens|losses|values|calls) a (?:step|run|launch"
    r"|line|row|rank|update|batch|token|layer|machine|side|pair|trainer|device)\b"
)
SOURCES = [*sorted((ROOT / "canary").rglob("*.py")), ROOT / "entrypoint.py"]
DATA = {"dataset.py"}
"""Modules that hold texts for models, not for people."""
NO_SENTENCE = re.compile(r"[|{}─]|\w=| = [\w\[(]|\)\^|https?:")
"""In patterns, code and drawings."""


def texts(source: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of each docstring and message; values in a message are one word."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    inside: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside.update(node.values)
            parts = [str(p.value) if isinstance(p, ast.Constant) else "x" for p in node.values]
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inside:
            yield node.lineno, node.value


def sentences(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n|\n\s*[-*] |\n(?=\s*[\w`]+: )", text):
        yield from re.split(r"(?<=[.!?:;])\s+", " ".join(paragraph.split()))


def test_every_sentence_is_short_and_plain() -> None:
    found = [
        f"{source.relative_to(ROOT)}:{line}: {sentence}"
        for source in SOURCES
        if source.name not in DATA
        for line, text in texts(source)
        for sentence in sentences(text)
        if " " in sentence and not NO_SENTENCE.search(sentence)
        if len(sentence.split()) > MOST_WORDS or PHRASES.search(sentence)
    ]
    assert not found, "\n".join(found)


def test_long_and_translated_sentences_are_found() -> None:
    assert PHRASES.search("median step time -0.4%: not told from none")
    assert PHRASES.search("Two hashes, once a step.")
    assert not PHRASES.search("One hash per step.")
    assert list(sentences("One. Two: three.\n\nFour")) == ["One.", "Two:", "three.", "Four"]
