"""The gallery's pages say what their runs said, and nothing of the machine that made them."""

from __future__ import annotations

import html
import re
import socket
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.contract.pages import links
from tools.gallery import __main__ as command
from tools.gallery.facts import Incident, Loss, read_facts
from tools.gallery.making import NotMade, refuse_host
from tools.gallery.pages import index_text, loss_words, page_text, quoted
from tools.gallery.pictures import MOST_BYTES, on_paper
from tools.gallery.rows import row_of
from tools.gallery.stories import Story, contradictions, read_stories
from tools.pictures.recorded_demo import DrawError

GALLERY = command.GALLERY
STORIES = read_stories()
HEADINGS = [
    "What happened",
    "The comment",
    "What the charts show",
    "Cause",
    "Fix",
]


def name_of(story: Story) -> str:
    return story.name


def facts_of(story: Story) -> Incident:
    return read_facts(GALLERY / f"{story.name}.json")


def text_of(name: str) -> str:
    return (GALLERY / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("story", STORIES, ids=name_of)
def test_a_page_is_what_its_story_and_its_facts_give(story: Story) -> None:
    assert text_of(f"{story.name}.md") == page_text(story, facts_of(story))


def test_the_index_is_what_all_stories_and_facts_give() -> None:
    assert text_of("README.md") == index_text([(story, facts_of(story)) for story in STORIES])


@pytest.mark.parametrize("story", STORIES, ids=name_of)
def test_the_run_said_what_the_story_expects(story: Story) -> None:
    facts = facts_of(story)
    assert not contradictions(story, facts)
    assert facts.row == story.row == row_of(story.row).id
    shown = html.unescape(facts.comment.splitlines()[0].replace("\\", ""))
    assert facts.first_line in shown, "the comment is of another comparison"
    assert f"Verdict `{facts.verdict}`" in facts.comment


@pytest.mark.parametrize("story", STORIES, ids=name_of)
def test_a_page_has_its_headings_and_its_links_lead_somewhere(story: Story) -> None:
    text = text_of(f"{story.name}.md")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS
    assert not [target for target in links(text) if not (GALLERY / target).exists()]


@pytest.mark.parametrize("story", STORIES, ids=name_of)
def test_a_page_shows_the_comment_as_github_does_and_the_site_too(story: Story) -> None:
    comment = facts_of(story).comment
    shown = MarkdownIt("commonmark", {"html": True}).enable("table").render
    expected = f"<blockquote>{shown(comment)}</blockquote>"
    assert shown(quoted(comment)).replace("\n", "") == expected.replace("\n", "")
    assert not re.search(r"^> {2,4}- |\\~", quoted(comment), re.MULTILINE), "unknown to the site"


def test_every_file_belongs_to_a_page() -> None:
    named = {"README.md"}
    for story in STORIES:
        pictures = [picture.file for picture in facts_of(story).charts]
        named |= {f"{story.name}.md", f"{story.name}.json", *pictures}
    assert {path.name for path in GALLERY.iterdir()} == named


def test_the_gallery_teaches_each_kind() -> None:
    rows = {story.name: row_of(story.row) for story in STORIES}
    bases = [row.base for row in rows.values()]
    causes = [story.expected.cause for story in STORIES]
    assert len(STORIES) == 12
    assert len({"kernel", "dataloader"} & set(causes)) == 2
    assert "memory" in causes
    assert {"dpo", "grpo", "ppo", "own_ranks"} <= set(bases)
    assert [story for story in STORIES if story.expected.verdict == "pass"]
    better = [
        s for s in STORIES if s.expected.verdict == "regression" and s.expected.loss == "lower"
    ]
    assert better


PATHS = re.compile(r"(?<![\w./-])/(?:home|root|tmp|work|usr|var|opt|mnt|Users)/")


@pytest.mark.parametrize("path", sorted(GALLERY.iterdir()), ids=lambda path: path.name)
def test_no_file_shows_a_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not PATHS.search(text)
    if path.suffix == ".svg":
        assert len(text.encode()) < MOST_BYTES
        assert text.startswith("<svg ")
        assert 'fill="#ffffff"' in text[:400]


def test_a_run_that_says_something_else_is_a_contradiction() -> None:
    story = STORIES[0]
    facts = facts_of(story).model_copy(update={"verdict": "pass", "cause": None})
    assert [said.partition(":")[0] for said in contradictions(story, facts)] == [
        "verdict",
        "first suspect",
    ]


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (Loss(steps=9, first=None, baseline=2.0, current=2.0), "is the same in all 9 steps"),
        (Loss(steps=9, first=2, baseline=2.0, current=1.5), "ends lower: 2 -> 1.500 (-25.0%)"),
        (Loss(steps=9, first=2, baseline=-1.0, current=1.5), "ends higher: -1 -> 1.500"),
        (
            Loss(steps=9, first=1, baseline=2.0, current=2.00001),
            "differs, and ends at the same 2.000",
        ),
        (Loss(steps=9, first=2, baseline=2.0, current=None), "has no finite end"),
    ],
)
def test_words_about_a_loss_claim_no_percent_without_a_meaning(loss: Loss, words: str) -> None:
    assert loss_words(loss) == words


def test_a_picture_has_a_light_ground() -> None:
    assert on_paper('<svg width="1"><g/></svg>').startswith('<svg width="1"><rect width="100%"')


def test_an_unknown_incident_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no incident eos-gone; there are eos-not-trained"):
        command.main(["--only", "eos-gone", "-o", str(tmp_path / "new")])
    assert not (tmp_path / "new").exists()


def test_an_incident_that_cannot_be_made_is_told_and_has_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*given: object) -> None:
        raise NotMade("the run contradicts the story: verdict: pass, not regression")

    monkeypatch.setattr(command, "make", fails)
    assert command.main(["--only", "kl-sign", "-o", str(tmp_path)]) == 1
    assert not list(tmp_path.iterdir())
    assert "not made: kl-sign: the run contradicts the story" in capsys.readouterr().err


def test_the_name_of_the_machine_is_refused() -> None:
    with pytest.raises(DrawError, match="this machine's name"):
        refuse_host(f"rank 0 on {socket.gethostname()}: 2 cores")
    refuse_host("rank 0")


@pytest.mark.train
@pytest.mark.slow
def test_an_incident_made_again_says_the_same(tmp_path: Path) -> None:
    story = next(story for story in STORIES if story.name == "eos-not-trained")
    assert command.main(["--only", story.name, "-o", str(tmp_path)]) == 0
    made, stored = read_facts(tmp_path / f"{story.name}.json"), facts_of(story)
    assert (made.verdict, made.diff) == (stored.verdict, stored.diff)
    assert made.first_difference == stored.first_difference  # whole tokens, equal on any machine
    assert made.cause is not None
    assert stored.cause is not None
    assert made.cause.evidence[0] == stored.cause.evidence[0]
    assert (made.cause.category, made.cause.description) == (
        stored.cause.category,
        stored.cause.description,
    )
    untimed = [[c.name for c in each.failed if c.lane != "timing"] for each in (made, stored)]
    assert untimed[0] == untimed[1]
    assert made.loss.model_dump() == pytest.approx(stored.loss.model_dump(), rel=1e-3)
    names = {"README.md", f"{story.name}.md", f"{story.name}.json"}
    names |= {picture.file for picture in stored.charts}
    assert {path.name for path in tmp_path.iterdir()} == names
