"""Addresses as short texts for people."""

from __future__ import annotations

import re

ISSUE = re.compile(r"https://github\.com/[\w.-]+/([\w.-]+)/(?:issues|pull)/(\d+)/?")
FILE = re.compile(r"https://github\.com/[\w.-]+/([\w.-]+)/(?:blob|tree|releases)(?:/.*)?")
PAPER = re.compile(r"https://arxiv\.org/abs/(\d{4}\.\d{4,5})")
PAGE = re.compile(r"https?://([\w.-]+)(?:/.*)?")


def short_link(link: str) -> str:
    """Return an address as people name it, such as `trl#3526`; other texts come back as they
    are."""
    if found := ISSUE.fullmatch(link):
        return f"{found[1]}#{found[2]}"
    if found := PAPER.fullmatch(link):
        return f"arXiv:{found[1]}"
    if found := (FILE.fullmatch(link) or PAGE.fullmatch(link)):
        return found[1]
    return link
