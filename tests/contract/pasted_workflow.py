"""A workflow that a page gives to be pasted: valid, pinned, with no more rights than it needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from canary.gate.workflows import PINS
from tests.contract.action_table import action
from tests.contract.static_checks import clean, zizmor

PINNED = re.compile(
    r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40}  # "
    r"(v\d+\.\d+\.\d+, read in [\w.-]+/[\w.-]+/\S+|.*\bUNVERIFIED\b.*)"
)
OURS = "uses: rlhf-canary/rlhf-canary@v1  # replace with the commit SHA of a release"
CHECKOUT = "uses: " + PINS["checkout"].partition(", read in")[0]
"""A page gives the version alone; the workflow files also say where the SHA was read."""


def checked(text: str, scratch: Path) -> dict[str, Any]:
    """The workflow, after everything that holds for each of them was asserted."""
    path = scratch / ".github" / "workflows" / "canary.yml"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    clean(["check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)])
    zizmor(path)
    loaded: dict[str, Any] = yaml.load(text, yaml.BaseLoader)
    training, reporting = loaded["jobs"]["run"], loaded["jobs"]["report"]
    assert loaded["permissions"] == {}
    assert training["permissions"] == {"contents": "read"}
    assert training["steps"][0]["with"]["persist-credentials"] == "false"
    assert not [step for step in reporting["steps"] if "checkout" in step["uses"]]
    for line in re.findall(r"- (uses: .*)", text):
        assert line in (OURS, CHECKOUT), line
    for job in loaded["jobs"].values():
        assert set(job["steps"][-1]["with"]) <= set(action()["inputs"])
    return loaded
