"""What counts as an answer of GitHub's: JSON of its kind, from its own address.

PyGithub takes a page of HTML for an object without attributes, and an unknown redirect for success.
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
"""What to do about an answer that is not GitHub's."""
ANY_METHOD = (307, 308)
"""Redirects that keep method and body; the others are followed for reads alone."""


class NotGithubs(requests.RequestException):
    """An answer that is not one of GitHub's API, in a sentence of ours."""


class Redirected(NotGithubs):
    """A redirect that is not followed."""


def page(status: int) -> str:
    """A page of HTML, mostly a proxy's, in a sentence of ours."""
    return f"GitHub answered {status} with a page that is not JSON"


def only_github(github: Github, api_url: str) -> None:
    """Holds every answer to a client to what GitHub's API gives; others raise `NotGithubs`.

    A redirect is followed at the API's own address alone: nothing, and no token, goes elsewhere.
    """
    requester = github.requester
    ask = requester.requestJson

    def asked(verb: str, url: str, *values: Any, **named: Any) -> tuple[int, dict[str, Any], str]:
        named["follow_302_redirect"] = False  # Ours are followed below.
        for _ in range(MOST_REDIRECTS):
            try:
                status, headers, body = ask(verb, url, *values, **named)
            except RuntimeError as error:  # PyGithub's, for a 301 to another host.
                raise Redirected("GitHub redirects to another address") from error
            if status not in REDIRECTS:
                _check(status, body)
                return status, headers, body
            url = _followed(api_url, verb, status, headers.get("location", ""))
            values = (None, *values[1:])  # The new address names the parameters itself.
        raise Redirected("GitHub redirects without end")

    requester.requestJson = asked  # type: ignore[method-assign]  # All that it makes share it.


def _followed(api_url: str, verb: str, status: int, location: str) -> str:
    """Where a redirect leads at the API's own address."""
    there = urljoin(f"{api_url}/", location)
    own, other = urlsplit(api_url), urlsplit(there)
    if not location or (own.scheme, own.netloc) != (other.scheme, other.netloc):
        raise Redirected("GitHub redirects to another address")
    if verb != "GET" and status not in ANY_METHOD:
        raise Redirected(f"GitHub redirects what we asked it to write ({status})")
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
        raise NotGithubs(f"GitHub answered {status} with JSON of an unknown kind")
