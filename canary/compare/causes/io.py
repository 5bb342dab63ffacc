"""IO: written files, evaluation and logging, and the time that they take."""

from __future__ import annotations

from collections.abc import Iterator

from canary.compare.diagnosis.evidence import Finding, evidence_of_check, evidence_of_phase
from canary.compare.diagnosis.facts import Facts
from canary.compare.diagnosis.suspects import RegressionCategory as C


def findings(facts: Facts) -> Iterator[Finding]:
    """More written files or bytes (exact), or longer evaluation, checkpoint or logging."""
    evaluation = facts.grown_phase("evaluation")
    if evaluation is not None and facts.entry is None:
        yield Finding(
            C.IO,
            0.85,
            "evaluation during training takes longer",
            (evidence_of_phase(evaluation),),
            ("compare eval_strategy, eval_steps, the evaluation dataset and its batch size",),
            sign="evaluation",
        )
    counted = [
        check
        for name in ("bytes_written", "files_written")
        if (check := facts.rose(name)) is not None
    ]
    phase = facts.grown_phase("checkpoint", "logging")
    if counted:
        failed = any(check.failed for check in counted)
        strength = 0.94 if failed else (0.75 if phase else 0.4)
        yield Finding(
            C.IO,
            strength if facts.entry is None else 0.4 * strength,
            "training writes more to disk",
            (
                *map(evidence_of_check, counted),
                *([evidence_of_phase(phase)] if phase else []),
            ),
            (
                "compare save_strategy, save_steps, logging_steps and what callbacks write",
                "write checkpoints from another thread, or less often",
            ),
            sign="files_written",
        )
    elif phase is not None and facts.entry is None:
        waits = not phase.stands_out_in_cpu
        strength = 0.8 if phase.phase == "checkpoint" else (0.5 if waits else 0.3)
        yield Finding(
            C.IO,
            strength,
            f"{phase.phase} takes longer" + (" and waits instead of computing" if waits else ""),
            (evidence_of_phase(phase),),
            ("look at the disk, and at trackers that send data while training waits",),
            sign=phase.phase,
        )
