"""Where nodes of ours tell what they measure, and what they tell: their metrics listeners, asked by HTTP.

Which ones there are is said by `--metrics`, or by the brokers: `metrics.listener` is a setting of theirs. Another Kafka
has no such setting, and is not asked.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import os
import ssl
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import click

from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.cli.top.figures import NodeFigures, figures_of
from barnabas.net.errors import UnsupportedRequestError

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, ClusterDescription, ConfigEntry, ConfigResource
    from barnabas.client.core.cluster_view import Node

SETTING: Final = "metrics.listener"
_PATH: Final = "/metrics"
_ANSWER_S: Final = 5.0
_LOOKS_BETWEEN: Final = 10
_MOST_BYTES: Final = 64 * 1024 * 1024
#: A node that listens everywhere does not say where it is.
_EVERYWHERE: Final = frozenset({"", "*", "0.0.0.0", "::"})
_DENIED: Final = 401
_SECURED: Final = "SSL://"


class MetricsAddress(NamedTuple):
    """A metrics listener. `broker_id` is None until it has told."""

    host: str
    port: int
    broker_id: int | None = None
    is_secured: bool = False
    login: str | None = None

    @property
    def text(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ScrapeError(BarnabasError):
    """A metrics listener did not tell."""


def parse_addresses(text: str | None) -> tuple[MetricsAddress, ...] | None:
    """What `--metrics` says: HOST:PORT or a URL, `https://user:password@HOST:PORT` say, each. None if it was not
    given."""
    if text is None:
        return None
    found = []
    for word in filter(None, (each.strip() for each in text.split(","))):
        try:
            parts = urlsplit(word if "://" in word else f"http://{word}")
            host, port = parts.hostname, parts.port
        except ValueError:
            raise _unreadable(word) from None
        if host is None or port is None or parts.scheme not in ("http", "https"):
            raise _unreadable(word)
        login = None if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        found.append(MetricsAddress(host, port, None, parts.scheme == "https", login))
    return tuple(found)


def _unreadable(word: str) -> click.UsageError:
    return click.UsageError(f"--metrics {word}: write it as HOST:PORT, or as a URL with both")


class Scraper:
    """Asks nodes for their metrics; which ones, it is told or finds out."""

    def __init__(self, given: Sequence[MetricsAddress] | None) -> None:
        self._given = given
        #: Of each broker that has told; None for those without a listener.
        self._found: dict[int, MetricsAddress | None] = {}
        #: In how many looks a broker is asked again that has not told.
        self._looks_to_pass: dict[int, int] = {}

    async def scrape(self, admin: Admin, cluster: ClusterDescription) -> tuple[dict[int, NodeFigures], list[str]]:
        """What each node tells, and of those who do not, why."""
        addresses = self._given if self._given is not None else await self._find(admin, cluster)
        answers = await asyncio.gather(*map(_figures, addresses), return_exceptions=True)
        nodes: dict[int, NodeFigures] = {}
        problems = []
        for address, answer in zip(addresses, answers, strict=True):
            if isinstance(answer, BaseException):
                if not isinstance(answer, ScrapeError):
                    raise answer
                problems.append(f"metrics of {address.text}: {answer}")
                if address.broker_id is not None:
                    # It may have started anew, with another listener.
                    self._found.pop(address.broker_id, None)
                continue
            number = answer.node_id if answer.node_id is not None else address.broker_id
            if number is None:
                problems.append(f"metrics of {address.text}: they do not say of which node they are")
            elif None not in (answer.cluster_id, cluster.cluster_id) and answer.cluster_id != cluster.cluster_id:
                problems.append(f"metrics of {address.text}: they are of another cluster, {answer.cluster_id}")
            elif address.broker_id not in (None, number):
                # A broker that listens on its own machine alone is not to be reached from another.
                problems.append(f"metrics of broker {address.broker_id}: at {address.text} is node {number}")
            else:
                nodes[number] = answer
        return nodes, problems

    async def _find(self, admin: Admin, cluster: ClusterDescription) -> tuple[MetricsAddress, ...]:
        """By the settings of brokers: each is asked until it has told, or refused to, and rarely if it does not answer:
        to wait for that takes long."""
        at_work = {each.node_id: each for each in cluster.nodes if each.node_id not in cluster.fenced}
        for gone in self._found.keys() - at_work.keys():
            del self._found[gone]
        self._looks_to_pass = {number: looks - 1 for number, looks in self._looks_to_pass.items() if looks > 1}
        unasked = sorted(at_work.keys() - self._found.keys() - self._looks_to_pass.keys())
        told = await _listeners(admin, unasked)
        self._looks_to_pass |= dict.fromkeys(set(unasked) - told.keys(), _LOOKS_BETWEEN)
        for number, listener in told.items():
            self._found[number] = _address(listener, at_work[number]) if listener else None
        return tuple(each for each in self._found.values() if each is not None)


async def _listeners(admin: Admin, brokers: Sequence[int]) -> dict[int, str | None]:
    """The setting of each broker that answers; None if it has none, or tells it not to us. What every client may see
    is shown in any case."""
    from barnabas.client.admin import ConfigResource, ConfigResourceType
    from barnabas.client.errors import KeyedError

    resources = {ConfigResource(ConfigResourceType.BROKER, str(number)): number for number in brokers}
    if not resources:
        return {}
    configs: Mapping[ConfigResource, Mapping[str, ConfigEntry]] = {}
    errors: Mapping[ConfigResource, BaseException] = {}
    try:
        configs = await admin.describe_configs(list(resources), timeout=_ANSWER_S)
    except KeyedError as problem:
        configs, errors = problem.results, problem.errors
    except BarnabasError as problem:
        errors = dict.fromkeys(resources, problem)
    entries = {resources[each]: config.get(SETTING) for each, config in configs.items()}
    refusals = (each for each, error in errors.items() if _is_refusal(error))
    told = {number: None if entry is None else entry.value for number, entry in entries.items()}
    return told | {resources[each]: None for each in refusals}


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, UnsupportedRequestError) or (isinstance(error, BrokerError) and not error.code.retriable)


def _address(listener: str, broker: Node) -> MetricsAddress | None:
    """Where a broker's listener is, seen from here; None for a port that only the broker knows."""
    host, _, port = listener.removeprefix(_SECURED).rpartition(":")
    host = host.strip("[]")
    if not port.isdecimal() or not int(port):
        return None
    is_secured = listener.startswith(_SECURED)
    return MetricsAddress(broker.host if host in _EVERYWHERE else host, int(port), broker.node_id, is_secured)


