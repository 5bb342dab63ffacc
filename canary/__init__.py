"""RLHF Canary: a short training run on every change, compared with the runs before it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from canary.training.recorder import Recorder as Recorder

__version__ = "1.0.0"


def __getattr__(name: str) -> Any:
    """Import `canary.Recorder` on first use, because it needs torch."""
    if name == "Recorder":
        from canary.training.recorder import Recorder

        return Recorder
    raise AttributeError(f"module 'canary' has no attribute {name!r}")


def _html(shown: Any) -> str:
    from canary.report import inline

    return inline.shown(shown)._repr_html_()


def _show_in_notebooks() -> None:
    """Let a notebook show records and comparisons as tables. Nothing is loaded before it does."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        html = shell.display_formatter.formatters["text/html"]
        html.for_type_by_name("canary.record.types", "RunRecord", _html)
        html.for_type_by_name("canary.compare.report", "Comparison", _html)


_show_in_notebooks()
