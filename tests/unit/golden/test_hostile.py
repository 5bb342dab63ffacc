"""Golden files of strangers: one clear line each, and none is taken for a pass."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from canary.cli import main
from canary.errors import RecordError
from canary.golden.schemas import LARGEST, read_golden
from canary.golden.write import write
from tests.unit.golden.golden_runs import run_folder
from tests.unit.hostile import PAYLOADS, planted

METRIC = {"start_step": 1, "end_step": 2, "step_interval": 1}
STEP = {"step": 1, "loss": 1.0, "grad_norm": 1.0}
OURS = {"format": "rlhf-canary golden", "schema_version": 1}
LOSS = {"tolerance": "exact", "values": {"1": 1.0}}

BROKEN: dict[str, bytes | str | dict[str, Any] | list[Any]] = {
    "empty": b"",
    "only_spaces": " \n \n",
    "binary": bytes(range(256)),
    "utf16": "1 2.5\n".encode("utf-16"),
    "cut_off": '{"train/loss": {"1": 2.5, "2":',
    "bare_nan": '{"train/loss": {"1": NaN}}',
    "bare_infinity": '{"train/loss": {"1": Infinity}}',
    "overflow": '{"train/loss": {"1": 1e999}}',
    "endless_number": '{"train/loss": {"1": ' + "9" * 5000 + "}}",
    "long_and_finite_only_as_int": '{"train/loss": {"1": 1' + "0" * 299 + ', "2": 1e400}}',
    "deep": '{"a":' * 100_000,
    "deep_lists": "[" * 100_000,
    "a_list": [],
    "a_list_of_numbers": [1, 2, 3],
    "empty_object": {},
    "no_values": {"train/loss": {}},
    "text_value": {"train/loss": {"1": "2.5"}},
    "true_value": {"train/loss": {"1": True}},
    "null_value": {"train/loss": {"1": None}},
    "nan_text": {"train/loss": {"1": "nan"}},
    "negative_step": {"train/loss": {"-1": 2.5}},
    "fractional_step": {"train/loss": {"1.5": 2.5}},
    "step_twice": {"train/loss": {"1": 2.5, "01": 2.5}},
    "huge_step": {"train/loss": {"9" * 40: 2.5}},
    "other_digits": {"train/loss": {"１": 2.5}},
    "nested_value": {"train/loss": {"1": {"2": 3}}},
    "megatron_list": {"lm loss": {**METRIC, "values": [1.0]}},
    "megatron_no_end": {"lm loss": {"start_step": 1, "values": {"1": 1.0}}},
    "megatron_interval_0": {"lm loss": {**METRIC, "step_interval": 0, "values": {"1": 1.0}}},
    "megatron_interval_text": {"lm loss": {**METRIC, "step_interval": "1", "values": {"1": 1.0}}},
    "megatron_only_nan": {"lm loss": {**METRIC, "values": {"1": "nan", "2": "nan"}}},
    "megatron_inf": {"lm loss": {**METRIC, "values": {"1": "inf"}}},
    "megatron_empty": {"lm loss": {**METRIC, "values": {}}},
    "trl_no_steps": {"config": {}, "env": {}, "steps": []},
    "trl_no_norm": {"config": {}, "env": {}, "steps": [{"step": 1, "loss": 1.0}]},
    "trl_step_text": {"config": {}, "env": {}, "steps": [{**STEP, "step": "1"}]},
    "trl_step_twice": {"config": {}, "env": {}, "steps": [STEP, STEP]},
    "trl_not_an_object": {"config": {}, "env": {}, "steps": [7]},
    "trl_nan": {"config": {}, "env": {}, "steps": [{**STEP, "loss": "nan"}]},
    "yaml_of_something_else": "metrics:\n  - metric: loss\n",
    "torchtitan_three_words": "1 2.5 3\n",
    "torchtitan_one_word": "2.5\n",
    "torchtitan_nan": "1 nan\n",
    "torchtitan_inf": "1 2.5\n2 inf\n",
    "torchtitan_step_twice": "1 2.5\n1 2.5\n",
    "torchtitan_underscore": "1 abc\n",
    "ours_newer": {**OURS, "schema_version": 2, "metrics": {"loss": LOSS}},
    "ours_unknown_key": {**OURS, "metrics": {"loss": LOSS}, "limits": {}},
    "ours_no_metrics": {**OURS, "metrics": {}},
    "ours_without_metrics": OURS,
    "ours_wide_tolerance": {**OURS, "metrics": {"loss": {**LOSS, "tolerance": "inf"}}},
    "ours_no_tolerance": {**OURS, "metrics": {"loss": {"values": {"1": 1.0}}}},
    "ours_tolerance_code": {**OURS, "metrics": {"loss": {**LOSS, "tolerance": "__import__"}}},
    "ours_broken_record": {**OURS, "metrics": {"loss": LOSS}, "record": {"run_id": 7}},
    "ours_nan": {**OURS, "metrics": {"loss": {**LOSS, "values": {"1": "nan"}}}},
    "ours_compared_never": {**OURS, "metrics": {"loss": {**LOSS, "compared": "never"}}},
}


def broken(folder: Path, content: Any) -> Path:
    file = folder / "golden"
    if isinstance(content, bytes):
        file.write_bytes(content)
    else:
        file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_one_clear_line(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = broken(tmp_path, BROKEN[name])
    run = run_folder(tmp_path)
    for words in (("check", str(run), str(file)), ("refresh", str(run), str(file), "--reason=x")):
        with pytest.raises(SystemExit) as ended:
            main(["golden", *words])
        assert ended.value.code == 4
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 1
        assert err.startswith(f"canary: {file} ")
        assert len(err) < 500
        assert "unexpected" not in err


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "golden"
    with file.open("wb") as stream:
        stream.truncate(LARGEST + 1)
    with pytest.raises(RecordError, match="larger than 16 MiB"):
        read_golden(file)


def test_a_metric_of_too_many_steps_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "golden"
    file.write_text("".join(f"{step} 1.0\n" for step in range(100_001)))
    with pytest.raises(RecordError, match="more than 100000 steps"):
        read_golden(file)


def test_a_pipe_or_a_folder_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for file in (tmp_path / "pipe", tmp_path):
        with pytest.raises(RecordError, match="cannot read"):
            read_golden(file)


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("form", ["text", "markdown"])
def test_the_names_of_a_file_stay_texts(
    tmp_path: Path, payload: str, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = broken(tmp_path, {payload: {"1": 2.5}})
    with pytest.raises(SystemExit) as ended:
        main(["golden", "check", str(run_folder(tmp_path)), str(file), "--format", form])
    assert ended.value.code == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert not [line for line in out.splitlines() if line.lstrip().startswith("::")]
    if form == "markdown":
        for mark in ("<img", "</details>", "<!-- rlhf", "@everyone"):
            assert mark not in out.replace(f"`{payload}`", "")


@pytest.mark.parametrize(
    "rows",
    [
        '{"launch": 1, "loss": 1.0}\n',
        '{"launch": 1, "step": 1, "loss": "high"}\n',
        '{"launch": 1, "step": 1, "rl": 7}\n',
        '{"launch": 1, "step": 2, "loss": 1}\n{"launch": 1, "step": 1, "loss": 1}\n',
        "[1]\n",
        "nonsense\n",
        '{"launch": 1, "step": 1, "loss": NaN}\n',
    ],
)
def test_broken_steps_of_a_run_are_one_clear_line(tmp_path: Path, rows: str) -> None:
    folder = run_folder(tmp_path)
    (folder / "steps.jsonl").write_text(rows)
    with pytest.raises(RecordError, match=r"steps in .* cannot be read"):
        write(folder, tmp_path / "golden.json", "canary", [], {})


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("form", ["text", "markdown"])
def test_the_record_in_a_file_stays_text(
    tmp_path: Path, payload: str, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The golden file of a stranger, whose record says what changed."""
    file = tmp_path / "golden.json"
    write(run_folder(tmp_path, "theirs", of=planted(payload)), file, "canary", [], {})
    ours = run_folder(tmp_path, "ours", {"loss": (9.0, 8.0, 7.0, 6.0, 5.0)})
    with pytest.raises(SystemExit) as ended:
        main(["golden", "check", str(ours), str(file), "--format", form])
    assert ended.value.code == 1
    out = capsys.readouterr().out
    assert "packages:" in out
    assert "\x1b" not in out
    assert not [line for line in out.splitlines() if line.lstrip().startswith("::")]
    if form == "markdown":
        for mark in ("<img", "</details>", "<!-- rlhf", "https://", "@everyone"):
            assert mark not in out