async def _figures(address: MetricsAddress) -> NodeFigures:
    try:
        async with asyncio.timeout(_ANSWER_S):
            return figures_of(await _get(address))
    except TimeoutError:
        raise ScrapeError(f"no answer within {_ANSWER_S:.0f} s") from None
    except asyncio.LimitOverrunError:
        raise ScrapeError("the head of its answer does not end") from None
    except OSError as problem:
        raise ScrapeError(_why(problem)) from problem
    # A name that is none is a ValueError, and so is a number that is none in what it tells.
    except (ValueError, asyncio.IncompleteReadError) as problem:
        raise ScrapeError(str(problem) or type(problem).__name__) from problem


def _why(problem: OSError) -> str:
    """In words: asyncio tells of addresses and numbers of errors, and of a name with two addresses both."""
    refused = f"[Errno {errno.ECONNREFUSED}]"
    if isinstance(problem, ConnectionRefusedError) or refused in str(problem):
        return "nobody answers there"
    if problem.errno is not None and problem.errno > 0 and not isinstance(problem, ssl.SSLError):
        return os.strerror(problem.errno)
    return problem.strerror or str(problem) or type(problem).__name__


async def _get(address: MetricsAddress) -> str:
    """The text of one scrape."""
    # Certificates are checked by what the system trusts, or by what SSL_CERT_FILE names.
    context = ssl.create_default_context() if address.is_secured else None
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    try:
        lines = [f"GET {_PATH} HTTP/1.1", f"Host: {address.text}", "Connection: close", "User-Agent: barnabas-top"]
        if address.login is not None:
            lines.append(f"Authorization: Basic {base64.b64encode(address.login.encode()).decode()}")
        writer.write("\r\n".join([*lines, "", ""]).encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status = head.split(" ", 2)[1:2]
        if status != ["200"]:
            hint = "; give it as http://user:password@HOST:PORT" if status == [str(_DENIED)] else ""
            raise ScrapeError(f"it answers {' '.join(head.partition(chr(13))[0].split()[1:])}{hint}")
        body = bytearray()
        while piece := await reader.read(1 << 16):
            body += piece
            if len(body) > _MOST_BYTES:
                raise ScrapeError("its answer does not end")
        return body.decode(errors="replace")
    finally:
        writer.close()
