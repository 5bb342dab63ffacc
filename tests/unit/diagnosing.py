"""Pairs of records that differ by one mechanism, for the tests of diagnosis."""

from __future__ import annotations

from typing import Any

from canary.compare.heuristics import Diagnosis
from canary.compare.report import Comparison
from canary.compare.stats import compare_to_baseline
from canary.record.exact import EVALUATION_MODE, FileCode
from canary.record.types import RunRecord
from tests.unit.comparing import altered, records

Change = tuple[tuple[str | int, ...], Any]
OTHER = "f" * 64
SETTINGS = {"trainer.beta": 0.1, "optimizer.0.weight_decay": 0.0, "modules.dropout": [0.1]}


def sides(kind: str = "sft") -> tuple[RunRecord, RunRecord]:
    """(baseline, current): equal but for the run."""
    before, after = records([0.1, 0.1], kind=kind)
    for side in (before, after):
        side.exact["first_update"]["after_sha256"] = "a" * 64
        side.exact["evidence"] = {"settings": {**SETTINGS}}
        for step, micro_batches in enumerate(side.exact["batches"]):
            for place, micro in enumerate(micro_batches):
                name = "prompt_ids" if kind == "grpo" else "input_ids"
                micro["rows"] = {name: [f"{step}.{place}.{row}" for row in range(2)]}
                micro["texts"] = {name: [f"t{step}.{place}.{row}" for row in range(2)]}
                if kind == "grpo":
                    for key in ("rows", "texts"):
                        micro[key]["completion_ids"] = [f"c{step}.{place}"]
    return before, after


def changed(record: RunRecord, *changes: Change) -> RunRecord:
    for path, value in changes:
        record = altered(record, *path, to=value)
    return record


def diagnosed(kind: str, *changes: Change) -> tuple[Comparison, Diagnosis]:
    before, after = sides(kind)
    found = compare_to_baseline(changed(after, *changes), before, gates=())
    return found, found.diagnosis


def exact(kind: str = "sft") -> Any:
    return sides(kind)[1].exact


def every_micro(key: str, value: Any, kind: str = "sft") -> list[Change]:
    """The key of every micro-batch set; a function gets the old value."""
    return [
        (
            ("exact", "batches", step, place, key),
            value(micro.get(key)) if callable(value) else value,
        )
        for step, micro_batches in enumerate(exact(kind)["batches"])
        for place, micro in enumerate(micro_batches)
    ]


def seen(part: str, **values: Any) -> list[Change]:
    """These values of a part of the exact signals."""
    return [(("exact", part, name), value) for name, value in values.items()]


def ran_in(side: RunRecord, phase: str, function: str, digest: str) -> None:
    """Note a function of train.py that ran in this phase."""
    file: FileCode = {"ran": {phase: "7-9"}, "functions": {function: (7, 9, digest)}}
    side.exact["code"] = {"noted": "lines", "files": {"train.py": file}}


LOSSES = exact()["trajectory"]["losses"]
GRAD_NORMS = exact()["trajectory"]["grad_norms"]
GROUPS = exact()["first_gradient"]["groups"]
TOTAL = exact()["first_gradient"]["total"]
WORK = exact()["work"]


def later(values: list[Any], step: int, factor: float = 1.01) -> list[Any]:
    return [v if place + 1 < step else factor * v for place, v in enumerate(values)]


TRAJECTORY = ("exact", "trajectory")
GRADIENT = ("exact", "first_gradient")
OTHER_LOSS = [
    *seen("first_loss", loss=1.1 * LOSSES[0]),
    *seen("trajectory", losses=later(LOSSES, 1, 1.1)),
]
OTHER_HASHES = every_micro("sha256", OTHER)
OTHER_ROWS = [*OTHER_HASHES, *every_micro("rows", {"input_ids": ["x", "y"]}), *OTHER_LOSS]

