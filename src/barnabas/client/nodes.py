"""The nodes that a client talks to: a channel each, made when it is first needed, and which of them to ask.

Bootstrap servers have numbers below zero, as nobody knows yet who they are. A coordinator has a connection of its own,
under a number of its own: on the one for fetches its heartbeats would wait until a fetch is answered.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from random import Random
from typing import Final, cast

from barnabas.client.core.metadata import Metadata, Node
from barnabas.client.security import security_of
from barnabas.client.settings import ClientSettings
from barnabas.net.channel import Channel, ChannelEvents, ChannelLimits
from barnabas.net.errors import ChannelError, ConnectError, DisconnectedError, address_text
from barnabas.net.limits import INT_MAX, MIB
from barnabas.net.sockets import SOCK_STREAM
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.metadata import MetadataRequest

#: The names behind a host's addresses.
Resolve = Callable[[str, int], Awaitable[list[str]]]

#: Who is not a producer has no bound of its own; this one is Kafka's.
_MAX_IN_FLIGHT: Final = 100
_ANSWER_MARGIN_BYTES: Final = MIB
#: A bound for memory that a broker may make us reserve by a few bytes.
_MAX_TRUSTED_BYTES: Final = 256 * MIB
#: What Kafka 2.1 offers of the one request that every client needs.
_METADATA_OF_2_1: Final = 7


def coordinator_id(node_id: int) -> int:
    """The number of the connection to a broker as coordinator. Twice gives the broker's number again."""
    return INT_MAX - node_id


def split_address(text: str) -> tuple[str, int]:
    """`host:port`, where an IPv6 address has brackets."""
    host, _, port = text.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def bootstrap_addresses(settings: ClientSettings) -> list[tuple[str, int]]:
    """The servers to ask first: of an admin that talks to controllers these."""
    given = settings.bootstrap_servers or getattr(settings, "bootstrap_controllers", ())
    return [split_address(each) for each in given]


