"""`canary init`: write the workflow and configs, print the next steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from canary.config.load import load_config
from canary.config.samples import nightly_yaml, sample_yaml
from canary.config.trainers import DEFAULT_TRAINER
from canary.errors import UsageError, writing
from canary.files import replace_files
from canary.gate.base_config import without_command
from canary.gate.inputs import nightly_of
from canary.gate.workflows import Answers, Runner, rendered
from canary.machine.git import Unread, read_git

RUNNERS: dict[Runner, str] = {
    "docker": "an NVIDIA driver, docker and the NVIDIA Container Toolkit",
    "container": "to run jobs in containers with a GPU (docs/action.md)",
    "none": "Python 3.11 or newer with rlhf-canary[train]; its network stays on while it trains",
}
"""What each kind of runner needs."""


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


def write(answers: Answers, root: Path, folder: Path, force: bool = False) -> str:
    """Write the workflows into `folder`, and missing configs under `root`. Return what was written,
    and the next steps.

    Without `force`, write nothing if a workflow exists. With it, overwrite workflows.

    Raises:
        UsageError: a workflow exists and `force` is off, or an answer cannot be used.
        MachineError: a file cannot be written; then none is.
    """
    workflows = {folder / name: text for name, text in rendered(answers).items()}
    check_configs(root, answers.configs)
    there = [str(path) for path in workflows if path.exists()]
    if there and not force:
        raise UsageError(f"{', '.join(there)}: already there", "use --force to overwrite")
    samples = {
        Path(name): sample_yaml(DEFAULT_TRAINER)
        for name in answers.configs
        if not (root / name).exists()
    }
    longer = _nightly(answers, root)
    texts = {root / path: text for path, text in (samples | longer).items()} | workflows
    with writing(folder, "init wrote nothing"):
        for path in texts:
            path.parent.mkdir(parents=True, exist_ok=True)
        replace_files(texts)
    steps = [f"Set max_steps in {path}, higher than on pull requests." for path in longer]
    if samples:
        names = f"{', '.join(map(str, samples))}, then try: canary run {answers.configs[0]}"
        steps.insert(0, f"Set the model and the data in {names}")
    steps += _on_github(answers)
    return "\n".join(
        [
            *(f"wrote {path}" for path in (*workflows, *samples, *longer)),
            "\nNext:",
            *(f"{number:>3}. {step}" for number, step in enumerate(steps, start=1)),
        ]
    )


def _nightly(answers: Answers, root: Path) -> dict[Path, str]:
    """Return a nightly config that extends the first config, unless it is there already."""
    first, longer = Path(answers.configs[0]), Path(nightly_of(answers.configs[0]))
    if answers.hosted or not answers.nightly or (root / longer).exists():
        return {}
    name = f"{DEFAULT_TRAINER}_smoke"
    if (root / first).exists():
        name = load_config(root / first, without_command(root / first)).config.name
    return {longer: nightly_yaml(first.name, name)}


def _on_github(answers: Answers) -> Iterator[str]:
    if answers.hosted:
        yield (
            "Replace URL@COMMIT with the address and a commit of the RLHF Canary repository. Name"
            " your packages in requirements.txt. Your model must fit a hosted machine."
        )
        yield "Commit everything, then open a pull request."
        return
    if answers.runner != "none" and not answers.image:
        yield (
            "Until a release exists, build an image (docs/clusters.md of the RLHF Canary"
            " repository), and name it by digest: canary init --image NAME@sha256:... --force"
        )
    yield (
        "Replace rlhf-canary/rlhf-canary@v1 with your copy of the RLHF Canary repository and a"
        " commit: OWNER/REPOSITORY@SHA. No release exists yet."
    )
    yield (
        f"The runner ({', '.join(answers.labels)}) needs {RUNNERS[answers.runner]}. Without one:"
        " canary init --runner hosted --force judges what is learned on a CPU machine of GitHub."
    )
    if answers.model_cache:
        yield (
            "Create the environment canary-prefetch for the default branch alone, with the secret"
            " HF_TOKEN if a model is gated. Then run: gh workflow run canary.yml -f task=prefetch"
        )
    if answers.forks:
        yield (
            "A fork's author can replace the workflow file and run any command on your GPU runner."
            " In Settings > Actions > General, require approval for all external contributors."
            " Read changes of .github before you approve. Use runners that serve only one job"
            " (docs/security.md of the RLHF Canary repository)."
        )
    yield "Commit everything to the default branch: GitHub starts the workflow from there."
    if answers.compare == "baseline":
        yield "Fill the history with three runs: gh workflow run canary.yml -f task=bootstrap"
    yield "Once you trust it, require the status rlhf-canary on the default branch."