DPO = exact("dpo")
DPO_LOSSES = DPO["trajectory"]["losses"]
DPO_GRADIENT = DPO["first_gradient"]
MODE: Change = (("exact", "evidence", "settings", EVALUATION_MODE), 1)
TEMPLATE = ("exact", "data", "tokenizer", "chat_template_sha256")
CASES: dict[str, tuple[str, str, list[Change]]] = {
    "another chat template": ("sft", "tokenization", [(TEMPLATE, OTHER), *OTHER_ROWS]),
    "the same words as other tokens": ("sft", "tokenization", OTHER_ROWS),
    "maps that no cache has": (
        "sft",
        "tokenization",
        [(("io", "dataset_maps_executed"), 4), (("io", "tokenizer_calls"), 320)],
    ),
    "labels masked in the same rows": (
        "sft",
        "data",
        [*OTHER_HASHES, *every_micro("label_tokens", lambda v: v - 3), *OTHER_LOSS],
    ),
    "the same rows in another order": (
        "sft",
        "data",
        [
            *OTHER_HASHES,
            *every_micro("rows", lambda v: {"input_ids": v["input_ids"][::-1]}),
            *OTHER_LOSS,
        ],
    ),
    "fewer trainable tensors": (
        "sft",
        "adapter",
        [
            *seen("model", trainable_tensors=10, trainable_parameters=1000),
            *seen("first_gradient", total=0.6 * TOTAL),
        ],
    ),
    "a reference that moves": (
        "dpo",
        "adapter",
        [*seen("frozen", reference_changed=True), *seen("trajectory", losses=later(DPO_LOSSES, 2))],
    ),
    "parameters in bfloat16": (
        "sft",
        "numerics",
        [*seen("model", dtypes={"torch.bfloat16": 29}), *OTHER_LOSS],
    ),
    "a loss that is no number": (
        "sft",
        "numerics",
        [
            *seen("trajectory", losses=[*LOSSES[:4], "nan", *LOSSES[5:]]),
            (("stability", "nan_steps"), 1),
            (("stability", "nan_at"), [5]),
        ],
    ),
    "casts and a loss as near as rounding": (
        "sft",
        "numerics",
        [
            *seen("first_loss", loss=1.0005 * LOSSES[0]),
            (("exact", "work", "operators", "aten._to_copy.default"), 300),
        ],
    ),
    "training in evaluation mode": ("sft", "objective", [MODE, *OTHER_LOSS]),
    "another loss of the same batch": ("sft", "objective", OTHER_LOSS),
    "one factor on every gradient": (
        "dpo",
        "objective",
        seen(
            "first_gradient",
            total=0.1 * DPO_GRADIENT["total"],
            groups={k: 0.1 * v for k, v in DPO_GRADIENT["groups"].items()},
        ),
    ),
    "a term that is 0 at the start": (
        "dpo",
        "objective",
        seen("trajectory", losses=later(DPO_LOSSES, 2)),
    ),
    "another learning rate": (
        "sft",
        "optimizer",
        seen("trajectory", learning_rates=[2e-3] * len(LOSSES)),
    ),
    "another update of the same gradient": (
        "sft",
        "optimizer",
        seen("first_update", delta_norm=0.2),
    ),
    "what the optimizer carries over": (
        "sft",
        "optimizer",
        seen("trajectory", losses=later(LOSSES, 3)),
    ),
    "other completions of the same prompts": (
        "grpo",
        "rollout",
        [
            *every_micro("sha256", OTHER, "grpo"),
            *every_micro("rows", lambda v: {**v, "completion_ids": ["other"]}, "grpo"),
            *seen("first_gradient", total=3.0),
        ],
    ),
    "more positions fed for the same completions": (
        "grpo",
        "rollout",
        seen("work", tokens_fed=5 * exact("grpo")["work"]["tokens_fed"]),
    ),
    "more operators for the same result": (
        "sft",
        "kernel",
        seen("work", operator_total=2 * WORK["operator_total"]),
    ),
    "values read by Python": ("sft", "kernel", seen("work", host_reads=WORK["host_reads"] + 2)),
    "tensors that stay alive": (
        "sft",
        "memory",
        seen("memory", live_tensors=[100 + 2 * step for step in range(12)]),
    ),
    "more exchanges between ranks": ("sft", "communication", seen("work", collectives=9)),
    "more files": ("sft", "io", seen("calls", files_opened=70, bytes_written=50_000_000)),
    "a setting that nobody wrote into the config": (
        "sft",
        "optimizer",
        [
            (("exact", "evidence", "settings", "optimizer.0.weight_decay"), 0.1),
            *seen("trajectory", losses=later(LOSSES, 3)),
        ],
    ),
}
