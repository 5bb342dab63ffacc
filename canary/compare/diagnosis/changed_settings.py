"""Settings that differ between two runs: those of the config, and those in use. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from canary.compare.commands import as_number, setting_name
from canary.compare.diagnosis.setting_classes import category_of
from canary.compare.diagnosis.suspects import Evidence, RegressionCategory
from canary.compare.exact.changes import shown
from canary.compare.report import Comparison
from canary.config.secret_names import is_special_token
from canary.record.types import RunRecord

FOLLOWING = (
    "transformers_version",
    "max_steps",
    "_from_model_config",
    "logging_steps",
    "logging_first_step",
    "run_name",
)
"""Settings that follow from others, or that say nothing of what is trained."""


@dataclass(frozen=True)
class SettingChange:
    """One setting on both sides."""

    key: str
    baseline: Any
    current: Any
    category: RegressionCategory | None
    """What it decides."""
    in_config: bool
    """Whether the config says so too; otherwise code or a package's default changed it."""

    @property
    def name(self) -> str:
        """Without its section, and of an option of a command the trainer's word for it."""
        return setting_name(self.key) if self.in_config else self.key.rpartition(".")[2]

    def sentence(self) -> str:
        """In words."""
        if self.in_config:
            return f"{self.key} {shown(self.baseline)} -> {shown(self.current)}"
        was, now = (
            "its default" if value is None else str(value)
            for value in (self.baseline, self.current)
        )
        return f"{self.key} {was} -> {now}"

    def evidence(self) -> Evidence:
        """As evidence."""
        if self.in_config:
            return Evidence(
                "config", self.sentence(), _simple(self.baseline), _simple(self.current)
            )
        words = f"{self.sentence()}, which the config does not set"
        return Evidence("code", words, _simple(self.baseline), _simple(self.current))


def _simple(value: Any) -> float | int | str | None:
    return value if isinstance(value, float | int | str) or value is None else str(value)


def setting_changes(
    report: Comparison, before: RunRecord, now: RunRecord
) -> tuple[SettingChange, ...]:
    """Config keys first; then what was in force and is not one of them, once each."""
    found = [
        SettingChange(c.key, c.baseline, c.current, _category(c.key), in_config=True)
        for c in report.config_changes
        if not c.cosmetic
    ]
    names = {change.name for change in found}
    told = {(change.category, repr(as_number(change.current))) for change in found}
    values = {_key(change.baseline, change.current) for change in found}
    was, now_in_force = (_in_force(record) for record in (before, now))
    was, now_in_force = _shared_sections(was, now_in_force), _shared_sections(now_in_force, was)
    if was and now_in_force:
        for key in dict.fromkeys((*now_in_force, *was)):
            change = SettingChange(
                key, was.get(key), now_in_force.get(key), category_of(key), in_config=False
            )
            same = change.baseline == change.current
            if is_special_token(key) and not (key in was and key in now_in_force):
                continue  # older versions left it out, together with the secrets
            if same or change.name in FOLLOWING or change.name in names:
                continue
            if _key(change.baseline, change.current) in values:
                continue  # the same change under a trainer's own name for it
            if change.current is not None and (change.category, repr(change.current)) in told:
                continue
            names.add(change.name)
            found.append(change)
    return tuple(found)


def _category(key: str) -> RegressionCategory | None:
    return category_of(key) or category_of(setting_name(key))


def _key(was: Any, now: Any) -> str:
    return repr((as_number(was), as_number(now)))


def _in_force(record: RunRecord) -> Mapping[str, object]:
    return record.exact.get("evidence", {}).get("settings", {})


def _shared_sections(
    settings: Mapping[str, object], other: Mapping[str, object]
) -> dict[str, object]:
    """Those of sections that both sides have: a collator of another kind has other attributes, and
    that it is of another kind is known by its code."""
    sections = {key.partition(".")[0] for key in other}
    return {key: value for key, value in settings.items() if key.partition(".")[0] in sections}
