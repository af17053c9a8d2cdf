"""What the listener settings spell: names, hosts, ports and the security protocol behind each name."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.base.settings.units import INT_MAX

_VOTER = re.compile(r"([0-9]{1,10})@(.+)")
_HOST_AND_PORT = re.compile(r"\[?([0-9a-zA-Z%._:-]+)\]?:([0-9]{1,5})")
_ENDPOINT = re.compile(r"(.+)://\[?([0-9a-zA-Z%._:-]*)\]?:([0-9]{1,5})")

_HIGHEST_PORT = 65535

#: In the order of their numbers.
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
BUILT_SECURITY_PROTOCOLS = SECURITY_PROTOCOLS


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener: its name in capitals, its host (empty for all addresses) and its port (0 for any free one)."""

    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class QuorumVoter:
    """A controller that votes, and where others reach it."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.node_id}@{host}:{self.port}"


def parse_voter(text: str) -> QuorumVoter:
    """Read `id@host:port`. Raises `ValueError` for people to read."""
    match = _VOTER.fullmatch(text)
    if match is None or int(match[1]) > INT_MAX:
        raise ValueError(f"{text!r} does not look like id@host:port")
    return QuorumVoter(int(match[1]), *parse_host_and_port(match[2]))


def parse_host_and_port(text: str) -> tuple[str, int]:
    """Read `host:port`; an IPv6 address stands in brackets. Raises `ValueError` for people to read."""
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} does not look like host:port")
    if int(match[2]) > _HIGHEST_PORT:
        raise ValueError(f"{text!r} has port {match[2]}, and the highest is {_HIGHEST_PORT}")
    return match[1], int(match[2])


def parse_endpoint(text: str) -> Endpoint:
    """Read `NAME://host:port`; an IPv6 address stands in brackets. Raises `ValueError` for people to read."""
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match[3]) > _HIGHEST_PORT:
        raise ValueError(f"{text!r} does not look like NAME://host:port")
    return Endpoint(match[1].upper(), match[2], int(match[3]))


def parse_pairs(text: str, example: str) -> dict[str, str]:
    """Read `left:right,left:right`. The left side may hold colons, as IPv6 addresses do. Raises `ValueError`."""
    pairs = {}
    for pair in filter(None, (each.strip() for each in text.split(","))):
        left, colon, right = pair.rpartition(":")
        if not colon or not left.strip() or not right.strip():
            raise ValueError(f"{pair!r} does not look like {example}")
        pairs[left.strip()] = right.strip()
    return pairs


def what_is_wrong_with(
    endpoints: Iterable[Endpoint], protocols: Mapping[str, str], controller_listeners: Iterable[str] = ()
) -> str | None:
    """Why these listeners cannot be opened together, if they cannot, or those of controllers not be reached."""
    by_name: dict[str, Endpoint] = {}
    by_port: dict[int, list[Endpoint]] = {}
    for endpoint in endpoints:
        if endpoint.listener in by_name:
            return f"two listeners are named {endpoint.listener}"
        by_name[endpoint.listener] = endpoint
        if endpoint.port:
            by_port.setdefault(endpoint.port, []).append(endpoint)
    for port, sharing in by_port.items():
        # One IPv4 and one IPv6 address are different places even on one port.
        if len(sharing) > 1 and sorted(_ip_version(each.host) for each in sharing) != [4, 6]:
            return f"{' and '.join(each.listener for each in sharing)} share port {port}"
    for name in dict.fromkeys((*by_name, *controller_listeners)):
        protocol = protocols.get(name)
        if protocol is None:
            return f"listener.security.protocol.map does not say which protocol {name} uses"
        if protocol not in BUILT_SECURITY_PROTOCOLS:
            return f"{name} uses {protocol}, which is not built yet; use {', '.join(BUILT_SECURITY_PROTOCOLS)}"
    return None


def _ip_version(host: str) -> int:
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0
