"""Settings that differ between two runs: config keys, and settings that only training has. Pure."""

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

IGNORED = (
    "transformers_version",
    "max_steps",
    "_from_model_config",
    "logging_steps",
    "logging_first_step",
    "run_name",
)
"""Settings that follow from others or do not affect what is trained."""


@dataclass(frozen=True)
class SettingChange:
    """One setting on both sides."""

    key: str
    baseline: Any
    current: Any
    category: RegressionCategory | None
    """The mechanism that it controls."""
    in_config: bool
    """Whether the config changed; otherwise code or a package's default changed the setting."""

    @property
    def name(self) -> str:
        """Return the key without its section; for a command's option the trainer's name of it."""
        return setting_name(self.key) if self.in_config else self.key.rpartition(".")[2]

    def sentence(self) -> str:
        """Return the change in words."""
        if self.in_config:
            return f"{self.key} {shown(self.baseline)} -> {shown(self.current)}"
        was, now = (
            "its default" if value is None else str(value)
            for value in (self.baseline, self.current)
        )
        return f"{self.key} {was} -> {now}"

    def evidence(self) -> Evidence:
        """Return the change as evidence."""
        if self.in_config:
            return Evidence(
                "config", self.sentence(), _simple(self.baseline), _simple(self.current)
            )
        words = f"{self.sentence()}, although the config does not set it"
        return Evidence("code", words, _simple(self.baseline), _simple(self.current))


def _simple(value: Any) -> float | int | str | None:
    return value if isinstance(value, float | int | str) or value is None else str(value)


def setting_changes(
    report: Comparison, before: RunRecord, now: RunRecord
) -> tuple[SettingChange, ...]:
    """Return changed config keys first, then other changed settings of the training, once each."""
    found = [
        SettingChange(c.key, c.baseline, c.current, _category(c.key), in_config=True)
        for c in report.config_changes
        if not c.cosmetic
    ]
    names = {change.name for change in found}
    listed = {(change.category, repr(as_number(change.current))) for change in found}
    values = {_key(change.baseline, change.current) for change in found}
    was, active = (_active_settings(record) for record in (before, now))
    was, active = _shared_sections(was, active), _shared_sections(active, was)
    if was and active:
        for key in dict.fromkeys((*active, *was)):
            change = SettingChange(
                key, was.get(key), active.get(key), category_of(key), in_config=False
            )
            same = change.baseline == change.current
            if is_special_token(key) and not (key in was and key in active):
                continue  # older versions left it out, together with the secrets
            if same or change.name in IGNORED or change.name in names:
                continue
            if _key(change.baseline, change.current) in values:
                continue  # the same change under the trainer's name
            if change.current is not None and (change.category, repr(change.current)) in listed:
                continue
            names.add(change.name)
            found.append(change)
    return tuple(found)


def _category(key: str) -> RegressionCategory | None:
    return category_of(key) or category_of(setting_name(key))


def _key(was: Any, now: Any) -> str:
    return repr((as_number(was), as_number(now)))


def _active_settings(record: RunRecord) -> Mapping[str, object]:
    return record.exact.get("evidence", {}).get("settings", {})


def _shared_sections(
    settings: Mapping[str, object], other: Mapping[str, object]
) -> dict[str, object]:
    """Return the settings of sections that both sides have.

    Another kind of collator has other attributes; its code already shows that it changed.
    """
    sections = {key.partition(".")[0] for key in other}
    return {key: value for key, value in settings.items() if key.partition(".")[0] in sections}
