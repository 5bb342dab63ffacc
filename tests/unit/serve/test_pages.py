"""The served pages: what they show, and what they never do with a stranger's files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from canary.cli import main
from canary.ladder.report import leave_unfinished
from canary.ladder.run import ladder_at
from canary.ladder.switches import LEVELS
from canary.record import jsonio
from canary.record.step_row import RowAlert
from canary.serve.pages import with_way_back
from tests.unit.hostile import PAYLOADS, planted
from tests.unit.laddering import Workshop, config_of, site
from tests.unit.pages.making import Read, numbers
from tests.unit.serve.asking import Asking
from tests.unit.serve.running import add_rows, files_of, finished, rewrite, rows_between, running

pytestmark = pytest.mark.usefixtures("undrawn")


def report(*words: str, to: Path) -> str:
    """What `canary report` writes."""
    with pytest.raises(SystemExit) as ended:
        main(["report", *words, "-o", str(to)])
    assert ended.value.code == 0
    return to.read_text(encoding="utf-8")


def test_the_list_has_every_run_and_those_that_go_on_come_first(tmp_path: Path) -> None:
    older, newer = finished(tmp_path, 1), finished(tmp_path, 2)
    going = running(tmp_path, "20250101-000000-old_start-00aa")
    text = Read(Asking(tmp_path).get("/").text).text
    places = [text.index(folder.path.name) for folder in (going, newer, older)]
    assert places == sorted(places)
    assert "▶ running" in " ".join(text.split())
    assert "100 of 100" in text


def test_the_sides_of_ab_are_found_from_the_repository(tmp_path: Path) -> None:
    finished(tmp_path / "canary_output" / "ab-20260101-000000" / "head", 1)
    assert "ab-20260101-000000/head/" in Read(Asking(tmp_path).get("/").text).text


def test_runs_of_a_campaign_stand_under_its_name(tmp_path: Path) -> None:
    finished(tmp_path / "ab-20260101-000000" / "head", 1)
    finished(tmp_path / "ladder-20260101-000000", 2)
    page = Asking(tmp_path).get("/").text
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings == ["ladder-20260101-000000", "ab-20260101-000000"]
    name = re.search(r'href="(/run/ab-20260101-000000/head/[^"]+)"', page)
    assert name
    assert Asking(tmp_path).get(name[1]).status_code == 200


def test_a_ladder_is_shown_while_it_climbs(tmp_path: Path) -> None:
    folder = tmp_path / "ladder-20260101-000000"
    running(folder, "20250101-000000-basic-00aa")
    assert "/ladder/" not in Asking(tmp_path).get("/").text
    assert Asking(tmp_path).get(f"/ladder/{folder.name}").status_code == 404
    made = site(config_of("ppo"), Workshop({("speed.kv_cache", True): 2.0}), folder=folder)
    ladder_at(made, LEVELS, leave_unfinished)
    assert f'<a href="/ladder/{folder.name}">' in Asking(tmp_path).get("/").text
    page = Asking(tmp_path).get(f"/ladder/{folder.name}").text
    assert "not finished: 1 of 2 rounds are timed" in page
    assert 'http-equiv="refresh"' in page
    assert "<label" in page


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_ladder_is_linked_at_any_depth(tmp_path: Path, depth: int) -> None:
    folder = tmp_path / "canary_output" / "ladder-20260101-000000"
    finished(folder, 2)
    made = site(config_of("ppo"), Workshop({("speed.kv_cache", True): 2.0}), folder=folder)
    ladder_at(made, LEVELS, leave_unfinished)
    asking = Asking((folder, folder.parent, tmp_path)[depth])
    link = re.search(r'<a href="(/ladder/[^"]*)">', asking.get("/").text)
    assert link
    address = link[1].removesuffix(".")  # As a browser does.
    assert asking.get(address).status_code == 200


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"headline": "<script>alert(1)</script>"}, 200),
        ({"levels": []}, 500),
        ({"levels": None}, 400),
        ({"rounds": "many"}, 400),
    ],
)
def test_a_strangers_ladder_adds_no_script_and_ends_no_server(
    tmp_path: Path, change: dict[str, Any], code: int
) -> None:
    folder = tmp_path / "ladder-20260101-000000"
    finished(folder, 1)
    made = site(config_of("ppo"), Workshop({}), folder=folder)
    ladder_at(made, LEVELS, leave_unfinished)
    file = folder / "ladder.json"
    file.write_text(jsonio.dumps(jsonio.loads(file.read_bytes()) | change), encoding="utf-8")
    shown = Asking(tmp_path).get(f"/ladder/{folder.name}")
    assert shown.status_code == code
    assert "<script>alert" not in shown.text
    file.unlink()
    file.symlink_to("/etc/passwd")
    shown = Asking(tmp_path).get(f"/ladder/{folder.name}")
    assert shown.status_code == 400
    assert "root:" not in shown.text


def test_a_comparison_is_the_report_of_both_runs(tmp_path: Path) -> None:
    before, now = finished(tmp_path, 1), finished(tmp_path, 2, median_s=0.15)
    query = f"?current={now.path.name}&baseline={before.path.name}"
    served = Asking(tmp_path).get(f"/compare{query}").text
    written = report(str(now.path), str(before.path), to=tmp_path / "report.html")
    assert "step time" in written
    assert served == with_way_back(written) != written


def test_an_ended_run_is_its_report(tmp_path: Path) -> None:
    folder = finished(tmp_path, 1)
    served = Asking(tmp_path).get(f"/run/{folder.path.name}").text
    assert served == with_way_back(report(str(folder.path), to=tmp_path / "report.html"))


def test_a_report_is_made_again_when_the_run_changes(tmp_path: Path) -> None:
    folder = finished(tmp_path, 1)
    client = Asking(tmp_path)
    address = f"/run/{folder.path.name}"
    assert "Completed" in client.get(address).text
    rewrite(folder, status="failed", reason="no memory")
    assert "Failed: no memory" in client.get(address).text


def test_a_running_run_has_its_numbers_alerts_and_charts(tmp_path: Path) -> None:
    folder = running(tmp_path)
    add_rows(folder, rows_between(1, 30))
    page = Asking(tmp_path).get(f"/run/{folder.path.name}").text
    text = " ".join(Read(page).text.split())
    assert "Running. dpo_smoke" in text
    assert "30 of 100" in text
    assert "forward 17%" in text.replace("  ", " ")
    assert len(numbers(page, "loss")["rows"]) == 30
    assert 'data-every="1000"' in page
    add_rows(folder, rows_between(31, 40))
    assert "40 of 100" in Asking(tmp_path).get(f"/run/{folder.path.name}").text


def test_those_who_watch_a_run_share_charts_and_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = running(tmp_path)
    add_rows(folder, rows_between(1, 30))
    client, address = Asking(tmp_path), f"/run/{folder.path.name}"
    drawn = client.get(address).text
    monkeypatch.setattr("canary.serve.live.Following", None)  # None is made anew.
    monkeypatch.setattr("canary.report.charts.chart.Chart.svg", lambda _: "<svg again></svg>")
    add_rows(folder, rows_between(31, 40))
    page = client.get(address).text
    assert "40 of 100" in page
    assert numbers(page, "loss") == numbers(drawn, "loss")


@pytest.mark.parametrize("address", ["/run/{}", "/compare?current={0}&baseline={0}"])
def test_no_address_leads_out_of_the_folder(tmp_path: Path, address: str) -> None:
    finished(tmp_path, 1, name="secret")
    root = tmp_path / "runs"
    finished(root, 2, name="x")
    client = Asking(root)
    for name in ("../secret", "%2e%2e/secret", "..%2fsecret", "%2fetc", "secret%00", "", "*"):
        answer = client.get(address.format(name))
        assert answer.status_code == 404, name
        assert "Completed" not in answer.text


def test_links_and_pipes_are_no_runs(tmp_path: Path) -> None:
    outside = finished(tmp_path / "outside", 1).path
    root = tmp_path / "runs"
    finished(root, 2, name="real")
    (root / "linked").symlink_to(outside)
    for name in ("piped", "to-file"):
        (root / name).mkdir()
    os.mkfifo(root / "piped" / "metrics.json")
    (root / "to-file" / "metrics.json").symlink_to(outside / "metrics.json")
    client = Asking(root)
    page = client.get("/").text
    assert set(re.findall(r'href="/run/([^"]+)"', page)) == {"real"}
    for name in ("linked", "piped", "to-file"):
        assert client.get(f"/run/{name}").status_code == 404


def test_an_unreadable_run_is_listed_beside_the_others(tmp_path: Path) -> None:
    good = finished(tmp_path, 1)
    for name, text in (("half", "{"), ("other", '{"schema_version": 9}'), ("list", "[]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.json").write_text(text)
    dead = finished(tmp_path, 2)
    owner = {"pid": -1, "started": 0, "host": os.uname().nodename}
    document = jsonio.loads(dead.metrics.read_bytes()) | {"status": "running", "owner": owner}
    dead.metrics.write_text(jsonio.dumps(document))
    client = Asking(tmp_path)
    page = client.get("/").text
    assert page.count("? </span>") == 0
    assert len(re.findall(r'<tr class="unreadable">', page)) == 3
    assert len(re.findall(r'<tr class="interrupted">', page)) == 1, "no process has this number"
    assert client.get(f"/run/{good.path.name}").status_code == 200
    assert client.get("/run/half").status_code == 400
    assert client.get(f"/run/{dead.path.name}").status_code == 200


def test_a_huge_record_costs_one_page_and_little_memory(tmp_path: Path) -> None:
    good = finished(tmp_path, 1)
    wide = finished(tmp_path, 2)
    document = jsonio.loads(wide.metrics.read_bytes())
    document["config"] = {"zz": [[]] * 200_000}
    wide.metrics.write_text(jsonio.dumps(document | {"status": "running"}))
    large = finished(tmp_path, 3)
    with large.metrics.open("ab") as file:
        file.truncate(20 << 20)
    client = Asking(tmp_path)
    page = client.get("/").text
    assert len(re.findall(r'<tr class="unreadable">', page)) == 2
    assert client.get(f"/run/{wide.path.name}").status_code == 400
    assert client.get(f"/run/{good.path.name}").status_code == 200


def test_no_page_writes_into_the_folder(tmp_path: Path) -> None:
    first, second = finished(tmp_path, 1), finished(tmp_path, 2)
    going = running(tmp_path)
    add_rows(going, rows_between(1, 5))
    finished(tmp_path / "ladder-20260101-000000", 3)
    before = files_of(tmp_path)
    client = Asking(tmp_path)
    for address in (
        "/",
        f"/run/{first.path.name}",
        f"/run/{going.path.name}",
        f"/compare?current={first.path.name}&baseline={second.path.name}",
    ):
        assert client.get(address).status_code == 200, address
    assert files_of(tmp_path) == before


def test_a_run_cannot_be_compared_with_itself(tmp_path: Path) -> None:
    name = finished(tmp_path, 1).path.name
    answer = Asking(tmp_path).get(f"/compare?current={name}&baseline={name}")
    assert answer.status_code == 400
    assert "<h1>" in answer.text


def test_no_text_of_a_record_becomes_markup(tmp_path: Path) -> None:
    payload = " ".join((*PAYLOADS, "</script><script>alert(1)</script>", '"><x y="'))
    folder, other = finished(tmp_path, 1), finished(tmp_path, 2)
    hostile = planted(payload)
    hostile.run_id = folder.path.name
    alert: RowAlert = {
        "severity": "high",
        "category": "x",
        "type": "x",
        "message": payload,
        "step": 1,
    }
    folder.write(hostile)
    going = running(tmp_path)
    add_rows(going, [{**row, "alerts": [alert]} for row in rows_between(1, 2)])
    rewrite(going, name=payload, config={"training_type": payload, "max_steps": payload})
    client = Asking(tmp_path)
    for address in (
        "/",
        f"/run/{folder.path.name}",
        f"/run/{going.path.name}",
        f"/compare?current={folder.path.name}&baseline={other.path.name}",
        f"/run/{quote(payload)}",
    ):
        read = Read(client.get(address).text)
        assert not {"img", "iframe", "object", "embed", "base"} & {tag for tag, _ in read.tags}
        assert not [name for _, attributes in read.tags for name in attributes if name[:2] == "on"]
        for attributes in (*read.named("a"), *read.named("link")):
            assert (attributes["href"] or "").startswith("/")
        assert {a.get("src") for a in read.named("script")} <= {None, "/live.js", "/report.js"}


def test_head_is_answered_as_get_is_without_the_page(tmp_path: Path) -> None:
    finished(tmp_path, 1)
    asked = Asking(tmp_path).request("HEAD", "/")
    page = Asking(tmp_path).get("/")
    assert (asked.status_code, asked.text) == (200, "")
    assert asked.headers["Content-Length"] == str(len(page.text.encode()))
