"""action.yml and its scripts, without running them."""

from __future__ import annotations

import re
from typing import Any

from canary.gate import records
from tests.contract.action_table import action
from tests.contract.static_checks import clean, shell_is_clean, zizmor
from tests.contract.workflow_files import ACTION, ROOT

TEXT = ACTION.read_text(encoding="utf-8")
SCRIPTS = sorted([*(ROOT / "scripts").rglob("*.sh"), ROOT / "requirements" / "lock.sh"])


def steps() -> list[dict[str, Any]]:
    return list(action()["runs"]["steps"])


def test_the_schema_of_actions_holds() -> None:
    clean(["check-jsonschema", "--builtin-schema", "vendor.github-actions", str(ACTION)])


def test_zizmor_finds_nothing() -> None:
    zizmor(ACTION)


def test_shellcheck_finds_nothing() -> None:
    clean(["shellcheck", "--external-sources", *map(str, SCRIPTS)])


def test_no_expression_reaches_a_shell() -> None:
    for step in steps():
        if "run" in step:
            assert "${{" not in step["run"], step
            assert step["shell"] == "bash", step
            shell_is_clean(step["run"])


def test_every_input_that_is_read_exists_and_none_is_idle() -> None:
    """A misspelt input is an empty string to GitHub, without a word."""
    behind = TEXT[TEXT.index("\nruns:") :]
    read = set(re.findall(r"(?<!event\.)\binputs\.([A-Za-z0-9_-]+)", behind))
    read |= set(re.findall(r"\binputs\['([^']+)'\]", behind))
    assert read == set(action()["inputs"])


def test_every_output_comes_from_a_step_that_exists() -> None:
    known = {step["id"] for step in steps() if "id" in step}
    for name, output in action()["outputs"].items():
        named = set(re.findall(r"steps\.([A-Za-z0-9_-]+)\.outputs", output["value"]))
        assert named, name
        assert named <= known, name


def holds_token(step: dict[str, Any]) -> bool:
    given = [*step.get("env", {}).values(), *step.get("with", {}).values()]
    return any("inputs.token" in str(value) or "github.token" in str(value) for value in given)


def test_no_step_of_the_half_that_trains_is_given_the_token() -> None:
    holding = [step for step in steps() if holds_token(step)]
    assert holding
    for step in holding:
        when = str(step.get("if", ""))
        modes = set(re.findall(r"inputs\.mode == '([a-z]+)'", when))
        assert "inputs.mode != 'run'" in when or (modes and "run" not in modes), step


def test_the_script_that_copies_records_has_the_caps_of_the_half_that_reads_them() -> None:
    script = (ROOT / "scripts" / "collect.sh").read_text(encoding="utf-8")
    line = re.search(r"readonly (most_files=.*)", script)
    assert line is not None
    caps = dict(pair.split("=") for pair in line[1].split())
    assert caps == {
        "most_files": str(records.MOST_FILES),
        "largest_file": str(records.LARGEST_FILE),
        "largest_folder": str(records.LARGEST_FOLDER),
        "deepest": str(records.DEEPEST + 1),
    }


SECRETS = [
    "HF_TOKEN",
    "WANDB_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "DB_PASSWORD",
    "MY_PAT",
    "SENTRY_DSN",
]
SECRETS += ["DATABASE_URL", "GPG_PASSPHRASE", "DEPLOY_KEY", "ID_JWT", "AWS_CREDS", "CLIENT_SECRETS"]
PLAIN = ["TOKENIZERS_PARALLELISM", "KEYBOARD", "HF_HOME", "MONKEY", "CUDA_VISIBLE_DEVICES", "PATH"]


def test_the_action_knows_a_variable_of_a_secret_by_its_name() -> None:
    script = (ROOT / "scripts" / "run.sh").read_text(encoding="utf-8")
    found = re.search(r"readonly secret_names='(.*)'", script)
    assert found is not None
    assert [name for name in SECRETS + PLAIN if re.search(found[1], name)] == SECRETS
