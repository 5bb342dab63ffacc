"""Who may ask: pages of this server, by its names. And the headers of every answer.

A page of another site can send requests to the loopback interface. Its own name can lead here too
(DNS rebinding). Neither may read a run.
"""

from __future__ import annotations

import re
from email.message import Message

from canary.report.render import asset, source_of

LOOPBACK = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?", re.ASCII | re.IGNORECASE)
"""Names of this server. ssh may forward another port."""
OURS = ("same-origin", "none")
"""`Sec-Fetch-Site` of our own pages, and of an address that the user typed."""


def answer_headers() -> dict[str, str]:
    """Return the headers of every answer. The policy allows our scripts and styles, and requests
    to this server only."""
    policy = (
        "default-src 'none'",
        f"style-src 'self' {source_of(asset('report.css'))}",
        f"script-src 'self' {source_of(asset('report.js'))}",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
    return {
        "Content-Security-Policy": "; ".join(policy),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cache-Control": "no-store",
    }


def refusal(headers: Message) -> str:
    """Return why a request is not answered; empty if it may be."""
    names = headers.get_all("Host", [])
    if len(names) != 1 or not LOOPBACK.fullmatch(names[0]):
        return "This is not the address of this server."
    # A link to a page may be followed.
    follows_link = headers.get("Sec-Fetch-Mode") == "navigate"
    in_window = headers.get("Sec-Fetch-Dest") == "document"
    is_ours = headers.get("Sec-Fetch-Site", "none") in OURS or (follows_link and in_window)
    return "" if is_ours else "Another site asked."
