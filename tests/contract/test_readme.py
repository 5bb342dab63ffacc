"""README against the program."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import get_args

import pytest
import yaml
from typer.main import get_command

from canary.cli import app
from canary.compare.exact.recorded_stages import LEARNED_STAGES
from canary.compare.report import Comparison, Verdict
from canary.compare.thresholds import TIER_THRESHOLDS, Thresholds, load_thresholds
from canary.config.render import markdown_table, trainers_table
from canary.config.trainers import TRAINERS, users_of
from tests.contract.static_checks import clean, zizmor
from tests.contract.test_workflows import OURS, PINNED

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "baselines" / "examples"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_config_table_is_the_generated_one() -> None:
    table = README.split("markdown_table -->\n")[1].split("<!-- end of config table -->")[0]
    assert table == markdown_table()


def test_the_table_of_trainers_is_the_generated_one() -> None:
    page = (ROOT / "docs" / "trainers.md").read_text(encoding="utf-8")
    table = page.split("trainers_table -->\n")[1].split("<!-- end of trainers -->")[0]
    assert table == trainers_table()


def test_keys_for_code_of_ones_own_name_the_trainers_that_use_them() -> None:
    page = (ROOT / "docs" / "trainers.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([a-z, ]+) \|", page.split("## Code of your own")[1], re.M)
    assert len(rows) == 6
    for key, told in rows:
        named = set(told.removeprefix("all but ").split(", "))
        some = set(TRAINERS) - named if told.startswith("all but ") else named
        assert set(users_of(key)) == (set(TRAINERS) if told == "all" else some), key


def test_every_command_in_readme_exists() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    used = re.findall(r"^canary ([a-z-]+)", README, flags=re.MULTILINE)
    assert used
    assert set(used) <= set(commands)


def test_every_config_in_readme_exists() -> None:
    for name in re.findall(r"configs/[a-z_/]+\.yaml", README):
        assert yaml.safe_load((ROOT / name).read_text()), name


def test_ci_runs_the_two_commands_of_readme_as_they_stand() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    for command in ("make demo", "make test"):
        assert f"\n{command}" in README
        assert f"\n{command}\n" in script


def commands() -> list[str]:
    """Every `canary ...` line of the shell examples."""
    blocks = re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL)
    lines = [line.split("   #")[0] for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("canary ")]


@pytest.mark.parametrize("line", commands())
def test_every_example_is_understood(line: str) -> None:
    """Verb, options and arguments; nothing runs."""
    words = shlex.split(line)[1:]
    command = get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    with command.make_context(line, words) as context:
        assert context.command is command


def python_examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("code", python_examples())
def test_every_python_example_runs(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "canary_output" / "RUN"
    run.mkdir(parents=True)
    shutil.copy(EXAMPLES / "sft_smoke_again.json", run / "metrics.json")
    shutil.copy(EXAMPLES / "sft_smoke.json", tmp_path / "baseline.json")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README", "exec"), {})
    assert capsys.readouterr().out


def test_the_table_of_exit_codes_is_true() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| .* \| (\d)(.*) \|$", README, flags=re.MULTILINE)
    told = {verdict: (int(code), more) for verdict, code, more in rows}
    assert set(told) == set(get_args(Verdict))
    for verdict, (code, more) in told.items():
        found = Comparison(verdict, "")
        assert found.exit_code() == code, verdict
        if "`--strict`" in more:
            assert found.exit_code(strict=True) == int(more[-1])
        if "accepted" in more:
            assert Comparison(verdict, "", accepted="why").exit_code() == int(more[-1])


def test_the_table_of_tiers_is_true() -> None:
    text = (ROOT / "docs" / "verdict.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(max_\w+)` \|(.*)\|$", text, flags=re.MULTILINE)
    assert len(rows) == 5
    for key, cells in rows:
        told = [float(cell) for cell in cells.split("|")]
        assert told == [getattr(tier, key) for tier in TIER_THRESHOLDS.values()], key
    shared = set(Thresholds.model_fields) - {key for key, _ in rows}
    default = TIER_THRESHOLDS["default"]
    for tier in TIER_THRESHOLDS.values():
        assert {k: getattr(tier, k) for k in shared} == {k: getattr(default, k) for k in shared}


def test_the_example_of_thresholds_loads(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "verdict.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    path = tmp_path / "thresholds.yaml"
    path.write_text(example)
    assert load_thresholds(path).max_step_time_increase_pct == 6


def test_the_stages_of_the_docs_are_those_of_the_lane() -> None:
    text = (ROOT / "docs" / "verdict.md").read_text(encoding="utf-8")
    stages = re.findall(r"^\| \d+ \| (\w+) \|", text, flags=re.MULTILINE)
    assert stages == ["environment", "config", *LEARNED_STAGES, "work", "memory", "calls"]


def workflow_to_paste() -> str:
    text = README.split("<!-- workflow to paste -->\n```yaml\n")[1]
    return text.split("```\n<!-- end of workflow to paste -->")[0]


def test_the_workflow_to_paste_is_valid_pinned_and_safe(tmp_path: Path) -> None:
    path = tmp_path / ".github" / "workflows" / "canary.yml"
    path.parent.mkdir(parents=True)
    path.write_text(workflow_to_paste(), encoding="utf-8")
    clean(["check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)])
    zizmor(path)
    loaded = yaml.load(workflow_to_paste(), yaml.BaseLoader)
    training, reporting = loaded["jobs"]["run"], loaded["jobs"]["report"]
    assert training["permissions"] == {"contents": "read"}
    assert loaded["jobs"]["pending"]["permissions"] == {"statuses": "write"}
    standard = yaml.load(
        (ROOT / "examples/workflows/pull-request.yml").read_text(), yaml.BaseLoader
    )
    assert loaded["on"]["pull_request"]["types"] == standard["on"]["pull_request"]["types"]
    for line in standard["concurrency"]["group"].split("${{")[-1].splitlines():
        assert line.strip() in loaded["concurrency"]["group"]
    assert loaded["permissions"] == {}
    assert training["steps"][0]["with"]["persist-credentials"] == "false"
    assert not [step for step in reporting["steps"] if "checkout" in step["uses"]]
    for line in re.findall(r"- (uses: .*)", workflow_to_paste()):
        assert line == OURS or PINNED.fullmatch(line), line
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    for job in loaded["jobs"].values():
        assert set(job["steps"][-1]["with"]) <= set(action["inputs"])
