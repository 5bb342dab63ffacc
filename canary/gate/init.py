"""`canary init`: look at the machine, write workflows and configs, print the next steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from canary.config.load import load_config
from canary.config.samples import nightly_yaml, sample_yaml
from canary.config.trainers import DEFAULT_TRAINER
from canary.errors import UsageError, writing
from canary.files import replace_files
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
    """What was found on this machine: only defaults for questions, the runner may differ."""

    docker: bool = False
    gpu: bool = False
    kubernetes: bool = False

    @property
    def runner(self) -> Runner:
        """How a runner like this machine starts the canary."""
        if self.kubernetes:
            return "container"
        return "docker" if self.docker else "none"

    @property
    def text(self) -> str:
        """One line, printed before the questions."""
        found = [
            f"docker {'found' if self.docker else 'not found'}",
            f"nvidia-smi {'found' if self.gpu else 'not found'}",
        ]
        return f"This machine: {', '.join(found)}. If your runner differs, answer for the runner."


def look_at_machine(which: Which, environment: Mapping[str, str]) -> Machine:
    """Look for docker, a GPU and Kubernetes without starting anything."""
    return Machine(
        docker=which("docker") is not None,
        gpu=which("nvidia-smi") is not None,
        kubernetes="KUBERNETES_SERVICE_HOST" in environment,
    )


def default_branch(folder: Path) -> str | None:
    """Return the default branch of the clone in `folder`; None if the clone does not know it."""
    said = _git(folder, "symbolic-ref", "--short", "refs/remotes/origin/HEAD")
    return said.removeprefix("origin/") or None


def require_root(folder: Path) -> None:
    """Refuse a subdirectory: GitHub reads workflows only at the root of a repository.

    Raises:
        UsageError: `folder` is a subdirectory of a checkout.
    """
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top and Path(top).resolve() != folder.resolve():
        raise UsageError(
            f"{folder} is a folder inside the repository {top}",
            f"run canary init at its root, {top}, or set a folder with -o",
        )


def _git(folder: Path, *arguments: str) -> str:
    """Return what git prints; empty if git fails or is not installed."""
    try:
        return read_git(folder, *arguments).strip()
    except Unread:
        return ""


def check_configs(root: Path, names: Sequence[str]) -> None:
    """Check that existing files are canary configs.

    Raises:
        UsageError: one is a folder.
        ConfigError: one is not a valid config.
    """
    for name in names:
        if (root / name).is_dir():
            raise UsageError(f"--config {name} is a folder", "give a YAML file")
        if (root / name).exists():
            load_config(root / name, without_command(root / name))


@dataclass(frozen=True)
class Written:
    """The files that `init` wrote and removed."""

    workflows: dict[Path, str]
    configs: tuple[Path, ...]
    """Sample configs, without those that existed already."""
    removed: tuple[Path, ...] = ()
    """Superseded workflows that nobody had edited."""
    edited: tuple[Path, ...] = ()
    """Superseded workflows that someone edited; they are kept."""
    nightly: Path | None = None
    """A nightly config that extends an existing config."""


def write(answers: Answers, root: Path, folder: Path, force: bool = False) -> Written:
    """Write the workflows into `folder`, and missing configs under `root`.

    Without `force`, write nothing if a workflow exists. With it, overwrite workflows, and remove
    superseded ones that nobody edited.

    Raises:
        UsageError: a workflow exists and `force` is off, or an answer cannot be used.
        MachineError: a file cannot be written; then none is.
    """
    workflows = {folder / name: text for name, text in rendered(checked(answers)).items()}
    check_configs(root, answers.configs)
    there = [str(path) for path in workflows if path.exists()]
    if there and not force:
        raise UsageError(f"{', '.join(there)}: already there", "--force overwrites them")
    old = {folder / name: text for name, text in superseded(answers).items()}
    old = {path: text for path, text in old.items() if path.exists()}
    if old and not force:
        raise UsageError(
            f"{', '.join(map(str, old))}: would train each pull request a second time",
            "--force removes workflows of init that nobody edited",
        )
    nightly, samples = _nightly(answers, root), _configs(answers, root)
    texts = {root / path: text for path, text in (samples | nightly).items()} | workflows
    with writing(folder, "init wrote nothing"):
        for path in texts:
            path.parent.mkdir(parents=True, exist_ok=True)
        replace_files(texts)
    removed = tuple(path for path, text in old.items() if _holds(path, text))
    for path in removed:
        path.unlink()
    edited = tuple(path for path in old if path not in removed)
    return Written(workflows, tuple(samples), removed, edited, next(iter(nightly), None))


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def _nightly(answers: Answers, root: Path) -> dict[Path, str]:
    """Return a nightly config that extends an existing config, unless it is there already."""
    first, name = Path(answers.configs[0]), Path(answers.nightly_configs[0])
    if not answers.nightly or (root / name).exists() or not (root / first).exists():
        return {}
    canary = load_config(root / first, without_command(root / first)).config.name
    return {name: nightly_yaml(first.name, canary)}


def _configs(answers: Answers, root: Path) -> dict[Path, str]:
    """Return sample configs for the missing ones."""
    wanted = dict.fromkeys(answers.configs, "smoke")
    if answers.nightly and not (root / answers.configs[0]).exists():
        wanted.setdefault(answers.nightly_configs[0], "nightly")
    return {
        Path(name): sample_yaml(DEFAULT_TRAINER, tier)
        for name, tier in wanted.items()
        if not (root / name).exists()
    }


def summary(answers: Answers, written: Written) -> str:
    """Return what was written, each job's permissions with their reasons, and the next steps."""
    nightly = () if written.nightly is None else (written.nightly,)
    lines = [f"wrote {path}" for path in (*written.workflows, *written.configs, *nightly)]
    lines += [f"removed {path}: superseded" for path in written.removed]
    lines += [
        f"warning: {path} is superseded, but someone edited it. Remove it, or each pull request"
        " trains twice."
        for path in written.edited
    ]
    lines += ["", "Permissions in these workflows (jobs get no others):"]
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
        steps.append(
            f"Set the model and the data in {names}, then try: canary run {answers.configs[0]}"
        )
    if written.nightly is not None:
        steps.append(f"Set max_steps in {written.nightly}, higher than on pull requests.")
    steps.append(
        "Replace rlhf-canary/rlhf-canary@v1 with a commit SHA of the RLHF Canary repository. No"
        " release exists yet."
    )
    if answers.runner == "container" and not answers.image:
        steps.append(
            "Replace the image of zeros. Until a release exists, build an image (docs/clusters.md"
            " of the RLHF Canary repository)."
        )
    if answers.runner == "docker" and not answers.image:
        steps.append(
            "Until a release exists, build an image (docs/clusters.md of the RLHF Canary"
            " repository). Set it by digest, as `image:` in the run steps or with canary init"
            " --image."
        )
    if answers.model_cache:
        steps.append(
            "Create the environment canary-prefetch, with the secret HF_TOKEN if a model is gated."
            " Then run: gh workflow run canary-prefetch.yml"
        )
    if answers.forks:
        steps.append(
            "A fork's author can replace the workflow file and run any command on your GPU runner."
            " In Settings > Actions > General, require approval for all external contributors."
            " Read changes of .github before you approve. Use runners that serve only one job"
            " (docs/security.md of the RLHF Canary repository)."
        )
    steps.append("Commit everything to the default branch: GitHub starts the workflows from there.")
    if answers.compare == "baseline":
        steps.append("Fill the history with three runs: gh workflow run canary-bootstrap.yml")
    steps.append("Once you trust it, require the status rlhf-canary on the default branch.")
    return steps
