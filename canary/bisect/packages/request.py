"""The arguments of `canary bisect --packages`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from canary.bisect.bisect import BisectRequest
from canary.bisect.finding import Wish
from canary.errors import UsageError


@dataclass(frozen=True)
class PackagesRequest:
    """What is searched, and how it runs."""

    config: Path | None
    """None: the config of a record."""
    good: Path
    bad: Path
    wish: Wish
    settings: tuple[str, ...] = ()
    output_dir: Path | None = None
    find_links: Path | None = None
    commits: bool = False
    """Search the commits too."""
    good_commit: str | None = None
    """None: that of the record."""
    bad_commit: str | None = None
    typed: str = "canary bisect"
    """The command as the user typed it, to continue with."""

    @classmethod
    def of(
        cls,
        asked: BisectRequest,
        config: Path | None,
        packages: tuple[Path, Path],
        find_links: Path | None,
        commits: bool,
        good: str | None,
        bad: str | None,
    ) -> PackagesRequest:
        """Return the request with what both kinds of bisect share.

        Raises:
            UsageError: options contradict each other.
        """
        if asked.setup is not None:
            raise UsageError(
                "--setup does not go with --packages",
                "the lists say what is installed, and your own code is used as it is",
            )
        if bad is not None and good is None and not commits:
            raise UsageError("--bad needs --good", "--good names the commit where it was good")
        return cls(
            config,
            *packages,
            asked.wish(),
            asked.settings,
            asked.output_dir,
            find_links,
            commits or good is not None,
            good,
            bad,
            asked.typed,
        )