class Nodes:
    """See the module."""

    def __init__(
        self,
        settings: ClientSettings,
        metadata: Metadata,
        *,
        randomness: Random,
        client_id: str,
        events: ChannelEvents | None,
        on_change: Callable[[int], None],
        max_in_flight_requests: int | None = None,
    ) -> None:
        self._metadata = metadata
        self._randomness = randomness
        self._client_id = client_id
        self._events = events
        self._on_change = on_change
        self._limits = _limits_of(settings, max_in_flight_requests)
        self._security = security_of(settings, randomness)
        self._wants_metadata = bool(settings.bootstrap_servers)
        self._view = metadata.view
        self._channels: dict[int, Channel] = {}
        self._retired: list[Channel] = []
        self._coordinators: dict[int, Node] = {}
        self._is_closed = False
        #: What happened last at addresses that do not answer; how often it did, in a row.
        self.failures: dict[str, str] = {}
        self.tries: dict[str, int] = {}
        #: The same of those where no connection was made, which is more than that one ended.
        self.unreached: dict[str, str] = {}
        self._noted: dict[int, ChannelError] = {}
        #: Called when there is a new channel, which will be connected now.
        self.on_made: Callable[[], None] = lambda: None
        self.bootstrap: list[Node] = []
        self.set_bootstrap(bootstrap_addresses(settings))

    def set_bootstrap(self, addresses: Iterable[tuple[str, int]]) -> None:
        self.bootstrap = [Node(-1 - number, host, port) for number, (host, port) in enumerate(addresses)]

    def candidates(self) -> list[Node]:
        """Who may be asked what any node knows: the brokers, or the bootstrap servers as long as none is known."""
        if self._metadata.is_bootstrapping or not self._metadata.view.nodes:
            return self.bootstrap
        return list(self._metadata.view.nodes.values())

    def node(self, node_id: int) -> Node | None:
        """Where a number leads. Of a coordinator, the broker under its own number."""
        if node_id < 0:
            place = -1 - node_id
            return self.bootstrap[place] if place < len(self.bootstrap) else None
        nodes = self._metadata.view.nodes
        if node_id in nodes:
            return nodes[node_id]
        # What the metadata says of a broker is newer than what was said when it was found to be the coordinator.
        return nodes.get(coordinator_id(node_id)) or self._coordinators.get(node_id)

    def add_coordinator(self, node: Node) -> int:
        """The number under which it is reached as coordinator."""
        number = coordinator_id(node.node_id)
        self._coordinators[number] = node
        return number

    def find(self, node_id: int) -> Channel | None:
        """The channel to a node, if there is one already."""
        if self._metadata.view is not self._view:
            self._follow_view()
        return self._channels.get(node_id)

    def channel(self, node_id: int) -> Channel:
        """The channel to a node. Raises `ConnectError` if nothing is known of the node."""
        found = self.find(node_id)
        if found is not None:
            return found
        if self._is_closed:
            raise ConnectError(f"node {node_id}", "the client was closed")
        node = self.node(node_id)
        if node is None:
            raise ConnectError(f"node {node_id}", "the metadata of the cluster does not name it")
        made = self._channels[node_id] = Channel(
            node.host,
            node.port,
            client_id=self._client_id,
            randomness=self._randomness,
            limits=self._limits,
            node_id=node_id,
            events=self._events,
            on_ready=self._on_change,
            check_peer=self._complaint,
            security=self._security,
        )
        self.on_made()
        return made

    def note_outcome(self, node_id: int) -> tuple[ChannelError | None, bool]:
        """Take note of how it stands with a node: its failure, if it has one, and whether that is news. Cheap where
        all is well: it is called for many answers."""
        channel = self.find(node_id)
        if channel is None:
            return None, False
        failure, address = channel.last_failure, channel.address
        if failure is None:
            if address not in self.failures:
                return None, False
            for notes in (self.failures, self.tries, self.unreached):
                notes.pop(address, None)
            return None, True
        if self._noted.get(node_id) is failure:
            return failure, False
        self._noted[node_id] = failure
        self.failures[address] = failure.reason
        self.tries[address] = self.tries.get(address, 0) + 1
        if not isinstance(failure, DisconnectedError):
            self.unreached[address] = failure.reason
        return failure, True

    def finalized_feature(self, name: str) -> tuple[int, int]:
        """The newest epoch of finalised features that a node told, and the level of this one then."""
        told = [each.peer for each in self._channels.values() if each.peer is not None]
        newest = max(told, key=lambda each: each.finalized_features_epoch, default=None)
        if newest is None:
            return -1, 0
        levels = {each.name: each.max_version_level for each in newest.finalized_features}
        return newest.finalized_features_epoch, levels.get(name, 0)

    def is_connected(self, node: Node) -> bool:
        """Whether there is a connection to a broker, as such or as a coordinator."""
        return any(each.is_connected for each in self._channels_to(node))

    def is_connecting(self, node: Node) -> bool:
        """Whether there is none, and one is being made."""
        return any(each.is_connecting for each in self._channels_to(node)) and not self.is_connected(node)

    def _channels_to(self, node: Node) -> list[Channel]:
        numbers = (node.node_id, coordinator_id(node.node_id)) if node.node_id >= 0 else (node.node_id,)
        return [found for number in numbers if (found := self.find(number)) is not None]

    def least_loaded(self, avoided: Mapping[str, object] | None = None) -> Channel | None:
        """The channel to ask what any node knows; None if all must be left alone for a while.

        First those that can send at once, the least busy before others; then those that are being connected to; then
        those that may be connected to; then those that are busy. Among equals chance decides. `avoided` by address.
        """
        best: Channel | None = None
        best_rank: tuple[float, float, float] = (math.inf, 0.0, 0.0)
        for node in self.candidates():
            channel = self.channel(node.node_id)
            if avoided and channel.address in avoided:
                continue
            rank = (_rank(channel), float(channel.in_flight_count), self._randomness.random())
            if rank < best_rank:
                best, best_rank = channel, rank
        return best

    def next_try_in_ms(self) -> float:
        """How long until one of the candidates may be connected to."""
        return min((self.channel(node.node_id).backoff_ms for node in self.candidates()), default=math.inf)

    def drop(self, node_id: int) -> None:
        """Close the connection now; what is in flight on it fails."""
        channel = self._channels.pop(node_id, None)
        if channel is not None:
            channel.disconnect("the client gave this connection up")
            self._retire(channel)

    def drop_all(self) -> None:
        for node_id in list(self._channels):
            self.drop(node_id)

    async def close(self) -> None:
        self._is_closed = True
        channels = [*self._channels.values(), *self._retired]
        self._channels.clear()
        self._retired.clear()
        await asyncio.gather(*(each.close() for each in channels))

    def _follow_view(self) -> None:
        """Let go of channels that lead to the wrong place. What is in flight on them may still be answered."""
        view = self._view = self._metadata.view
        for node_id, channel in list(self._channels.items()):
            node = self.node(node_id)
            is_gone = node is None or (node_id < 0 and not self._metadata.is_bootstrapping and bool(view.nodes))
            if is_gone or (node is not None and (node.host, node.port) != (channel.host, channel.port)):
                del self._channels[node_id]
                self._retire(channel)

    def _retire(self, channel: Channel) -> None:
        self._retired = [each for each in self._retired if not each.is_closed]
        if not channel.retire():
            self._retired.append(channel)

    def _complaint(self, offered: Mapping[int, tuple[int, int]]) -> str | None:
        if not self._wants_metadata:
            return None
        lowest, highest = offered.get(ApiKey.METADATA, (0, -1))
        if highest < 0:
            return "it does not offer Metadata: is this the address of a controller instead of a broker?"
        if lowest > MetadataRequest.VERSIONS.high:
            return f"it offers Metadata {lowest}-{highest}, and we know {MetadataRequest.VERSIONS}: upgrade this client"
        if highest < _METADATA_OF_2_1:
            return (
                "it is older than Kafka 2.1, the oldest that this client talks to "
                f"(it offers Metadata up to {highest}, and {_METADATA_OF_2_1} is needed): upgrade the broker"
            )
        return None


