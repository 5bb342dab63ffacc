"""What `canary init` does: looks at the machine, writes workflows and configs, says what next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from canary.config.load import load_config
from canary.config.samples import nightly_yaml, write_config, write_sample
from canary.config.trainers import DEFAULT_TRAINER
from canary.errors import ConfigError, UsageError
from canary.gate.base_config import without_command
from canary.gate.workflows import (
    Answers,
    Permission,
    Runner,
    checked,
    permissions,
    rendered,
    superseded,
)
from canary.machine.git import Unread, read_git

Which = Callable[[str], str | None]


@dataclass(frozen=True)
class Machine:
    """What this machine shows of itself; the runner may be another: defaults of questions only."""

    docker: bool = False
    gpu: bool = False
    kubernetes: bool = False

    @property
    def runner(self) -> Runner:
        """How a runner like this one would start the canary."""
        if self.kubernetes:
            return "container"
        return "docker" if self.docker else "none"

    @property
    def text(self) -> str:
        """One line, to be read before the questions."""
        found = [
            f"docker {'found' if self.docker else 'not found'}",
            f"nvidia-smi {'found' if self.gpu else 'not found'}",
        ]
        return f"This machine: {', '.join(found)}. If the runner is another, answer for that one."


def look_at_machine(which: Which, environment: Mapping[str, str]) -> Machine:
    """What can be seen without starting anything."""
    return Machine(
        docker=which("docker") is not None,
        gpu=which("nvidia-smi") is not None,
        kubernetes="KUBERNETES_SERVICE_HOST" in environment,
    )


def default_branch(folder: Path) -> str | None:
    """The default branch as the clone in `folder` knows it; None where it does not."""
    said = _git(folder, "symbolic-ref", "--short", "refs/remotes/origin/HEAD")
    return said.removeprefix("origin/") or None


def require_root(folder: Path) -> None:
    """GitHub reads workflows at the root of a repository alone.

    Raises:
        UsageError: `folder` is a subdirectory of a checkout.
    """
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top and Path(top).resolve() != folder.resolve():
        raise UsageError(
            f"{folder} is a folder inside the repository {top}",
            f"run canary init at its root, {top}, or name a folder with -o",
        )


def _git(folder: Path, *arguments: str) -> str:
    """What git prints; empty where it fails or is not installed."""
    try:
        return read_git(folder, *arguments).strip()
    except Unread:
        return ""


def check_configs(root: Path, names: Sequence[str]) -> None:
    """Those that are there already must be canary configs.

    Raises:
        UsageError: one is a folder, or no file that the canary could run.
    """
    for name in names:
        if (root / name).is_dir():
            raise UsageError(f"--config {name} is a folder", "name a YAML file")
        if (root / name).exists():
            load_config(root / name, without_command(root / name))


@dataclass(frozen=True)
class Written:
    """What `init` has put on the disk."""

    workflows: dict[Path, str]
    configs: tuple[Path, ...]
    """Starting configs; those that were there already are not among them."""
    removed: tuple[Path, ...] = ()
    """Superseded workflows, as `init` had written them."""
    left: tuple[Path, ...] = ()
    """Superseded workflows that were changed by hand, and so are still there."""
    nightly: Path | None = None
    """A config that trains at night what one that was there already trains."""


def write(answers: Answers, root: Path, folder: Path, force: bool = False) -> Written:
    """Writes the workflows into `folder`, and configs under `root` that are named but not there.

    Nothing is written where anything would be overwritten. With `force`, a workflow whose place
    another takes is removed, unless it was changed by hand.

    Raises:
        UsageError: a workflow is there already and `force` is off, or an answer cannot be used.
        ConfigError: a file cannot be written.
    """
    workflows = {folder / name: text for name, text in rendered(checked(answers)).items()}
    check_configs(root, answers.configs)
    there = [str(path) for path in workflows if path.exists()]
    if there and not force:
        raise UsageError(f"{', '.join(there)}: there already", "--force writes them anew")
    old = {folder / name: text for name, text in superseded(answers).items()}
    old = {path: text for path, text in old.items() if path.exists()}
    if old and not force:
        raise UsageError(
            f"{', '.join(map(str, old))}: would train each pull request a second time",
            "--force removes what init wrote and nobody changed",
        )
    for path, text in workflows.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}", file=path) from error
    removed = tuple(path for path, text in old.items() if _is(path, text))
    for path in removed:
        path.unlink()
    left = tuple(path for path in old if path not in removed)
    nightly = _nightly(answers, root)
    return Written(workflows, tuple(_configs(answers, root)), removed, left, nightly)


def _is(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def _nightly(answers: Answers, root: Path) -> Path | None:
    """The longer canary over a config that is there already, where there is no longer one yet."""
    below, name = Path(answers.configs[0]), answers.nightly_configs[0]
    if not answers.nightly or (root / name).exists() or not (root / below).exists():
        return None
    own = load_config(root / below, without_command(root / below)).config
    write_config(root / name, nightly_yaml(below.name, own.name))
    return Path(name)


def _configs(answers: Answers, root: Path) -> list[Path]:
    """Starting configs where there are none."""
    wanted = dict.fromkeys(answers.configs, "smoke")
    if answers.nightly:
        wanted.setdefault(answers.nightly_configs[0], "nightly")
    made = []
    for name, tier in wanted.items():
        if not (root / name).exists():
            write_sample(root / name, DEFAULT_TRAINER, tier)
            made.append(Path(name))
    return made


def summary(answers: Answers, written: Written) -> str:
    """What was written, the permissions that each job needs and why, and what to do next."""
    nightly = () if written.nightly is None else (written.nightly,)
    lines = [f"wrote {path}" for path in (*written.workflows, *written.configs, *nightly)]
    lines += [f"removed {path}: superseded" for path in written.removed]
    lines += [
        f"warning: {path} is superseded but was changed by hand: remove it, or each pull request"
        " is trained twice"
        for path in written.left
    ]
    lines += ["", "Permissions (each is in its workflow; nothing else is granted):"]
    lines += _permission_lines(written.workflows)
    lines += ["", "Next:"]
    steps = _next_steps(answers, written)
    lines += [f"{number:>3}. {step}" for number, step in enumerate(steps, start=1)]
    return "\n".join(lines)


def _permission_lines(workflows: Mapping[Path, str]) -> list[str]:
    rows: dict[Permission, list[str]] = {}
    for path, text in workflows.items():
        for asked in permissions(text):
            rows.setdefault(asked, []).append(path.name.removesuffix(".yml"))
    lines = []
    for asked, where in rows.items():
        grant = f"{asked.scope}: {asked.access}"
        lines.append(f"  {asked.job:<9} {grant:<21} {asked.reason} ({', '.join(where)})")
    return sorted(lines)


def _next_steps(answers: Answers, written: Written) -> list[str]:
    steps = []
    if written.configs:
        names = ", ".join(str(path) for path in written.configs)
        steps.append(f"Name model and data in {names}; try it: canary run {answers.configs[0]}")
    if written.nightly is not None:
        steps.append(f"Set max_steps in {written.nightly}: longer than on pull requests.")
    steps.append(
        "Replace rlhf-canary/rlhf-canary@v1 by the commit SHA of a release: a tag can be moved."
    )
    if answers.runner == "container" and not answers.image:
        steps.append("Put the image of that release, from its image.txt, where the zeros are.")
    if answers.runner == "docker" and not answers.image:
        steps.append(
            "Until a release exists, build an image (docs/image.md) and name it by digest: `image:`"
            " in the run steps, or canary init --image."
        )
    if answers.model_cache:
        steps.append(
            "Make the environment canary-prefetch with the secret HF_TOKEN (gated models alone),"
            " and run: gh workflow run canary-prefetch.yml"
        )
    if answers.forks:
        steps.append(
            "A fork's author can replace the workflow file and run any command on your GPU runner."
            " Settings > Actions > General: require approval for all external contributors; read"
            " .github before you approve; use runners that serve one job each (docs/security.md)."
        )
    steps.append("Commit all of it to the default branch: GitHub starts the workflows from there.")
    if answers.compare == "baseline":
        steps.append("Fill the history with three runs: gh workflow run canary-bootstrap.yml")
    steps.append("Once you trust it, require the status rlhf-canary on the default branch.")
    return steps
