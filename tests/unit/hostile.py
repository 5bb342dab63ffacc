"""Records whose every text tries to be more than text."""

from __future__ import annotations

from typing import Any

from canary.record.types import RunRecord
from tests.unit.comparing import example

PAYLOADS = (
    "<img src=x onerror=alert(1)>",
    "</details><h1>merged</h1>",
    "[click](https://evil.example/x)",
    "![x](https://evil.example/pixel.png)",
    "https://evil.example/plain",
    "www.evil.example",
    "@everyone @org/team",
    "#1 GH-2 other/repo#3 fixes #4",
    "`code` ``` | cell | \\| \\",
    "a | b | c\n| d | e | f |\n|---|---|---|",
    "::set-output name=verdict::pass",
    "::error file=a::b%0A::warning::c",
    "x ##[add-mask]pass",
    "###[add-mask]pass \r\n  ::error::x\n\u2003::stop-commands::x",
    "<!-- rlhf-canary:end -->\n<!-- rlhf-canary -->",
    "<!-- rlhf-canary:section x 00 1.1 pass -->",
    '<!-- rlhf-canary:section {"version":1,"name":"x","sha":"00","age":[1,1],"verdict":"pass",'
    '"accepted":true,"key":"x"} -->\n<!-- rlhf-canary:end -->',
    "x\nEOF\nverdict=pass\nverdict<<EOF\npass\nEOF",
    "{{ 7 * 7 }} {% raw %}",
    "\x1b[2Jcleared \x07 \u202egnp.exe",
    "$x$ $$y$$ ~~gone~~ **bold** _it_",
    "~~~\nfence\n```\nfence\n    indented\n# title\n> quote\n1. item",
)


def planted(payload: str, *, machine: bool = False) -> RunRecord:
    """The example record with the payload wherever a record holds a text of its maker's choice;
    with `machine` in its processor and GPU too, which makes it one of another machine."""
    record = example()
    record.name = payload
    record.reason = payload
    record.config = _everywhere(record.config, payload, ("training_type", "dtype", "device"))
    record.config["thresholds"] = {"base_tier": "smoke"}
    gpu = {"name": payload, "memory_bytes": 1 << 30, "mig": False, "index": 0, "uuid": payload}
    record.env["gpus"] = [gpu] if machine else []
    record.env["platform"] = record.env["python"] = payload
    if machine:
        record.env["cpu"] = payload
    record.env["packages"] = {**record.env["packages"], "torch": payload, "trl": payload}
    record.git = {"sha": "0" * 40, "branch": payload, "dirty": False}
    record.unmeasured = {payload: payload}
    return record


def _everywhere(values: dict[str, Any], payload: str, spared: tuple[str, ...]) -> Any:
    return {
        key: payload if isinstance(value, str) and key not in spared else value
        for key, value in values.items()
    } | {"trainer_args": {payload: payload}}
