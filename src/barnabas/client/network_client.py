"""The brokers as a client reaches them: one channel per node, metadata that is kept up, coordinators.

    network = Network(settings, Metadata.of(settings, randomness=randomness), clock=clock, randomness=randomness)
    await network.start()
    view = await network.topic_metadata("clicks", timeout_ms=60_000)
    answer = await network.request(view.leader_of(partition).node_id, message)
    await network.close()

All of it belongs to one event loop. `Metadata.want`, `set_topics` and `request_update` may be called from elsewhere.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.log_context import speaking
from barnabas.base.runtime import Clock
from barnabas.client.coordinators import Coordinators, CoordinatorType
from barnabas.client.core.metadata import ClusterView, Metadata, Node
from barnabas.client.errors import ClientClosedError, ClientTimeoutError
from barnabas.client.metadata_updater import MetadataUpdater
from barnabas.client.nodes import Nodes, Resolve, bootstrap_addresses, canonical_names, resolved
from barnabas.client.settings import ClientSettings
from barnabas.client.watch import ClusterTroubles, Watch
from barnabas.net.backoff import Backoff
from barnabas.net.channel import Channel, ChannelEvents
from barnabas.net.errors import AuthenticationFailedError, ChannelError, ConnectError, UnsupportedRequestError
from barnabas.wire.apis import ApiKey
from barnabas.wire.message import Request, Response

__all__ = ["CoordinatorType", "NetworkClient", "OnAnswer", "OnSent"]

OnAnswer = Callable[[Response | ChannelError], None]
OnSent = Callable[[ChannelError | None], None]


class NetworkClient:
    """See the module.

    What is sent raises the errors of `net.errors`: `ConnectError` if it was certainly not sent, `DisconnectedError`
    (and `RequestTimeoutError`) if its fate is unknown, `UnsupportedRequestError` if there is no version in common.
    """

    def __init__(
        self,
        settings: ClientSettings,
        metadata: Metadata,
        *,
        clock: Clock,
        randomness: Random,
        metrics: ChannelEvents | None = None,
        resolve: Resolve | None = None,
        max_in_flight_requests: int | None = None,
        client_id: str | None = None,
        kind: str = "client",
    ) -> None:
        """`resolve` finds the canonical names of a bootstrap server, where `client.dns.lookup` asks for them. `kind` is
        of what client it is a part: producer, consumer, admin."""
        self.metadata = metadata
        name = settings.client_id if client_id is None else client_id
        #: As which its lines speak in the log.
        self.who = f"{kind} {name}".rstrip()
        self.request_timeout_ms: float = settings.request_timeout_ms
        self._settings = settings
        self._clock = clock
        self._resolve = resolve or canonical_names
        self._ready_listeners: list[Callable[[int], None]] = []
        self._denial_listeners: list[Callable[[AuthenticationFailedError], None]] = []
        self._nodes = Nodes(
            settings,
            metadata,
            randomness=randomness,
            client_id=name,
            events=metrics,
            on_change=self._node_changed,
            max_in_flight_requests=max_in_flight_requests,
        )
        #: Says what keeps this client from its work.
        setting = "bootstrap.servers" if settings.bootstrap_servers else "bootstrap.controllers"
        self.cluster_troubles = ClusterTroubles(metadata, self._nodes, setting)
        self.watch = Watch(self.cluster_troubles, clock, self.who)
        self._nodes.on_made = self.watch.look_soon
        self._updater = MetadataUpdater(
            metadata, self._nodes, clock, self.watch, asks_controllers=not settings.bootstrap_servers
        )
        self._updater.view_listeners.append(lambda _: self.watch.look())
        self._coordinators = Coordinators(
            self,
            self._nodes.add_coordinator,
            lambda: Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, randomness),
        )
        self.watch.add(self._coordinators)
        self._is_closed = False

    @property
    def view(self) -> ClusterView:
        return self.metadata.view

    async def start(self) -> None:
        """Begin to keep the metadata up to date. Does not wait for a broker; `update_metadata` does."""
        if self._settings.client_dns_lookup == "resolve_canonical_bootstrap_servers_only":
            self._nodes.set_bootstrap(await resolved(bootstrap_addresses(self._settings), self._resolve))
        with speaking(self.who):
            self._updater.start()
            self.watch.start()

    async def close(self) -> None:
        """Close all connections; who waits gets `ClientClosedError` or a `ChannelError`. May be called again."""
        self._is_closed = True
        self.watch.close()
        await self._updater.close()
        await self._coordinators.close()
        await self._nodes.close()

    # Requests

    def request(
        self, node_id: int, message: Request, *, version: int | None = None, timeout_ms: float | None = None
    ) -> asyncio.Future[Any]:
        """The answer of one node. It is asked at once, also if nobody awaits yet; connects by itself, and waits its
        turn where the node is busy or to be spared."""
        try:
            channel = self._nodes.find(node_id) or self._nodes.channel(node_id)
        except ConnectError as error:
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed
        return channel.request(message, version, timeout_ms=timeout_ms)

    def request_soon(
        self,
        node_id: int,
        message: Request,
        on_answer: OnAnswer,
        *,
        version: int | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """The same, for those who want to be called with the answer or the error: on the loop, never from inside."""
        try:
            channel = self._nodes.find(node_id) or self._nodes.channel(node_id)
        except ConnectError as error:
            asyncio.get_running_loop().call_soon(on_answer, error)
            return
        channel.request_soon(message, on_answer, version, timeout_ms=timeout_ms)

    def send(
        self, node_id: int, message: Request, on_sent: OnSent | None = None, *, version: int | None = None
    ) -> None:
        """A request without an answer, as Produce with acks=0. `on_sent` is called with None when it was written."""
        try:
            channel = self._nodes.channel(node_id)
        except ConnectError as error:
            if on_sent is not None:
                asyncio.get_running_loop().call_soon(on_sent, error)
            return
        channel.send_soon(message, on_sent, version)

    async def request_any(
        self,
        message: Request | Callable[[int], Request],
        *,
        request_class: type[Request] | None = None,
        version: int | None = None,
        timeout_ms: float | None = None,
    ) -> Any:
        """The answer of the least loaded node. Others are tried when a connection fails, until the timeout.

        `message` may be a function that makes the request for a version; then `request_class` says of what kind it is.
        """
        timeout_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
        kind = request_class or type(message)
        what = f"{ApiKey(kind.API_KEY).camel_name} was to be asked"  # type: ignore[union-attr]
        refusals: dict[str, UnsupportedRequestError] = {}
        last: ChannelError | None = None
        try:
            with self.watch.expecting_error(timeout_ms):
                async with asyncio.timeout(timeout_ms / 1000):
                    while True:
                        channel = await self._least_loaded(refusals)
                        try:
                            return await self._ask(channel, message, kind, version)  # type: ignore[arg-type]
                        except UnsupportedRequestError as refusal:
                            refusals[channel.address] = refusal
                        except AuthenticationFailedError:
                            raise
                        except ChannelError as failure:
                            last = failure
                            self.metadata.request_update()
        except TimeoutError:
            raise self._updater.gave_up(f"{what}{f' ({last})' if last else ''}", timeout_ms) from None

    async def _ask(
        self, channel: Channel, message: Request | Callable[[int], Request], kind: type[Request], version: int | None
    ) -> Any:
        if isinstance(message, Request):
            return await channel.request(message, version)
        await channel.connect()
        chosen = channel.version_of(kind) if version is None else version
        return await channel.request(message(chosen), chosen)

    async def _least_loaded(self, refusals: dict[str, UnsupportedRequestError]) -> Channel:
        while True:
            if self._is_closed:
                raise ClientClosedError("the client was closed")
            found = self._nodes.least_loaded(refusals)
            if found is not None:
                return found
            candidates = self._nodes.candidates()
            if refusals and all(self._nodes.channel(each.node_id).address in refusals for each in candidates):
                raise next(iter(refusals.values()))
            self.metadata.request_update()
            await asyncio.sleep(max(1.0, min(self._nodes.next_try_in_ms(), self._settings.retry_backoff_ms)) / 1000)

    # Nodes

    def version_of(self, node_id: int, request: type[Request]) -> int | None:
        """The version in which a node would be asked; None if it is not connected. Raises `RefusedError`."""
        channel = self._nodes.find(node_id)
        if channel is None or channel.is_connected:
            return None if channel is None else channel.version_of(request)
        if isinstance(channel.last_failure, AuthenticationFailedError) and channel.backoff_ms:
            raise AuthenticationFailedError(channel.address, channel.last_failure.reason)
        return None

    def finalized_feature(self, name: str) -> tuple[int, int]:
        """The level of a feature of the cluster, 0 for none, and the epoch of the features, as the broker told that
        knows the newest; -1 if none told yet."""
        return self._nodes.finalized_feature(name)

    async def connect(self, node_id: int, timeout_ms: float | None = None) -> None:
        """Connect, if that is not done already."""
        timeout_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
        channel = self._nodes.channel(node_id)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await channel.connect()
        except TimeoutError:
            raise ConnectError(channel.address, f"no connection within {timeout_ms:.0f} ms") from None

    def connect_soon(self, node_id: int) -> None:
        """Begin to connect, unless that is done or under way, as soon as earlier failures allow it. `on_ready` tells
        how it ended. Nothing happens if the node is not known."""
        try:
            channel = self._nodes.channel(node_id)
        except ConnectError:
            return
        channel.connect_soon()

    def delay_ms(self, node_id: int, now_ms: int) -> float:
        """How long until a request to a node would leave: 0 for at once. Infinite if only an event can tell, and
        `on_ready` tells it: not connected (`connect_soon`), being connected to, as much in flight as may be."""
        channel = self._nodes.find(node_id)
        return math.inf if channel is None else channel.delay_ms()

    def on_ready(self, callback: Callable[[int], None]) -> None:
        """Call when a node has become able to take requests again, or its connection failed, with its number."""
        self._ready_listeners.append(callback)

    def on_denial(self, callback: Callable[[AuthenticationFailedError], None]) -> None:
        """Call when a node did not believe who we are, or we not who it is: nobody need wait any longer."""
        self._denial_listeners.append(callback)

    def in_flight(self, node_id: int) -> int:
        """How many requests to a node are not answered yet, sent or not."""
        channel = self._nodes.find(node_id)
        return 0 if channel is None else channel.in_flight_count

    def is_connected(self, node_id: int) -> bool:
        channel = self._nodes.find(node_id)
        return channel is not None and channel.is_connected

    def node(self, node_id: int) -> Node | None:
        """Where a number leads; also those of coordinators, and then with the broker's own number."""
        return self._nodes.node(node_id)

    def least_loaded(self) -> int | None:
        """The number of the node that is least busy; None if none may be asked now."""
        found = self._nodes.least_loaded()
        return None if found is None else found.node_id

    def _node_changed(self, node_id: int) -> None:
        failure, is_news = self._nodes.note_outcome(node_id)
        if failure is not None:
            # Perhaps it is gone for good, and others lead now.
            self.metadata.request_update()
            self._updater.tell_waiters()
        if is_news:
            self.watch.look()
            if isinstance(failure, AuthenticationFailedError):
                for told in self._denial_listeners:
                    told(AuthenticationFailedError(failure.address, failure.reason))
        for listener in self._ready_listeners:
            listener(node_id)

    def gave_up(self, what: str, timeout_ms: float) -> Exception:
        """For those whose time is over: says `what` they wanted, whom was asked for it, and what came of that."""
        return self._updater.gave_up(what, timeout_ms)

    # Metadata

    def wake(self) -> None:
        """Look at once whether an update of the metadata is due. `Metadata` does this by itself."""
        self._updater.wake()

    def on_update(self, callback: Callable[[ClusterView], None]) -> None:
        """Call after each update of the metadata."""
        self._updater.view_listeners.append(callback)

    def on_loop_end(self, callback: Callable[[], None]) -> None:
        """Call when the event loop ends before this was closed, as at the end of `asyncio.run`."""
        self._updater.end_listeners.append(callback)

    def on_cluster_id(self, callback: Callable[[str | None], None]) -> None:
        """Call when it has become known to which cluster the brokers belong, or that changed."""
        self._updater.cluster_listeners.append(callback)

    async def update_metadata(self, timeout_ms: float, *, is_asked_for: bool = False) -> ClusterView:
        """Ask for everything again; the view that an answer to this question made. See `Metadata.request_update`."""
        metadata = self.metadata
        number = metadata.full_request_count + 1
        metadata.request_update(is_asked_for=is_asked_for)
        await self._updater.until(
            lambda: metadata.answered_full_request >= number,
            timeout_ms,
            lambda: self._updater.gave_up("the metadata of the cluster was to be updated", timeout_ms),
        )
        return self.view

    async def wait_for_update(self, past_version: int, timeout_ms: float) -> ClusterView:
        """A view that is newer than that of `past_version`."""
        await self._updater.until(
            lambda: self.view.version > past_version,
            timeout_ms,
            lambda: self._updater.gave_up("the metadata of the cluster was to be updated", timeout_ms),
        )
        return self.view

    async def topic_metadata(self, topic: str, timeout_ms: float) -> ClusterView:
        """A view in which the topic's partitions are known. Raises `BrokerError` if the topic may not be used."""
        metadata = self.metadata
        is_new = metadata.want(topic, self._clock.monotonic_ms())
        if self.view.partition_count(topic) is not None:
            return self.view
        # What was told before we asked may be over by now: rights are granted. Names stay forbidden.
        was_told, asked_before = self.view.entry(topic) is not None, metadata.full_request_count
        if not is_new:
            metadata.request_update()

        def is_known() -> bool:
            error = self.view.topic_error(topic)
            is_news = not was_told or metadata.answered_full_request > asked_before
            if error is not None and not error.retriable and (is_news or error is ErrorCode.INVALID_TOPIC_EXCEPTION):
                raise BrokerError(error, f"topic {topic!r}: {error.text}")
            return self.view.partition_count(topic) is not None

        await self._updater.until(is_known, timeout_ms, lambda: self._no_topic(topic, timeout_ms))
        return self.view

    def _no_topic(self, topic: str, timeout_ms: float) -> Exception:
        error = self.view.topic_error(topic)
        if error is None or not self.view.nodes:
            return self._updater.gave_up(f"the metadata of topic {topic!r} was to be learned", timeout_ms)
        return ClientTimeoutError(
            f"the partitions of topic {topic!r} were not known after {timeout_ms:.0f} ms: the brokers answered "
            f"{error.name} ({error.text}). Does the topic exist?"
        )

    # Coordinators

    async def coordinator(self, kind: CoordinatorType, key: str, timeout_ms: float) -> int:
        """The number of the node that coordinates a group, transaction or share partition, for `request`. It stands
        for a connection of its own to that broker; `node` tells which broker it is. Found once, until forgotten."""
        return await self._coordinators.find(kind, key, timeout_ms)

    async def coordinators(self, kind: CoordinatorType, keys: Iterable[str], timeout_ms: float) -> dict[str, int]:
        """The same for many keys, in few requests. Raises the first failure."""
        return await self._coordinators.find_all(kind, keys, timeout_ms)

    def known_coordinator(self, kind: CoordinatorType, key: str) -> int | None:
        return self._coordinators.known(kind, key)

    def forget_coordinator(self, kind: CoordinatorType, key: str, why: str = "") -> None:
        """Look it up again when it is next needed. What is in flight to it fails: it may wait there for ever."""
        forgotten = self._coordinators.forget(kind, key, why)
        if forgotten is not None:
            self._nodes.drop(forgotten)
