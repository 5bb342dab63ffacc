"""Who may ask: our own pages, by the server's names, with its token, and only to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from canary.serve.guard import Entrance
from tests.unit.serve.asking import asking

TOKEN = "a-token-of-some-length"


@pytest.mark.parametrize("host", ["127.0.0.1:8642", "LOCALHOST:8642", "[::1]:8642"])
def test_the_names_of_the_loopback_interface_are_answered(tmp_path: Path, host: str) -> None:
    assert asking(tmp_path).get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8642",
        "localhost",
        "localhost:80",
        "localhost.evil.example:8642",
        "127.0.0.1:8642.evil.example",
        "192.168.0.7:8642",
        "0.0.0.0:8642",
        "",
    ],
)
def test_a_name_that_leads_here_by_dns_gets_nothing(tmp_path: Path, host: str) -> None:
    answer = asking(tmp_path).get("/", headers={"Host": host})
    assert answer.status_code == 403
    assert "Runs in" not in answer.text


def test_nothing_but_reading_is_allowed(tmp_path: Path) -> None:
    client = asking(tmp_path)
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        for path in ("/", "/run/x", "/nowhere"):
            assert client.request(method, path).status_code == 405, (method, path)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_sites_page_can_load_nothing(tmp_path: Path, site: str) -> None:
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "empty"}
    client = asking(tmp_path)
    for path in ("/", "/run/x", "/live.js", "/compare"):
        assert client.get(path, headers=headers).status_code == 403, path


def test_a_link_from_elsewhere_may_be_followed_but_not_into_a_frame(tmp_path: Path) -> None:
    client = asking(tmp_path)
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/", headers=link | {"Sec-Fetch-Dest": "document"}).status_code == 200
    assert client.get("/", headers=link | {"Sec-Fetch-Dest": "iframe"}).status_code == 403


@pytest.mark.parametrize("path", ["/", "/nowhere"])
def test_every_answer_has_the_headers(tmp_path: Path, path: str) -> None:
    for answer in (
        asking(tmp_path).get(path),
        asking(tmp_path).post(path),
        asking(tmp_path).get(path, headers={"Host": "evil.example"}),
    ):
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in answer.headers


def test_without_the_token_nothing_is_shown(tmp_path: Path) -> None:
    client = asking(tmp_path, token=TOKEN)
    for path in ("/", "/run/x", "/live.js", "/?token=", "/?token=wrong", "/?token=%ff"):
        answer = client.get(path)
        assert answer.status_code == 403
        assert TOKEN not in answer.text
    client.cookies.set("canary_8642", "wrong")
    assert client.get("/").status_code == 403


def test_the_token_becomes_a_cookie_and_leaves_the_address(tmp_path: Path) -> None:
    client = asking(tmp_path, token=TOKEN)
    answer = client.get(f"/history?name=a%20b&token={TOKEN}")
    assert answer.status_code == 303
    assert answer.headers["Location"] == "/history?name=a+b"
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith(f"canary_8642={TOKEN};")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert client.get("/").status_code == 200


def test_the_redirect_cannot_lead_to_another_server(tmp_path: Path) -> None:
    answer = asking(tmp_path, token=TOKEN).get(
        f"http://127.0.0.1:8642//evil.example/?token={TOKEN}"
    )
    assert answer.headers["Location"] == "/evil.example/"


def test_on_every_address_the_token_replaces_the_name() -> None:
    open_to_all = Entrance("0.0.0.0", 8642, TOKEN)
    assert open_to_all.knows("gpu-box.example:8642")
    named = Entrance("gpu-box.example", 8642, TOKEN)
    assert named.knows("gpu-box.example:8642")
    assert not named.knows("evil.example:8642")


def test_the_token_is_not_in_the_entrances_text() -> None:
    assert TOKEN not in repr(Entrance("0.0.0.0", 8642, TOKEN))
