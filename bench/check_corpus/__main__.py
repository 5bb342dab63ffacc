"""`canary check` on trainings that are wrong from the first day: `python -m bench.check_corpus`.

The cases were written without sight of the rules, two corpora of them for the relations that came
before rules (`NAMED_BY`). A fault counts as caught if a rule is broken that names it; as broken
elsewhere if only others are. Prints Markdown: one row per case, and
rates with 95% intervals. `--keep DIR` keeps the answers; the next call runs only missing ones.
`--second` asks the second corpus instead of the first, `--third` the third, so that the figures
stand apart. The third names no relations: a person judges its broken lines (third_cases.py).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.check_corpus import preference_cases, scripts_cases, second_cases, third_cases
from bench.check_corpus.case import Case
from bench.checking import Asked, ask
from bench.corpus.score import wilson

CASES: tuple[Case, ...] = (*scripts_cases.CASES, *preference_cases.CASES)


@dataclass(frozen=True)
class Answer:
    """A case with what `canary check` said of it."""

    case: Case
    asked: Asked

    @property
    def result(self) -> str:
        """One or two words for the table."""
        broken = set(self.asked.broken)
        if not self.asked.statuses:
            return "did not complete"
        if self.case.healthy:
            return "false alarm" if broken else "ok"
        if broken and self.case.wrong:
            return "to judge"
        if broken & self.case.rules:
            return "caught"
        return "broken elsewhere" if broken else "missed"


def rate(found: int, of: int) -> str:
    """Return a share with its 95% interval."""
    low, high = wilson(found, of)
    return f"{found} of {of} ({low:.0%} to {high:.0%})"


def table(answers: Sequence[Answer]) -> str:
    """Return the answers as Markdown."""
    rows = ["| case | trainer | expected | broken | result |", "|---|---|---|---|---|"]
    for one in answers:
        expected = ", ".join(sorted(one.case.rules)) or one.case.wrong
        broken = ", ".join(one.asked.broken)
        rows.append(
            f"| {one.case.name} | {one.case.trainer} | {expected} | {broken} | {one.result} |"
        )
    results = [one.result for one in answers if not one.case.healthy]
    alarms = [one.result == "false alarm" for one in answers if one.case.healthy]
    caught, judged = results.count("caught"), results.count("to judge")
    rows.append("")
    if not any(one.case.wrong for one in answers):
        rows += [f"Faults that broke the right rule: {rate(caught, len(results))}."]
    noticed = caught + judged + results.count("broken elsewhere")
    rows += [f"Faults that broke any rule: {rate(noticed, len(results))}."]
    rows += [f"Healthy variations that broke one: {rate(sum(alarms), len(alarms))}."]
    return "\n".join(rows)


def main() -> None:
    """Ask all cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--only", action="append", default=[], metavar="CASE")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--second", action="store_true", help="the second corpus")
    which.add_argument("--third", action="store_true", help="the third corpus")
    parser.add_argument("-v", "--verbose", action="store_true", help="with each message")
    options = parser.parse_args()
    cases = second_cases.CASES if options.second else CASES
    cases = third_cases.CASES if options.third else cases
    answers = []
    with tempfile.TemporaryDirectory() as scratch:
        keep = (options.keep or Path(scratch)).resolve()
        for case in cases:
            if options.only and case.name not in options.only:
                continue
            what = ["--", sys.executable, str(case.path)] if case.script else [str(case.path)]
            answer = Answer(case, ask(keep / case.name, what))
            answers.append(answer)
            print(case.name, answer.result, *answer.asked.broken, file=sys.stderr, flush=True)
            if options.verbose:
                print(f"{case.name}: {case.what}\n{answer.asked.lines()}")
    print(table(answers))


if __name__ == "__main__":
    main()
