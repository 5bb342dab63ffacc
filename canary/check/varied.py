"""Launches that do one thing in another way: which a relation needs, and what they showed."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from canary.check.copied import TooLarge
from canary.check.launches import Launched, Launches
from canary.check.ranks import on_ranks
from canary.config.load import LoadedConfig
from canary.errors import RunFailed
from canary.protocol.job import TORCH_LOOP, Result
from canary.record.exact import Exact
from canary.record.types import RunRecord
from canary.relations import MODULES
from canary.relations.ranks import NO_RANKS
from canary.relations.relation import Outcome, Relation, Variation, outcome
from canary.relations.resume import NO_CHECKPOINT
from canary.relations.trajectory import rows_of, same, series
from canary.relations.workers import NO_LOADER

NO_SEED = "two launches of the command differ although nothing was changed: give it a seed"
REPEATS = 1e-4
"""Relative; two first losses of one command are at most so far apart."""
SEVERAL_RANKS = "the command trains on several ranks"


def variations_of(relation: Relation, result: Result, exact: Exact) -> tuple[Variation, ...] | str:
    """Return the launches that a relation needs of this training, or why it has none.

    `result`: how the first launch ended. It says why a Trainer does not train. `exact`: what that
    launch saw.
    """
    found = relation.variations
    if found and result.not_varied is not None:
        if result.training.get("trainer") != TORCH_LOOP:
            return result.not_varied
        found = relation.of_loop
        if not found:
            return relation.no_loop or result.not_varied
    seen = exact.get("varied", {})
    if any("killed" in one for one in found) and not seen.get("saves", True):
        return NO_CHECKPOINT
    if any("ranks" in one for one in found) and not seen.get("ranks", True):
        return NO_RANKS
    if any("workers" in one or "widened" in one for one in found) and not seen.get("loads", True):
        return NO_LOADER
    return found


def affordable(needed: Mapping[str, int], launches: int) -> frozenset[str]:
    """Return the relations that so many launches can ask: those that need the fewest first.

    `needed`: launches of each relation.
    """
    chosen, left = set(), launches
    for name, count in sorted(needed.items(), key=lambda pair: pair[1]):
        if count <= left:
            chosen.add(name)
            left -= count
    return frozenset(chosen)


def ask_launches(
    relation: Relation, variations: Sequence[Variation], launches: Launches, base: Launched
) -> Outcome:
    """Run the launches of a relation and judge them."""
    record, folder, result = base
    recorded: list[Exact] = []
    folders = [folder]
    planned = [_planned(launches.loaded, one, record, result) for one in variations]
    why = next((plan for plan in planned if isinstance(plan, str)), None)
    if why is not None:
        return outcome(relation.id, "not applicable", why)
    try:
        with contextlib.ExitStack() as stack:
            copied: Path | None = None
            for plan in planned:
                assert not isinstance(plan, str)
                loaded, one = plan
                if not one.get("restarted"):
                    copied = stack.enter_context(launches.working_folder())
                varied: Variation = {**one, "saved_in": str(folders[-1])}
                found, folder, ended = launches.varied(relation.id, varied, loaded, copied)
                folders.append(folder)
                elsewhere = _saved_elsewhere(found.exact, copied) if one.get("killed") else None
                why = ended.not_varied or elsewhere
                if why is not None:
                    return outcome(relation.id, "not applicable", why)
                recorded.append(found.exact)
        judged: Outcome = MODULES[relation.id].judge(record.exact, *recorded)
        if judged["status"] == "broken" and not _repeats(relation.id, record.exact, launches):
            return outcome(relation.id, "undecided", NO_SEED)
        return judged
    except RunFailed as error:
        return outcome(relation.id, "undecided", f"{one['name']}: {error.message}")
    except TooLarge as why_not:
        return outcome(relation.id, "not applicable", str(why_not))
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        words = f"the working folder cannot be copied: {what}"
        return outcome(relation.id, "undecided", words)
    finally:
        for checkpoint in (path for one in folders for path in one.glob("checkpoint-*")):
            shutil.rmtree(checkpoint, ignore_errors=True)


def _repeats(relation: str, exact: Exact, launches: Launches) -> bool:
    """Whether the command does the same if it is started again as it is: its rows, and its first
    loss but for rounding."""
    try:
        again = launches.repeated(relation)[0].exact
    except RunFailed:
        return False
    before, now = (rows_of(one)[:1] for one in (exact, again))
    if before and now and sorted(before[0]) != sorted(now[0]):
        return False
    pairs = zip(series(exact, "losses")[:1], series(again, "losses")[:1], strict=False)
    return all(was is None or one is None or same(was, one, REPEATS) for was, one in pairs)


def _saved_elsewhere(exact: Exact, copied: Path | None) -> str | None:
    """Return why a checkpoint is not in the copy of the working folder, None if it is."""
    saved = exact.get("varied", {}).get("saved", [])
    if copied is None or not saved:
        return None
    inside = os.path.realpath(copied) + os.sep
    if any(path.startswith(inside) for path in saved):
        return None
    return "the checkpoint is outside the working folder"


def _planned(
    loaded: LoadedConfig, one: Variation, record: RunRecord, result: Result
) -> tuple[LoadedConfig, Variation] | str:
    """Return the config and the variation of a launch, or why it is not possible."""
    if "ranks" in one:
        return on_ranks(loaded, one, record, result.device.get("type"))
    if one.get("killed") and record.env.get("world_size", 1) > 1:
        return SEVERAL_RANKS
    return loaded, one
