"""A consumer in its group: runs the `Membership` machine and commits over the network.

What needs the program (listeners, callbacks of commits) happens inside `poll`, `commit`, `leave` and `close`, through
`invoke`. Everything else goes on by itself while the program works: heartbeats, and a rebalance up to the point where
the program must be told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from random import Random
from typing import Any

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.base.log_context import logger, speaking
from barnabas.base.runtime import Clock
from barnabas.client.consumer.committing import CommitCallback, Committer, Invoke, Offsets, backoff_of
from barnabas.client.consumer.heartbeat_task import HeartbeatTask
from barnabas.client.core.consuming.assignors import load_assignors
from barnabas.client.core.consuming.commits import no_member_any_more, not_of_this_group, still_rebalancing
from barnabas.client.core.consuming.membership import Membership
from barnabas.client.core.consuming.membership_policy import MembershipPolicy
from barnabas.client.core.consuming.membership_steps import (
    GiveUp,
    GroupMetadata,
    Idle,
    Join,
    Lead,
    Step,
    Sync,
    Take,
    Wait,
)
from barnabas.client.core.consuming.offsets import OffsetAndMetadata
from barnabas.client.core.consuming.subscription import Mode, Subscription
from barnabas.client.core.metrics.consumer import GroupMetrics
from barnabas.client.errors import ClientClosedError, ClientTimeoutError, NoBrokersError
from barnabas.client.network_client import CoordinatorType, NetworkClient
from barnabas.client.settings import ConsumerSettings
from barnabas.net.errors import ChannelError, RefusedError

_log = logger("barnabas.client.group")

__all__ = ["CommitCallback", "GroupDriver", "GroupMetadata"]


class GroupDriver:
    """The group of one consumer. For the event loop's thread only.

        if group.needs_poll():
            await group.poll(timeout_ms)

    A consumer that assigns partitions by hand uses it too, to commit.
    """

    def __init__(
        self,
        network: NetworkClient,
        subscription: Subscription,
        settings: ConsumerSettings,
        *,
        clock: Clock,
        randomness: Random,
        invoke: Invoke,
        metrics: GroupMetrics | None = None,
        on_commit: Any = None,
    ) -> None:
        if settings.group_id is None:
            raise ValueError("a consumer without group.id has no group")
        self._network = network
        self._subscription = subscription
        self._settings = settings
        self._group_id = settings.group_id
        self._clock = clock
        self._invoke = invoke
        self._metrics = metrics
        backoff_ms = backoff_of(settings, randomness)
        self.membership = Membership(
            policy_of(settings), load_assignors(settings.partition_assignment_strategy), backoff_ms=backoff_ms
        )
        self._heartbeats = HeartbeatTask(
            network,
            self.membership,
            settings,
            clock=clock,
            metrics=metrics,
            before=self._note_progress,
            after=self._call_if_wanted,
        )
        self.membership.on_rejoin = self._call_if_wanted
        network.on_update(lambda view: self._call_if_wanted())
        self._committer = Committer(
            network,
            settings,
            clock=clock,
            metrics=metrics,
            invoke=invoke,
            member=self._committing_member,
            refused=self._commit_refused,
            backoff_ms=backoff_ms,
        )
        self._committer.on_commit = on_commit
        self._auto_commits = settings.enable_auto_commit
        self._auto_commit_at_ms = clock.monotonic_ms() + settings.auto_commit_interval_ms
        self._exchange: asyncio.Task[None] | None = None
        self._last_commit: asyncio.Task[None] | None = None
        self._auto_commit: asyncio.Task[None] | None = None
        self._unfinished: GiveUp | None = None
        self._followed: tuple[object, ...] = ()
        self._topics: tuple[str, ...] = ()
        self._is_closed = False
        #: Called when the program should poll soon: a rebalance waits for it, or something failed.
        self.on_attention: Callable[[], None] = lambda: None
        #: Something that changes while the program takes records without polling: it is not late then.
        self.progress: Callable[[], object] = lambda: None
        self._last_progress: object = None

    # Polling

    def needs_poll(self) -> bool:
        """The program has come back for more; whether `poll` has anything to do. Cheap: for every poll."""
        now_ms = self._clock.monotonic_ms()
        membership = self.membership
        membership.polled(now_ms)
        if self._committer.has_finished or (self._auto_commits and now_ms >= self._auto_commit_at_ms):
            return True
        return self._wants_program()

    def next_poll_s(self) -> float | None:
        """In how many seconds `needs_poll` will be true if nothing happens; None for never."""
        if not self._auto_commits:
            return None
        return max(0.0, self._auto_commit_at_ms - self._clock.monotonic_ms()) / 1000

    def _wants_program(self) -> bool:
        if not self._subscription.uses_group:
            return False
        membership = self.membership
        if membership.error is not None or membership.failure is not None:
            return True
        self._follow_topics()
        return membership.wants_step(self._topics, self._network.view.version)

    def _call_if_wanted(self) -> None:
        """Call the program, unless a rebalance goes on without it at present."""
        is_under_way = self._exchange is not None and not self._exchange.done()
        if not is_under_way and not self._is_closed and self._wants_program():
            self.on_attention()

    def _note_progress(self, now_ms: int) -> None:
        progress = self.progress()
        if progress != self._last_progress:
            self._last_progress = progress
            self.membership.polled(now_ms)

    async def poll(self, timeout_ms: float) -> bool:
        """Do what is due: run callbacks, commit, take part in a rebalance for so long; whether the member is in the
        group and has its partitions.

        Listeners run in here. What one raises is raised when the rebalance has gone on without it.
        """
        self._check_open()
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        self.membership.polled(self._clock.monotonic_ms())
        with speaking(self._network.who):
            await self._committer.run_callbacks()
            is_ready = True
            if self._subscription.uses_group:
                self._heartbeats.start()
                is_ready = await self._rebalance(deadline_ms)
            if self._auto_commits:
                self._auto_commit_if_due()
        return is_ready

    async def _rebalance(self, deadline_ms: float) -> bool:
        membership = self.membership
        while True:
            self._raise_errors()
            if not await self._wait_for_exchange(deadline_ms):
                return False
            self._raise_errors()
            self._follow_topics()
            if not await self._has_matched_pattern(deadline_ms):
                return False
            step: Step = self._unfinished or self._next_step(with_program=True)
            match step:
                case Idle():
                    return True
                case GiveUp():
                    if not await self._give_up(step, deadline_ms):
                        return False
                case Take():
                    await self._take(step)
                case Wait(ms=None):
                    return False  # another poll is at it
                case _:
                    self._exchange = asyncio.get_running_loop().create_task(self._run_exchange(step))
                    self._exchange.add_done_callback(lambda _: self._call_if_wanted())
            membership.polled(self._clock.monotonic_ms())

    async def _wait_for_exchange(self, deadline_ms: float) -> bool:
        """Wait until the rebalance needs the program again, or the poll's time is up."""
        task = self._exchange
        if task is None:
            return True
        if not task.done():
            left_ms = max(0.0, deadline_ms - self._clock.monotonic_ms())
            await asyncio.wait({task}, timeout=left_ms / 1000)
            if not task.done():
                return False
        self._exchange = None
        task.result()
        return True

    def _next_step(self, *, with_program: bool) -> Step:
        view = self._network.view
        return self.membership.next_step(
            self._topics, view, view.version, self._clock.monotonic_ms(), with_program=with_program
        )

    def _raise_errors(self) -> None:
        membership = self.membership
        if membership.failure is not None:
            raise membership.failure
        if membership.error is not None:
            error, membership.error = membership.error, None
            raise error

    # What the program is told

    async def _give_up(self, step: GiveUp, deadline_ms: float) -> bool:
        """Tell the program what it loses; False if the poll's time is up before what it has read is committed."""
        self._unfinished = step
        if not step.is_lost and not await self._commit_before_loss(step, deadline_ms):
            return False
        self._unfinished = None
        if not self.membership.awaits(step):
            return True  # fallen out of the group meanwhile: the next step tells what is lost
        if step.is_before_join:
            self._subscription.reset_group_topics()
        try:
            await self._tell("lost" if step.is_lost else "revoked", step.partitions)
        finally:
            if step.partitions and self._subscription.uses_group:
                self._subscription.revoke(step.partitions)
            self.membership.gave_up(step)
            self._count_assigned()
        return True

    async def _commit_before_loss(self, step: GiveUp, deadline_ms: float) -> bool:
        if self._last_commit is None:
            if not self._auto_commits or not (step.partitions or step.is_before_join):
                return True
            self._subscription.mark_pending_revocation(step.partitions)
            offsets = self._subscription.consumed()
            if not offsets:
                return True
            # Others wait for this member at most this long.
            timeout_ms = min(self._settings.default_api_timeout_ms, self._settings.max_poll_interval_ms)
            self._last_commit = asyncio.get_running_loop().create_task(self._commit_quietly(offsets, timeout_ms))
        left_ms = max(0.0, deadline_ms - self._clock.monotonic_ms())
        await asyncio.wait({self._last_commit}, timeout=left_ms / 1000)
        if not self._last_commit.done():
            return False
        self._last_commit = None
        return True

    async def _commit_quietly(self, offsets: Offsets, timeout_ms: float) -> None:
        try:
            await self._committer.commit(offsets, timeout_ms)
        except BarnabasError as error:
            _log.warning("group %s: auto-commit: %s", self._group_id, error)

    async def _take(self, step: Take) -> None:
        now_ms = self._clock.monotonic_ms()
        began_ms = self.membership.rebalance_since_ms
        self._subscription.assigned_from_group(step.partitions)
        self._auto_commit_at_ms = now_ms + self._settings.auto_commit_interval_ms
        _log.info(
            "group %s: generation %d, %d partitions are assigned (%d new)",
            self._group_id,
            step.generation,
            len(step.partitions),
            len(step.added),
        )
        try:
            await self._tell("assigned", step.added)
        finally:
            self.membership.took(step)
            self._count_assigned()
            if self._metrics is not None and began_ms is not None:
                self._metrics.rebalanced(now_ms - began_ms)

    async def _tell(self, what: str, partitions: tuple[TopicPartition, ...]) -> None:
        listener = self._subscription.listener
        if listener is None or (what != "assigned" and not partitions):
            return
        method = getattr(listener, f"on_partitions_{what}", None)
        if method is None and what == "lost":
            method = getattr(listener, "on_partitions_revoked", None)
        if method is None:
            return
        started_ms = self._clock.monotonic_ms()
        try:
            await self._invoke(method, list(partitions))
        except Exception as error:
            error.add_note(f"raised by on_partitions_{what} of the rebalance listener of group {self._group_id}")
            raise
        finally:
            if self._metrics is not None:
                getattr(self._metrics, f"{what}_callback")(self._clock.monotonic_ms() - started_ms)

    def _count_assigned(self) -> None:
        if self._metrics is not None:
            self._metrics.partitions_assigned(len(self._subscription.assigned()))

    # The part of a rebalance that does not need the program

    async def _run_exchange(self, step: Step) -> None:
        """Join, lead and sync, until the program must be told something."""
        while True:
            match step:
                case Join() | Sync() | Lead():
                    await self._carry_out(step)
                case Wait(ms=float() | int() as wait_ms):
                    await asyncio.sleep(wait_ms / 1000)
                case _:
                    return
            self._heartbeats.look_again()
            if self.membership.error is not None or self.membership.failure is not None:
                return
            self._follow_topics()
            step = self._next_step(with_program=False)

    async def _carry_out(self, step: Join | Sync | Lead) -> None:
        try:
            await (self._lead(step) if isinstance(step, Lead) else self._ask(step))
        except Exception as error:
            # Nobody expects it, as it comes of a defect. The program hears of it, and its next poll tries again.
            _log.exception("group %s: the rebalance was broken off", self._group_id)
            self.membership.error = error
            self.membership.exchange_failed(step, repr(error), self._clock.monotonic_ms())

    async def _ask(self, step: Join | Sync) -> None:
        membership = self.membership
        started_ms = self._clock.monotonic_ms()
        try:
            node_id = await self._network.coordinator(
                CoordinatorType.GROUP, self._group_id, self._settings.default_api_timeout_ms
            )
            response = await self._network.request(node_id, step.request, timeout_ms=step.timeout_ms)
        except BarnabasError as error:
            is_passing = isinstance(error, ChannelError | ClientTimeoutError | NoBrokersError)
            if not is_passing or isinstance(error, RefusedError):
                membership.error = error
            membership.exchange_failed(step, str(error), self._clock.monotonic_ms())
            if self._metrics is not None:
                self._metrics.rebalance_failed()
        else:
            now_ms = self._clock.monotonic_ms()
            if isinstance(step, Join):
                membership.join_answered(step, response, now_ms)
            else:
                membership.sync_answered(step, response, now_ms)
            self._measure(step, ErrorCode.of(response.error_code), now_ms - started_ms)
        self._heartbeats.forget_lost_coordinator()

    def _measure(self, step: Join | Sync, code: ErrorCode, ms: int) -> None:
        if self._metrics is None or code is ErrorCode.MEMBER_ID_REQUIRED:
            return
        if code:
            self._metrics.rebalance_failed()
        elif isinstance(step, Join):
            self._metrics.joined(ms)
        else:
            self._metrics.synced(ms)

    async def _lead(self, step: Lead) -> None:
        """Assign, once the topics of all members are known."""
        self._subscription.set_group_topics(step.topics)
        self._follow_topics()
        view = self._network.view
        try:
            if any(view.entry(topic) is None for topic in step.topics):
                past_version = self._network.metadata.request_update()
                view = await self._network.wait_for_update(past_version, self._settings.request_timeout_ms)
        except BarnabasError as error:
            self.membership.exchange_failed(step, str(error), self._clock.monotonic_ms())
        else:
            self.membership.lead(step, view, view.version)

    # Topics

    def _follow_topics(self) -> None:
        """Keep the metadata to what is needed, and a pattern's topics up to date."""
        subscription, network = self._subscription, self._network
        by_pattern = subscription.mode is Mode.PATTERN
        current = (
            subscription.mode,
            subscription.pattern,
            subscription.topics_version,
            subscription.group_subscription,
            network.view.version if by_pattern else 0,
        )
        if current == self._followed:
            return
        if by_pattern:
            network.metadata.set_topics(None)
            subscription.match(network.view, exclude_internal=self._settings.exclude_internal_topics)
        else:
            network.metadata.set_topics(subscription.group_subscription)
        self._topics = tuple(sorted(subscription.topics))
        self._followed = (*current[:2], subscription.topics_version, subscription.group_subscription, current[4])

    async def _has_matched_pattern(self, deadline_ms: float) -> bool:
        """A pattern says nothing before the topics are known: wait for them."""
        if self._subscription.mode is not Mode.PATTERN or self._network.view.version:
            return True
        try:
            await self._network.wait_for_update(0, max(0.0, deadline_ms - self._clock.monotonic_ms()))
        except ClientTimeoutError:
            return False
        self._follow_topics()
        return True

    # Commits

    async def commit(self, offsets: Offsets | None = None, timeout_ms: float | None = None) -> None:
        """Commit, by default everything that the program was handed, and return when it is done.

        Raises `CommitFailedError` if others may have the partitions by now, `ClientTimeoutError` if it takes too long.
        """
        self._check_open()
        chosen = self._subscription.positions() if offsets is None else offsets
        await self._committer.commit(chosen, self._timeout_ms(timeout_ms))

    def commit_soon(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Commit without waiting. `callback(offsets, error)` runs in a later poll, commit or close."""
        self._check_open()
        self._committer.commit_soon(self._subscription.positions() if offsets is None else offsets, callback)

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What is committed; None where nothing is."""
        self._check_open()
        return await self._committer.committed(partitions, self._timeout_ms(timeout_ms))

    def group_metadata(self) -> GroupMetadata:
        return self.membership.metadata

    def request_rejoin(self, reason: str) -> None:
        """Have the group rebalance at the next poll."""
        self.membership.request_rejoin(reason)

    def _timeout_ms(self, timeout_ms: float | None) -> float:
        return self._settings.default_api_timeout_ms if timeout_ms is None else timeout_ms

    def _auto_commit_if_due(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._auto_commit_at_ms:
            return
        self._auto_commit_at_ms = now_ms + self._settings.auto_commit_interval_ms
        if self._subscription.uses_group and not self.membership.may_commit:
            return
        if self._auto_commit is not None and not self._auto_commit.done():
            return  # while no coordinator can be had they would only pile up
        offsets = self._subscription.consumed()
        if offsets:
            self._auto_commit = self._committer.commit_soon(offsets, self._auto_committed)

    def commit_except(self, kept: Collection[TopicPartition]) -> None:
        """Auto-commit what is about to be assigned no more, all that was handed out of it: there is no later for it."""
        if self._auto_commits:
            offsets = {
                partition: each for partition, each in self._subscription.positions().items() if partition not in kept
            }
            if offsets:
                self._committer.commit_soon(offsets, self._auto_committed)

    def _auto_committed(self, offsets: dict[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        if error is not None:
            _log.warning("group %s: auto-commit: %s", self._group_id, error)
            retry_ms = self._clock.monotonic_ms() + self._settings.retry_backoff_ms
            self._auto_commit_at_ms = min(self._auto_commit_at_ms, retry_ms)

    def _committing_member(self) -> GroupMetadata:
        if not self._subscription.uses_group:
            return GroupMetadata(self._group_id)
        if self.membership.may_commit:
            return self.membership.metadata
        if self.membership.is_rebalancing:
            raise still_rebalancing(self._group_id)
        raise self._no_member_any_more()

    def _commit_refused(self, code: ErrorCode, member: GroupMetadata) -> Exception:
        membership = self.membership
        if member.member_id:
            membership.commit_refused(code, member.generation, member.member_id)
            self._heartbeats.look_again()
        if code is ErrorCode.FENCED_INSTANCE_ID and membership.failure is not None:
            return membership.failure
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return still_rebalancing(self._group_id)
        if not member.member_id:
            return not_of_this_group(self._group_id)
        return self._no_member_any_more()

    def _no_member_any_more(self) -> Exception:
        limit_ms = self._settings.max_poll_interval_ms
        return no_member_any_more(self._group_id, limit_ms, is_polled_late=self.membership.is_polled_late)

    # The end

    async def leave(self, reason: str, timeout_ms: float | None = None, *, tells: bool | None = None) -> None:
        """Give up everything and be out of the group; before the program unsubscribes, or closes."""
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms(timeout_ms)
        await self._stop_exchange()
        await self._committer.wait_for_pending(self._left_ms(deadline_ms))
        if not self._left_ms(deadline_ms):
            await self._committer.drop_pending()
        membership = self.membership
        was_in = membership.may_commit
        if self._auto_commits and (was_in or not self._subscription.uses_group):
            await self._commit_quietly(self._subscription.consumed(), self._left_ms(deadline_ms))
        partitions = tuple(self._subscription.assigned()) if self._subscription.uses_group else ()
        try:
            await self._tell("revoked" if was_in and membership.may_commit else "lost", partitions)
        finally:
            membership.owned = ()
            request = membership.leave(reason, tells=tells)
            self._heartbeats.look_again()
            if self._subscription.uses_group:
                self._subscription.assigned_from_group(())
                self._count_assigned()
            if request is not None:
                await self._heartbeats.send_leave(request, self._left_ms(deadline_ms))

    async def close(self, timeout_ms: float = 30_000, *, leave_group: bool | None = None) -> None:
        """Commit, leave and stop. Who does not leave stays in the group until its session ends; static members do not,
        unless they are told to."""
        if self._is_closed:
            return
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        try:
            if self._subscription.uses_group or self._auto_commits:
                await self.leave("the consumer is being closed", timeout_ms, tells=leave_group)
            await self._committer.wait_for_pending(self._left_ms(deadline_ms))
            await self._committer.drop_pending()
            await self._committer.run_callbacks()
        finally:
            self._is_closed = True
            self._committer.cancel()
            self._heartbeats.stop()
            for task in (self._exchange, self._last_commit):
                if task is not None:
                    task.cancel()

    def _left_ms(self, deadline_ms: float) -> float:
        return max(0.0, deadline_ms - self._clock.monotonic_ms())

    async def _stop_exchange(self) -> None:
        for task in (self._exchange, self._last_commit):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        self._exchange = self._last_commit = self._unfinished = None

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the consumer is closed")


def policy_of(settings: ConsumerSettings) -> MembershipPolicy:
    assert settings.group_id is not None
    return MembershipPolicy(
        group_id=settings.group_id,
        instance_id=settings.group_instance_id,
        rack=settings.client_rack or None,
        session_timeout_ms=settings.session_timeout_ms,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        max_poll_interval_ms=settings.max_poll_interval_ms,
        request_timeout_ms=settings.request_timeout_ms,
    )
