"""Stories of a quorum, told in commands and what they lead to. No files, no sockets, no clock: machines and messages.

A story is text. Lines that begin with `>` are commands, the others are what they lead to; a test compares them, and
`BARNABAS_RECORD=1` writes them anew. The commands:

    > voters 1 2 3              replicas that vote, stopped
    > start 1 2 3               start them (again, after a kill: with what they had synced)
    > run 3000                  let so many milliseconds pass; messages take one
    > append 1 x y              append records at replica 1; `!` behind the command if it may be refused
    > cut 1 2 / heal            nothing passes between two replicas, in either direction / everything does again
    > cut-one-way 1 2           nothing passes from 1 to 2
    > kill 1 / power-off 1      the process ends / the machine does: what was not synced is gone
    > syncs-hang 1 / sync 1     syncs of a replica do not end / end now
    > snapshot 1                take a snapshot at replica 1, and forget the log before it
    > resign 1 / stop 1         replica 1 stops leading / stops in good order
    > add 4 / remove 1          change the voters, at whoever leads
    > observer 4                a replica that does not vote, stopped
    > voters-in-log             raise kraft.version to 1, at whoever leads
    > show                      every replica: state, epoch, log, high watermark
    > fetches on                tell of every fetch, also of those that bring nothing
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError, known
from barnabas.base.ids import Uuid
from barnabas.raft import voter_changes
from barnabas.raft.batches import ControlRecord, build_batches, build_control, read_batch
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
    Sync,
    TellLeader,
    Truncate,
    VotersChanged,
)
from barnabas.raft.machine import RaftMachine
from barnabas.raft.messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
    FetchResult,
    FetchSnapshot,
    FetchSnapshotResult,
    RaftRequest,
    RaftResult,
    Vote,
    VoteResult,
)
from barnabas.raft.options import QuorumOptions
from barnabas.raft.ports import FoundReplica
from barnabas.raft.transitions import Role
from barnabas.raft.types import Address, ElectionState, ReplicaKey, SnapshotId
from barnabas.raft.voters import Voter, VoterSet
from barnabas.records.batch import BatchView, iter_batches
from barnabas.records.control import ControlType

DELAY_MS = 1
#: Far above what a story needs.
MAX_STEPS = 100_000


def address_of(node_id: int) -> Address:
    return Address(f"host{node_id}", 9093)


def directory_of(node_id: int) -> Uuid:
    return Uuid(bytes([0xAA] * 15 + [node_id]))


@dataclass
class Disk:
    """What outlives a process: batches, how many of them are synced, the vote, snapshots with the voters in them."""

    batches: list[bytes] = field(default_factory=list)
    start_offset: int = 0
    synced_offset: int = 0
    election: ElectionState | None = None
    snapshots: dict[SnapshotId, list[ControlRecord]] = field(default_factory=dict)

    @property
    def end_offset(self) -> int:
        return BatchView(self.batches[-1]).last_offset + 1 if self.batches else self.start_offset

    def truncate(self, offset: int) -> None:
        self.batches = [each for each in self.batches if BatchView(each).last_offset < offset]
        self.synced_offset = min(self.synced_offset, offset)

    def found(self) -> FoundReplica:
        epochs: list[tuple[int, int]] = []
        controls = []
        newest = max(self.snapshots, default=None)
        if newest is not None:
            controls += [(newest.end_offset - 1, record) for record in self.snapshots[newest]]
        for each in self.batches:
            batch = read_batch(BatchView(each))
            if not epochs or epochs[-1][0] != batch.epoch:
                epochs.append((batch.epoch, batch.base_offset))
            controls += [(batch.base_offset + place, record) for place, record in enumerate(batch.controls)]
        return FoundReplica(self.election, self.start_offset, self.end_offset, epochs, sorted(self.snapshots), controls)


@dataclass
class Replica:
    key: ReplicaKey
    is_voter: bool
    disk: Disk = field(default_factory=Disk)
    machine: RaftMachine | None = None
    syncs_hang: bool = False
    waiting: list[Send] = field(default_factory=list)


@dataclass
class Message:
    """In flight: a request, or the answer to one."""

    at_ms: int
    source: int
    target: int
    request: RaftRequest
    result: RaftResult | None = None
    is_answer: bool = False


class Story:
    """A quorum, and what is told of it."""

    def __init__(self, seed: int = 1) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self.replicas: dict[int, Replica] = {}
        self.static_voters = VoterSet([])
        self.messages: list[Message] = []
        self.cuts: set[tuple[int, int]] = set()
        self.lines: list[str] = []
        self.tells_fetches = False
        self.options = QuorumOptions()

    # Commands

    def tell(self, text: str) -> None:
        self.lines.append(text)

    def command(self, line: str) -> list[str]:
        """Do one command; what it leads to."""
        self.lines = []
        name, *arguments = shlex.split(line)
        getattr(self, f"do_{name.rstrip('!').replace('-', '_')}")(*arguments)
        return self.lines

    def do_voters(self, *ids: str) -> None:
        self.static_voters = VoterSet.of({int(each): address_of(int(each)) for each in ids})
        for each in ids:
            self.replicas[int(each)] = Replica(ReplicaKey(int(each), directory_of(int(each))), is_voter=True)

    def do_observer(self, node_id: str) -> None:
        self.replicas[int(node_id)] = Replica(ReplicaKey(int(node_id), directory_of(int(node_id))), is_voter=False)

    def do_start(self, *ids: str) -> None:
        for each in ids:
            replica = self.replicas[int(each)]
            replica.machine = RaftMachine(
                replica.key,
                replica.disk.found(),
                cluster_id="a",
                static_voters=self.static_voters,
                listeners={"CONTROLLER": address_of(replica.key.node_id)},
                options=self.options,
                randomness=self.random,
            )
            self.change(replica, lambda machine: machine.start(self.now_ms))

    def do_run(self, duration: str) -> None:
        end_ms = self.now_ms + int(duration)
        for _ in range(MAX_STEPS):
            due_ms = min(
                [each.at_ms for each in self.messages] + [machine.deadline_ms for machine in self.machines()],
                default=end_ms + 1,
            )
            if due_ms > end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = max(self.now_ms, int(-(-due_ms // 1)))
            message = next((each for each in self.messages if each.at_ms <= self.now_ms), None)
            if message is not None:
                self.messages.remove(message)
                self.deliver(message)
                continue
            for replica in self.running():
                self.change(replica, lambda machine: machine.tick(self.now_ms))
        raise AssertionError("the story does not come to rest")

    def do_append(self, node_id: str, *values: str) -> None:
        replica = self.replicas[int(node_id)]
        machine = replica.machine
        assert machine is not None
        try:
            machine.append([each.encode() for each in values], machine.epoch)
        except BrokerError as refused:
            self.tell(f"refused: {refused}")
            return
        self.change(replica, lambda _: None)

    def do_cut(self, one: str, other: str) -> None:
        self.cuts |= {(int(one), int(other)), (int(other), int(one))}

    def do_cut_one_way(self, one: str, other: str) -> None:
        self.cuts.add((int(one), int(other)))

    def do_heal(self) -> None:
        self.cuts.clear()

    def do_kill(self, node_id: str) -> None:
        replica = self.replicas[int(node_id)]
        replica.machine = None
        replica.waiting.clear()
        replica.disk.synced_offset = replica.disk.end_offset
        # Its peers' connections are closed, and redials refused.
        for other in self.running():
            if (int(node_id), other.key.node_id) not in self.cuts:
                self.change(other, lambda machine: machine.refused(address_of(int(node_id)), self.now_ms))

    def do_power_off(self, node_id: str) -> None:
        replica = self.replicas[int(node_id)]
        replica.machine = None
        replica.waiting.clear()
        replica.disk.truncate(replica.disk.synced_offset)

    def do_syncs_hang(self, node_id: str) -> None:
        self.replicas[int(node_id)].syncs_hang = True

    def do_sync(self, node_id: str) -> None:
        replica = self.replicas[int(node_id)]
        replica.syncs_hang = False
        self.sync(replica)

    def do_snapshot(self, node_id: str) -> None:
        replica = self.replicas[int(node_id)]
        machine, disk = replica.machine, replica.disk
        assert machine is not None
        end_offset = machine.high_watermark
        snapshot_id = SnapshotId(end_offset, machine.log.epoch_of(end_offset - 1))
        disk.snapshots = {snapshot_id: machine.history.records_before(end_offset)}
        disk.batches = [each for each in disk.batches if BatchView(each).base_offset >= end_offset]
        disk.start_offset = end_offset
        machine.snapshot_taken(snapshot_id, end_offset)
        self.tell(f"{node_id} has a snapshot up to {end_offset}")

    def do_resign(self, node_id: str) -> None:
        self.change(self.replicas[int(node_id)], lambda machine: machine.resign(machine.epoch, self.now_ms))

    def do_stop(self, node_id: str) -> None:
        self.change(self.replicas[int(node_id)], lambda machine: machine.stop(self.now_ms))

    def do_add(self, node_id: str) -> None:
        voter = Voter(self.replicas[int(node_id)].key, {"CONTROLLER": address_of(int(node_id))})
        self.change(self.leader(), lambda machine: voter_changes.add_voter(machine, "add", voter, self.now_ms))

    def do_remove(self, node_id: str) -> None:
        key = self.replicas[int(node_id)].key
        self.change(self.leader(), lambda machine: voter_changes.remove_voter(machine, "remove", key, self.now_ms))

    def do_voters_in_log(self) -> None:
        keys = [each.key for each in self.replicas.values() if each.is_voter]
        self.change(
            self.leader(), lambda machine: voter_changes.put_voters_into_log(machine, "upgrade", keys, self.now_ms)
        )

    def do_fetches(self, switch: str) -> None:
        self.tells_fetches = switch == "on"

    def do_show(self) -> None:
        for node_id, replica in sorted(self.replicas.items()):
            machine = replica.machine
            state = "stopped" if machine is None else f"{machine.state.role.value} in epoch {machine.epoch}"
            log = " ".join(self.shown_batches(replica.disk))
            start = f"(snapshot up to {replica.disk.start_offset}) " if replica.disk.start_offset else ""
            watermark = "" if machine is None else f", high watermark {machine.high_watermark}"
            self.tell(f"{node_id}: {state}{watermark}; log: {start}{log or 'empty'}")

    def shown_batches(self, disk: Disk) -> Iterable[str]:
        for each in disk.batches:
            batch = read_batch(BatchView(each))
            if batch.controls:
                yield f"{batch.base_offset}:[{','.join(short(record) for record in batch.controls)}]@{batch.epoch}"
            for place, value in enumerate(batch.values):
                yield f"{batch.base_offset + place}:{value.decode()}@{batch.epoch}"

    # The world

    def running(self) -> list[Replica]:
        return [each for _, each in sorted(self.replicas.items()) if each.machine is not None]

    def leader(self) -> Replica:
        leaders = [each for each in self.machines() if each.state.role is Role.LEADER]
        return self.replicas[max(leaders, key=lambda each: each.epoch).key.node_id]

    def machines(self) -> list[RaftMachine]:
        return [each.machine for each in self.running() if each.machine is not None]

    def change(self, replica: Replica, what: Callable[[RaftMachine], object]) -> None:
        """Do something to a machine, tell of a new state, and do what it asks for."""
        machine = known(replica.machine, "it runs")
        before = machine.state.role, machine.epoch
        what(machine)
        after = machine.state.role, machine.epoch
        node_id = replica.key.node_id
        if before != after:
            self.tell(f"{self.now_ms:5d} ms  {node_id} is {after[0].value} in epoch {after[1]}")
        for effect in machine.take_effects():
            if replica.machine is machine:
                self.do_effect(replica, effect)

    def do_effect(self, replica: Replica, effect: Effect) -> None:
        disk, node_id = replica.disk, replica.key.node_id
        machine = replica.machine
        assert machine is not None
        if isinstance(effect, SaveElection):
            disk.election = effect.state
        elif isinstance(effect, Append):
            disk.batches += map(
                bytes,
                build_batches(effect.values, base_offset=effect.base_offset, epoch=effect.epoch, timestamp_ms=0),
            )
        elif isinstance(effect, AppendControl):
            batch = build_control(effect.records, base_offset=effect.base_offset, epoch=effect.epoch, timestamp_ms=0)
            disk.batches.append(bytes(batch))
        elif isinstance(effect, AppendFetched):
            found = [bytes(each.data) for each in iter_batches(effect.data)]
            disk.batches += found
            self.say(f"{node_id} writes {' '.join(self.shown_batches(Disk(found)))}")
        elif isinstance(effect, Truncate):
            disk.truncate(effect.offset)
            self.say(f"{node_id} cuts its log off at {effect.offset}")
        elif isinstance(effect, Sync):
            if not replica.syncs_hang:
                self.sync(replica)
        elif isinstance(effect, Send):
            if effect.after_sync <= disk.synced_offset:
                self.send(replica, effect)
            else:
                replica.waiting.append(effect)
        elif isinstance(effect, Answer | AnswerFetch | AnswerFetchSnapshot):
            self.answer(replica, effect)
        elif isinstance(effect, Commit):
            self.say(f"{node_id} knows that all before {effect.high_watermark} is committed")
        elif isinstance(effect, TellLeader):
            if effect.leader.leader_id == node_id:
                self.say(f"{node_id} leads in epoch {effect.leader.epoch}")
        elif isinstance(effect, VotersChanged):
            text = "is committed" if effect.error is ErrorCode.NONE else f"is refused: {effect.reason}"
            self.say(f"{effect.token} {text}")
        else:
            self.do_snapshot_effect(replica, effect)

    def do_snapshot_effect(self, replica: Replica, effect: Effect) -> None:
        machine = replica.machine
        assert machine is not None
        if isinstance(effect, ReceiveSnapshot) and effect.is_last:
            snapshot_id = effect.snapshot_id
            voters = next(
                each.disk.snapshots[snapshot_id]
                for each in self.replicas.values()
                if snapshot_id in each.disk.snapshots
            )
            replica.disk.snapshots = {snapshot_id: voters}
            self.change(replica, lambda machine: machine.snapshot_received(snapshot_id, voters, self.now_ms))
        elif isinstance(effect, StartAnew):
            replica.disk.batches.clear()
            replica.disk.start_offset = replica.disk.synced_offset = effect.snapshot_id.end_offset
            self.say(f"{replica.key.node_id} loads the snapshot up to {effect.snapshot_id.end_offset}")
        else:
            assert isinstance(effect, AbandonSnapshot | ReceiveSnapshot)

    def say(self, text: str) -> None:
        self.tell(f"{self.now_ms:5d} ms  {text}")

    def sync(self, replica: Replica) -> None:
        replica.disk.synced_offset = replica.disk.end_offset
        if replica.machine is not None:
            self.change(replica, lambda machine: machine.synced(replica.disk.synced_offset, self.now_ms))
        waiting, replica.waiting = replica.waiting, []
        for each in waiting:
            self.send(replica, each)

    def send(self, replica: Replica, effect: Send) -> None:
        source, target = replica.key.node_id, int(effect.to.host.removeprefix("host"))
        self.tell_request(source, target, effect.request)
        self.messages.append(Message(self.now_ms + DELAY_MS, source, target, effect.request))

    def answer(self, replica: Replica, effect: Answer | AnswerFetch | AnswerFetchSnapshot) -> None:
        asked, result = effect.reply_to, effect.result
        assert isinstance(asked, Message)
        if isinstance(effect, AnswerFetch):
            later = [each for each in replica.disk.batches if BatchView(each).base_offset >= effect.offset]
            result = replace(effect.result, records=b"".join(later))
        elif isinstance(effect, AnswerFetchSnapshot):
            result = replace(effect.result, size_bytes=100, data=bytes(100))
        self.tell_answer(asked, result)
        self.messages.append(
            Message(self.now_ms + DELAY_MS, asked.target, asked.source, asked.request, result, is_answer=True)
        )

    def deliver(self, message: Message) -> None:
        target = self.replicas.get(message.target)
        is_cut = (message.source, message.target) in self.cuts
        if target is None or target.machine is None or is_cut:
            source = self.replicas.get(message.source)
            if not message.is_answer and source is not None and source.machine is not None:
                delay_ms = self.options.request_timeout_ms if is_cut else DELAY_MS
                self.messages.append(
                    Message(self.now_ms + delay_ms, message.target, message.source, message.request, None, True)
                )
                self.messages.sort(key=lambda each: each.at_ms)
                self.cuts_exempt(message)
            return
        if message.is_answer:
            self.change(target, lambda machine: machine.receive_result(message.request, message.result, self.now_ms))
        else:
            self.change(target, lambda machine: machine.receive(message.request, message, self.now_ms))
        self.messages.sort(key=lambda each: each.at_ms)

    def cuts_exempt(self, message: Message) -> None:
        """A timeout is known where it happens; no cut keeps it away."""
        self.messages[-1].source = self.messages[-1].target if self.messages[-1].result is None else message.source

    # In words

    def tell_request(self, source: int, target: int, request: RaftRequest) -> None:
        if isinstance(request, Vote):
            kind = "would you vote for me" if request.pre_vote else "vote for me"
            epoch = request.epoch + request.pre_vote
            self.say(f"{source} to {target}: {kind} in epoch {epoch}? My log ends at {shown(request.last)}")
        elif isinstance(request, BeginQuorumEpoch):
            self.say(f"{source} to {target}: I lead in epoch {request.epoch}")
        elif isinstance(request, EndQuorumEpoch):
            names = " ".join(str(each.node_id) for each in request.successors)
            self.say(f"{source} to {target}: I resign in epoch {request.epoch}; next should be {names}")
        elif isinstance(request, FetchSnapshot):
            self.say(f"{source} to {target}: send me the snapshot up to {request.snapshot_id.end_offset}")
        elif isinstance(request, Fetch) and self.tells_fetches:
            end = f"{request.offset}@{request.last_fetched_epoch}"
            self.say(f"{source} to {target}: what comes after {end}?")

    def tell_answer(self, asked: Message, result: RaftResult) -> None:
        who = f"{asked.target} to {asked.source}"
        if isinstance(result, VoteResult):
            text = "yes" if result.granted else "no"
            if result.error is not ErrorCode.NONE:
                text = f"no, {result.error.name}"
            self.say(f"{who}: {text}")
        elif isinstance(result, FetchResult):
            if result.diverging is not None:
                self.say(
                    f"{who}: our logs differ; mine of epoch {result.diverging.epoch} ends at {result.diverging.offset}"
                )
            elif result.snapshot_id is not None:
                self.say(f"{who}: load the snapshot up to {result.snapshot_id.end_offset}")
            elif result.error is not ErrorCode.NONE and self.tells_fetches:
                self.say(f"{who}: {result.error.name}")
        elif not isinstance(result, FetchSnapshotResult) and result.error is not ErrorCode.NONE:
            self.say(f"{who}: {result.error.name}")


def shown(end: tuple[int, int]) -> str:
    return f"{end[0]}@{end[1]}"


def short(record: ControlRecord) -> str:
    names = {
        ControlType.LEADER_CHANGE: "leader",
        ControlType.KRAFT_VOTERS: "voters",
        ControlType.KRAFT_VERSION: "kraft",
    }
    return names[record.kind]


def retell(text: str, seed: int = 1) -> str:
    """The story with what its commands lead to now."""
    story = Story(seed)
    told = []
    for line in text.splitlines():
        if line.startswith(">"):
            told.append(line)
            told += [f"  {each}" for each in story.command(line[1:].strip())]
        elif line.startswith("#") or not line.strip():
            told.append(line)
    return "\n".join(told) + "\n"
