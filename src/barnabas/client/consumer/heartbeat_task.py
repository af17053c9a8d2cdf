"""What keeps a member in its group while its program works: heartbeats, and the eye on the program itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError
from barnabas.base.log_context import logger
from barnabas.base.runtime import Clock
from barnabas.client.core.consuming.membership import Membership
from barnabas.client.core.consuming.membership_steps import Heartbeat
from barnabas.client.core.metrics.consumer import GroupMetrics
from barnabas.client.network_client import CoordinatorType, NetworkClient
from barnabas.client.settings import ConsumerSettings
from barnabas.net.errors import ChannelError
from barnabas.wire.message import Response
from barnabas.wire.messages.heartbeat import HeartbeatResponse
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

_log = logger("barnabas.client.group")

#: From this version on, LeaveGroup names its members in a list.
_MANY_MEMBERS_SINCE: Final = 3


class HeartbeatTask:
    """One task that sends heartbeats when they are due, and leaves when the program has not polled in time."""

    def __init__(
        self,
        network: NetworkClient,
        membership: Membership,
        settings: ConsumerSettings,
        *,
        clock: Clock,
        metrics: GroupMetrics | None,
        before: Callable[[int], None],
        after: Callable[[], None],
    ) -> None:
        """`before` is called before the program is taken for late, `after` when the coordinator has answered."""
        self._network = network
        self._membership = membership
        self._settings = settings
        self._group_id = membership.policy.group_id
        self._clock = clock
        self._metrics = metrics
        self._before = before
        self._after = after
        self._task: asyncio.Task[None] | None = None
        self._search: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        for task in (self._task, self._search, self._leaving):
            if task is not None:
                task.cancel()

    def look_again(self) -> None:
        """The timers of the member may have changed."""
        self._changed.set()

    async def _run(self) -> None:
        membership, clock = self._membership, self._clock
        while True:
            now_ms = clock.monotonic_ms()
            self._before(now_ms)
            leave = membership.overdue(now_ms)
            if leave is not None:
                # Not waited for: if the program comes back, it joins again, and heartbeats are due.
                self._leaving = asyncio.get_running_loop().create_task(
                    self.send_leave(leave, self._settings.request_timeout_ms)
                )
            beat = membership.heartbeat(now_ms)
            if beat is not None:
                self._send(beat, now_ms)
            self.forget_lost_coordinator()
            self._changed.clear()
            wait_ms = membership.next_timer_ms(clock.monotonic_ms())
            try:
                async with asyncio.timeout(None if wait_ms is None else max(1.0, wait_ms) / 1000):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _send(self, beat: Heartbeat, now_ms: int) -> None:
        node_id = self._network.known_coordinator(CoordinatorType.GROUP, self._group_id)
        if node_id is None:
            self._membership.heartbeat_failed(None, now_ms)
            self._look_for_coordinator()
            return
        if self._metrics is not None:
            self._metrics.heartbeat_sent()

        def on_answer(answer: Response | ChannelError) -> None:
            later_ms = self._clock.monotonic_ms()
            if isinstance(answer, HeartbeatResponse):
                if self._metrics is not None:
                    self._metrics.heartbeat(later_ms - now_ms)
                self._membership.heartbeat_answered(beat, ErrorCode.of(answer.error_code), later_ms)
            else:
                self._membership.heartbeat_failed(str(answer), later_ms)
            self.forget_lost_coordinator()
            self.look_again()
            self._after()

        self._network.request_soon(node_id, beat.request, on_answer)

    def _look_for_coordinator(self) -> None:
        if self._search is None or self._search.done():
            self._search = asyncio.get_running_loop().create_task(self._find_coordinator())

    async def _find_coordinator(self) -> None:
        timeout_ms = self._settings.default_api_timeout_ms
        try:
            await self._network.coordinator(CoordinatorType.GROUP, self._group_id, timeout_ms)
        except BarnabasError as error:
            _log.warning("group %s: its coordinator cannot be found: %s", self._group_id, error)
        self.look_again()

    def forget_lost_coordinator(self) -> None:
        why, self._membership.coordinator_lost = self._membership.coordinator_lost, None
        if why is not None:
            self._network.forget_coordinator(CoordinatorType.GROUP, self._group_id, why)

    async def send_leave(self, request: LeaveGroupRequest, timeout_ms: float) -> None:
        """Tell the coordinator, if one is known: to look for one takes longer than it is worth."""
        node_id = self._network.known_coordinator(CoordinatorType.GROUP, self._group_id)
        if node_id is None or timeout_ms <= 0:
            return
        try:
            version = self._network.version_of(node_id, LeaveGroupRequest)
            if version is not None and version < _MANY_MEMBERS_SINCE:
                request = LeaveGroupRequest(group_id=self._group_id, member_id=request.members[0].member_id)
            response: LeaveGroupResponse = await self._network.request(
                node_id, request, timeout_ms=min(timeout_ms, self._settings.request_timeout_ms)
            )
        except ChannelError as error:
            _log.info("group %s: the coordinator was not told that this member leaves: %s", self._group_id, error)
            return
        for code in (response.error_code, *(each.error_code for each in response.members)):
            if code:
                _log.info("group %s: leaving was answered with: %s", self._group_id, ErrorCode.of(code).text)
