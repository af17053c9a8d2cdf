"""Fetching in the background, ahead of the program: what is read next is there before it is asked for.

    subscription.begin_poll()               # the program has come back for more
    chunk = fetcher.take_chunk()            # None if nothing is there: await fetcher.wait_for_data(…)
    for record in chunk: …                  # in any thread

Nothing here runs per record, and no task per request: an answer is looked at in a callback, from which the next fetch
leaves before the records are decoded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn

from barnabas.base.ids import TopicPartition
from barnabas.base.log_context import logger
from barnabas.base.runtime import Clock
from barnabas.client.consumer.offset_lookup import OffsetLookup
from barnabas.client.consumer.positions import Committed, PositionKeeper
from barnabas.client.core.cluster_view import ClusterView, Node
from barnabas.client.core.consuming.fetch_answers import AnswerOptions, AnswerReader
from barnabas.client.core.consuming.fetch_buffer import FetchBuffer
from barnabas.client.core.consuming.fetch_plan import FetchLimits, FetchPlanner, NodePlan
from barnabas.client.core.consuming.fetch_sessions import ClientFetchSession, FetchRequestData, WantedFetch
from barnabas.client.core.consuming.partition_state import FetchState, PartitionState, Position
from barnabas.client.core.consuming.positions import follow_leaders
from barnabas.client.core.consuming.subscription import Subscription
from barnabas.client.core.metrics.consumer import FetchMetrics
from barnabas.client.errors import ClientClosedError, ClientError, CorruptRecordsError
from barnabas.client.network_client import NetworkClient
from barnabas.client.settings.consumer import ConsumerSettings
from barnabas.net.errors import ChannelError, RefusedError
from barnabas.wire.message import Response
from barnabas.wire.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas.client._kernel.receiving import Chunk, ConsumerRecord
    from barnabas.client.consumer.arrow_batches import ArrowBatches

_log = logger(__name__)


class _Flight:
    """A fetch on its way: what it asked for, and of which states in which version."""

    __slots__ = ("fetch", "sent_ms", "wanted")

    def __init__(
        self,
        fetch: FetchRequestData,
        wanted: dict[TopicPartition, tuple[WantedFetch, PartitionState, int]],
        sent_ms: int,
    ) -> None:
        self.fetch = fetch
        self.wanted = wanted
        self.sent_ms = sent_ms


class Fetcher:
    """Keeps records ready for the partitions of a subscription.

    Everything here belongs to the thread of the event loop; only chunks may be read elsewhere. At most one fetch is
    under way per node, and none leaves while `fetch.max.bytes` wait to be taken.
    """

    def __init__(
        self,
        network: NetworkClient,
        subscription: Subscription,
        settings: ConsumerSettings,
        *,
        clock: Clock,
        randomness: Random,
        key_deserializer: Callable[..., Any] | None = None,
        value_deserializer: Callable[..., Any] | None = None,
        metrics: FetchMetrics | None = None,
        committed: Committed | None = None,
    ) -> None:
        self._network = network
        self._subscription = subscription
        self._clock = clock
        self._metrics = metrics
        self._planner = FetchPlanner(FetchLimits.of(settings))
        self._buffer = FetchBuffer(subscription)
        self._reader = AnswerReader(
            subscription,
            self._buffer,
            AnswerOptions(
                is_read_committed=settings.isolation_level == "read_committed",
                check_crcs=settings.check_crcs,
                retry_backoff_ms=settings.retry_backoff_ms,
                retry_backoff_max_ms=settings.retry_backoff_max_ms,
                preferred_replica_ms=settings.metadata_max_age_ms,
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
            ),
            randomness,
        )
        self.lookup = OffsetLookup(network, settings, clock=clock)
        self._keeper = PositionKeeper(
            network,
            subscription,
            self.lookup,
            settings,
            clock=clock,
            randomness=randomness,
            committed=committed,
            on_progress=self._pump_soon,
        )
        self._arrow: ArrowBatches | None = None
        self._sessions: dict[int, ClientFetchSession] = {}
        self._flights: dict[int, _Flight] = {}
        self._data_waiters: list[asyncio.Future[None]] = []
        self._position_waiters: list[asyncio.Future[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_pumping_soon = False
        self._is_closed = False
        self._taken: Chunk | None = None
        self._taken_before = (0, 0)
        # Where the partitions were before the present poll took of them.
        self._before: dict[TopicPartition, tuple[PartitionState, Position]] = {}
        self._assignment_version = -1
        self._node_count: int | None = None

    def start(self) -> None:
        """Begin to fetch, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._subscription.on_change(self._pump_soon)
        self._network.on_update(self._on_metadata)
        self._network.on_ready(self._on_ready)
        self._keeper.start()
        self._pump_soon()

    async def close(self, timeout_ms: int = 0) -> None:
        """Stop, and tell the brokers that their sessions with us are over, as far as that works within the time."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        _settle_all(self._data_waiters)
        _settle_all(self._position_waiters)
        await self._keeper.close()
        self._buffer.clear()
        if timeout_ms > 0:
            await self._end_sessions(timeout_ms)

    async def _end_sessions(self, timeout_ms: int) -> None:
        goodbyes = []
        for node_id, session in self._sessions.items():
            # Behind a fetch that the broker still holds nothing is answered; it ends with the connection.
            if not self._network.is_connected(node_id) or node_id in self._flights:
                continue
            version = self._network.version_of(node_id, FetchRequest)
            fetch = session.begin_close(version) if version is not None else None
            if fetch is not None:
                request = fetch.request(max_wait_ms=0, min_bytes=0, max_bytes=0, read_committed=False)
                goodbyes.append(self._network.request(node_id, request, version=fetch.version, timeout_ms=timeout_ms))
        if goodbyes:
            answered, late = await asyncio.wait(goodbyes, timeout=timeout_ms / 1000)
            for each in late:
                each.cancel()
            for each in answered:
                if not each.cancelled():
                    each.exception()  # nobody minds, but asyncio complains of what nobody looked at

    # What the program takes

    def take_chunk(self) -> Chunk | None:
        """Records of one partition, to be read to their end; None if there are none yet.

        Taken again before its end, it is the same one. Raises what keeps the program from its next record. Before the
        first of a poll, `Subscription.begin_poll` is called.
        """
        self._check_open()
        troubled = self._trouble()
        if troubled is not None:
            self._raise_of(troubled)
        return self._next_chunk()

    def take_records(self, limit: int) -> list[ConsumerRecord]:
        """Up to so many records, of as many partitions as are there; none if there are none yet.

        An error is raised only when it comes first: what was taken before it must get to the program, since it counts
        as handed out. The error comes again.
        """
        chunk = self._first_chunk()
        try:
            records = [] if chunk is None else chunk.take(limit)
            while len(records) < limit and (chunk := self._another_chunk()) is not None:
                try:
                    records += chunk.take(limit - len(records))
                except ClientError:
                    if not records:
                        raise
                    break
        except BaseException:
            self.put_back()
            raise
        return records

    def take_arrow(self, max_rows: int) -> pa.RecordBatch | None:
        """The same as columns; None if there are none yet."""
        if max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, not {max_rows}")
        arrow = self._arrow
        if arrow is None:
            from barnabas.client.consumer.arrow_batches import ArrowBatches

            arrow = self._arrow = ArrowBatches()
        chunk = self._first_chunk()
        try:
            while chunk is not None:
                try:
                    arrow.add(chunk, max_rows)
                except ClientError:
                    if not arrow.row_count:
                        raise
                    break
                chunk = None if arrow.is_full(max_rows) else self._another_chunk()
            return arrow.take() if arrow.row_count else None
        except BaseException:
            self._arrow = None
            self.put_back()
            raise

    def put_back(self) -> None:
        """What was taken last, as records or as columns, did not get to the program: go back to where it began."""
        before, self._before = self._before, {}
        for partition, (state, position) in before.items():
            if self._subscription.get(partition) is state and state.has_position and state.position != position:
                state.take_back(position)
        if before:
            self._pump_soon()

    def keep_taken(self) -> None:
        """What was taken last has got to the program: there is nothing to put back."""
        self._before = {}

    def _first_chunk(self) -> Chunk | None:
        self.keep_taken()
        return self._noted(self.take_chunk())

    def _noted(self, chunk: Chunk | None) -> Chunk | None:
        if chunk is not None:
            partition = TopicPartition(chunk.topic, chunk.partition)
            if partition not in self._before:
                state = self._subscription.state(partition)
                self._before[partition] = (state, Position(chunk.next_offset, chunk.next_epoch))
        return chunk

    def _next_chunk(self) -> Chunk | None:
        self._note_taken()
        try:
            chunk = self._buffer.next_chunk()
        finally:
            # What was taken makes room. While all nodes have a fetch of ours there is nobody to ask.
            if self._node_count is None or len(self._flights) < self._node_count:
                self._pump()
        if chunk is not None:
            self._taken = chunk
            self._taken_before = (chunk.record_count, chunk.record_bytes)
        return chunk

    def _another_chunk(self) -> Chunk | None:
        """None also if an error is next."""
        if self._trouble() is not None:
            return None
        try:
            return self._noted(self._next_chunk())
        except CorruptRecordsError:
            return None

    async def wait_for_data(self, timeout_s: float | None = None) -> bool:
        """Wait until `take_chunk` may have something to give or to raise; whether that is so."""
        self._check_open()
        if self.has_news():
            return True
        await self._wait(self._data_waiters, timeout_s)
        self._check_open()
        return self.has_news()

    def wake(self) -> None:
        """End the present `wait_for_data`, whether there is data or not."""
        _settle_all(self._data_waiters)

    def has_news(self) -> bool:
        """Whether `take_chunk` may have something to give or to raise."""
        return self._buffer.has_data() or self._trouble() is not None

    def _trouble(self) -> PartitionState | None:
        """The first partition that has something to raise."""
        for state in self._subscription.states().values():
            if (state.failure is not None or state.error is not None) and not state.is_paused:
                return state
        return None

    def _raise_of(self, troubled: PartitionState) -> NoReturn:
        failure = troubled.failure
        if failure is None:
            failure = troubled.error
            assert failure is not None
            # One cause may concern many partitions, and is told once.
            for state in self._subscription.states().values():
                if state.error is failure:
                    state.error = None
        # Each time it is raised it should tell of this time.
        raise failure.with_traceback(None)

    def _note_taken(self) -> None:
        """Tell the metrics what the program has read of the chunk that it had."""
        chunk, self._taken = self._taken, None
        metrics = self._metrics
        if chunk is None or metrics is None:
            return
        records, size_bytes = chunk.record_count - self._taken_before[0], chunk.record_bytes - self._taken_before[1]
        if not records:
            return
        metrics.consumed(chunk.topic, chunk.partition, records, size_bytes)
        partition = TopicPartition(chunk.topic, chunk.partition)
        state = self._subscription.get(partition)
        if state is not None and state.has_position:
            lag = self._subscription.lag(partition, read_committed=self._planner.limits.is_read_committed)
            if lag is not None:
                metrics.lag(partition, lag)
            if state.log_start_offset is not None:
                metrics.lead(partition, max(0, chunk.next_offset - state.log_start_offset))

    # Positions and offsets

    async def ensure_positions(self, timeout_ms: int, partitions: Iterable[TopicPartition] | None = None) -> bool:
        """Wait until all partitions (or these) have a position; whether they have. Raises why one cannot have any."""
        wanted = None if partitions is None else list(partitions)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        has_asked = False
        while True:
            self._check_open()
            names = self._subscription.assigned() if wanted is None else wanted
            states = [self._subscription.state(partition) for partition in names]
            if all(state.has_position for state in states):
                return True
            for state in states:
                if state.failure is not None or state.error is not None:
                    self._raise_of(state)
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                return False
            if not has_asked:
                # Once: each look ends all waits for positions, so that to ask after each wait would never end.
                has_asked = True
                self._pump_soon()
            await self._wait(self._position_waiters, left_ms / 1000)

    async def _wait(self, waiters: list[asyncio.Future[None]], timeout_s: float | None) -> None:
        assert self._loop is not None, "the fetcher was not started"
        waiter: asyncio.Future[None] = self._loop.create_future()
        waiters.append(waiter)
        timer = None if timeout_s is None else self._loop.call_later(max(0.0, timeout_s), _settle, waiter)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in waiters:
                waiters.remove(waiter)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Records between the position and the end that this reader sees; None as long as no fetch has told the end."""
        return self._subscription.lag(partition, read_committed=self._planner.limits.is_read_committed)

    # Fetching

    def _pump_soon(self) -> None:
        """After the present callback: several changes make one look."""
        if not self._is_pumping_soon and self._loop is not None:
            self._is_pumping_soon = True
            self._loop.call_soon(self._pump_after_change)

    def _pump_after_change(self) -> None:
        self._is_pumping_soon = False
        if self._is_closed:
            return
        self._buffer.prune()
        if self._metrics is not None and self._assignment_version != self._subscription.assignment_version:
            self._assignment_version = self._subscription.assignment_version
            self._metrics.assigned(self._subscription.assigned())
        follow_leaders(self._subscription, self._network.view)
        if any(state.fetch_state is not FetchState.FETCHING for state in self._subscription.states().values()):
            self._keeper.wake()
        self._pump()
        _settle_all(self._position_waiters)
        self._tell_news()

    def _on_metadata(self, view: ClusterView) -> None:
        self._pump_soon()

    def _on_ready(self, node_id: int) -> None:
        if node_id not in self._flights:
            self._pump_soon()

    def _on_timer(self) -> None:
        self._timer = None
        self._pump()

    def _pump(self) -> None:
        """Send what may be sent."""
        if self._is_closed or self._loop is None or self._is_pumping_soon:
            return  # the last: positions may have to be validated before, for a leader that has just changed
        now_ms = self._clock.monotonic_ms()
        plan = self._planner.plan(self._network.view, self._subscription.states(), self._flights, now_ms)
        for node_id, node_plan in plan.by_node.items():
            self._send(node_id, node_plan, plan.max_bytes, now_ms)
        self._node_count = plan.node_count
        if plan.wants_metadata:
            self._network.metadata.request_update()
        if plan.next_at_ms is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later((plan.next_at_ms - now_ms) / 1000, self._on_timer)

    def _send(self, node_id: int, plan: NodePlan, max_bytes: int, now_ms: int) -> None:
        wanted = plan.wanted
        try:
            version = self._network.version_of(node_id, FetchRequest)
        except RefusedError as error:
            for partition in wanted:
                state = self._subscription.state(partition)
                state.error = error
                self._reader.back_off(state, now_ms)
            self._tell_news()
            return
        if version is None:
            self._network.connect_soon(node_id)  # `_on_ready` comes when it is there
            return
        session = self._sessions.get(node_id)
        if session is None:
            session = self._sessions[node_id] = ClientFetchSession(node_id)
        fetch = session.begin(wanted, version)
        limits = self._planner.limits
        request = fetch.request(
            max_wait_ms=plan.max_wait_ms(limits),
            min_bytes=limits.fetch_min_bytes,
            max_bytes=max_bytes,
            read_committed=limits.is_read_committed,
            rack=limits.client_rack,
        )
        states = self._subscription.states()
        asked = {partition: (each, states[partition], states[partition].version) for partition, each in wanted.items()}
        flight = self._flights[node_id] = _Flight(fetch, asked, now_ms)

        def on_answer(answer: Response | ChannelError) -> None:
            self._answered(node_id, flight, answer)

        self._network.request_soon(node_id, request, on_answer, version=fetch.version)

    def _answered(self, node_id: int, flight: _Flight, answer: Response | ChannelError) -> None:
        del self._flights[node_id]
        if self._is_closed:
            return
        now_ms = self._clock.monotonic_ms()
        if isinstance(answer, FetchResponse):
            self._read(node_id, flight, answer, now_ms)
        else:
            self._failed(node_id, flight, answer, now_ms)
        self._pump()
        self._tell_news()

    def _read(self, node_id: int, flight: _Flight, response: FetchResponse, now_ms: int) -> None:
        answered = self._sessions[node_id].answered(flight.fetch, response)
        metrics = self._metrics
        if metrics is not None:
            metrics.throttled(response.throttle_time_ms)
        if answered is None:
            if response.error_code or not response.throttle_time_ms:
                _log.debug("node %s: the fetch session starts anew (error %s)", node_id, response.error_code)
            if response.error_code:
                # Topics may have got other ids.
                self._network.metadata.request_update()
                for _, state, _ in flight.wanted.values():
                    self._reader.back_off(state, now_ms)
            return
        effects = self._reader.read(node_id, flight.wanted, answered, now_ms)
        if metrics is not None:
            metrics.fetched(node_id, effects.size_bytes, effects.record_count, now_ms - flight.sent_ms)
            for topic, (size_bytes, records) in effects.by_topic.items():
                metrics.topic_fetched(topic, size_bytes, records)
        if effects.leader_hints:
            endpoints = [Node(each.node_id, each.host, each.port, each.rack) for each in response.node_endpoints]
            if self._network.metadata.leader_hints(effects.leader_hints, endpoints):
                self._pump_soon()
        if effects.wants_metadata:
            self._network.metadata.request_update()

    def _failed(self, node_id: int, flight: _Flight, failure: object, now_ms: int) -> None:
        self._sessions[node_id].failed()
        for _, state, _ in flight.wanted.values():
            if state.preferred_replica == node_id:
                state.preferred_replica = -1
            self._reader.back_off(state, now_ms)
        _log.debug("fetching from node %s failed: %s", node_id, failure)
        self._network.metadata.request_update()

    # Telling

    def _tell_news(self) -> None:
        if self._data_waiters and self.has_news():
            _settle_all(self._data_waiters)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the consumer is closed")


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _settle_all(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        _settle(waiter)
    waiters.clear()
