"""Fetches from one leader what this node follows there: one fetch at a time, in a session, over a channel of its own.

The session knows what was asked, so a fetch without news costs nothing per partition. What an answer brings is appended
in slices, between which others have their turn. A leader that cannot be reached is asked again after a while, and
nothing else happens until the metadata log says who leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.log_context import logger
from barnabas.base.runtime import Runtime
from barnabas.broker.settings import BrokerSettings
from barnabas.net.channel import Channel, ChannelLimits
from barnabas.net.errors import ChannelError
from barnabas.net.security import PLAINTEXT, ChannelSecurity
from barnabas.replication.follower_session import FollowerFetchSession, ReplicaKey
from barnabas.replication.follower_state import Cut, FollowerPhase, FollowerState, is_soon_over
from barnabas.replication.partition import EARLIEST, LATEST, Partition
from barnabas.storage.errors import LogError, PassingError
from barnabas.storage.manager import LogManager
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData, ReplicaState
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_log = logger("barnabas.broker")

#: How much is appended, or how many partitions are looked at, before others have their turn.
_BYTES_PER_TURN: Final = 512 * 1024
_PARTITIONS_PER_TURN: Final = 64
#: How long those that are added wait for the answer to a fetch that is under way.
_PATIENCE_S: Final = 0.02
#: How often a broker that is not registered yet looks whether it is: leaders go by its epoch.
_UNREGISTERED_S: Final = 0.02
#: How often an error that should pass by itself may come before it is told.
_TOLD_FAILURES: Final = 8
#: A response is this much larger than its records, at most.
_RESPONSE_SLACK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FollowerParts:
    """What all fetchers of a node work with."""

    node_id: int
    logs: LogManager
    runtime: Runtime
    settings: BrokerSettings
    #: The epoch of this broker; -1 while it has none.
    broker_epoch: Callable[[], int]
    #: Told of a log that could not do what was asked of it.
    log_failed: Callable[[Partition, LogError], None]
    #: How leaders are reached.
    security: ChannelSecurity = PLAINTEXT


class ReplicaFetcher:
    """The fetches from one leader. `start` begins, `stop` ends for good."""

    def __init__(self, parts: FollowerParts, leader_id: int, fetcher_id: int, host: str, port: int) -> None:
        self._parts = parts
        self.leader_id = leader_id
        self._fetcher_id = fetcher_id
        settings = parts.settings
        self._channel = Channel(
            host,
            port,
            client_id=f"broker-{parts.node_id}-fetcher-{fetcher_id}",
            randomness=parts.runtime.randomness,
            limits=ChannelLimits(
                request_timeout_ms=max(1, settings.replica_socket_timeout_ms),
                max_in_flight_requests=1,
                socket_connection_setup_timeout_ms=settings.socket_connection_setup_timeout_ms,
                socket_connection_setup_timeout_max_ms=settings.socket_connection_setup_timeout_max_ms,
                trusted_response_bytes=settings.replica_fetch_response_max_bytes + _RESPONSE_SLACK_BYTES,
            ),
            node_id=leader_id,
            security=parts.security,
        )
        self._session = FollowerFetchSession()
        self._roles: dict[ReplicaKey, FollowerState] = {}
        # Those that are not in the session, since they wait until some time, or must be looked up first.
        self._waiting: dict[ReplicaKey, tuple[FollowerState, int]] = {}
        self._looking_up: dict[ReplicaKey, FollowerState] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_down = False
        self._refusals = 0
        # The fetch that the leader may hold, and whether it was given up for those that came meanwhile.
        self._in_flight: asyncio.Future[FetchResponse] | None = None
        self._is_given_up = False
        self._gave_up_ms = -parts.settings.replica_fetch_wait_max_ms

    def __repr__(self) -> str:
        return f"<fetcher {self._fetcher_id} from node {self.leader_id}, {len(self._roles)} partitions>"

    def __len__(self) -> int:
        return len(self._roles)

    @property
    def address(self) -> tuple[str, int]:
        return self._channel.host, self._channel.port

    @property
    def roles(self) -> list[FollowerState]:
        return list(self._roles.values())

    # What it fetches

    def add(self, role: FollowerState) -> None:
        key = _key(role)
        self._roles[key] = role
        self._place(key, role)
        if self._in_flight is not None:
            asyncio.get_running_loop().call_later(_PATIENCE_S, self._give_up, self._in_flight)

    def _give_up(self, fetch: asyncio.Future[FetchResponse]) -> None:
        """A leader without news holds a fetch for a while. Whoever is added must not wait for that: with `acks=all`
        producers do, and after an election they have waited already. Not more than once in the time of one wait."""
        now_ms = self._parts.runtime.clock.monotonic_ms()
        is_soon = now_ms - self._gave_up_ms < self._parts.settings.replica_fetch_wait_max_ms
        if self._in_flight is fetch and not fetch.done() and not is_soon:
            self._gave_up_ms = now_ms
            self._is_given_up = True
            self._channel.disconnect("there is more to be fetched than it was asked for")

    def remove(self, role: FollowerState) -> None:
        key = _key(role)
        if self._roles.get(key) is role:
            del self._roles[key]
            self._waiting.pop(key, None)
            self._looking_up.pop(key, None)
            self._session.forget(key)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"fetch from node {self.leader_id} ({self._fetcher_id})"
        )

    def cancel(self) -> None:
        """Take no more answers."""
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        self.cancel()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await self._channel.close()

    def _place(self, key: ReplicaKey, role: FollowerState) -> None:
        """Put a partition where its phase wants it."""
        self._waiting.pop(key, None)
        self._looking_up.pop(key, None)
        phase = role.phase
        if phase is FollowerPhase.FETCHING:
            self._session.want(key, role.next_fetch(self._parts.settings.replica_fetch_max_bytes))
        else:
            self._session.forget(key)
            if phase is FollowerPhase.WAITING:
                self._waiting[key] = role, self._parts.runtime.clock.monotonic_ms() + role.wait_ms
            elif phase is FollowerPhase.LOOKING_UP:
                self._looking_up[key] = role
        self._changed.set()

    # The loop

    async def _run(self) -> None:
        while True:
            try:
                await self._step()
            except ChannelError as failure:
                self._session.failed()
                if self._is_given_up:
                    self._is_given_up = False
                    continue
                self._tell_down(failure)
                await asyncio.sleep(self._parts.settings.replica_fetch_backoff_ms / 1000)
            except Exception:
                # One answer that nobody foresaw must not end the following for good.
                self._session.failed()
                _log.exception("what node %d answered could not be handled; it is asked again", self.leader_id)
                await asyncio.sleep(self._parts.settings.replica_fetch_backoff_ms / 1000)

    async def _step(self) -> None:
        if self._parts.broker_epoch() < 0:
            await asyncio.sleep(_UNREGISTERED_S)
            return
        wait_ms = self._take_up_due()
        if self._looking_up:
            await self._look_up()
        elif len(self._session):
            await self._fetch(wait_ms)
        else:
            await self._until_changed(wait_ms)

    def _take_up_due(self) -> int | None:
        """Go on with those whose wait is over; how long until the next one, if one waits."""
        now_ms = self._parts.runtime.clock.monotonic_ms()
        for key, role in [(key, role) for key, (role, due_ms) in self._waiting.items() if due_ms <= now_ms]:
            role.go_on()
            self._place(key, role)
        return min((due_ms - now_ms for _, due_ms in self._waiting.values()), default=None)

    async def _until_changed(self, wait_ms: int | None) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _fetch(self, wait_ms: int | None) -> None:
        parts, settings, channel = self._parts, self._parts.settings, self._channel
        await channel.connect()
        # Those whose wait ends earlier must not wait until the leader has news of others.
        max_wait_ms = settings.replica_fetch_wait_max_ms
        request = self._session.begin(
            channel.version_of(FetchRequest),
            ReplicaState(replica_id=parts.node_id, replica_epoch=parts.broker_epoch()),
            max_wait_ms=max_wait_ms if wait_ms is None else max(1, min(max_wait_ms, wait_ms)),
            min_bytes=settings.replica_fetch_min_bytes,
            max_bytes=settings.replica_fetch_response_max_bytes,
        )
        self._is_given_up = False
        self._in_flight = channel.request(request)
        try:
            response = await self._in_flight
        finally:
            self._in_flight = None
        self._tell_up()
        found = self._session.answered(response)
        if found is not None:
            self._refusals = 0
            await self._take(found)
            return
        self._refusals += 1
        if self._refusals > 1:
            _log.warning(
                "node %d refuses fetches: %s", self.leader_id, ErrorCode.of(response.error_code).text or "no answer"
            )
            await asyncio.sleep(settings.replica_fetch_backoff_ms / 1000)

    def _tell_down(self, failure: ChannelError) -> None:
        if not self._is_down:
            self._is_down = True
            _log.warning("%d partitions cannot be fetched from node %d: %s", len(self._roles), self.leader_id, failure)

    def _tell_up(self) -> None:
        if self._is_down:
            self._is_down = False
            _log.info("node %d answers fetches again", self.leader_id)

    # Answers

    async def _take(self, found: Iterable[tuple[ReplicaKey, FetchPartition, PartitionData]]) -> None:
        spent_bytes = spent = 0
        for key, asked, data in found:
            role = self._roles.get(key)
            if role is not None and not role.is_over:
                self._take_one(key, role, asked, data)
            spent += 1
            spent_bytes += len(data.records or b"")
            if spent >= _PARTITIONS_PER_TURN or spent_bytes >= _BYTES_PER_TURN:
                spent_bytes = spent = 0
                await asyncio.sleep(0)

    def _take_one(self, key: ReplicaKey, role: FollowerState, asked: FetchPartition, data: PartitionData) -> None:
        backoff_ms = self._parts.settings.replica_fetch_backoff_ms
        try:
            now_ms = self._parts.runtime.clock.now_ms()
            cut = role.take(asked, data, now_ms, backoff_ms)
            if cut is not None:
                self._cut(role, cut)
                if cut.then_append:
                    role.append(data, now_ms)
                if not role.is_news(asked):
                    role.wait(backoff_ms)
        except LogError as failure:
            self._failed(role, failure)
        except Exception:
            # Whatever the answer or the log made of the code: the other partitions are followed.
            _log.exception("%s cannot follow node %d", role.partition.name, self.leader_id)
            role.wait(backoff_ms)
        if data.error_code:
            self._tell_error(role, ErrorCode.of(data.error_code))
        if self._roles.get(key) is role and (role.phase is not FollowerPhase.FETCHING or role.is_news(asked)):
            self._place(key, role)

    def _cut(self, role: FollowerState, cut: Cut) -> None:
        log, name = role.log, role.partition.name
        if cut.offset < log.high_watermark:
            _log.warning("Truncating %s to offset %d below high watermark %d", name, cut.offset, log.high_watermark)
        elif cut.offset < log.log_end_offset:
            _log.info("Truncating %s from offset %d to %d", name, log.log_end_offset, cut.offset)
        if cut.is_anew:
            self._parts.logs.start_anew(name, cut.offset)
        else:
            self._parts.logs.truncate(name, cut.offset)

    def _failed(self, role: FollowerState, failure: LogError) -> None:
        """A log that cannot be written: a full disk is waited for, a failed one takes the role away."""
        role.wait(self._parts.settings.replica_fetch_backoff_ms)
        self._parts.log_failed(role.partition, failure)
        if not isinstance(failure, PassingError) and not role.is_over:
            _log.error("%s cannot follow node %d: %s", role.partition.name, self.leader_id, failure)

    def _tell_error(self, role: FollowerState, code: ErrorCode) -> None:
        """Once, and of what passes by itself as metadata spreads only if it does not."""
        if role.failures == (_TOLD_FAILURES if is_soon_over(code) else 1):
            _log.warning("%s cannot be fetched from node %d: %s", role.partition.name, self.leader_id, code.name)

    # When the leader does not have our offset

    async def _look_up(self) -> None:
        """Ask where the leader's logs end and, where that is not before our end, where they begin."""
        asked = dict(self._looking_up)
        for key, end_offset in (await self._offsets(asked, LATEST)).items():
            role = asked[key]
            if self._looking_up.get(key) is role:
                cut = role.take_leader_end(end_offset)
                if cut is not None:
                    self._reset(key, role, cut, "the end")
        rest = {key: role for key, role in asked.items() if self._looking_up.get(key) is role}
        for key, start_offset in (await self._offsets(rest, EARLIEST) if rest else {}).items():
            role = rest[key]
            if self._looking_up.get(key) is role:
                self._reset(key, role, role.take_leader_start(start_offset), "the start")
        for key, role in rest.items():
            if self._looking_up.get(key) is role:
                role.wait(self._parts.settings.replica_fetch_backoff_ms)
                self._place(key, role)

    def _reset(self, key: ReplicaKey, role: FollowerState, cut: Cut | None, where: str) -> None:
        if cut is not None:
            _log.warning(
                "%s has no offset %d on node %d: it goes on at %s there, %d",
                role.partition.name,
                role.log.log_end_offset,
                self.leader_id,
                where,
                cut.offset,
            )
            try:
                self._cut(role, cut)
            except LogError as failure:
                self._failed(role, failure)
        if self._roles.get(key) is role:
            self._place(key, role)

    async def _offsets(self, roles: dict[ReplicaKey, FollowerState], timestamp: int) -> dict[ReplicaKey, int]:
        """What the leader says; those that it says nothing of are left out."""
        topics: dict[str, ListOffsetsTopic] = {}
        keys = {}
        for key, role in roles.items():
            name = role.partition.name
            keys[name.topic, name.partition] = key
            topic = topics.setdefault(name.topic, ListOffsetsTopic(name=name.topic, partitions=[]))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=name.partition, current_leader_epoch=role.leader_epoch, timestamp=timestamp
                )
            )
        request = ListOffsetsRequest(replica_id=self._parts.node_id, topics=list(topics.values()))
        response = cast(ListOffsetsResponse, await self._channel.request(request))
        return {
            keys[topic.name, each.partition_index]: each.offset
            for topic in response.topics
            for each in topic.partitions
            if not each.error_code and each.offset >= 0 and (topic.name, each.partition_index) in keys
        }


def _key(role: FollowerState) -> ReplicaKey:
    return role.partition.topic_id, role.partition.name.partition
