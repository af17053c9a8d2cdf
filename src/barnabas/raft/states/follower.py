"""Follower: fetches the log from a leader, repairs its own where the two differ, and loads a snapshot if it must."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import RemoteProtocolError, check
from barnabas.raft.effects import AbandonSnapshot, AppendFetched, ReceiveSnapshot, SyncLog, Truncate
from barnabas.raft.fetched_batches import check_fetched
from barnabas.raft.messages import (
    EpochResult,
    FetchLog,
    FetchResult,
    FetchSnapshot,
    FetchSnapshotResult,
    RaftRequest,
    UpdateVoter,
    Vote,
)
from barnabas.raft.states.base import RaftState
from barnabas.raft.transitions import Role
from barnabas.raft.types import Address, LossCause, OffsetAndEpoch, SnapshotId

if TYPE_CHECKING:
    from barnabas.raft.machine import RaftMachine


#: How long a follower that waits for its disk is silent: a share of the fetch timeout.
_SILENCE: Final = 0.2


@dataclass(slots=True)
class SnapshotDownload:
    """A snapshot on its way: how much of it has come. It is whole at `size_bytes`, once that is known."""

    snapshot_id: SnapshotId
    position: int = 0
    is_complete: bool = False


class Follower(RaftState):
    """At most one request to the leader is under way. A fetch claims that all before its offset is safe, so it waits
    for the disk. While that takes long, the follower asks for nothing where its log is safe: it is heard, and hears."""

    role = Role.FOLLOWER

    def __init__(self, machine: RaftMachine, now_ms: int, leader_id: int, leader_address: Address) -> None:
        super().__init__(machine)
        self.leader_id = leader_id
        self.leader_address: Address = leader_address
        self._asked: RaftRequest | None = None
        self._ask_at_ms: float = now_ms
        self._lost_at_ms: float = now_ms + machine.random_fetch_timeout_ms()
        self._heard_at_ms = now_ms
        self._is_waiting_for_sync = False
        self._sign_at_ms: float = now_ms
        self._has_fetched = False
        self._is_leader_gone = False
        self.download: SnapshotDownload | None = None
        self._leader_high_watermark = -1
        # When to tell the leader where we listen, if it has to know: it may have other things to do at first.
        self._tell_at_ms: float = now_ms + machine.options.fetch_timeout_ms

    @property
    def has_heard(self) -> bool:
        """Whether the leader has answered."""
        return self._has_fetched

    @property
    def is_caught_up(self) -> bool:
        """Whether all is here that was committed when the leader last answered."""
        return 0 <= self._leader_high_watermark <= self.machine.high_watermark

    def enter(self, now_ms: int) -> None:
        self._ask(now_ms)

    def leave(self) -> None:
        if self.download is not None:
            self.machine.emit(AbandonSnapshot())

    @property
    def deadline_ms(self) -> float:
        return min(self._ask_at_ms, self._lost_at_ms)

    def grants(self, vote: Vote, *, is_up_to_date: bool) -> bool:
        """A follower whose leader lives keeps to it; so a voter that was cut off cannot end its epoch."""
        return vote.pre_vote and is_up_to_date and (not self._has_fetched or self._is_leader_gone)

    def prolong(self, by_ms: int) -> None:
        self._lost_at_ms += by_ms

    def tick(self, now_ms: int) -> None:
        if now_ms >= self._lost_at_ms:
            self._lose_leader(now_ms)
        elif now_ms >= self._ask_at_ms:
            self._ask(now_ms)

    def _lose_leader(self, now_ms: int) -> None:
        machine = self.machine
        machine.lost_leader(LossCause.GONE if self._is_leader_gone else LossCause.SILENT, now_ms - self._heard_at_ms)
        if machine.may_lead:
            machine.become_prospective(now_ms)
        else:
            machine.become_unattached(machine.epoch, now_ms)

    def on_refused(self, address: Address, now_ms: int) -> None:
        """The leader's process is gone, so nobody need wait for the timeout; only a moment, by chance, so that not
        all voters ask at once."""
        if address == self.leader_address and not self._is_leader_gone:
            self._is_leader_gone = True
            self.machine.gone_leader_id = self.leader_id
            self._lost_at_ms = min(self._lost_at_ms, now_ms + self.machine.random_moment_ms())

    # Asking

    def _ask(self, now_ms: int) -> None:
        machine, download = self.machine, self.download
        self._ask_at_ms = inf
        if download is None and now_ms >= self._tell_at_ms and machine.must_be_updated:
            self._asked = machine.update_request()
            machine.send(self.leader_address, self._asked)
        elif download is None:
            self._fetch(now_ms)
        elif not download.is_complete:
            self._asked = FetchSnapshot(
                machine.cluster_id,
                machine.epoch,
                machine.key,
                download.snapshot_id,
                download.position,
                machine.options.fetch_snapshot_max_bytes,
            )
            machine.send(self.leader_address, self._asked)

    def _fetch(self, now_ms: int) -> None:
        machine = self.machine
        self._is_waiting_for_sync = not machine.may_claim_all
        if not self._is_waiting_for_sync:
            self._asked = machine.fetch_request()
            machine.send(self.leader_address, self._asked)
            return
        machine.emit(SyncLog())
        if now_ms >= self._sign_at_ms:
            self._asked = machine.sign_of_life()
            machine.send(self.leader_address, self._asked)
        else:
            self._ask_at_ms = self._sign_at_ms

    def on_synced(self, now_ms: int) -> None:
        if self._is_waiting_for_sync and self._asked is None and self.machine.may_claim_all:
            self._ask(now_ms)

    def _ask_later(self, now_ms: int) -> None:
        self._asked = None
        self._ask_at_ms = now_ms + self.machine.options.retry_backoff_ms

    def on_no_result(self, request: RaftRequest, now_ms: int) -> None:
        if request is self._asked:
            self._tell_again_later(now_ms)
            self._ask_later(now_ms)

    def on_update_result(self, request: UpdateVoter, result: EpochResult, now_ms: int) -> None:
        if request is not self._asked:
            return
        self._asked = None
        if result.error is ErrorCode.NONE:
            self._heard(now_ms)
        else:
            self.machine.complain(request, result.error)
        self._tell_again_later(now_ms)
        self._ask(now_ms)

    def _tell_again_later(self, now_ms: int) -> None:
        self._tell_at_ms = now_ms + self.machine.options.fetch_timeout_ms

    def _heard(self, now_ms: int) -> None:
        self._has_fetched = True
        self._is_leader_gone = False
        self.machine.gone_leader_id = None
        self.machine.loss = None
        self._heard_at_ms = now_ms
        self._lost_at_ms = now_ms + self.machine.random_fetch_timeout_ms()
        self._sign_at_ms = now_ms + self.machine.options.fetch_timeout_ms * _SILENCE

    # The log

    def on_fetch_result(self, fetch: FetchLog, result: FetchResult, now_ms: int) -> None:
        if fetch is not self._asked:
            return
        if result.error is not ErrorCode.NONE:
            self._refused_by_leader(fetch, result, now_ms)
            return
        self._asked = None
        self._heard(now_ms)
        has_committed = False
        try:
            if fetch.is_sign_of_life:
                # The rest of what it says is asked for again when all is safe.
                has_committed = result.is_same_history and self._learn_committed(result, fetch.offset)
            elif result.diverging is not None and result.diverging.epoch >= 0:
                self._truncate(result.diverging)
            elif result.snapshot_id is not None and result.snapshot_id.epoch >= 0:
                self._begin_download(result.snapshot_id)
            else:
                has_committed = self._append(result)
        except RemoteProtocolError as problem:
            self.machine.complain(fetch, str(problem))
            self._ask_later(now_ms)
            return
        self._ask(now_ms)
        if has_committed:
            # After the fetch, for which the leader waits to commit what came now.
            self.machine.tell_committed()

    def _refused_by_leader(self, fetch: FetchLog, result: FetchResult, now_ms: int) -> None:
        """Whoever leads now was followed already if it was told; an epoch without a leader means that ours resigned."""
        machine = self.machine
        has_resigned = result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and result.leader.leader_id < 0
        if has_resigned and result.leader.epoch == machine.epoch:
            machine.leader_ended(machine.epoch, now_ms, election_in_ms=machine.random_moment_ms())
            return
        machine.complain(fetch, result.error)
        self._ask_later(now_ms)

    def _truncate(self, diverging: OffsetAndEpoch) -> None:
        machine = self.machine
        offset = machine.log.truncation_offset(diverging)
        check(
            offset >= machine.high_watermark,
            f"the leader of epoch {machine.epoch}, {self.leader_id}, has another history from offset {offset} on, but "
            f"all before {machine.high_watermark} is committed",
        )
        if offset == machine.log.end_offset:
            raise RemoteProtocolError(f"the leader says that logs differ after {diverging}, where ours ends")
        machine.log.truncate(offset)
        machine.history.truncate(offset)
        machine.emit(Truncate(offset))

    def _append(self, result: FetchResult) -> bool:
        """Take over what came; whether more is committed now."""
        machine, log = self.machine, self.machine.log
        if len(result.records):
            data, batches = check_fetched(result.records, log.end_offset, log.last_epoch)
            if batches[-1].leader_epoch > machine.epoch:
                raise RemoteProtocolError(f"a batch of epoch {batches[-1].leader_epoch} came in epoch {machine.epoch}")
            for batch in batches:
                log.append(batch.base_offset, batch.last_offset, batch.leader_epoch)
                if batch.is_control:
                    machine.replay_controls(batch)
            machine.emit(AppendFetched(batches[0].base_offset, data, batches))
            if machine.is_safe_when_written:
                log.synced_offset = log.end_offset
        return self._learn_committed(result, log.end_offset)

    def _learn_committed(self, result: FetchResult, same_up_to: int) -> bool:
        """Whether more is committed now; our log is the leader's as far as that."""
        self._leader_high_watermark = result.high_watermark
        return self.machine.raise_high_watermark(min(result.high_watermark, same_up_to))

    # Snapshots

    def _begin_download(self, snapshot_id: SnapshotId) -> None:
        if snapshot_id.end_offset < self.machine.high_watermark:
            raise RemoteProtocolError(
                f"the leader offers a snapshot up to {snapshot_id.end_offset}, below what is committed here, "
                f"{self.machine.high_watermark}"
            )
        self.download = SnapshotDownload(snapshot_id)

    def on_fetch_snapshot_result(self, fetch: FetchSnapshot, result: FetchSnapshotResult, now_ms: int) -> None:
        download = self.download
        if fetch is not self._asked or download is None:
            return
        self._asked = None
        data = memoryview(result.data)
        if result.error is ErrorCode.NONE and result.position == download.position:
            self._heard(now_ms)
            end = download.position + len(data)
            if len(data) and end <= result.size_bytes:
                is_last = end == result.size_bytes
                self.machine.emit(ReceiveSnapshot(download.snapshot_id, download.position, data, is_last))
                download.position = end
                download.is_complete = is_last
                self._ask(now_ms)
                return
        # What the leader had is not there any more, or it is not what it was: ask anew which snapshot to load.
        self.machine.complain(fetch, result.error)
        self.abandon_download()
        self._ask_later(now_ms)

    def abandon_download(self) -> None:
        if self.download is not None:
            self.download = None
            self.machine.emit(AbandonSnapshot())

    def download_ended(self, now_ms: int) -> None:
        """The snapshot was put in place, or was no good; either way the log is fetched again."""
        self.download = None
        self._ask(now_ms)
