"""A log and a transport that tell a `RaftChecker` of all that passes through them."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from struct import Struct
from typing import Any

from barnabas.raft.batches import ControlRecord
from barnabas.raft.ports import FoundReplica, LogStore, Reply, RequestReceiver, Transport
from barnabas.raft.types import Address, OffsetAndEpoch, SnapshotId, WrittenBatch
from barnabas.records.batch import BatchView
from barnabas.records.control import ControlType
from barnabas.testing.sim.raft_checkers import UNKNOWN_EPOCH, BatchFact, RaftChecker
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from barnabas.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from barnabas.wire.messages.fetch import FetchRequest, FetchResponse
from barnabas.wire.messages.fetch_snapshot import FetchSnapshotRequest
from barnabas.wire.messages.vote import VoteRequest, VoteResponse

__all__ = ["Tell", "WatchedLog", "WatchedTransport", "facts_in"]

#: Told in words of what happened; None if nobody wants to read it.
Tell = Callable[[str], None] | None

# base offset, length, leader epoch, magic, CRC, attributes, last offset delta
_HEADER = Struct(">qiibIhi")
_FRAME_BYTES = 12


def facts_in(data: bytes | bytearray | memoryview) -> list[BatchFact]:
    """The batches that lie in a buffer."""
    found: list[BatchFact] = []
    position = 0
    while position + _HEADER.size <= len(data):
        base_offset, length, epoch, _, checksum, _, delta = _HEADER.unpack_from(data, position)
        found.append(BatchFact(base_offset, base_offset + delta, epoch, checksum))
        position += _FRAME_BYTES + length
    return found


class WatchedLog:
    """A `LogStore` around another. `current_epoch` is that of the machine, whose commits these are."""

    def __init__(
        self, node_id: int, store: LogStore, checker: RaftChecker, current_epoch: Callable[[], int], tell: Tell = None
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._checker = checker
        self._current_epoch = current_epoch
        self._tell = tell
        # What only passes through.
        self.begin_sync = store.begin_sync
        self.finish_sync = store.finish_sync
        self.read = store.read
        self.read_snapshot_bytes = store.read_snapshot_bytes
        self.add_snapshot = store.add_snapshot
        self.begin_snapshot = store.begin_snapshot
        self.receive_snapshot = store.receive_snapshot
        self.read_snapshot = store.read_snapshot
        self.batches = store.batches
        self.save_election = store.save_election
        self.close = store.close
        self.abandon = store.abandon

    def open(self) -> FoundReplica:
        found = self._store.open()
        facts: list[BatchFact] = []
        offset = found.start_offset
        while offset < found.end_offset:
            some = facts_in(self._store.read(offset, 1 << 20))
            facts += some
            offset = some[-1].last_offset + 1
        start_offset = facts[0].base_offset if facts else found.start_offset
        epochs = [each.epoch for each in found.snapshots if each.end_offset == start_offset]
        start_epoch = epochs[0] if epochs else 0 if start_offset == 0 else UNKNOWN_EPOCH
        self._checker.log_opened(self._node_id, start_offset, start_epoch, facts)
        return found

    @property
    def end_offset(self) -> int:
        return self._store.end_offset

    @property
    def synced_offset(self) -> int:
        return self._store.synced_offset

    def append(self, values: Sequence[bytes], epoch: int) -> WrittenBatch:
        written = self._store.append(values, epoch)
        self._appended(written.first_offset)
        return written

    def append_control(self, records: Sequence[ControlRecord], epoch: int) -> WrittenBatch:
        if any(each.kind is ControlType.LEADER_CHANGE for each in records):
            self._checker.leads_from(self._node_id, epoch)
        written = self._store.append_control(records, epoch)
        self._appended(written.first_offset)
        return written

    def _appended(self, offset: int) -> None:
        self._checker.appended(self._node_id, facts_in(self._store.read(offset, 1 << 30)))

    def append_fetched(
        self, batches: bytes | bytearray | memoryview, checked: Sequence[BatchView] | None = None
    ) -> None:
        self._store.append_fetched(batches, checked)
        facts = facts_in(batches)
        self._checker.appended(self._node_id, facts)
        if self._tell is not None and facts:
            self._tell(f"writes offsets {facts[0].base_offset} to {facts[-1].last_offset}")

    def truncate(self, offset: int) -> None:
        if self._tell is not None:
            self._tell(f"cuts its log at {offset}; it ended at {self._store.end_offset}")
        self._store.truncate(offset)
        self._checker.truncated(self._node_id, offset)

    def set_high_watermark(self, offset: int) -> None:
        self._store.set_high_watermark(offset)
        self._checker.committed_up_to(self._node_id, offset, self._current_epoch())

    def clean(self, in_use: Container[SnapshotId] = ()) -> int:
        start_offset = self._store.clean(in_use)
        self._checker.cleaned(self._node_id, start_offset)
        return start_offset

    def start_anew(self, snapshot: SnapshotId) -> None:
        if self._tell is not None:
            self._tell(f"takes the snapshot {snapshot.file_name} in place of its log")
        self._store.start_anew(snapshot)
        self._checker.started_anew(self._node_id, snapshot)


class WatchedTransport:
    """A `Transport` around another."""

    def __init__(
        self,
        node_id: int,
        transport: Transport,
        checker: RaftChecker,
        log_end: Callable[[], OffsetAndEpoch],
        tell: Tell = None,
    ) -> None:
        self._node_id = node_id
        self._log_end = log_end
        self._transport = transport
        self._checker = checker
        self._tell = tell
        self.stop = transport.stop

    async def start(self, receive: RequestReceiver, on_refused: Callable[[Address], None]) -> None:
        def watched(request: Request, version: int, reply: Reply, listener: str | None = None) -> None:
            if isinstance(request, FetchRequest | FetchSnapshotRequest):
                receive(request, version, reply, listener)
                return
            if isinstance(request, VoteRequest):
                self._checker.heard_epoch(self._node_id, request.topics[0].partitions[0].replica_epoch)
            elif isinstance(request, BeginQuorumEpochRequest | EndQuorumEpochRequest):
                self._checker.heard_epoch(self._node_id, request.topics[0].partitions[0].leader_epoch)
            own = self._log_end()

            def answer(response: Response) -> None:
                self._answered(request, response, own)
                reply(response)

            receive(request, version, answer, listener)

        await self._transport.start(watched, on_refused)

    def send(
        self, to: Address, request: Request, on_response: Callable[[Response | None], None], *, timeout_ms: int
    ) -> None:
        self._asked(to, request)

        def responded(response: Response | None) -> None:
            if response is not None:
                self._checker.heard_epoch(self._node_id, _epoch_in(response))
            on_response(response)

        self._transport.send(to, request, responded, timeout_ms=timeout_ms)

    def _asked(self, to: Address, request: Request) -> None:
        data: Any
        if isinstance(request, FetchRequest):
            self._checker.told_epoch(self._node_id, request.topics[0].partitions[0].current_leader_epoch)
        elif isinstance(request, VoteRequest):
            data = request.topics[0].partitions[0]
            self._checker.told_epoch(self._node_id, data.replica_epoch)
            if not data.pre_vote:
                self._checker.voted(self._node_id, data.replica_epoch, self._node_id)
            if self._tell is not None:
                what = "a pre-vote" if data.pre_vote else "a vote"
                last = f"its log ends at {data.last_offset} with epoch {data.last_offset_epoch}"
                self._tell(f"asks {to.host} for {what} in epoch {data.replica_epoch}; {last}")
        elif isinstance(request, BeginQuorumEpochRequest | EndQuorumEpochRequest):
            epoch = request.topics[0].partitions[0].leader_epoch
            self._checker.told_epoch(self._node_id, epoch)
            if self._tell is not None:
                what = "leads" if isinstance(request, BeginQuorumEpochRequest) else "does not lead any more"
                self._tell(f"tells {to.host} that it {what} in epoch {epoch}")

    def _answered(self, request: Request, response: Response, own: OffsetAndEpoch) -> None:
        if not isinstance(response, VoteResponse) or not isinstance(request, VoteRequest) or not response.topics:
            return
        asked, data = request.topics[0].partitions[0], response.topics[0].partitions[0]
        self._checker.told_epoch(self._node_id, data.leader_epoch)
        if data.vote_granted:
            last = OffsetAndEpoch(asked.last_offset, asked.last_offset_epoch)
            self._checker.granted(self._node_id, own, asked.replica_id, last)
            if not asked.pre_vote:
                self._checker.voted(self._node_id, asked.replica_epoch, asked.replica_id)
        if self._tell is not None:
            verb = "grants" if data.vote_granted else "refuses"
            what = "its pre-vote" if asked.pre_vote else "its vote"
            self._tell(f"{verb} {asked.replica_id} {what} in epoch {asked.replica_epoch}")


def _epoch_in(response: Response) -> int:
    """The epoch of who answered, if it says so."""
    found: Any = None
    if isinstance(response, FetchResponse) and response.responses:
        found = response.responses[0].partitions[0].current_leader
    elif isinstance(response, VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse) and response.topics:
        found = response.topics[0].partitions[0]
    epoch: int = 0 if found is None else found.leader_epoch
    return epoch


def _conforms(store: WatchedLog, transport: WatchedTransport) -> tuple[LogStore, Transport]:
    """For the type checker."""
    return store, transport
