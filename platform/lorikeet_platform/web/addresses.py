"""Where a request comes from: the peer, or what a proxy that we trust says of it.

X-Forwarded-For is a list to which every proxy appends whom it was called by, so only its right end can be believed, and
only as far as trusted proxies wrote it: the caller is the rightmost address that is not one of theirs. From anybody
else the header is a claim of the caller's, and ignored. Host names of other headers mean nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request

from lorikeet_platform.auth.addresses import Address, Network, is_within, parse_address


def client_address(request: Request, trusted_proxies: Sequence[Network]) -> Address | None:
    """None where it cannot be known: a socket file, or a trusted proxy that writes no address."""
    peer = parse_address(request.client.host) if request.client is not None else None
    if peer is None or not is_within(peer, trusted_proxies):
        return peer
    hops = [hop for line in request.headers.getlist("x-forwarded-for") for hop in line.split(",")]
    nearest: Address | None = peer
    for hop in reversed(hops):
        nearest = parse_address(hop.strip())
        if nearest is None or not is_within(nearest, trusted_proxies):
            break
    return nearest
