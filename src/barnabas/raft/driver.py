"""The machine at work: its effects done, in their order, over a `Transport`, a `LogStore` and an event loop.

Whatever happens (a message, a timer, the end of a sync) is told to the machine, and what it asks for joins a queue.
Effects that block are offloaded, and hold up what is behind them; a sync holds up nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Final, NamedTuple, TypeVar, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError, RemoteProtocolError, known
from barnabas.base.log_context import logger
from barnabas.base.runtime import Runtime
from barnabas.raft.batches import values_of
from barnabas.raft.effects import (
    AbandonSnapshot,
    Answer,
    AnswerFetch,
    AnswerFetchSnapshot,
    Append,
    AppendControl,
    AppendFetched,
    Commit,
    Effect,
    ReceiveSnapshot,
    SaveElection,
    Send,
    StartAnew,
    SyncLog,
    TellLeader,
    Truncate,
    VotersChanged,
)
from barnabas.raft.election_saver import ElectionSaver
from barnabas.raft.machine import RaftMachine
from barnabas.raft.messages import EpochResult, FetchLog, FetchResult, RaftRequest, RaftResult
from barnabas.raft.options import QuorumOptions
from barnabas.raft.ports import LogStore, RaftListener, Reply, SnapshotReceiver, SyncJob, Transport
from barnabas.raft.replica_fetch import ReplicaFetch, ReplicaFetchAnswer
from barnabas.raft.types import (
    Address,
    CommittedBatch,
    LeaderAndEpoch,
    LeaderLoss,
    ReplicaKey,
    Snapshot,
    WrittenBatch,
)
from barnabas.raft.voters import VoterSet
from barnabas.raft.wire_form import (
    LogName,
    refusal,
    request_from_wire,
    request_to_wire,
    result_from_wire,
    result_to_wire,
)
from barnabas.storage.errors import PassingError
from barnabas.wire.message import Request, Response

_log = logger("barnabas.raft")

#: A timer is never set for less: clocks count milliseconds, and one that fires early would only be set again.
_SHORTEST_WAIT_S: Final = 0.001
#: How long a follower whose disk is full waits before it tries again.
_FULL_DISK_WAIT_S: Final = 1.0
#: How long a follower that has every record waits for a new high watermark, at most: a leader at work has the next
#: records by then, and one answer brings both. The commit itself waits for nobody.
_UNHURRIED_S: Final = 0.003
#: A sync that takes longer is told of.
_SLOW_SYNC_MS: Final = 1000

T = TypeVar("T")


class _Asked(NamedTuple):
    """A request of a peer that waits for its answer."""

    request: Request
    version: int
    reply: Reply
    #: Where it came in; None where there is one place.
    listener: str | None


class RaftDriver:
    """One replica at work.

    - `voters` are those of the settings, for a quorum whose log names none; `bootstrap` is where to look for a leader
      besides; `listeners` is where this replica itself is reached, by the names of its listeners, and `listener_name`
      the one of them by which it reaches others, if that is not the first.
    - `is_never_voter`: an observer that nobody may add to the voters, such as a broker, need not sync what it fetches.
    - `remedy` is what an operator is told to do about a disk that is slow.
    - `on_loss` is told how the leader was lost, and again whenever something happens while there is none, which is at
      least every election timeout; of None when there is one.
    - `on_failure` is told once when the replica cannot go on: its log failed, or something that must hold did not.
    """

    def __init__(
        self,
        key: ReplicaKey,
        *,
        cluster_id: str | None,
        voters: VoterSet | None,
        listeners: Mapping[str, Address],
        transport: Transport,
        store: LogStore,
        listener: RaftListener,
        runtime: Runtime,
        bootstrap: Sequence[Address] = (),
        options: QuorumOptions | None = None,
        name: LogName | None = None,
        is_never_voter: bool = False,
        listener_name: str | None = None,
        remedy: str = "give its log a disk of its own",
        on_failure: Callable[[BaseException], None] = lambda _: None,
        on_loss: Callable[[LeaderLoss | None], None] = lambda _: None,
    ) -> None:
        self.key = key
        self._cluster_id = cluster_id
        self._static_voters = voters
        self._bootstrap = bootstrap
        self._listeners = listeners
        self._transport = transport
        self._store = store
        self._listener = listener
        self._runtime = runtime
        self._now_ms = runtime.clock.monotonic_ms
        self._options = options or QuorumOptions()
        self._name = name or LogName()
        self._is_never_voter = is_never_voter
        self._listener_name = listener_name
        self._remedy = remedy
        self._on_failure = on_failure
        self._on_loss = on_loss
        self._is_lost = False
        #: From `open` on.
        self.machine = cast(RaftMachine, None)
        self.is_open = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.failure: BaseException | None = None
        #: Who leads, as the owner was told.
        self.leader = LeaderAndEpoch(-1, 0)
        self._effects: deque[Effect] = deque()
        self._is_working = False
        self._is_held_up = False
        self._held_up_at_ms = 0
        self._is_over = False
        self._elections = ElectionSaver(key, self._write_election, self._offload)
        self._syncing: SyncJob | None = None
        self._has_synced = False
        # Why what was just appended was not written.
        self._refusal: PassingError | None = None
        # Answers without records, kept back for a moment, and when that is over for the first of them. Nearly always
        # records come before: a timer is not set for each, it only looks when it was set for.
        self._unhurried: list[AnswerFetch] = []
        self._unhurried_until_s = 0.0
        self._unhurried_timer: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms: float = inf
        # What was written and is not committed: nothing is read again from the files that was in memory a moment ago.
        self._uncommitted: deque[CommittedBatch] = deque()
        self._told_offset = 0
        self._receiver: SnapshotReceiver | None = None
        self._voter_changes: dict[object, asyncio.Future[None]] = {}
        self._stopped: asyncio.Future[None] | None = None
        self._doing: Final[Mapping[type, Callable[[Any], None]]] = {
            SaveElection: self._save_election,
            Append: self._append,
            AppendControl: self._append_control,
            AppendFetched: self._append_fetched,
            Truncate: self._truncate,
            SyncLog: self._begin_sync,
            Send: self._send,
            Answer: self._answer,
            AnswerFetch: self._answer_fetch,
            AnswerFetchSnapshot: self._answer_fetch_snapshot,
            Commit: self._commit,
            TellLeader: self._tell_leader,
            ReceiveSnapshot: self._receive_snapshot,
            AbandonSnapshot: self._abandon_snapshot,
            StartAnew: self._start_anew,
            VotersChanged: self._voters_changed,
        }

    # For the owner

    @property
    def node_id(self) -> int:
        return self.key.node_id

    @property
    def high_watermark(self) -> int:
        return self.machine.high_watermark

    @property
    def log_end_offset(self) -> int:
        return self.machine.log.end_offset

    async def open(self) -> None:
        """Open the log, and tell the owner of all in it that is known to be committed. Nothing is written yet that
        anybody else could see."""
        self._loop = asyncio.get_running_loop()
        found = await self._runtime.offload(self._store.open)
        self._elections.found(found.election)
        self.machine = machine = RaftMachine(
            self.key,
            found,
            cluster_id=self._cluster_id,
            static_voters=self._static_voters,
            bootstrap=self._bootstrap,
            listeners=self._listeners,
            options=self._options,
            randomness=self._runtime.randomness,
            is_never_voter=self._is_never_voter,
            listener_name=self._listener_name,
        )
        self.is_open = True
        latest = machine.log.latest_snapshot
        if latest is not None and latest.end_offset:
            snapshot, _ = await self._runtime.offload(lambda: self._store.read_snapshot(latest))
            self._listener.on_snapshot(snapshot)
            self._told_offset = latest.end_offset
        self._commit(Commit(machine.high_watermark))

    async def start(self) -> None:
        """Listen, and take part; opens the log if that was not done."""
        if not self.is_open:
            await self.open()
        await self._transport.start(self._receive, self._refused)
        self._tell_machine(self.machine.start)

    def append(self, values: Sequence[bytes], epoch: int) -> int:
        """Write records, one batch if they fit into one; the offset of the last. They are committed when the listener
        is told so. Raises `BrokerError` unless this replica leads in `epoch`, and `PassingError` if the disk is full:
        then nothing was written."""
        self._check_alive()
        offset = self.machine.append(values, epoch)
        self._run()
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal
        self._check_alive()
        return offset

    def resign(self, epoch: int) -> None:
        """Stop leading, if this replica leads in `epoch`."""
        self._tell_machine(self.machine.resign, epoch)

    def clean(self) -> None:
        """Delete what old snapshots and the log hold beyond what is to be kept, and is not being loaded by others."""
        self.machine.log_cleaned(self._store.clean(self.machine.snapshots_in_use(self._now_ms())))

    async def take_snapshot(self, snapshot: Snapshot) -> None:
        """Write a snapshot of the owner's state, and delete what it makes superfluous."""
        store, machine, snapshot_id = self._store, self.machine, snapshot.snapshot_id
        if snapshot_id in machine.log.snapshots:
            return
        voters = machine.history.records_before(snapshot_id.end_offset)
        size_bytes = await self._runtime.offload(store.begin_snapshot(snapshot, voters))
        if not self._is_over:
            store.add_snapshot(snapshot_id, size_bytes, snapshot.last_contained_ms)
            machine.snapshot_taken(snapshot_id)
            self.clean()

    def change_voters(self, ask: Callable[[RaftMachine, object, int], None]) -> Awaitable[None]:
        """Ask the machine for another voter set; done when it is committed, `BrokerError` if it is refused."""
        self._check_alive()
        future: asyncio.Future[None] = known(self._loop, "started").create_future()
        token = object()
        self._voter_changes[token] = future
        ask(self.machine, token, self._now_ms())
        self._run()
        return future

    async def stop(self) -> None:
        """Leave in good order: hand leadership over, let a sync end, close the files."""
        if self.is_open and not self._is_over:
            self._stopped = known(self._loop, "started").create_future()
            self._tell_machine(self.machine.stop)
            if not self._is_over and self._store.synced_offset < self._store.end_offset:
                self._begin_sync()  # an observer that never votes has not asked for it
            self._check_stopped()
            # `asyncio.timeout` and the like would also be cancelled by a failure; this one only waits.
            await asyncio.wait([self._stopped], timeout=self._options.request_timeout_ms / 1000)
        is_whole = self.failure is None
        self._end()
        await self._transport.stop()
        while self._syncing is not None or self._is_held_up or self._elections.is_writing:  # noqa: ASYNC110
            await asyncio.sleep(_SHORTEST_WAIT_S)
        if self.is_open and is_whole:
            await self._runtime.offload(self._store.close)
        else:
            self._store.abandon()

    def _check_stopped(self) -> None:
        """Who waits for the end is told when nobody need hear more from us, and what we have is safe."""
        stopped = self._stopped
        if stopped is None or stopped.done():
            return
        is_busy = self._syncing is not None or self._effects or self._store.synced_offset < self._store.end_offset
        if self._is_over or (self.machine.is_stopped and not is_busy):
            stopped.set_result(None)

    def _check_alive(self) -> None:
        if self._is_over or self._stopped is not None:
            why = "it is stopping" if self.failure is None else f"it has failed: {self.failure}"
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"replica {self.key} does not lead: {why}")

    # What happens

    def _receive(self, request: Request, version: int, reply: Reply, listener: str | None = None) -> None:
        if self._is_over:
            return
        asked: RaftRequest
        if isinstance(request, ReplicaFetch):
            asked = request.fetch
            if request.name != self._name:
                reply(refusal(request, ErrorCode.INVALID_REQUEST))
                return
        else:
            try:
                asked = request_from_wire(request, self._name)
            except BrokerError as problem:
                reply(refusal(request, problem.code))
                return
        self._tell_machine(self.machine.receive, asked, _Asked(request, version, reply, listener))

    def _responded(self, request: RaftRequest, response: Response | None) -> None:
        if self._is_over:
            return
        result: RaftResult | None = None
        if isinstance(response, ReplicaFetchAnswer) and response.name == self._name:
            result = response.result
        elif response is not None:
            try:
                result = result_from_wire(response, self._name)
            except RemoteProtocolError as problem:
                _log.warning("replica %s: an answer makes no sense: %s", self.key, problem)
        self._tell_machine(self.machine.receive_result, request, result)

    def _refused(self, address: Address) -> None:
        self._tell_machine(self.machine.refused, address)

    def _tick(self) -> None:
        self._timer, self._timer_at_ms = None, inf
        if not self._is_held_up:
            # Else whatever it waits for cannot come: nobody has heard what it asked.
            self._tell_machine(self.machine.tick)

    def _tell_machine(self, method: Callable[..., None], *news: object) -> None:
        if self._is_over:
            return
        try:
            method(*news, self._now_ms())
        except BarnabasError as failure:
            self._fail(failure)
        else:
            self._run()

    # Effects, one after the other

    def _run(self) -> None:
        """Do what the machine asks for. Who is told something may ask for more; that joins the queue."""
        machine = self.machine
        try:
            self._effects += machine.take_effects()
            if self._is_working:
                return
            self._is_working = True
            try:
                self._work(machine)
            finally:
                self._is_working = False
        except BaseException as failure:
            # Whatever it is: half of what was decided may be done.
            self._fail(failure)
            if not isinstance(failure, Exception):
                raise
        if not self._is_over:
            if machine.loss is not None or self._is_lost:
                self._is_lost = machine.loss is not None
                self._on_loss(machine.loss)
            self._set_timer(machine.state.deadline_ms)
            if self._stopped is not None:
                self._check_stopped()

    def _work(self, machine: RaftMachine) -> None:
        effects, doing = self._effects, self._doing
        while not self._is_held_up and not self._is_over:
            if effects:
                effect = effects.popleft()
                doing[type(effect)](effect)
            elif self._has_synced:
                # Not while effects are held up: the machine may think of another log than the one that was synced.
                self._has_synced = False
                machine.synced(self._store.synced_offset, self._now_ms())
                effects.extend(machine.take_effects())
            else:
                return

    def _set_timer(self, deadline_ms: float) -> None:
        if deadline_ms >= self._timer_at_ms or deadline_ms == inf:
            return  # a timer that fires too early finds nothing to do, and is set again
        if self._timer is not None:
            self._timer.cancel()
        wait_s = max(_SHORTEST_WAIT_S, (deadline_ms - self._now_ms()) / 1000)
        self._timer_at_ms = deadline_ms
        self._timer = known(self._loop, "started").call_later(wait_s, self._tick)

    def _hold_up(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Do something that blocks elsewhere; nothing else is done until it has ended."""
        self._wait()
        self._offload(work, then, self._go_on)

    def _wait(self) -> None:
        self._is_held_up = True
        self._held_up_at_ms = self._now_ms()

    def _go_on(self) -> None:
        self._is_held_up = False
        if not self._is_over:
            self.machine.was_held_up(self._now_ms() - self._held_up_at_ms)
            self._run()

    def _offload(self, work: Callable[[], T], then: Callable[[T], None], finally_: Callable[[], None]) -> None:
        future = asyncio.ensure_future(self._runtime.offload(work))

        def ended(done: asyncio.Future[T]) -> None:
            failure = None if done.cancelled() else done.exception()
            try:
                if failure is None and not done.cancelled() and not self._is_over:
                    then(done.result())
            except BaseException as problem:
                failure = problem
            if failure is not None:
                self._fail(failure)
            finally_()

        future.add_done_callback(ended)

    # The log

    def _save_election(self, effect: SaveElection) -> None:
        if self._effects and isinstance(self._effects[0], SaveElection):
            return  # nothing was said in between
        if self._elections.promises_more(effect.state):
            self._wait()
            self._elections.save(effect, self._go_on)
        else:
            self._elections.save(effect)

    def _write_election(self, effect: SaveElection) -> None:
        self._store.save_election(effect.state, kraft_version=effect.kraft_version, voter_ids=effect.voter_ids)

    def _append(self, effect: Append) -> None:
        try:
            written = self._store.append(effect.values, effect.epoch)
        except PassingError as refusal:
            # Nobody has seen these records, so they can be taken back; unless others were put behind them.
            if not self.machine.take_back(effect.base_offset, effect.base_offset + len(effect.values)):
                raise
            self._refusal = refusal
            return
        self._remember(written, effect.epoch, effect.values)
        self._answer_unhurried()

    def _append_control(self, effect: AppendControl) -> None:
        self._remember(self._store.append_control(effect.records, effect.epoch), effect.epoch, ())

    def _remember(self, written: WrittenBatch, epoch: int, values: Sequence[bytes]) -> None:
        first, last, time_ms, size_bytes = written
        self._uncommitted.append(CommittedBatch(first, last, epoch, time_ms, size_bytes, values))

    def _append_fetched(self, effect: AppendFetched) -> None:
        try:
            self._store.append_fetched(effect.data, effect.batches)
        except PassingError:
            # There is nothing that it could do without: it goes on when there is room again.
            self._effects.appendleft(effect)
            self._wait()
            known(self._loop, "started").call_later(_FULL_DISK_WAIT_S, self._go_on)
            return
        for batch in effect.batches:
            values = () if batch.is_control else values_of(batch)
            self._uncommitted.append(
                CommittedBatch(
                    batch.base_offset, batch.last_offset, batch.leader_epoch, batch.max_timestamp_ms, batch.size_bytes,
                    values,
                )
            )  # fmt: skip

    def _truncate(self, effect: Truncate) -> None:
        self._store.truncate(effect.offset)
        while self._uncommitted and self._uncommitted[-1].last_offset >= effect.offset:
            self._uncommitted.pop()

    def _begin_sync(self, _: SyncLog | None = None) -> None:
        if self._syncing is not None:
            return
        job = self._store.begin_sync()
        if job is None:
            self._has_synced = True
            return
        self._syncing = job
        began_ms = self._now_ms()
        self._offload(job.run, lambda _: self._finish_sync(job, began_ms), self._sync_ended)

    def _finish_sync(self, job: SyncJob, began_ms: int) -> None:
        self._store.finish_sync(job)
        took_ms = self._now_ms() - began_ms
        if took_ms > _SLOW_SYNC_MS:
            _log.warning(
                "replica %s: a sync of its log took %.1f s, and what is committed waits for it; %s",
                self.key,
                took_ms / 1000,
                self._remedy,
            )

    def _sync_ended(self) -> None:
        self._syncing = None
        if self._is_over:
            return
        self._has_synced = True
        if self._store.synced_offset < self._store.end_offset:
            self._effects.append(SyncLog())
        self._run()

    # Messages

    def _send(self, effect: Send) -> None:
        request = effect.request

        def responded(response: Response | None) -> None:
            self._responded(request, response)

        name = self._name
        wire = ReplicaFetch(request, name) if isinstance(request, FetchLog) else request_to_wire(request, name)
        self._transport.send(effect.to, wire, responded, timeout_ms=self._options.request_timeout_ms)

    def _answer(self, effect: Answer) -> None:
        asked, result = effect.reply_to, effect.result
        if not isinstance(asked, _Asked):
            return
        if asked.listener is not None and asked.listener != self.machine.listener_name:
            # Who uses another listener than we do is told of that of the leader, or goes by what it knows.
            address = self.machine.leader_address_at(asked.listener, result.leader)
            if isinstance(result, FetchResult):
                result = result._replace(leader_address=address)
            else:
                result = replace(result, leader_address=address)
        if isinstance(result, FetchResult) and isinstance(asked.request, ReplicaFetch):
            asked.reply(ReplicaFetchAnswer(result, self._name))
        else:
            asked.reply(result_to_wire(result, asked.request, asked.version, self._name))

    def _answer_fetch(self, effect: AnswerFetch) -> None:
        if effect.offset < self._store.end_offset:
            self._answer_with_records(effect)
            return
        loop = known(self._loop, "started")
        if not self._unhurried:
            self._unhurried_until_s = loop.time() + _UNHURRIED_S
        self._unhurried.append(effect)
        if self._unhurried_timer is None:
            self._unhurried_timer = loop.call_later(_UNHURRIED_S, self._look_at_unhurried, loop)

    def _look_at_unhurried(self, loop: asyncio.AbstractEventLoop) -> None:
        self._unhurried_timer = None
        rest_s = self._unhurried_until_s - loop.time()
        if self._unhurried and rest_s > _SHORTEST_WAIT_S:
            self._unhurried_timer = loop.call_later(rest_s, self._look_at_unhurried, loop)
        else:
            self._answer_unhurried()

    def _answer_with_records(self, effect: AnswerFetch) -> None:
        records = self._store.read(effect.offset, effect.max_bytes)
        self._answer(Answer(effect.reply_to, effect.result.with_records(records)))

    def _answer_unhurried(self) -> None:
        if not self._unhurried:
            return
        unhurried, self._unhurried = self._unhurried, []
        leader, end_offset = self.machine.leader, self._store.end_offset
        usual = (None, self.machine.listener_name)
        # Followers who keep up ask for the same, and nothing but the correlation ids of their answers differs.
        said: tuple[FetchResult, int, int] | None = None
        answer: ReplicaFetchAnswer | None = None
        for each in unhurried:
            reply_to, result, offset, max_bytes = each
            # What another leader wrote since must not go out under the name of the one who was asked.
            if result.leader != leader or offset >= end_offset:
                self._answer(Answer(reply_to, result))
            elif (
                not isinstance(reply_to, _Asked)
                or not isinstance(reply_to.request, ReplicaFetch)
                or reply_to.listener not in usual
            ):
                self._answer_with_records(each)
            else:
                if answer is None or said != each[1:]:
                    records = self._store.read(offset, max_bytes)
                    answer = ReplicaFetchAnswer(result.with_records(records), self._name)
                    said = each[1:]
                reply_to.reply(answer)

    def _answer_fetch_snapshot(self, effect: AnswerFetchSnapshot) -> None:
        result = effect.result
        snapshot_id = known(result.snapshot_id, "an answer with a piece of a snapshot names it")
        found = self._store.read_snapshot_bytes(snapshot_id, result.position, effect.max_bytes)
        if found is None:
            result = replace(result, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        elif result.position >= found[1]:
            result = replace(result, error=ErrorCode.POSITION_OUT_OF_RANGE)
        else:
            result = replace(result, data=found[0], size_bytes=found[1])
        self._answer(Answer(effect.reply_to, result))

    # For the owner's ears

    def _commit(self, effect: Commit) -> None:
        high_watermark = effect.high_watermark
        self._store.set_high_watermark(high_watermark)
        uncommitted = self._uncommitted
        first = uncommitted[0].base_offset if uncommitted else inf
        if self._told_offset < min(first, high_watermark):
            # It was in the log when we began.
            for found in self._store.batches(self._told_offset, int(min(first, high_watermark))):
                self._tell_commit(
                    CommittedBatch(
                        found.base_offset, found.last_offset, found.epoch, found.append_time_ms, found.size_bytes,
                        found.values,
                    )
                )  # fmt: skip
        while uncommitted and uncommitted[0].last_offset < high_watermark:
            self._tell_commit(uncommitted.popleft())

    def _tell_commit(self, batch: CommittedBatch) -> None:
        self._told_offset = batch.last_offset + 1
        self._listener.on_commit(batch)

    def _tell_leader(self, effect: TellLeader) -> None:
        self.leader = effect.leader
        self._listener.on_leader_change(effect.leader)

    # Snapshots

    def _receive_snapshot(self, effect: ReceiveSnapshot) -> None:
        snapshot_id = effect.snapshot_id
        receiver = self._receiver
        if receiver is None or effect.position == 0:
            receiver = self._receiver = self._store.receive_snapshot(snapshot_id)

        def receive() -> bool:
            receiver.write(effect.position, effect.data)
            if effect.is_last:
                try:
                    receiver.finish()
                except BarnabasError as problem:
                    _log.warning("replica %s: snapshot %s is no good: %s", self.key, snapshot_id.file_name, problem)
                    receiver.abandon()
                    return False
            return True

        def received(is_good: bool) -> None:
            if effect.is_last:
                self._receiver = None
                voters = self._store.read_snapshot(snapshot_id)[1] if is_good else None
                self.machine.snapshot_received(snapshot_id, voters, self._now_ms())

        self._hold_up(receive, received)

    def _abandon_snapshot(self, _: AbandonSnapshot) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            self._hold_up(receiver.abandon, lambda _: None)

    def _start_anew(self, effect: StartAnew) -> None:
        self._store.start_anew(effect.snapshot_id)
        self._uncommitted.clear()

        def loaded(found: tuple[Snapshot, Any]) -> None:
            self._told_offset = effect.snapshot_id.end_offset
            self._listener.on_snapshot(found[0])

        self._hold_up(lambda: self._store.read_snapshot(effect.snapshot_id), loaded)

    def _voters_changed(self, effect: VotersChanged) -> None:
        if isinstance(effect.token, _Asked):
            machine = self.machine
            self._answer(Answer(effect.token, EpochResult(effect.error, machine.leader, machine.state.leader_address)))
            return
        future = self._voter_changes.pop(effect.token, None)
        if future is None or future.done():
            return
        if effect.error is ErrorCode.NONE:
            future.set_result(None)
        else:
            future.set_exception(BrokerError(effect.error, effect.reason or None))

    # The end

    def _fail(self, failure: BaseException) -> None:
        """What was decided may not be what is written, so nothing that comes after it can be promised."""
        if self._is_over:
            return
        self.failure = failure
        _log.critical("replica %s has failed: %s", self.key, failure)
        self._end()
        self._on_failure(failure)

    def _end(self) -> None:
        self._is_over = True
        self._effects.clear()
        self._uncommitted.clear()
        self._unhurried.clear()
        for timer in (self._timer, self._unhurried_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._unhurried_timer = None
        for future in self._voter_changes.values():
            if not future.done():
                future.set_exception(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the replica stops"))
        self._voter_changes.clear()
        if self._stopped is not None and not self._stopped.done():
            with contextlib.suppress(asyncio.InvalidStateError):
                self._stopped.set_result(None)
