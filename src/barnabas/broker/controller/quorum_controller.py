"""The controller at work: requests come in as messages, decisions go to the quorum, answers wait until they hold.

A decision is made at once and changes the controller's state in memory; the answer is given when its records are
committed. When another node leads, what was not committed is forgotten, and whoever waits for it is told.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.log_context import logger
from barnabas.base.runtime import Runtime
from barnabas.broker.controller.early_fencing import OWN_GRACE_MS, EarlyFencing
from barnabas.broker.periodic import Scheduler
from barnabas.metadata.authorizer import AuthorizableRequestContext
from barnabas.metadata.batches import encode_change
from barnabas.metadata.client_quotas import hosts_named
from barnabas.metadata.controller import Controller, ControllerResult
from barnabas.metadata.controller_apis import ControllerApis
from barnabas.metadata.elections import MAX_ELECTIONS_AT_A_TIME
from barnabas.metadata.features import METADATA_VERSION_BUILT
from barnabas.metadata.image import NO_LEADER
from barnabas.metadata.loader import MetadataLoader, MetadataUpdate
from barnabas.metadata.mutation_quotas import ControllerMutationQuotas
from barnabas.metadata.options import ControllerOptions
from barnabas.metadata.quorum import Quorum
from barnabas.net.host_names import HostNames
from barnabas.raft.types import LeaderAndEpoch
from barnabas.storage.errors import LogDirectoryError, PassingError
from barnabas.storage.manager import PeriodicTask
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.messages.describe_quorum import DescribeQuorumRequest
from barnabas.wire.stored.cluster_metadata import MetadataRecord, NoOpRecord

_log = logger("barnabas.controller")

_SHORTEST_FENCING_MS: Final = 100
#: Why a broker is fenced before its session would have ended.
_HAS_ENDED: Final = "whose process has ended"
_HAS_HUNG_UP: Final = "which closed its connection and did not come back"
#: Kafka's timeout covers the way to the decision, not the commit: with 1 ms it still creates topics.
_LEAST_COMMIT_WAIT_MS: Final = 1000


class QuorumController:
    """The controller of this node, active while it leads the quorum.

    `bootstrap` reads the first records of a new cluster. The former life of `local_broker`, which is in this process,
    has ended for certain: it held the lock of the directories that are locked here now. With `no_op_interval_ms` a
    record that says nothing is written when nothing else was for so long, as soon as anybody follows: followers and
    brokers can tell by it that they still hear their leader. With `says_nothing_alone` also if nobody does. Every
    `balance_interval_ms` partitions go back to their preferred leaders; every `unclean_interval_ms`, and when settings
    change, those that may get an unclean leader do.
    """

    def __init__(
        self,
        controller: Controller,
        apis: ControllerApis,
        quorum: Quorum,
        loader: MetadataLoader,
        runtime: Runtime,
        *,
        hosts: HostNames,
        bootstrap: Callable[[], list[MetadataRecord]],
        local_broker: int | None = None,
        no_op_interval_ms: int = 0,
        says_nothing_alone: bool = False,
        heartbeat_interval_ms: int = 2000,
        balance_interval_ms: int = 0,
        unclean_interval_ms: int = 0,
        token_interval_ms: int = 0,
    ) -> None:
        self._token_interval_ms = token_interval_ms
        self._controller = controller
        self._apis = apis
        self._quorum = quorum
        self._loader = loader
        self._clock = runtime.clock
        self._hosts = hosts
        self._bootstrap = bootstrap
        self._local_broker = local_broker
        self._no_op_interval_ms = no_op_interval_ms
        self._says_nothing_alone = says_nothing_alone
        self._balance_interval_ms = balance_interval_ms
        self._unclean_interval_ms = unclean_interval_ms
        self.early_fencing = EarlyFencing(
            self._fence_early, heartbeat_interval_ms, controller.options.broker_session_timeout_ms
        )
        self._leader = LeaderAndEpoch(-1, -1)
        #: How often the leader changed, changes were decided, waits for them ended too soon, and brokers were fenced
        #: because nothing was heard of them.
        self.leader_change_count = self.decided_count = self.timed_out_count = self.fenced_count = 0
        self._activation: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._last_append_ms = 0
        self._scheduler: Scheduler | None = None
        self._begun: set[asyncio.Task[None]] = set()
        #: Why nothing is decided here any more.
        self._refusal: str | None = None

    def set_options(self, options: ControllerOptions) -> None:
        self._controller.options = options

    @property
    def mutation_quotas(self) -> ControllerMutationQuotas:
        return self._apis.mutation_quotas

    def local_broker_lives(self) -> None:
        """The broker in this process has registered: from now on it has a life that counts."""
        self._local_broker = None

    async def until_active(self) -> None:
        """Wait until this node leads and has written what a new leader must; raises why it cannot."""
        await asyncio.shield(self._activation)

    # What the loader calls

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        was_active, self._leader = self._is_active, leader
        self.leader_change_count += leader.leader_id >= 0
        if was_active:
            self._resigned()
        self._tell(leader, was_active=was_active)
        if self._is_active:
            try:
                self._activate(leader.epoch)
            except BarnabasError as failure:
                self._cannot_lead(leader.epoch, failure)

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        """Everything up to this image is committed."""
        offset = update.image.offset
        self._controller.commit(offset)
        while self._waiting and self._waiting[0][0] <= offset:
            _, waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
        if update.delta.configs_changed and update.image.topics.leaders.has_any(NO_LEADER):
            self._soon(self._elect_unclean, "elect leaders that settings allow now")

    def _tell(self, leader: LeaderAndEpoch, *, was_active: bool) -> None:
        """Who has nobody beside it leads as a matter of course."""
        if not self._quorum.is_alone:
            reason = self._quorum.why_election
            why = "" if reason is None else f", since {reason}"
            if self._is_active:
                _log.info("Node %d is the active controller now, in epoch %d%s", leader.leader_id, leader.epoch, why)
            elif leader.leader_id >= 0:
                _log.info("Controller %d is the active one now, in epoch %d%s", leader.leader_id, leader.epoch, why)
            elif was_active:
                _log.info("Node %d is no longer the active controller", self._quorum.node_id)

    # Leading

    @property
    def waiting_count(self) -> int:
        """Changes that are decided, and not committed yet."""
        return len(self._waiting)

    @property
    def is_active(self) -> bool:
        """Whether this node decides."""
        return self._is_active

    @property
    def controller(self) -> Controller:
        return self._controller

    @property
    def _is_active(self) -> bool:
        return self._leader.leader_id == self._quorum.node_id

    def _activate(self, epoch: int) -> None:
        """This node leads: take over from what was committed, and write what a new leader must."""
        image = self._loader.image
        self._controller.load(image)
        bootstrap = self._bootstrap() if image.features.metadata_version is None else []
        activation = self._controller.activate(
            epoch, self._quorum.log_end_offset, self._clock.monotonic_ms(), bootstrap
        )
        if self._local_broker is not None:
            self._controller.broker_is_gone(self._local_broker)
            self._local_broker = None
        gone_id = self._quorum.gone_leader_id
        if gone_id is not None:
            # The process of the old leader was seen to go, and if it was a broker, too, that went with it.
            self._controller.shorten_session(gone_id, self._clock.monotonic_ms(), OWN_GRACE_MS, _HAS_ENDED)
            asyncio.get_running_loop().call_later(OWN_GRACE_MS / 1000 + 0.01, self._fence_soon)
        written = self._write(activation.records)
        written.add_done_callback(self._activated)
        if self._scheduler is None:
            self._scheduler = Scheduler(self._tasks())

    def _tasks(self) -> list[PeriodicTask]:
        """What the active controller does from time to time; on others it comes to nothing."""
        fencing_ms = max(_SHORTEST_FENCING_MS, self._controller.options.broker_session_timeout_ms // 8)
        tasks = [PeriodicTask("fence silent brokers", fencing_ms, self._fence)]
        if self._balance_interval_ms:
            tasks.append(PeriodicTask("balance leaders", self._balance_interval_ms, self._balance))
        if self._unclean_interval_ms:
            tasks.append(PeriodicTask("elect unclean leaders", self._unclean_interval_ms, self._elect_unclean))
        if self._token_interval_ms:
            tasks.append(PeriodicTask("remove expired tokens", self._token_interval_ms, self._remove_tokens))
        if self._no_op_interval_ms:
            tasks.append(PeriodicTask("say nothing", self._no_op_interval_ms, self._say_nothing))
        return tasks

    def _cannot_lead(self, epoch: int, failure: BarnabasError) -> None:
        """Another may be able to; where there is none, whoever waits hears why."""
        if not self._activation.done():
            self._activation.set_exception(failure)
            self._activation.exception()
        _log.error("this node cannot be the active controller: %s", failure)
        self._leader = LeaderAndEpoch(-1, epoch)
        asyncio.get_running_loop().call_soon(self._quorum.resign, epoch)

    def _fence_early(self, broker_id: int, epoch: int) -> None:
        broker = self._controller.image.brokers.get(broker_id)
        if self._is_active and broker is not None and broker.epoch == epoch:
            self._controller.shorten_session(broker_id, self._clock.monotonic_ms(), 0, _HAS_HUNG_UP)
            self._fence_soon()
            # What that leaves without leader, and may have an unclean one, gets it when the session would have ended.
            session_s = self._controller.options.broker_session_timeout_ms / 1000
            asyncio.get_running_loop().call_later(session_s, self._soon, self._elect_unclean, "elect leaders")

    def _fence_soon(self) -> None:
        self._soon(self._fence, "fence a broker that is gone")

    def _soon(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        if not self._is_active or self._refusal is not None:
            return
        task = asyncio.get_running_loop().create_task(work(), name=name)
        self._begun.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._begun.discard(task)
        if not task.cancelled() and isinstance(failure := task.exception(), BarnabasError):
            _log.warning("what the controller does by itself failed (%s): %s", task.get_name(), failure)

    async def _fence(self) -> None:
        while self._is_active and self._refusal is None:
            outcome = self._controller.fence_expired_brokers(self._clock.monotonic_ms())
            if outcome.response is None:
                return
            reason = self._controller.why_session_is_short(outcome.response)
            _log.info("Fencing broker %d, %s", outcome.response, reason or "whose session has expired")
            self.fenced_count += 1
            self.early_fencing.count += reason is not None
            if not await self._wrote(outcome.records):
                return

    async def _balance(self) -> None:
        await self._elect(self._controller.balance_leaders)

    async def _elect_unclean(self) -> None:
        await self._elect(self._controller.elect_unclean_leaders)

    async def _remove_tokens(self) -> None:
        records = self._controller.remove_expired_tokens(self._clock.now_ms()).records
        if records and self._is_active and self._refusal is None:
            await self._wrote(records)

    async def _elect(self, decide: Callable[[], ControllerResult[None]]) -> None:
        """Some at a time, until there are no more."""
        while self._is_active and self._refusal is None:
            records = decide().records
            if not records or not await self._wrote(records) or len(records) < MAX_ELECTIONS_AT_A_TIME:
                return

    async def _wrote(self, records: Sequence[MetadataRecord]) -> bool:
        """False if another node leads: whoever does decides about it."""
        try:
            await self._write(records)
        except BrokerError as refusal:
            if refusal.code is not ErrorCode.NOT_CONTROLLER:
                raise
            return False
        return True

    def _activated(self, written: asyncio.Future[None]) -> None:
        failure = None if written.cancelled() else written.exception()
        if self._activation.done():
            return
        if failure is None:
            self._activation.set_result(None)
        else:
            self._activation.set_exception(failure)

    def _resigned(self) -> None:
        self._controller.roll_back()
        self.early_fencing.clear()
        self._end_waiting("another node leads the quorum")
        self._activation = asyncio.get_running_loop().create_future()

    async def _say_nothing(self) -> None:
        is_heard = self._says_nothing_alone or self._quorum.has_followers
        if (
            self._is_active
            and is_heard
            and self._clock.monotonic_ms() - self._last_append_ms >= self._no_op_interval_ms
        ):
            try:
                self._write([NoOpRecord()])
            except BarnabasError as failure:
                _log.warning("%s", failure)

    # Deciding

    async def submit(self, request: Request, version: int, caller: AuthorizableRequestContext) -> Response:
        """Let the controller decide; the answer comes once the decision is committed.

        Where the request has a `timeout_ms`: without any time nothing is decided. After it, or a second if that is
        longer, who asked is told that it takes too long; what was decided may still come to hold.
        """
        if self._refusal is not None or not self._is_active:
            raise BrokerError(ErrorCode.NOT_CONTROLLER, self._refusal or "another node is the active controller")
        timeout_ms: int | None = getattr(request, "timeout_ms", None)
        if timeout_ms is not None and timeout_ms <= 0:
            raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, f"nothing was done within {timeout_ms} ms")
        if isinstance(request, AlterClientQuotasRequest):
            await self._hosts.look_up(hosts_named(request))
        clock = self._clock
        self.decided_count += 1
        outcome = self._apis.handle(request, version, caller, clock.monotonic_ms(), clock.now_ms())
        if outcome.records:
            await self._until_committed(self._write(outcome.records), timeout_ms)
        elif self._waiting and not _rests_on_nothing(request):
            # The answer may rest on what was decided before, and must not outlive it.
            await self._until_committed(self._after_the_last(), timeout_ms)
        return outcome.response

    def _after_the_last(self) -> asyncio.Future[None]:
        """Done when all that was decided so far is committed."""
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._waiting[-1][0], committed))
        return committed

    def _write(self, records: Sequence[MetadataRecord]) -> asyncio.Future[None]:
        """Write one change, and remember it as decided; done when it is committed."""
        controller, committed = self._controller, asyncio.get_running_loop().create_future()
        if not records:
            committed.set_result(None)
            return committed
        metadata_version = controller.image.features.metadata_version or METADATA_VERSION_BUILT
        records, values = encode_change(records, metadata_version, self._quorum.max_batch_bytes)
        try:
            last_offset = self._quorum.append(values, self._leader.epoch)
        except LogDirectoryError as failure:
            raise BrokerError(ErrorCode.NOT_CONTROLLER, f"the metadata log has failed: {failure}") from failure
        except PassingError as refusal:
            raise self._cannot_write(refusal) from refusal
        for offset, record in enumerate(records, last_offset - len(records) + 1):
            controller.replay(record, offset)
        controller.mark()
        self._last_append_ms = self._clock.monotonic_ms()
        self._waiting.append((last_offset, committed))
        return committed

    def _cannot_write(self, refusal: PassingError) -> BrokerError:
        """The disk is full, for instance. Those who follow may have room on theirs; alone one can only wait."""
        if len(self._quorum.describe().voters) == 1:
            return BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, str(refusal))
        _log.warning("this controller cannot write, so that another should lead: %s", refusal)
        asyncio.get_running_loop().call_soon(self._quorum.resign, self._leader.epoch)
        return BrokerError(ErrorCode.NOT_CONTROLLER, str(refusal))

    async def _until_committed(self, committed: asyncio.Future[None], timeout_ms: int | None) -> None:
        wait_ms = None if timeout_ms is None else max(timeout_ms, _LEAST_COMMIT_WAIT_MS)
        try:
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                await committed
        except TimeoutError:
            self.timed_out_count += 1
            late = f"the change was not in force after {wait_ms} ms; it may still come into force"
            raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, late) from None

    def close(self, reason: str = "the node is stopping") -> None:
        """Nothing more is decided here; who waits hears that it may not have happened."""
        if self._refusal is None:
            self._refusal = reason
        self._end_waiting(self._refusal)
        if not self._activation.done():
            self._activation.set_exception(BrokerError(ErrorCode.NOT_CONTROLLER, self._refusal))
            self._activation.exception()  # nobody need hear of it

    def _end_waiting(self, reason: str) -> None:
        for _, waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(BrokerError(ErrorCode.NOT_CONTROLLER, reason))
                waiting.exception()  # nobody need hear of it
        self._waiting.clear()

    async def stop(self) -> None:
        self.close()
        for task in list(self._begun):
            task.cancel()
        if self._scheduler is not None:
            await self._scheduler.stop()


def _rests_on_nothing(request: Request) -> bool:
    """Whether the answer need not wait for what was decided before. A broker that lives beats on while disks are slow:
    the next heartbeat comes after the answer to this one. One that leaves must know that others lead."""
    if isinstance(request, BrokerHeartbeatRequest):
        return not request.want_shut_down
    return isinstance(request, DescribeQuorumRequest)
