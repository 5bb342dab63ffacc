"""Who may ask: our own pages, by the server's names, and only to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.serve.asking import Asking


@pytest.mark.parametrize("host", ["127.0.0.1:8642", "LOCALHOST:9000", "[::1]:8642", "localhost"])
def test_the_names_of_the_loopback_interface_are_answered(tmp_path: Path, host: str) -> None:
    assert Asking(tmp_path).get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8642",
        "localhost.evil.example:8642",
        "127.0.0.1:8642.evil.example",
        "192.168.0.7:8642",
        "0.0.0.0:8642",
        "",
    ],
)
def test_a_name_that_leads_here_by_dns_gets_nothing(tmp_path: Path, host: str) -> None:
    answer = Asking(tmp_path).get("/", headers={"Host": host})
    assert answer.status_code == 403
    assert "Runs in" not in answer.text


def test_nothing_but_reading_is_allowed(tmp_path: Path) -> None:
    client = Asking(tmp_path)
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        for path in ("/", "/run/x", "/nowhere"):
            assert client.request(method, path).status_code == 501, (method, path)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_sites_page_can_load_nothing(tmp_path: Path, site: str) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "empty"}
    client = Asking(tmp_path)
    for path in ("/", "/run/x", "/live.js", "/compare"):
        assert client.get(path, headers=headers).status_code == 403, path


def test_a_link_from_elsewhere_may_be_followed_but_not_into_a_frame(tmp_path: Path) -> None:
    client = Asking(tmp_path)
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/", headers=link | {"Sec-Fetch-Dest": "document"}).status_code == 200
    assert client.get("/", headers=link | {"Sec-Fetch-Dest": "iframe"}).status_code == 403


@pytest.mark.parametrize("path", ["/", "/nowhere"])
def test_every_answer_has_the_headers(tmp_path: Path, path: str) -> None:
    for answer in (
        Asking(tmp_path).get(path),
        Asking(tmp_path).post(path),
        Asking(tmp_path).get(path, headers={"Host": "evil.example"}),
    ):
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in answer.headers
