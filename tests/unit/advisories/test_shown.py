"""What people read of known faults: the verb, `canary check` and a diagnosis."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from canary.advisories.advisory import advisories
from canary.advisories.condition import Known
from canary.advisories.facts import known_of
from canary.advisories.matching import matches
from canary.check.answer import check_text, left_behind
from canary.check.run import Checked
from canary.cli import app
from canary.compare.heuristics import Diagnosis
from canary.compare.stats import compare_to_baseline
from canary.record import jsonio
from canary.record.types import RunRecord
from canary.relations.relation import outcome
from canary.report.advisories import advisories_text, advisories_view, all_view
from tests.unit.comparing import altered, example
from tests.unit.diagnosing import OTHER_LOSS, changed, sides

DROPOUT = "trl-dropout-functional"


def noisy() -> RunRecord:
    settings = {"args.logging_nan_inf_filter": False, "model.attention_dropout": 0.3}
    return altered(example("dpo"), "exact", "evidence", to={"settings": settings, "code": {}})


def saved(record: RunRecord, folder: Path) -> str:
    path = folder / "metrics.json"
    path.write_text(jsonio.dumps(record.model_dump(mode="json")))
    return str(path)


def test_a_run_is_asked_for_its_packages_and_config(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["advisories", saved(noisy(), tmp_path)])
    assert done.exit_code == 0
    first, _, block = done.output.partition("\n\n")
    assert first.startswith("1 known fault certainly applies. ")
    assert block.startswith(f"{DROPOUT} (trl 1.16.0; affected: >=0.6.0)")
    assert "Only if" not in block.split("\n\n")[0]
    assert "Shown by: canary check --only identities" in block


def test_json_says_what_is_sure_and_what_is_open(tmp_path: Path) -> None:
    words = ["advisories", saved(noisy(), tmp_path), "--package", "trl", "--format", "json"]
    (one,) = json.loads(CliRunner().invoke(app, words).output)["advisories"]
    assert (one["id"], one["applies"], one["only_if"]) == (DROPOUT, "yes", [])
    assert one["installed"] == "1.16.0"


def test_all_lists_every_fault_whatever_is_installed() -> None:
    done = CliRunner().invoke(app, ["advisories", "--all", "--format", "json"])
    assert len(json.loads(done.output)["advisories"]) == len(advisories())
    text = advisories_text(all_view(advisories()), "text")
    assert all(f"\n{one.id} (" in text for one in advisories())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--package", "tor"], "no known fault is about it"),
        (["--format", "html"], "unknown format"),
        (["--all", "x.json"], "leave out one of them"),
    ],
)
def test_a_wrong_request_is_one_line(words: list[str], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "canary", "advisories", *words], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_known_is_said_so() -> None:
    assert advisories_text(advisories_view((), "this run"), "text") == (
        "No known fault applies to this run.\n"
    )


def test_help_reads_no_advisory() -> None:
    program = (
        "import sys\nfrom canary.cli import app\n"
        "assert not [name for name in sys.modules if name.startswith('canary.advisories')]"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_a_check_names_known_faults_and_keeps_its_exit_code(form: str) -> None:
    found = matches(advisories(), known_of(noisy()))
    held = (outcome("order", "holds", "equal"),)
    made = Checked("mine", held, Path("out"), 1, 9.0, faults=found)
    assert made.exit_code == 0
    text = check_text(made, form)
    assert DROPOUT in text
    assert "trl/utils.py" in text or "trl/trainer/utils.py" in text
    without = check_text(Checked("mine", made.outcomes, Path("out"), 1, 9.0), form)
    assert "nown fault" not in without or form == "json"


def test_the_folder_of_a_check_means_its_first_launch(tmp_path: Path) -> None:
    for name, record in (("20260101-000002-b", example("sft")), ("20260101-000001-a", noisy())):
        (tmp_path / name).mkdir()
        saved(record, tmp_path / name)
    known = matches(advisories(), known_of(noisy()))
    made = Checked("mine", (outcome("order", "holds", "x"),), tmp_path, 2, 9.0, faults=known)
    left_behind(made)
    first = tmp_path / "20260101-000001-a"
    assert f": canary advisories {first}" in check_text(made, "text")
    assert f"canary advisories {first}" in check_text(made, "markdown")
    said = [
        CliRunner().invoke(app, ["advisories", str(folder)]).output for folder in (tmp_path, first)
    ]
    assert said[0] == said[1]
    assert DROPOUT in said[0]


def test_markdown_links_no_user_into_a_fault() -> None:
    text = advisories_text(advisories_view(matches(advisories(), KNOWN), "x"), "markdown")
    assert "\n- `trl-dpo-accumulation` (trl 0.13.0): " in text
    assert " Only if gradient" in text


KNOWN = Known({"trl": "0.13.0", "transformers": "4.50.0"}, {"trainer": ["dpo", "transformers"]})


def of_versions(record: RunRecord, **versions: str) -> RunRecord:
    return altered(record, "env", "packages", to={**record.env["packages"], **versions})


def moved(was: str, now: str) -> Diagnosis:
    before, after = sides("grpo")
    current = of_versions(changed(after, *OTHER_LOSS), trl=now)
    return compare_to_baseline(current, of_versions(before, trl=was), gates=()).diagnosis


def environment(found: Diagnosis) -> str:
    return "\n".join(one.message for suspect in found.suspects for one in suspect.evidence)


def test_a_package_that_moved_into_a_fault_is_said_with_its_source() -> None:
    told = environment(moved("0.21.0", "0.22.1"))
    assert "trl 0.21.0 -> 0.22.1 has a known fault (trl-grpo-scale-swapped)" in told
    assert "https://github.com/huggingface/trl/pull/3992" in told


def test_a_package_that_left_a_fault_is_said_too() -> None:
    told = environment(moved("0.22.1", "0.22.2"))
    assert "ended a known fault, which changes results (trl-grpo-scale-swapped)" in told


def test_a_fault_of_both_versions_explains_nothing() -> None:
    assert "known fault" not in environment(moved("1.15.0", "1.16.0"))


def test_a_package_that_no_fault_is_about_says_nothing() -> None:
    before, after = sides("grpo")
    current = of_versions(changed(after, *OTHER_LOSS), numpy="9.9")
    found = compare_to_baseline(current, before, gates=()).diagnosis
    assert "known fault" not in environment(found)
