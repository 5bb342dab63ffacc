"""What goes with the files: a software bill of materials, a provenance statement, hashes."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from tools.release_candidate.artifacts import sha256
from tools.release_candidate.commands import run
from tools.release_candidate.environments import Environment
from tools.release_candidate.outcomes import CheckFailed
from tools.release_candidate.source import Source

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "https://github.com/rlhf-canary/rlhf-canary/blob/main/docs/releases.md#provenance"
REPOSITORY = "git+https://github.com/rlhf-canary/rlhf-canary"
HASHES = "SHA256SUMS"
"""As `sha256sum --check` reads it."""


def write_sbom(
    tools: Path, source: Source, environment: Environment, folder: Path, name: str
) -> Path:
    """Write what is installed in an environment as CycloneDX, and compare it with the truth.

    Raises:
        CheckFailed: the wheel or an installed package is missing in it.
    """
    file = folder / f"rlhf_canary-{source.version}.{name}.cdx.json"
    words = [tools, "-m", "cyclonedx_py", "environment", "--pyproject"]
    options = ["--sv", "1.6", "--of", "JSON", "--output-reproducible", "-o"]
    log = folder.parent / "logs" / "sbom.log"
    project = folder.parent / "logs" / "pyproject.toml"  # it has no version of its own
    text = (source.root / "pyproject.toml").read_text(encoding="utf-8")
    version = f'version = "{source.version}"'
    project.write_text(text.replace('dynamic = ["version"]', version), encoding="utf-8")
    run([*words, project, *options, file, environment.python], log)
    listed = json.loads(run([environment.python, "-m", "pip", "list", "--format", "json"], log))
    problems = sbom_problems(json.loads(file.read_text(encoding="utf-8")), listed, source.version)
    if problems:
        raise CheckFailed("; ".join(problems))
    return file


def sbom_problems(
    sbom: dict[str, Any], installed: Sequence[dict[str, str]], version: str
) -> list[str]:
    """Return which installed packages a bill of materials does not list."""
    own = sbom["metadata"]["component"]
    parts = [own, *sbom.get("components", ())]
    named = {(canonicalize_name(part["name"]), part.get("version")) for part in parts}
    wanted = {(canonicalize_name(one["name"]), one["version"]) for one in installed}
    missing = sorted(name for name, _ in wanted - named)
    problems = [f"the SBOM lacks {', '.join(missing)}"] if missing else []
    if (canonicalize_name(own["name"]), own.get("version")) != ("rlhf-canary", version):
        problems.append(f"the SBOM is of {own['name']} {own.get('version')}")
    return problems


def write_provenance(
    source: Source, folder: Path, began: datetime, tools: Mapping[str, str]
) -> Path:
    """Write an in-toto statement with SLSA provenance of all files of the folder; not signed.

    `tools`: what built them, name -> version.
    """
    file = folder / f"rlhf_canary-{source.version}.provenance.json"
    file.unlink(missing_ok=True)
    subjects = [{"name": path.name, "digest": {"sha256": sha256(path)}} for path in _files(folder)]
    statement = {
        "_type": STATEMENT,
        "subject": subjects,
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"version": source.version},
                "resolvedDependencies": [
                    {"uri": REPOSITORY, "digest": {"gitCommit": source.commit}},
                    *({"uri": f"pkg:pypi/{name}@{version}"} for name, version in tools.items()),
                ],
            },
            "runDetails": {
                "builder": {
                    "id": f"{BUILD_TYPE}-by-hand",
                    "version": {"python": platform.python_version()},
                },
                "metadata": {
                    "startedOn": began.strftime("%Y-%m-%dT%H:%M:%SZ"),
                    "finishedOn": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                },
            },
        },
    }
    file.write_text(json.dumps(statement, indent=2) + "\n", encoding="utf-8")
    return file


def write_hashes(folder: Path) -> Path:
    """Write the hash of each file of the folder."""
    file = folder / HASHES
    lines = [f"{sha256(path)}  {path.name}\n" for path in _files(folder)]
    file.write_text("".join(lines), encoding="utf-8")
    return file


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.name != HASHES]
