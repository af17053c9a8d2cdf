"""Keeping the metadata of a client up to date: one task that asks when it is due, and those who wait for an answer."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import Final

from barnabas.base.log_context import logger
from barnabas.base.runtime import Clock
from barnabas.client.core.metadata import ClusterView, Metadata
from barnabas.client.errors import ClientClosedError, ClientTimeoutError, NoBrokersError
from barnabas.client.nodes import Nodes, failures_text
from barnabas.client.watch import Watch
from barnabas.net.channel import Channel
from barnabas.net.errors import AuthenticationFailedError, ChannelError, DisconnectedError, UnsupportedRequestError
from barnabas.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker

_log = logger(__name__)

_CONTROLLERS: Final = 2


class MetadataUpdater:
    """See the module. The policy is `Metadata`'s; this sends, waits and tells."""

    def __init__(self, metadata: Metadata, nodes: Nodes, clock: Clock, watch: Watch, *, asks_controllers: bool) -> None:
        self._metadata = metadata
        self._nodes = nodes
        self._clock = clock
        self._watch = watch
        self._asks_controllers = asks_controllers
        self._woken = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._cluster_id: str | None = None
        self.view_listeners: list[Callable[[ClusterView], None]] = []
        self.cluster_listeners: list[Callable[[str | None], None]] = []
        self.end_listeners: list[Callable[[], None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        # Who needs an update may be another thread.
        self._metadata.on_needed = lambda: _call_if_open(loop, self.wake)
        self._task = loop.create_task(self._keep_up())
        self._task.add_done_callback(self._task_ended)

    def _task_ended(self, _: object) -> None:
        if not self._is_closed:
            for listener in self.end_listeners:
                _call_guarded(listener)

    def wake(self) -> None:
        """Look again at what is needed."""
        self._woken.set()

    def tell_waiters(self) -> None:
        """Something changed that those who wait may care for."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def close(self) -> None:
        self._is_closed = True
        self._metadata.on_needed = None
        self.tell_waiters()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def until(self, condition: Callable[[], bool], timeout_ms: float, give_up: Callable[[], Exception]) -> None:
        """Wait until something is so. Raises what `give_up` makes when it takes too long, and sooner when there is no
        hope: the client was closed, or all brokers are such as we cannot talk to."""
        loop = asyncio.get_running_loop()
        try:
            with self._watch.expecting_error(timeout_ms):
                async with asyncio.timeout(None if math.isinf(timeout_ms) else timeout_ms / 1000):
                    while not condition():
                        self._check_hope()
                        waiter: asyncio.Future[None] = loop.create_future()
                        self._waiters.append(waiter)
                        try:
                            await waiter
                        finally:
                            with contextlib.suppress(ValueError):
                                self._waiters.remove(waiter)
        except TimeoutError:
            raise give_up() from None

    def gave_up(self, what: str, timeout_ms: float) -> Exception:
        """For those whose time is over: `what` they wanted, whom was asked, and what came of it."""
        brokers = failures_text(self._nodes.failures, self._nodes.candidates())
        if self._metadata.is_bootstrapping and not self._metadata.view.nodes:
            return NoBrokersError(
                f"{what}: none of the bootstrap servers answered within {timeout_ms:.0f} ms: {brokers}. "
                "Check bootstrap.servers, and that a broker listens there."
            )
        cause = f"; last failure: {self._metadata.last_error}" if self._metadata.last_error is not None else ""
        return ClientTimeoutError(f"{what}: it took longer than {timeout_ms:.0f} ms; brokers: {brokers}{cause}")

    def _check_hope(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the client was closed")
        channels = [self._nodes.channel(each.node_id) for each in self._nodes.candidates()]
        failures = [each.last_failure for each in channels]
        denied = next((each for each in failures if isinstance(each, AuthenticationFailedError)), None)
        if denied is not None and not any(each.is_connected for each in channels):
            raise AuthenticationFailedError(denied.address, denied.reason)
        refusals = [each for each in failures if isinstance(each, UnsupportedRequestError)]
        if refusals and len(refusals) == len(failures):
            raise UnsupportedRequestError(refusals[0].address, refusals[0].reason)

    async def _keep_up(self) -> None:
        while True:
            self._woken.clear()
            try:
                wait_ms = await self._step()
            except Exception as error:
                # A mistake of ours must not leave a client that waits for ever without a word.
                _log.exception("metadata could not be updated")
                self._metadata.failed(self._clock.monotonic_ms(), error)
                wait_ms = 0.0
            if wait_ms:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if math.isinf(wait_ms) else wait_ms / 1000):
                        await self._woken.wait()

    async def _step(self) -> float:
        """Do what is due; how long until something may be due again, unless woken."""
        now_ms = self._clock.monotonic_ms()
        metadata, nodes = self._metadata, self._nodes
        if metadata.should_rebootstrap(now_ms):
            _log.info("starting again from the bootstrap servers: %s", metadata.last_error or "no update for too long")
            metadata.rebootstrap(now_ms)
            nodes.drop_all()
        wait_ms = metadata.next_update_in_ms(now_ms)
        if wait_ms:
            return math.ceil(wait_ms) if wait_ms < math.inf else wait_ms
        channel = nodes.least_loaded()
        if channel is not None:
            await self._update(channel)
            self.tell_waiters()
            return 0.0
        if metadata.can_rebootstrap and not metadata.is_bootstrapping:
            _log.info("no known broker can be reached: starting again from the bootstrap servers")
            metadata.rebootstrap(now_ms)
            return 0.0
        return max(1.0, nodes.next_try_in_ms())

    async def _update(self, channel: Channel) -> None:
        metadata, clock = self._metadata, self._clock
        try:
            await channel.connect()
        except ChannelError as error:
            metadata.unreachable(clock.monotonic_ms(), error)
            return
        request = metadata.request(clock.monotonic_ms())
        try:
            version, answer = await self._ask(channel, request)
        except ChannelError as error:
            _log.debug("metadata: %s", error)
            metadata.failed(clock.monotonic_ms(), error)
            return
        except BaseException as error:
            metadata.failed(clock.monotonic_ms(), ClientClosedError(f"broken off: {error!r}"))
            raise
        before = metadata.view
        metadata.answered(answer, clock.monotonic_ms(), version)
        if metadata.view is not before:
            self._tell(metadata.view)

    async def _ask(self, channel: Channel, request: MetadataRequest) -> tuple[int, MetadataResponse]:
        if not self._asks_controllers:
            version = channel.version_of(MetadataRequest)
            return version, await channel.request(request, version)
        # Controllers do not serve Metadata. Of the cluster they tell each other, which is all that is needed of them.
        question = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=_CONTROLLERS)
        told: DescribeClusterResponse = await channel.request(question)
        if told.error_code:
            raise DisconnectedError(channel.address, f"it does not describe the cluster: {told.error_message}")
        brokers = [MetadataResponseBroker(node_id=b.broker_id, host=b.host, port=b.port) for b in told.brokers]
        answer = MetadataResponse(
            brokers=brokers, cluster_id=told.cluster_id, controller_id=told.controller_id, topics=[]
        )
        return MetadataRequest.VERSIONS.high, answer

    def _tell(self, view: ClusterView) -> None:
        for listener in self.view_listeners:
            _call_guarded(listener, view)
        if view.cluster_id != self._cluster_id:
            self._tell_cluster(self._cluster_id, view.cluster_id)
            self._cluster_id = view.cluster_id
            for told in self.cluster_listeners:
                _call_guarded(told, view.cluster_id)

    def _tell_cluster(self, before: str | None, now: str | None) -> None:
        if before is None:
            _log.info("Cluster ID: %s", now)
        elif now is not None:
            _log.warning(
                "The brokers belong to another cluster than before: its ID is %s, and was %s. Addresses of %s lead "
                "elsewhere now; topics and offsets of the same name are others there",
                now,
                before,
                "bootstrap.controllers" if self._asks_controllers else "bootstrap.servers",
            )


def _call_guarded(listener: Callable[..., None], *arguments: object) -> None:
    try:
        listener(*arguments)
    except Exception:
        _log.exception("a listener for metadata failed: %r", listener)


def _call_if_open(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    # The loop may be closed at any moment while another thread still sends.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function)
