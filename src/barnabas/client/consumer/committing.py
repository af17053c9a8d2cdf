"""Offsets of a group on their way to the coordinator and back.

A commit that the program waits for is tried until its time is up. One that it does not wait for is sent once, and its
callback runs at the next poll, commit or close, in the order in which commits were asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.base.log_context import logger
from barnabas.base.runtime import Clock
from barnabas.client.core.consuming.commits import (
    CommitVerdict,
    FetchedOffsets,
    commit_request,
    commit_verdict,
    fetch_found,
    fetch_request,
    newest_version,
)
from barnabas.client.core.consuming.membership_steps import GroupMetadata
from barnabas.client.core.consuming.offsets import OffsetAndMetadata
from barnabas.client.core.metrics.consumer import GroupMetrics
from barnabas.client.errors import ClientTimeoutError, CommitFailedError
from barnabas.client.network_client import CoordinatorType, NetworkClient
from barnabas.client.settings import ConsumerSettings
from barnabas.net.backoff import grown
from barnabas.net.errors import ChannelError, RefusedError
from barnabas.wire.message import Request
from barnabas.wire.messages.offset_commit import OffsetCommitRequest
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest

_log = logger("barnabas.client.group")

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
#: Told what was committed, or why not.
CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], Exception | None], Any]
Invoke = Callable[..., Awaitable[None]]


class _Pending:
    """A commit that nobody waits for."""

    __slots__ = ("callback", "error", "offsets", "task")

    def __init__(self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: CommitCallback | None) -> None:
        self.offsets = offsets
        self.callback = callback
        self.error: Exception | None = None
        self.task: asyncio.Task[None] | None = None


class Committer:
    """Commits of one consumer. `member` says as whom, or raises; `refused` is told if the coordinator disagrees."""

    def __init__(
        self,
        network: NetworkClient,
        settings: ConsumerSettings,
        *,
        clock: Clock,
        metrics: GroupMetrics | None,
        invoke: Invoke,
        member: Callable[[], GroupMetadata],
        refused: Callable[[ErrorCode, GroupMetadata], Exception],
        backoff_ms: Callable[[int], float],
    ) -> None:
        assert settings.group_id is not None
        self._network = network
        self._settings = settings
        self._group_id = settings.group_id
        self._clock = clock
        self._metrics = metrics
        self._invoke = invoke
        self._member = member
        self._refused = refused
        self._backoff_ms = backoff_ms
        #: Told of every commit that succeeded, for interceptors.
        self.on_commit: Callable[[Offsets], object] | None = None
        # Requests leave in the order in which they were asked for, also while a coordinator is looked for.
        self._turn = asyncio.Lock()
        self._pending: deque[_Pending] = deque()

    # Commits

    async def commit(self, offsets: Offsets, timeout_ms: float) -> None:
        """Commit, and return when it is done. What was asked for before is answered before."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        await self.finish_pending(timeout_ms)
        if offsets:
            await self._until_done(
                lambda left_ms: self._commit_once(dict(offsets), self._member(), left_ms),
                deadline_ms,
                f"the offsets of group {self._group_id} were not committed within {timeout_ms:.0f} ms",
            )

    def commit_soon(self, offsets: Offsets, callback: CommitCallback | None = None) -> asyncio.Task[None] | None:
        """Commit without waiting. The callback gets the offsets, and the error if there was one.

        Returns what is under way; None if nothing had to be sent.
        """
        pending = _Pending(dict(offsets), callback)
        self._pending.append(pending)
        if not offsets:
            return None
        try:
            member = self._member()  # at present: who unsubscribes next has committed as the one who it was
        except BarnabasError as error:
            pending.error = error
        else:
            pending.task = asyncio.get_running_loop().create_task(self._commit_pending(pending, member))
        return pending.task

    @property
    def has_finished(self) -> bool:
        """Whether there are callbacks to run."""
        return bool(self._pending) and (self._pending[0].task is None or self._pending[0].task.done())

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    async def run_callbacks(self) -> None:
        """Run the callbacks of what is finished, in order. What one raises is raised when all have run."""
        failure: Exception | None = None
        while self.has_finished:
            done = self._pending.popleft()
            if done.callback is not None:
                try:
                    await self._invoke(done.callback, done.offsets, done.error)
                except Exception as error:
                    failure = failure or error
        if failure is not None:
            raise failure

    async def finish_pending(self, timeout_ms: float) -> None:
        """Wait for what nobody waits for, and run its callbacks."""
        await self.wait_for_pending(timeout_ms)
        await self.run_callbacks()

    async def wait_for_pending(self, timeout_ms: float) -> None:
        """The same without the callbacks, for one who is about to leave: only a member may commit."""
        tasks = [each.task for each in self._pending if each.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_ms / 1000)

    async def drop_pending(self) -> None:
        """The time is over: give up what is still under way, so that it is in nobody's way."""
        self.cancel()
        tasks = [each.task for each in self._pending if each.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def cancel(self) -> None:
        for each in self._pending:
            if each.task is not None:
                each.task.cancel()

    async def _commit_pending(self, pending: _Pending, member: GroupMetadata) -> None:
        try:
            verdict = await self._commit_once(pending.offsets, member, self._settings.default_api_timeout_ms)
            if verdict.retry is not None:
                self._note(verdict)
                pending.error = CommitFailedError(
                    f"the offsets of group {self._group_id} were not committed: {verdict.retry.text}; commit again"
                )
        except asyncio.CancelledError:
            pending.error = CommitFailedError("the consumer was closed or unsubscribed before the commit was answered")
            raise
        except Exception as error:
            pending.error = error
            if isinstance(error, ChannelError) and not isinstance(error, RefusedError):
                self._forget(str(error))

    async def _commit_once(self, offsets: Offsets, member: GroupMetadata, timeout_ms: float) -> CommitVerdict:
        view = self._network.view
        started_ms = self._clock.monotonic_ms()
        topics = {partition.topic for partition in offsets}
        await self._take_turn(timeout_ms)
        try:
            node_id, offered = await self._coordinator(OffsetCommitRequest, self._left_ms(started_ms, timeout_ms))
            version = newest_version(topics, view, offered)
            request = commit_request(member, offsets, view)
            left_ms = min(self._left_ms(started_ms, timeout_ms), self._settings.request_timeout_ms)
            answer = self._network.request(node_id, request, version=version, timeout_ms=left_ms)
        finally:
            self._turn.release()
        response = await answer
        if self._metrics is not None:
            self._metrics.committed(self._clock.monotonic_ms() - started_ms)
        verdict = commit_verdict(response, view, self._group_id)
        if verdict.member is not None:
            raise self._refused(verdict.member, member)
        if verdict.error is not None:
            raise verdict.error
        if verdict.retry is None and self.on_commit is not None:
            self.on_commit(offsets)
        return verdict

    async def _take_turn(self, timeout_ms: float) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._turn.acquire()
        except TimeoutError:
            raise ClientTimeoutError(
                f"an earlier commit of group {self._group_id} was still under way after {timeout_ms:.0f} ms"
            ) from None

    def _left_ms(self, started_ms: float, timeout_ms: float) -> float:
        return max(1.0, started_ms + timeout_ms - self._clock.monotonic_ms())

    # Lookups

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What is committed for partitions; None where nothing is."""
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        if not partitions:
            return found

        async def once(left_ms: float) -> CommitVerdict:
            answer = await self._fetch_once(partitions, left_ms)
            found.update(answer.offsets)
            return answer.verdict

        await self._until_done(
            once,
            self._clock.monotonic_ms() + timeout_ms,
            f"the committed offsets of group {self._group_id} could not be had within {timeout_ms:.0f} ms",
        )
        return {partition: found.get(partition) for partition in partitions}

    async def _fetch_once(self, partitions: Collection[TopicPartition], timeout_ms: float) -> FetchedOffsets:
        view = self._network.view
        node_id, offered = await self._coordinator(OffsetFetchRequest, timeout_ms)
        version = newest_version({partition.topic for partition in partitions}, view, offered)
        request = fetch_request(
            self._group_id,
            partitions,
            view,
            version,
            require_stable=self._settings.isolation_level == "read_committed",
        )
        response = await self._network.request(
            node_id, request, version=version, timeout_ms=min(timeout_ms, self._settings.request_timeout_ms)
        )
        answer = fetch_found(response, version, view, self._group_id)
        if answer.verdict.error is not None:
            raise answer.verdict.error
        return answer

    # Both

    async def _until_done(
        self, attempt: Callable[[float], Awaitable[CommitVerdict]], deadline_ms: float, complaint: str
    ) -> None:
        """Try until it succeeds, or cannot, or the time is up."""
        last: BarnabasError | None = None
        failure_count = 0
        while True:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0 and failure_count:
                raise ClientTimeoutError(f"{complaint}: {last}") from last
            try:
                verdict = await attempt(max(left_ms, 1))
            except RefusedError:
                raise
            except ChannelError as failure:
                self._forget(str(failure))
                last = failure
            except ClientTimeoutError as failure:
                raise ClientTimeoutError(f"{complaint}: {failure}") from failure
            else:
                if verdict.retry is None:
                    return
                self._note(verdict)
                last = BrokerError(verdict.retry)
            wait_ms = min(self._backoff_ms(failure_count), max(0.0, deadline_ms - self._clock.monotonic_ms()))
            failure_count += 1
            await asyncio.sleep(wait_ms / 1000)

    def _note(self, verdict: CommitVerdict) -> None:
        if verdict.coordinator_lost and verdict.retry is not None:
            self._forget(verdict.retry.text)
        if verdict.topics_unknown:
            self._network.metadata.request_update()

    def _forget(self, why: str) -> None:
        self._network.forget_coordinator(CoordinatorType.GROUP, self._group_id, why)

    async def _coordinator(self, request: type[Request], timeout_ms: float) -> tuple[int, int]:
        """The coordinator's node, connected, and the newest version of a request that it takes."""
        network, started_ms = self._network, self._clock.monotonic_ms()
        node_id = await network.coordinator(CoordinatorType.GROUP, self._group_id, timeout_ms)
        version = network.version_of(node_id, request)
        if version is None:
            await network.connect(node_id, self._left_ms(started_ms, timeout_ms))
            version = network.version_of(node_id, request)
            if version is None:
                raise ChannelError(f"node {node_id}", "the connection was lost at once")
        return node_id, version


def backoff_of(settings: ConsumerSettings, randomness: Any) -> Callable[[int], float]:
    """How long to wait after so many failures."""
    first_ms, longest_ms = settings.retry_backoff_ms, settings.retry_backoff_max_ms
    return lambda failure_count: grown(first_ms, longest_ms, failure_count, randomness)
