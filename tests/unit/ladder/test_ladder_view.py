"""What a ladder looks like, held by golden files; and in a notebook, as its folder keeps it.

After a wanted change: `UPDATE_GOLDEN=1 python -m pytest tests/unit/ladder/test_ladder_view.py`,
then read the difference that git shows.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from canary.errors import InputError, RecordError
from canary.ladder.report import report_of, result_text
from canary.ladder.results import Ladder, load_result
from canary.ladder.run import ladder_at
from canary.ladder.switches import LEVELS, SWITCHES, Switch
from tests.unit.laddering import Workshop, config_of, site

GOLDEN = Path(__file__).parents[2] / "golden"
PLANTED = Switch("no KL penalty", "advanced", {"ppo.init_kl_coef": (..., 0.0)})
LAUNCH = {
    ("speed.kv_cache", True): 2.0,
    ("dtype", "bfloat16"): 0.5,
    ("batch_size", 8): 1.25,
    ("num_workers", 2): 1.03,
    ("speed.rollout_batch", "whole"): 1.5,
}


def ladder() -> Ladder:
    """One level is unsafe, one switch does not run."""
    launch = Workshop(
        LAUNCH,
        learns={("ppo.init_kl_coef", 0.0): 0.01},
        fails={("speed.decode", "static"): "failed: no static cache here"},
        drift=0.999,
    )
    known = (*SWITCHES, PLANTED)
    return ladder_at(site(config_of("ppo"), launch, rounds=3, known=known), LEVELS)


def held(name: str, text: str) -> None:
    """The text against its golden file."""
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(("form", "suffix"), [("text", "txt"), ("markdown", "md")])
def test_a_ladder_looks_as_agreed(form: str, suffix: str) -> None:
    held(f"ladder.{suffix}", result_text(ladder(), form))


def test_on_a_terminal_no_line_of_a_ladder_is_wider_than_it() -> None:
    shown = result_text(ladder(), "text", 80)
    assert max(map(len, shown.splitlines())) <= 80
    assert "3.86x [3.83, 3.89]" in shown
    assert "UNSAFE" in shown


def test_the_document_of_a_ladder_has_all_that_the_text_says() -> None:
    found = json.loads(result_text(ladder(), "json"))
    assert found["passed"] is False
    assert [one["level"] for one in found["levels"]] == list(LEVELS)
    basic = found["levels"][1]
    assert basic["cumulative"]["ratio"] == pytest.approx(2.0, rel=1e-3)
    assert {"samples_per_s", "tokens_per_s", "gpu_pct", "cpu_pct", "memory_mb", "gil_share"} <= set(
        basic["figures"]
    )
    assert found["levels"][2]["guarded"]["blamed"] == ["no KL penalty"]


def test_a_ladder_shows_its_answer_its_levels_and_a_chart(tmp_path: Path) -> None:
    (tmp_path / "ladder.json").write_text(result_text(ladder(), "json"))
    found = load_result(tmp_path)
    assert isinstance(found, Ladder)
    shown = found._repr_html_()
    assert report_of(ladder()).answer.split(":")[0] in shown
    assert all(f">{level.level}<" in shown for level in found.levels)
    assert "UNSAFE" in shown
    assert shown.count("<svg") == 1
    assert repr(found) == f"Ladder({found.headline!r}, {report_of(found).answer!r})"


def test_a_folder_without_a_result_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no result of canary ladder"):
        load_result(tmp_path)
    (tmp_path / "ladder.json").write_text('{"schema_version": 1, "levels": 3}')
    with pytest.raises(RecordError, match="is not the result of a ladder"):
        load_result(tmp_path)
