"""Fill a template of the served pages. Every text is escaped."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from canary.report.escape import NOT_PRINTED, on_lines
from canary.report.html import environment


def filled(template: str, **values: Any) -> str:
    """Return a template with these values; each text is one line without control characters."""
    lines = {name: value if name in WHOLE else on_lines(value) for name, value in values.items()}
    return NOT_PRINTED.sub("", environment().get_template(template).render(**lines))


WHOLE = ("charts", "regions")
"""Values that are HTML already."""


def regions_of(texts: dict[str, str]) -> dict[str, Markup]:
    """Return HTML that our templates made, for another template."""
    return {name: Markup(text) for name, text in texts.items()}
