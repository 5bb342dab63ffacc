"""How probable each commit is before any of them ran, from what the comparison of the ends says.

The rule: every commit weighs 1. These factors apply to it, and at the end all weights are scaled to
add up to 1:

- 10 if it touches a file that the evidence of the likeliest suspect names;
- 10 if it touches a line of a config with the name of a setting that differs between the ends;
- 4 if it touches files of the kind that the suspect's category is about: data code for `data`,
  configs for `config` and `optimizer`, lock files for `environment`, and so on (`KINDS`);
- 1/10 if it touches only documentation and tests, or no file: a merge often has no own change.

What follows from the suspect is weaker if it is less sure: one of 50% has half of the effect.
No weight is ever zero, so a wrong diagnosis costs runs and never the answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from canary.baseline.commits import diff_between
from canary.bisect.commits import Commit, History
from canary.campaign.worktrees import git
from canary.compare.diagnosis.source_changes import parse_diff
from canary.compare.diagnosis.suspects import RegressionCategory as Category
from canary.compare.diagnosis.suspects import Suspect
from canary.compare.report import Comparison

NAMED = 10.0
KIND = 4.0
QUIET = 0.1
MOST_DIFFS = 200
"""Commits whose diff is read for the names of settings."""

CONFIGS = re.compile(r"\.(ya?ml|toml|ini|cfg|json)$")
LOCKS = re.compile(
    r"(^|/)(requirements[^/]*(/[^/]+)?\.(txt|in)|constraints[^/]*\.txt|[^/]*\.lock|pyproject\.toml"
    r"|setup\.(py|cfg)|environment\.ya?ml|Pipfile|[^/]*Dockerfile[^/]*)$"
)
QUIET_FILES = re.compile(
    r"^(docs?|tests?|\.github|examples)/|(^|/)(tests?/|test_[^/]*\.py$|[^/]*_test\.py$)"
    r"|\.(md|rst|png|svg|jpe?g|gif|ipynb)$|(^|/)(LICENSE|CHANGELOG|AUTHORS|\.gitignore)[^/]*$"
)


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(^|[/_.-])({pattern})", re.IGNORECASE)


_DATA = re.compile(
    _words("data|collat|token|prepro|pack|prompt|templat|load|sampler").pattern
    + r"|\.(jsonl|parquet|csv|arrow)$",
    re.IGNORECASE,
)
KINDS: Mapping[Category, re.Pattern[str]] = {
    Category.DATA: _DATA,
    Category.TOKENIZATION: _DATA,
    Category.DATALOADER: _DATA,
    Category.CONFIG: CONFIGS,
    Category.OPTIMIZER: re.compile(
        CONFIGS.pattern + "|" + _words("optim|sched|lr|train").pattern, re.IGNORECASE
    ),
    Category.ENVIRONMENT: LOCKS,
    Category.OBJECTIVE: _words("loss|objective|reward|advantage|kl|train"),
    Category.NUMERICS: _words("loss|dtype|precision|amp|model|norm"),
    Category.ADAPTER: _words("adapter|lora|peft|model"),
    Category.ROLLOUT: _words("rollout|generat|sampl|reward|vllm|env"),
    Category.KERNEL: _words("kernel|attention|attn|triton|cuda|compile|model|ops"),
    Category.COMMUNICATION: _words("distrib|parallel|ddp|fsdp|nccl|sharding|launch"),
    Category.MEMORY: _words("model|cache|buffer|memory|train"),
    Category.IO: _words("checkpoint|save|log|callback|io|track"),
    Category.HOST: _words("callback|log|train|loop|hook"),
}
"""Paths of the files that each category is about."""


@dataclass(frozen=True)
class Named:
    """What the diagnosis names."""

    category: Category | None = None
    confidence: float = 0.0
    files: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """Keys that differ between the ends' configs."""


def named_in(ends: Comparison) -> Named:
    """Return what the comparison of the ends names."""
    top: Suspect | None = ends.diagnosis.top_suspect
    keys = tuple(change.key for change in ends.config_changes if not change.cosmetic)
    if top is None or top.category is Category.UNKNOWN:
        return Named(settings=keys)
    files = tuple(dict.fromkeys(one.path for one in top.evidence if one.path))
    return Named(top.category, top.confidence, files, keys)


def prior_of(history: History, ends: Comparison) -> list[float]:
    """Return the probability of each suspect by the rule above."""
    named = named_in(ends)
    touched = files_touched(history)
    setters = _setters(history, touched, named.settings)
    weights = [
        weight_of(commit, touched[commit.sha], named, sets=commit.sha in setters)
        for commit in history.commits
    ]
    return [weight / sum(weights) for weight in weights]


def weight_of(commit: Commit, files: Sequence[str], named: Named, *, sets: bool = False) -> float:
    """Return a commit's weight. `sets`: it changes a setting that differs between the ends."""
    if not files:
        return QUIET
    weight = 1.0
    if sets:
        weight *= NAMED
    if any(_same(file, path) for file in files for path in named.files):
        weight *= 1.0 + (NAMED - 1.0) * named.confidence
    kind = KINDS.get(named.category) if named.category else None
    if kind is not None and any(kind.search(file) for file in files):
        weight *= 1.0 + (KIND - 1.0) * named.confidence
    if weight == 1.0 and all(QUIET_FILES.search(file) for file in files):
        weight = QUIET
    return weight


def _same(one: str, other: str) -> bool:
    """Whether two paths name one file; one may have more folders in front."""
    first, second = PurePosixPath(one).parts, PurePosixPath(other).parts
    length = min(len(first), len(second))
    return first[-length:] == second[-length:]


def files_touched(history: History) -> dict[str, tuple[str, ...]]:
    """Return the files that each suspect changes. Those of a merge differ from all its parents."""
    found: dict[str, list[str]] = {commit.sha: [] for commit in history.commits}
    shown = git(
        history.repository,
        *("log", "--topo-order", "--reverse", "--no-show-signature", "--no-color", "-z", "-c"),
        *("--name-only", "--no-renames", "--no-ext-diff", "--no-textconv"),
        *("--format=%x01%H", history.bad, f"^{history.good}", "--"),
    )
    for part in shown.split("\x01")[1:]:
        sha, *files = part.replace("\0\n", "\0").split("\0")
        found[sha.strip()] = [file for file in files if file]
    return {sha: tuple(files) for sha, files in found.items()}


def _setters(
    history: History, touched: Mapping[str, Sequence[str]], settings: Sequence[str]
) -> set[str]:
    """Return the commits whose diff of a config names a setting that differs between the ends."""
    names = {key.lstrip("-+~").rpartition(".")[2] for key in settings}
    if not names:
        return set()
    able = [c for c in history.commits if any(CONFIGS.search(file) for file in touched[c.sha])]
    found = set()
    for commit in able[:MOST_DIFFS]:
        if commit.parents and _names(history.repository, commit, names):
            found.add(commit.sha)
    return found


def _names(repository: Path, commit: Commit, names: set[str]) -> bool:
    changes = parse_diff(diff_between(repository, commit.parents[0], commit.sha))
    pattern = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, sorted(names)))})(?![\w-])")
    return any(
        pattern.search(text)
        for file in changes.files
        if CONFIGS.search(file.path)
        for text in (*(text for _, text in file.lines), *file.removed)
    )
