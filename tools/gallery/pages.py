"""The pages in Markdown: words of a story, facts of a run. No I/O but the templates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import jinja2

from canary.campaign.demo import USUAL_LOSS_GATE
from canary.record.end_loss import END_LOSS
from canary.report.escape import markdown_cell
from canary.report.numbers import signed, significant
from tools.gallery.facts import Incident, Loss
from tools.gallery.stories import Story, end_of

ISSUE = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")
CLASS = "class of"


def page_text(story: Story, facts: Incident) -> str:
    """Return the page of an incident."""
    return _filled(
        "page.md.jinja",
        story=story,
        facts=facts,
        sources=_sources(facts.incident),
        verdict=_verdict(facts),
        comment=quoted(facts.comment),
        loss=_loss_sentences(facts.loss),
        confidence=f"{facts.cause.confidence:.0%}" if facts.cause else "",
        made=_made(facts),
    )


def index_text(parts: Sequence[tuple[Story, Incident]]) -> str:
    """Return the index of all incidents."""
    rows = [
        (
            f"[{story.title}]({story.name}.md)<br>{story.symptom}",
            loss_words(facts.loss),
            _answer(facts),
        )
        for story, facts in parts
    ]
    return _filled("index.md.jinja", rows=rows, count=len(rows), first=parts[0][0].name)


def _answer(facts: Incident) -> str:
    if not facts.failed or facts.cause is None:
        return facts.verdict
    return f"{facts.verdict}: {facts.cause.category} ({facts.cause.confidence:.0%})"


def loss_words(loss: Loss) -> str:
    """Return what a curve of the loss does, in a few words."""
    if loss.first is None:
        return f"is the same in all {loss.steps} steps"
    end = end_of(loss)
    if end is None or loss.baseline is None or loss.current is None:
        return "has no finite end"
    was, now = significant(loss.baseline), significant(loss.current)
    if end == "same":
        return f"differs, and ends at the same {now}"
    change = _change(loss)
    percent = "" if change is None else f" ({signed(100 * change)})"
    return f"ends {end}: {was} -> {now}{percent}"


def _change(loss: Loss) -> float | None:
    """Return the relative change of the final loss; None if it means nothing."""
    if loss.baseline is None or loss.current is None or min(loss.baseline, loss.current) <= 0:
        return None
    return loss.current / loss.baseline - 1


def _loss_sentences(loss: Loss) -> str:
    """Return how the loss moved, and whether a usual gate on it alone would stop the change."""
    words = loss_words(loss)
    said = f"The loss {words}."
    if loss.first is None:
        return said
    said += f" The curves part at step {loss.first}."
    change = _change(loss)
    if change is None:
        return said
    lets = "lets this pass" if change < USUAL_LOSS_GATE else "stops this"
    gate = f"A gate that allows {USUAL_LOSS_GATE:.0%} more final loss ({END_LOSS})"
    return f"{said} {gate} {lets}."


def _verdict(facts: Incident) -> str:
    failed = len(facts.failed)
    if not failed:
        return f"The verdict is `{facts.verdict}`."
    checks = "1 check" if failed == 1 else f"{failed} checks"
    return f"The verdict is `{facts.verdict}`; {checks} failed."


def _sources(incident: str) -> str:
    """Return a sentence with links to where the incident was reported; empty without any."""
    links = [
        f"[{name}#{number}](https://github.com/{name}/issues/{number})"
        for name, number in ISSUE.findall(incident)
    ]
    if not links:
        return ""
    begins = "Of the kind of" if CLASS in incident else "Reported in"
    return f"{begins} {', '.join(links)}."


def quoted(text: str) -> str:
    """Return Markdown as a quotation that GitHub and the site show alike.

    The site's Python-Markdown wants four spaces before an inner list, and keeps the `\\` of `\\~`.
    """
    text = re.sub(r"^   - ", "    - ", text, flags=re.MULTILINE).replace("\\~", "&#126;")
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _made(facts: Incident) -> str:
    runs = "1 run" if facts.runs == 1 else f"{facts.runs} runs"
    packages = ", ".join(f"{name} {version}" for name, version in facts.packages.items())
    return (
        f"Canary `{facts.canary}`, {facts.steps} steps, {runs} per side, limits: {facts.limits}. "
        f"Made on {facts.day} by `python -m tools.gallery --only {facts.name}` at commit "
        f"`{facts.commit}`, with {packages}. Facts: [{facts.name}.json]({facts.name}.json)."
    )


def _filled(template: str, **values: object) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["cell"] = markdown_cell
    return environment.get_template(template).render(**values)
