"""`barnabas broker-api-versions`: which requests each broker understands. Kafka's `kafka-broker-api-versions`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.base.errors import BarnabasError
from barnabas.cli.main import FAILED
from barnabas.cli.output import is_terminal, print_json, print_table, say, shown

if TYPE_CHECKING:
    from barnabas.client.settings import AdminSettings
    from barnabas.net.channel import Channel

_CLIENT_ID: Final = "barnabas-broker-api-versions"


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker as the cluster tells of it."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool

    def __str__(self) -> str:
        rack = "null" if self.rack is None else self.rack
        fenced = "true" if self.is_fenced else "false"
        return f"{self.host}:{self.port} (id: {self.broker_id} rack: {rack} isFenced: {fenced})"


@dataclass(frozen=True, slots=True)
class Offer:
    """One kind of request: what the broker offers of it, if anything, and what of that we can use."""

    name: str
    key: int
    offered: tuple[int, int] | None
    usable: str

    @property
    def range_text(self) -> str:
        if self.offered is None:
            return ""
        low, high = self.offered
        return str(low) if low == high else f"{low} to {high}"

    def __str__(self) -> str:
        return f"{self.name}({self.key}): " + (f"{self.range_text}{self.usable}" if self.offered else "UNSUPPORTED")


@click.command()
@click.option(
    "--bootstrap-server", required=True, metavar="HOST:PORT", help="A broker to ask first; or several, by ','."
)
@click.option("--command-config", metavar="FILE", help="Settings of the client, as in client.properties.")
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
def broker_api_versions(bootstrap_server: str, command_config: str | None, as_json: bool) -> int:
    """Show which requests each broker of a cluster understands, and in which versions.

    \b
    Example:
      barnabas broker-api-versions --bootstrap-server 127.0.0.1:9092
    """
    from barnabas.base.properties import load_properties_file
    from barnabas.client.settings import AdminSettings

    sources: list[Any] = [load_properties_file(command_config)] if command_config else []
    settings = AdminSettings.load(*sources, {"bootstrap.servers": bootstrap_server})
    answers = asyncio.run(_ask(settings))
    if as_json:
        print_json([_values(broker, answer) for broker, answer in answers])
    else:
        for broker, answer in answers:
            _show(broker, answer)
    return FAILED if any(isinstance(answer, BarnabasError) for _, answer in answers) else 0


async def _ask(settings: AdminSettings) -> list[tuple[Broker, list[Offer] | BarnabasError]]:
    brokers = await _brokers(settings)
    answers = await asyncio.gather(*(_offers(settings, broker) for broker in brokers))
    return list(zip(brokers, answers, strict=True))


def _channel(settings: AdminSettings, host: str, port: int) -> Channel:
    from barnabas.client.security import security_of
    from barnabas.net.channel import Channel, ChannelLimits

    limits = ChannelLimits(
        request_timeout_ms=settings.request_timeout_ms,
        socket_connection_setup_timeout_ms=settings.socket_connection_setup_timeout_ms,
        socket_connection_setup_timeout_max_ms=settings.socket_connection_setup_timeout_max_ms,
    )
    name = settings.client_id or _CLIENT_ID
    randomness = SystemRandom()
    security = security_of(settings, randomness)
    return Channel(host, port, client_id=name, randomness=randomness, limits=limits, security=security)


async def _brokers(settings: AdminSettings) -> list[Broker]:
    """The brokers of the cluster, from the first bootstrap server that answers."""
    problems = []
    for address in settings.bootstrap_servers:
        host, _, port = address.rpartition(":")
        channel = _channel(settings, host.strip("[]"), int(port))
        try:
            await channel.connect()
            return sorted(await _members(channel), key=lambda broker: broker.broker_id)
        except BarnabasError as problem:
            problems.append(str(problem))
        finally:
            await channel.close()
    raise BarnabasError("; ".join(problems))


async def _members(channel: Channel) -> list[Broker]:
    from barnabas.base.error_codes import ErrorCode
    from barnabas.base.errors import BrokerError
    from barnabas.net.errors import UnsupportedRequestError
    from barnabas.wire.messages.describe_cluster import DescribeClusterRequest
    from barnabas.wire.messages.metadata import MetadataRequest

    question = DescribeClusterRequest(include_cluster_authorized_operations=False)
    try:
        if channel.version_of(DescribeClusterRequest) >= 2:
            question.include_fenced_brokers = True
        answer = await channel.request(question)
    except UnsupportedRequestError:
        metadata = await channel.request(MetadataRequest(topics=[]))
        return [Broker(each.node_id, each.host, each.port, each.rack, False) for each in metadata.brokers]
    if answer.error_code:
        raise BrokerError(ErrorCode.of(answer.error_code), answer.error_message)
    return [Broker(each.broker_id, each.host, each.port, each.rack, each.is_fenced) for each in answer.brokers]


async def _offers(settings: AdminSettings, broker: Broker) -> list[Offer] | BarnabasError:
    channel = _channel(settings, broker.host, broker.port)
    try:
        await channel.connect()
        return offers(channel.offered)
    except BarnabasError as problem:
        return problem
    finally:
        await channel.close()


def offers(offered: dict[int, tuple[int, int]]) -> list[Offer]:
    """What a broker offers, set against what we know."""
    from barnabas.wire.apis import ZOOKEEPER_ERA, ApiKey, all_apis
    from barnabas.wire.message import Listeners

    found = []
    known = {each.key: each for each in all_apis()}
    wanted = {each.key for each in known.values() if each.listeners & Listeners.BROKER} - ZOOKEEPER_ERA
    for key in sorted(wanted.union(offered)):
        api, versions = known.get(ApiKey(key)) if key in set(ApiKey) else None, offered.get(key)
        if api is None or versions is None:
            found.append(Offer("UNKNOWN" if api is None else api.key.camel_name, key, versions, ""))
            continue
        best = min(versions[1], api.versions.high)
        if best >= max(versions[0], api.versions.low):
            usable = f" [usable: {best}]"
        else:
            usable = f" [unusable: node too {'new' if versions[0] > api.versions.high else 'old'}]"
        found.append(Offer(api.key.camel_name, key, versions, usable))
    return found


def _show(broker: Broker, answer: list[Offer] | BarnabasError) -> None:
    if isinstance(answer, BarnabasError):
        say(shown(f"{broker} -> ERROR: {answer}"))
    elif is_terminal():
        rows = [(each.name, each.key, each.range_text or "not supported", each.usable.strip(" []")) for each in answer]
        print_table(("request", "key", "versions", ""), rows, title=str(broker))
    else:
        lines = ",\n".join(f"\t{each}" for each in answer)
        say(f"{shown(broker)} -> (\n{lines}\n)")


def _values(broker: Broker, answer: list[Offer] | BarnabasError) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": broker.broker_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "isFenced": broker.is_fenced,
    }
    if isinstance(answer, BarnabasError):
        return values | {"error": str(answer)}
    apis = [
        {"name": each.name, "key": each.key, "minVersion": each.offered[0], "maxVersion": each.offered[1]}
        for each in answer
        if each.offered is not None
    ]
    return values | {"apis": apis}
