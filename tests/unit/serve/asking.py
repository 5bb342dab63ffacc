"""A browser's requests to the application, without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from canary.serve.app import application
from canary.serve.guard import Entrance
from canary.serve.pages import Site

HERE = "http://127.0.0.1:8642"


def asking(root: Path, *, host: str = "127.0.0.1", token: str = "", **site: Any) -> TestClient:
    """A client of a server that shows this folder."""
    app = application(Site(root, **site), Entrance(host, 8642, token))
    return TestClient(app, HERE, follow_redirects=False)
