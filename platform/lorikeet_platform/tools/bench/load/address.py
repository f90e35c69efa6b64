"""Addresses of servers, as requests use them and as they are shown and recorded, and the keys that go with them."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit


def normalised(url: str) -> str:
    """Base addresses are written with and without the `/v1` that the routes begin with."""
    return url.rstrip("/").removesuffix("/v1")


def shown(url: str) -> str:
    """Without the name and the password before its host and without its query, which are nobody else's business."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def trouble_with(url: str, *, has_key: bool) -> str:
    """Why nothing can be asked at that base address; empty when it can."""
    try:
        parts = urlsplit(url)
        is_server = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "that is no address of a server"
    if not is_server:
        return f"{shown(url)} is no address of a server: it begins with http:// or https:// and a host"
    if parts.query or parts.fragment:
        return f"{shown(url)} has a query or a fragment behind it; a server's address has none"
    if has_key and "@" in parts.netloc:
        return f"{shown(url)} has a name and a password before its host, and there is a key as well; give one of them"
    return ""


def fits_header(key: str) -> bool:
    """Keys are printable ASCII; a header with anything else is refused where it is made."""
    return key.isascii() and key.isprintable() and key == key.strip()
