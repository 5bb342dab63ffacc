"""Accept only GitHub's answers: the expected JSON, from the API's address.

PyGithub would treat an HTML page as an object without attributes, and a redirect as success.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from github import Github

MOST_REDIRECTS = 3
EMPTY = (202, 204, 205, 304)
"""Statuses whose answer may have no body."""
REDIRECTS = (301, 302, 303, 307, 308)
ODD = "run the job again; if it fails twice, check the proxy and GITHUB_API_URL"
"""Remedy for an answer that is not GitHub's."""
ANY_METHOD = (307, 308)
"""Redirects that keep method and body; the others are followed only for reads."""


class NotGithubs(requests.RequestException):
    """An answer that did not come from GitHub's API; the message is ours."""


class Redirected(NotGithubs):
    """A redirect that is not followed."""


def page(status: int) -> str:
    """Return the message for an HTML page, mostly from a proxy."""
    return f"GitHub answered {status} with a page that is not JSON"


def only_github(github: Github, api_url: str) -> None:
    """Make a client raise `NotGithubs` for answers that are not from GitHub's API.

    It follows redirects only at the API's address, so that the token goes nowhere else.
    """
    requester = github.requester
    ask = requester.requestJson

    def asked(verb: str, url: str, *values: Any, **named: Any) -> tuple[int, dict[str, Any], str]:
        named["follow_302_redirect"] = False  # The loop below follows redirects.
        for _ in range(MOST_REDIRECTS):
            try:
                status, headers, body = ask(verb, url, *values, **named)
            except RuntimeError as error:  # PyGithub raises it for a 301 to another host.
                raise Redirected("GitHub redirects to another address") from error
            if status not in REDIRECTS:
                _check(status, body)
                return status, headers, body
            url = _followed(api_url, verb, status, headers.get("location", ""))
            values = (None, *values[1:])  # The new address contains the parameters.
        raise Redirected("GitHub redirects too often")

    requester.requestJson = asked  # type: ignore[method-assign]  # All its objects use it.


def _followed(api_url: str, verb: str, status: int, location: str) -> str:
    """Return a redirect's address if it is on the API's host."""
    there = urljoin(f"{api_url}/", location)
    api, other = urlsplit(api_url), urlsplit(there)
    if not location or (api.scheme, api.netloc) != (other.scheme, other.netloc):
        raise Redirected("GitHub redirects to another address")
    if verb != "GET" and status not in ANY_METHOD:
        raise Redirected(f"GitHub redirects a write request ({status})")
    return there


def _check(status: int, body: str) -> None:
    try:
        found = json.loads(body) if body else None
    except (ValueError, RecursionError):
        raise NotGithubs(page(status)) from None
    if status < 400:
        known = isinstance(found, dict | list) or (found is None and status in EMPTY)
    else:
        known = isinstance(found, dict) and isinstance(found.get("message"), str)
    if not known:
        raise NotGithubs(f"GitHub answered {status} with unexpected JSON")