def _rank(channel: Channel) -> float:
    if channel.is_connected:
        return 0 if channel.delay_ms() == 0 else 3
    if channel.backoff_ms:
        return math.inf
    return 1 if channel.is_connecting else 2


def _limits_of(settings: ClientSettings, max_in_flight_requests: int | None) -> ChannelLimits:
    of_producer = getattr(settings, "max_in_flight_requests_per_connection", _MAX_IN_FLIGHT)
    fetched_bytes = getattr(settings, "fetch_max_bytes", 0)
    return ChannelLimits(
        request_timeout_ms=settings.request_timeout_ms,
        max_in_flight_requests=max_in_flight_requests or of_producer,
        reconnect_backoff_ms=settings.reconnect_backoff_ms,
        reconnect_backoff_max_ms=settings.reconnect_backoff_max_ms,
        socket_connection_setup_timeout_ms=settings.socket_connection_setup_timeout_ms,
        socket_connection_setup_timeout_max_ms=settings.socket_connection_setup_timeout_max_ms,
        connections_max_idle_ms=settings.connections_max_idle_ms,
        # Kafka's defaults are smaller than what the system makes of them, and cost a consumer a third of its speed.
        send_buffer_bytes=settings.send_buffer_bytes if settings.is_given("send.buffer.bytes") else -1,
        receive_buffer_bytes=settings.receive_buffer_bytes if settings.is_given("receive.buffer.bytes") else -1,
        trusted_response_bytes=min(fetched_bytes + _ANSWER_MARGIN_BYTES, _MAX_TRUSTED_BYTES),
    )


async def canonical_names(host: str, port: int) -> list[str]:
    """The names that the addresses of a host have themselves, as certificates and tickets want them."""
    loop = asyncio.get_running_loop()
    names = []
    for *_, address in await loop.getaddrinfo(host, port, type=SOCK_STREAM):
        name, _ = await loop.getnameinfo(cast(tuple[str, int], address))
        names.append(name)
    return names


async def resolved(addresses: Iterable[tuple[str, int]], resolve: Resolve) -> list[tuple[str, int]]:
    """Each address under the names that `resolve` finds for it; one without any stays, so that connecting tells why."""
    found: dict[tuple[str, int], None] = {}
    for host, port in addresses:
        try:
            names = await resolve(host, port)
        except (OSError, UnicodeError):
            names = []
        for name in names or [host]:
            found[name, port] = None
    return list(found)


def failures_text(failures: Mapping[str, str], nodes: Iterable[Node]) -> str:
    """Each address with what happened there last."""
    addresses = dict.fromkeys(address_text(node.host, node.port) for node in nodes)
    return "; ".join(f"{address} ({failures.get(address, 'no answer yet')})" for address in addresses)
