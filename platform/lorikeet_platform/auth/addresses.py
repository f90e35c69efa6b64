"""Addresses of callers and the networks that a key may be used from. No requests: see `web.addresses`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

KNOWN_ADDRESSES: Final = 4_096
NEIGHBOURHOOD: Final = {4: 24, 6: 64}  # how much of an address is kept: enough to tell places apart
MAPPED: Final = ip_network("::ffff:0:0/96")
# Some proxies write the caller's port behind its address.
_WITH_PORT = re.compile(r"([0-9.]+):[0-9]{1,5}|\[([0-9A-Fa-f:.]+)\](?::[0-9]{1,5})?")


@lru_cache(maxsize=KNOWN_ADDRESSES)
def parse_address(text: str) -> Address | None:
    """An IPv4 address written as an IPv6 one is that IPv4 address."""
    with_port = _WITH_PORT.fullmatch(text)
    try:
        address = ip_address((with_port[1] or with_port[2]) if with_port else text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def parse_network(text: str) -> Network:
    """An address is the network of itself alone; IPv4 networks written as IPv6 ones are IPv4 networks.

    Raises:
        ValueError: it is none, or has bits beyond its prefix.
    """
    network = ip_network(text)
    if isinstance(network, IPv6Network) and network.subnet_of(MAPPED):  # type: ignore[arg-type]
        mapped = network.network_address.ipv4_mapped
        return ip_network(f"{mapped}/{network.prefixlen - 96}")
    return network


def is_within(address: Address, networks: Sequence[Network]) -> bool:
    return any(address in network for network in networks)


def covers(outer: Sequence[Network], inner: Network) -> bool:
    """Whether one of `outer` holds all of `inner`."""
    return any(network.version == inner.version and inner.subnet_of(network) for network in outer)  # type: ignore[arg-type]


@lru_cache(maxsize=KNOWN_ADDRESSES)
def neighbourhood_of(address: Address) -> str:
    return str(ip_network((address.packed, NEIGHBOURHOOD[address.version]), strict=False))
