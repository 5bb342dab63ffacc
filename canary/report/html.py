"""Fills templates of HTML, without what draws charts. Every text is escaped."""

from __future__ import annotations

import base64
import functools
import hashlib
from typing import Any

from canary.report.charts.theme import style_of_colours
from canary.report.escape import NOT_PRINTED, on_lines
from canary.report.render import TEMPLATES, environment


@functools.cache
def asset(name: str) -> str:
    """Return a file of the templates; a style sheet begins with the colours."""
    text = (TEMPLATES / name).read_text(encoding="utf-8")
    return style_of_colours() + text if name.endswith(".css") else text


def source_of(text: str) -> str:
    """Return the source by which a policy allows this style or script."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def filled(template: str, **values: Any) -> str:
    """Return a template with these values; each text is one line without control characters."""
    lines = {name: on_lines(value) for name, value in values.items()}
    return NOT_PRINTED.sub("", environment(html=True).get_template(template).render(**lines))
