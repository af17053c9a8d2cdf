"""Stories of a quorum, told in commands and what they lead to. No files, no sockets, no clock: machines and messages.

A story is text. Lines that begin with `>` are commands, the others are what they lead to; a test compares them, and
`BARNABAS_RECORD=1` writes them anew. Lines that begin with `#` are for the reader. The commands:

    > voters 1 2 3              replicas that vote, as all settings say, stopped
    > format 1 2 3              replicas that vote, as the snapshot says that they were formatted with, stopped
    > observer 4                a replica that does not vote, stopped; with `observer 4 1 2` all that it knows are
                                the addresses of 1 and 2
    > start 1 2 3               start them (again, after a kill: with what they had on disk)
    > run 3000                  let so many milliseconds pass; messages take one
    > elect 1                   replica 1 has waited for long enough: it asks for votes
    > lead 1                    the same, and 100 ms pass; told is only who leads then
    > append 1 x y              append records at replica 1
    > cut 1 2 / heal            nothing passes between two replicas, in either direction / everything does again
    > cut-one-way 1 2           nothing passes from 1 to 2
    > kill 1 / power-off 1      the process ends / the machine does: what was not synced is gone
    > syncs-hang 1 / sync 1     syncs of a replica do not end / end now
    > backup 1 / restore 1      copy the disk of a replica / give it back the copy (it must be stopped)
    > empty 1                   replica 1, which is stopped, gets a new disk, with nothing on it, as another directory
    > fetch-batches 1           a fetch brings at most so many batches
    > snapshot 1                take a snapshot at replica 1, and forget the log before it, but for what others load;
                                with `snapshot 1 alone` that goes as well
    > resign 1 / stop 1         replica 1 stops leading / stops in good order
    > add 4 / remove 1          change the voters, at whoever leads
    > move 2 22                 voter 2 listens at host22 now, says whoever leads
    > voters-in-log             raise kraft.version to 1, at whoever leads; `voters-in-log 1 2` names these voters only
    > show                      every replica: state, epoch, log, high watermark; `show 1` tells of one
    > quorum-state 1            what replica 1 keeps on disk about elections, as the file has it
    > fetches on                tell of every fetch, also of those that bring nothing
    > quietly run 3000          any command, without telling what it leads to

Messages that no replica of the story would send go straight to their recipient, and the answer is told:

    > forge vote 2 candidate=3 epoch=5 log=7@4      `pre=yes`, `cluster=b`, `voter=3`, `directory=9` say what is odd
    > forge begin 2 leader=3 epoch=5                BeginQuorumEpoch
    > forge end 2 leader=3 epoch=5                  EndQuorumEpoch
    > forge fetch 2 replica=3 epoch=5 log=7@4       Fetch
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from random import Random

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError, InvariantError, known
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
    SyncLog,
    TellLeader,
    Truncate,
    VotersChanged,
)
from barnabas.raft.machine import RaftMachine
from barnabas.raft.messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EpochResult,
    FetchLog,
    FetchResult,
    FetchSnapshot,
    FetchSnapshotResult,
    RaftRequest,
    RaftResult,
    Vote,
    VoteResult,
)
from barnabas.raft.options import QuorumOptions
from barnabas.raft.quorum_state import QUORUM_STATE_FILE, write_quorum_state
from barnabas.raft.transitions import Role
from barnabas.raft.types import Address, OffsetAndEpoch, ReplicaKey, SnapshotId
from barnabas.raft.voters import VOTERS_IN_LOG, Voter, VoterSet
from barnabas.raft.wire_form import (
    LogName,
    request_from_wire,
    request_to_wire,
    result_from_wire,
    result_to_wire,
)
from barnabas.records.batch import BatchView, iter_batches
from barnabas.records.control import ControlType
from barnabas.storage.files import join, read_file
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.wire.stored.control_records import KRaftVersionRecord
from tests.raft.story_parts import (
    Asked,
    Disk,
    Message,
    Replica,
    ToldMachine,
    address_of,
    directory_of,
    key_of,
    request_source,
)

DELAY_MS = 1
#: Far above what a story needs.
MAX_STEPS = 100_000
SNAPSHOT_BYTES = 300
SNAPSHOT_PIECE_BYTES = 100
NAME = LogName()


class Story:
    """A quorum, and what is told of it."""

    def __init__(self, seed: int = 1) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self.replicas: dict[int, Replica] = {}
        self.static_voters: VoterSet | None = None
        self.messages: list[Message] = []
        self.asked: list[Asked] = []
        self.cuts: set[tuple[int, int]] = set()
        self.lines: list[str] = []
        self.tells_fetches = False
        self.fetch_batches: int | None = None
        self.options = QuorumOptions(fetch_snapshot_max_bytes=SNAPSHOT_PIECE_BYTES)
        self.snapshots: dict[SnapshotId, list[ControlRecord]] = {}
        self.moved: dict[Address, int] = {}
        #: Every transition that was made, for the tests.
        self.transitions: set[tuple[Role, Role]] = set()

    def tell(self, text: str) -> None:
        self.lines.append(text)

    def say(self, text: str) -> None:
        self.tell(f"{self.now_ms:5d} ms  {text}")

    def command(self, line: str) -> list[str]:
        """Do one command; what it leads to."""
        self.lines = []
        name, *arguments = shlex.split(line)
        is_quiet = name == "quietly"
        if is_quiet:
            name, *arguments = arguments
        getattr(self, f"do_{name.replace('-', '_')}")(*arguments)
        return [] if is_quiet else self.lines

    # Commands: who there is

    def do_voters(self, *ids: str) -> None:
        self.static_voters = VoterSet.of({int(each): address_of(int(each)) for each in ids})
        for each in ids:
            self.replicas[int(each)] = Replica(key_of(int(each)), is_voter=True)

    def do_format(self, *ids: str) -> None:
        voters = VoterSet(Voter(key_of(int(each)), {"CONTROLLER": address_of(int(each))}) for each in ids)
        version = KRaftVersionRecord(version=0, k_raft_version=VOTERS_IN_LOG)
        records = [ControlRecord(ControlType.KRAFT_VERSION, version), voters.to_record()]
        for each in ids:
            disk = Disk(snapshots={SnapshotId(0, 0): records})
            self.replicas[int(each)] = Replica(key_of(int(each)), is_voter=True, disk=disk)

    def do_observer(self, node_id: str, *known_ids: str) -> None:
        bootstrap = [address_of(int(each)) for each in known_ids] if known_ids else None
        self.replicas[int(node_id)] = Replica(key_of(int(node_id)), is_voter=False, bootstrap=bootstrap)

    # Commands: what happens to them

    def do_start(self, *ids: str) -> None:
        for each in ids:
            replica = self.replicas[int(each)]
            replica.is_off = False
            replica.machine = ToldMachine(
                replica.key,
                replica.disk.found(),
                cluster_id="a",
                static_voters=self.static_voters if replica.bootstrap is None else None,
                bootstrap=replica.bootstrap or (),
                listeners={"CONTROLLER": address_of(replica.key.node_id)},
                options=self.options,
                randomness=self.random,
            )
            replica.machine.changes = []
            self.change(replica, lambda machine: machine.start(self.now_ms))

    def do_run(self, duration: str) -> None:
        end_ms = self.now_ms + int(duration)
        for _ in range(MAX_STEPS):
            due_ms = min(
                [
                    *(each.at_ms for each in self.messages),
                    *(each.timeout_at_ms for each in self.asked),
                    *(machine.deadline_ms for machine in self.machines()),
                ],
                default=end_ms + 1,
            )
            if due_ms > end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = max(self.now_ms, int(-(-due_ms // 1)))
            self.step()
        raise AssertionError("the story does not come to rest")

    def step(self) -> None:
        """Do one thing that is due: a message first, then time-outs."""
        message = min(self.messages, key=lambda each: each.at_ms, default=None)
        if message is not None and message.at_ms <= self.now_ms:
            self.messages.remove(message)
            message.arrive()
            return
        for asked in [each for each in self.asked if each.timeout_at_ms <= self.now_ms]:
            self.end(asked, None)
        for replica in self.running():
            self.change(replica, lambda machine: machine.tick(self.now_ms))

    def do_elect(self, node_id: str) -> None:
        self.change(self.replicas[int(node_id)], lambda machine: machine.become_prospective(self.now_ms))

    def do_lead(self, node_id: str) -> None:
        self.do_elect(node_id)
        self.do_run("100")
        leaders = [each for each in self.machines() if each.state.role is Role.LEADER]
        self.lines = [f"{each.key.node_id} leads in epoch {each.epoch}" for each in leaders] or ["nobody leads"]

    def do_append(self, node_id: str, *values: str) -> None:
        replica = self.replicas[int(node_id)]
        machine = known(replica.machine, "it runs")
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
        """Its peers' connections are closed, and redials refused."""
        replica = self.replicas[int(node_id)]
        self.gone(replica)
        replica.disk.synced_offset = replica.disk.end_offset
        for asked in [each for each in self.asked if each.target == int(node_id)]:
            if (int(node_id), asked.source) not in self.cuts:
                self.later(partial(self.end, asked, None))
        for machine in self.machines():
            if (int(node_id), machine.key.node_id) not in self.cuts:
                self.later(partial(self.refused, machine, int(node_id)))

    def refused(self, machine: ToldMachine, node_id: int) -> None:
        replica = self.replicas[machine.key.node_id]
        if replica.machine is machine:
            self.change(replica, lambda machine: machine.refused(address_of(node_id), self.now_ms))

    def do_power_off(self, node_id: str) -> None:
        replica = self.replicas[int(node_id)]
        self.gone(replica)
        replica.is_off = True
        replica.disk.truncate(replica.disk.synced_offset)

    def gone(self, replica: Replica) -> None:
        replica.machine = None
        replica.syncs_hang = False
        self.asked = [each for each in self.asked if each.source != replica.key.node_id]

    def do_syncs_hang(self, node_id: str) -> None:
        self.replicas[int(node_id)].syncs_hang = True

    def do_sync(self, node_id: str) -> None:
        replica = self.replicas[int(node_id)]
        replica.syncs_hang = False
        self.sync(replica)

    def do_backup(self, node_id: str) -> None:
        replica = self.replicas[int(node_id)]
        replica.backup = replica.disk.copy()

    def do_restore(self, node_id: str) -> None:
        replica = self.replicas[int(node_id)]
        assert replica.machine is None
        replica.disk = known(replica.backup, "there is a copy").copy()

    def do_empty(self, node_id: str) -> None:
        replica = self.replicas[int(node_id)]
        assert replica.machine is None
        replica.disk = Disk()
        replica.bootstrap = [address_of(each) for each in self.replicas if each != int(node_id)]
        replica.key = ReplicaKey(int(node_id), directory_of(int(node_id) + 100))

    def do_fetch_batches(self, most: str) -> None:
        self.fetch_batches = int(most)

    def do_snapshot(self, node_id: str, alone: str = "") -> None:
        replica = self.replicas[int(node_id)]
        machine, disk = known(replica.machine, "it runs"), replica.disk
        end_offset = machine.high_watermark
        snapshot_id = SnapshotId(end_offset, machine.log.epoch_of(end_offset - 1))
        self.snapshots[snapshot_id] = machine.history.records_before(end_offset)
        in_use = frozenset[SnapshotId]() if alone else machine.snapshots_in_use(self.now_ms)
        disk.snapshots[snapshot_id] = self.snapshots[snapshot_id]
        first = min([snapshot_id, *(each for each in disk.snapshots if each in in_use)])
        disk.snapshots = {each: records for each, records in disk.snapshots.items() if each >= first}
        disk.batches = [each for each in disk.batches if BatchView(each).base_offset >= first.end_offset]
        disk.start_offset = first.end_offset
        machine.snapshot_taken(snapshot_id)
        machine.log_cleaned(first.end_offset)
        self.tell(f"{node_id} has a snapshot up to {end_offset}")

    def do_resign(self, node_id: str) -> None:
        self.change(self.replicas[int(node_id)], lambda machine: machine.resign(machine.epoch, self.now_ms))

    def do_stop(self, node_id: str) -> None:
        self.change(self.replicas[int(node_id)], lambda machine: machine.stop(self.now_ms))

    # Commands: the voters

    def do_add(self, node_id: str) -> None:
        voter = Voter(self.replicas[int(node_id)].key, {"CONTROLLER": address_of(int(node_id))})
        self.change(self.leader(), lambda machine: voter_changes.add_voter(machine, "the new voter", voter, 0))

    def do_remove(self, node_id: str) -> None:
        key = self.replicas[int(node_id)].key
        self.change(self.leader(), lambda machine: voter_changes.remove_voter(machine, "the removal", key, 0))

    def do_move(self, node_id: str, host: str) -> None:
        self.moved[address_of(int(host))] = int(node_id)
        voter = Voter(self.replicas[int(node_id)].key, {"CONTROLLER": address_of(int(host))})
        self.change(self.leader(), lambda machine: voter_changes.update_voter(machine, "the new address", voter, 0))

    def do_voters_in_log(self, *ids: str) -> None:
        keys = [each.key for each in self.replicas.values() if each.is_voter]
        if ids:
            keys = [each for each in keys if str(each.node_id) in ids]
        self.change(
            self.leader(), lambda machine: voter_changes.put_voters_into_log(machine, "kraft.version 1", keys, 0)
        )

    # Commands: what no replica would say

    def do_forge(self, kind: str, target: str, *words: str) -> None:
        says = dict(each.split("=", 1) for each in words)
        cluster_id, epoch = says.pop("cluster", "a"), int(says.pop("epoch"))
        offset, _, last_epoch = says.pop("log", "0@0").partition("@")
        directory_id = directory_of(int(says.pop("directory", target)))
        voter = ReplicaKey(int(says.pop("voter", target)), directory_id)
        request: RaftRequest
        if kind == "vote":
            candidate, last = key_of(int(says.pop("candidate"))), OffsetAndEpoch(int(offset), int(last_epoch))
            request = Vote(cluster_id, epoch, candidate, voter, last, says.pop("pre", "no") == "yes")
        elif kind == "fetch":
            replica = key_of(int(says.pop("replica")))
            request = FetchLog(cluster_id, epoch, replica, int(offset), int(last_epoch), 0, 0, 1_000_000)
        else:
            leader_id = int(says.pop("leader"))
            listeners = {"CONTROLLER": address_of(leader_id)}
            begin = BeginQuorumEpoch(cluster_id, epoch, leader_id, voter, listeners)
            request = begin if kind == "begin" else EndQuorumEpoch(cluster_id, epoch, leader_id, ())
        assert not says, says
        source = request_source(request)
        self.tell_request(source, int(target), request)
        asked = Asked(None, source, int(target), request, float("inf"))
        self.change(self.replicas[int(target)], lambda machine: machine.receive(request, asked, self.now_ms))

    # Commands: what is told

    def do_fetches(self, switch: str) -> None:
        self.tells_fetches = switch == "on"

    def do_show(self, *ids: str) -> None:
        for node_id, replica in sorted(self.replicas.items()):
            if not ids or str(node_id) in ids:
                self.tell(f"{node_id}: {self.shown_state(replica)}; log: {self.shown_log(replica.disk)}")

    def shown_state(self, replica: Replica) -> str:
        machine = replica.machine
        if machine is None:
            return "stopped"
        voters = ""
        if machine.kraft_version >= VOTERS_IN_LOG:
            voters = f", voters {' '.join(map(str, machine.voters.ids))}"
        role = machine.state.role.value
        return f"{role} in epoch {machine.epoch}, high watermark {machine.high_watermark}{voters}"

    def shown_log(self, disk: Disk) -> str:
        start = [f"(snapshot up to {disk.start_offset})"] if disk.start_offset else []
        return " ".join([*start, *self.shown_batches(disk)]) or "empty"

    def shown_batches(self, disk: Disk) -> Iterable[str]:
        for each in disk.batches:
            batch = read_batch(BatchView(each))
            if batch.controls:
                yield f"{batch.base_offset}:[{','.join(short(record) for record in batch.controls)}]@{batch.epoch}"
            for place, value in enumerate(batch.values):
                yield f"{batch.base_offset + place}:{value.decode()}@{batch.epoch}"

    def do_quorum_state(self, node_id: str) -> None:
        disk = self.replicas[int(node_id)].disk
        machine = known(self.replicas[int(node_id)].machine, "it runs")
        if disk.election is None:
            self.tell("there is none yet")
            return
        files = SimulatedDisk(Random(1))
        files.make_directory("/d")
        write_quorum_state(
            files, "/d", disk.election, kraft_version=machine.kraft_version, voter_ids=machine.voters.ids
        )
        self.tell(bytes(read_file(files, join("/d", QUORUM_STATE_FILE))).decode())

    # The world

    def running(self) -> list[Replica]:
        return [each for _, each in sorted(self.replicas.items()) if each.machine is not None]

    def leader(self) -> Replica:
        leaders = [each for each in self.machines() if each.state.role is Role.LEADER]
        return self.replicas[max(leaders, key=lambda each: each.epoch).key.node_id]

    def machines(self) -> list[ToldMachine]:
        return [each.machine for each in self.running() if each.machine is not None]

    def node_at(self, address: Address) -> int:
        return self.moved.get(address) or int(address.host.removeprefix("host"))

    def change(self, replica: Replica, what: Callable[[RaftMachine], object]) -> None:
        """Do something to a machine, tell of new states, and do what it asks for."""
        machine = known(replica.machine, "it runs")
        try:
            what(machine)
        except InvariantError as failure:
            self.say(f"{replica.key.node_id} stops: {failure}")
            self.gone(replica)
            return
        self.tell_changes(replica, machine)
        for effect in machine.take_effects():
            if replica.machine is machine:
                self.do_effect(replica, effect)

    def tell_changes(self, replica: Replica, machine: ToldMachine) -> None:
        changes, machine.changes = machine.changes, []
        for old, new, epoch, leader_id in changes:
            self.transitions.add((old, new))
            if new is Role.FOLLOWER:
                self.say(f"{replica.key.node_id} follows {leader_id} in epoch {epoch}")
            elif old is not new or new is not Role.UNATTACHED:
                self.say(f"{replica.key.node_id} is {new.value} in epoch {epoch}")

    def do_effect(self, replica: Replica, effect: Effect) -> None:
        disk, node_id = replica.disk, replica.key.node_id
        if isinstance(effect, SaveElection):
            disk.election = effect.state
        elif isinstance(effect, Append | AppendControl | AppendFetched):
            self.write(replica, effect)
        elif isinstance(effect, Truncate):
            disk.truncate(effect.offset)
            self.say(f"{node_id} cuts its log off at {effect.offset}")
        elif isinstance(effect, SyncLog):
            if not replica.syncs_hang:
                self.sync(replica)
        elif isinstance(effect, Send):
            self.send(replica, effect)
        elif isinstance(effect, Answer | AnswerFetch | AnswerFetchSnapshot):
            self.answer(replica, effect)
        elif isinstance(effect, Commit):
            disk.committed_offset = effect.high_watermark
            self.say(f"{node_id} knows that all before {effect.high_watermark} is committed")
        elif isinstance(effect, TellLeader):
            if effect.leader.leader_id == node_id:
                self.say(f"{node_id} takes records in epoch {effect.leader.epoch}")
        elif isinstance(effect, VotersChanged):
            text = "is committed" if effect.error is ErrorCode.NONE else f"is refused: {effect.reason}"
            self.say(f"{effect.token} {text}")
        else:
            self.do_snapshot_effect(replica, effect)

    def write(self, replica: Replica, effect: Append | AppendControl | AppendFetched) -> None:
        if isinstance(effect, Append):
            batches = build_batches(effect.values, base_offset=effect.base_offset, epoch=effect.epoch, timestamp_ms=0)
            written = [bytes(each) for each in batches]
        elif isinstance(effect, AppendControl):
            batch = build_control(effect.records, base_offset=effect.base_offset, epoch=effect.epoch, timestamp_ms=0)
            written = [bytes(batch)]
        else:
            written = [bytes(each.data) for each in iter_batches(effect.data)]
        replica.disk.batches += written
        self.say(f"{replica.key.node_id} writes {' '.join(self.shown_batches(Disk(written)))}")

    def do_snapshot_effect(self, replica: Replica, effect: Effect) -> None:
        if isinstance(effect, ReceiveSnapshot):
            if effect.is_last:
                snapshot_id = effect.snapshot_id
                voters = self.snapshots[snapshot_id]
                replica.disk.snapshots = {snapshot_id: voters}
                self.change(replica, lambda machine: machine.snapshot_received(snapshot_id, voters, self.now_ms))
        elif isinstance(effect, StartAnew):
            replica.disk.batches.clear()
            replica.disk.start_offset = replica.disk.synced_offset = effect.snapshot_id.end_offset
            self.say(f"{replica.key.node_id} begins anew with the snapshot up to {effect.snapshot_id.end_offset}")
        else:
            assert isinstance(effect, AbandonSnapshot)
            self.say(f"{replica.key.node_id} throws away what it has of the snapshot")

    def sync(self, replica: Replica) -> None:
        replica.disk.synced_offset = replica.disk.end_offset
        if replica.machine is not None:
            self.change(replica, lambda machine: machine.synced(replica.disk.synced_offset, self.now_ms))

    # Messages. They go through the form that they have on the wire.

    def send(self, replica: Replica, effect: Send) -> None:
        source, target = replica.key.node_id, self.node_at(effect.to)
        self.tell_request(source, target, effect.request)
        timeout_at_ms = self.now_ms + self.options.request_timeout_ms
        asked = Asked(replica.machine, source, target, effect.request, timeout_at_ms)
        self.asked.append(asked)
        self.later(lambda: self.deliver(asked))

    def later(self, arrive: Callable[[], None]) -> None:
        self.messages.append(Message(self.now_ms + DELAY_MS, arrive))

    def answer(self, replica: Replica, effect: Answer | AnswerFetch | AnswerFetchSnapshot) -> None:
        asked, result = effect.reply_to, effect.result
        assert isinstance(asked, Asked)
        if isinstance(effect, AnswerFetch):
            later = [each for each in replica.disk.batches if BatchView(each).base_offset >= effect.offset]
            result = effect.result._replace(records=b"".join(later[: self.fetch_batches]))
        elif isinstance(effect, AnswerFetchSnapshot):
            rest = bytes(max(0, SNAPSHOT_BYTES - effect.result.position))
            result = replace(effect.result, size_bytes=SNAPSHOT_BYTES, data=rest[: effect.max_bytes])
        self.tell_answer(asked, result)
        if asked.machine is not None:
            request = request_to_wire(asked.request, NAME)
            response = result_to_wire(result, request, request.VERSIONS.high, NAME)
            travelled = result_from_wire(response, NAME)
            self.later(lambda: self.deliver_answer(asked, travelled))

    def deliver(self, asked: Asked) -> None:
        if (asked.source, asked.target) in self.cuts:
            return
        target = self.replicas.get(asked.target)
        if target is None or target.machine is None:
            if target is None or not target.is_off:
                # Nobody listens there, and that is known at once.
                self.later(lambda: self.end(asked, None))
            return
        request = request_from_wire(request_to_wire(asked.request, NAME), NAME)
        self.change(target, lambda machine: machine.receive(request, asked, self.now_ms))

    def deliver_answer(self, asked: Asked, result: RaftResult) -> None:
        if (asked.target, asked.source) not in self.cuts:
            self.end(asked, result)

    def end(self, asked: Asked, result: RaftResult | None) -> None:
        """Whoever asked has its answer, or knows that there will be none."""
        if any(each is asked for each in self.asked):
            self.asked = [each for each in self.asked if each is not asked]
            source = self.replicas[asked.source]
            if source.machine is asked.machine:
                self.change(source, lambda machine: machine.receive_result(asked.request, result, self.now_ms))

    # In words

    def tell_request(self, source: int, target: int, request: RaftRequest) -> None:
        says = f"{source} to {target}:"
        if isinstance(request, Vote):
            kind = "would you vote for me" if request.pre_vote else "vote for me"
            epoch = request.epoch + request.pre_vote
            self.say(f"{says} {kind} in epoch {epoch}? My log ends at {shown(request.last)}")
        elif isinstance(request, BeginQuorumEpoch):
            self.say(f"{says} I lead in epoch {request.epoch}")
        elif isinstance(request, EndQuorumEpoch):
            names = " ".join(str(each.node_id) for each in request.successors) or "nobody"
            self.say(f"{says} I resign in epoch {request.epoch}; next should be {names}")
        elif isinstance(request, FetchSnapshot):
            what = f"the snapshot up to {request.snapshot_id.end_offset}"
            self.say(f"{says} send me {what}, from byte {request.position} on")
        elif isinstance(request, FetchLog) and self.tells_fetches:
            end = f"{request.offset}@{request.last_fetched_epoch}"
            self.say(f"{says} my log ends at {end}, what comes next?")

    def tell_answer(self, asked: Asked, result: RaftResult) -> None:
        says = f"{asked.target} to {asked.source}:"
        is_forged = asked.machine is None
        if isinstance(result, VoteResult):
            verdict = "yes" if result.granted else "no"
            self.say(f"{says} {verdict}" + (f", {result.error.name}" if result.error is not ErrorCode.NONE else ""))
        elif result.error is not ErrorCode.NONE:
            if self.tells_fetches or is_forged or not isinstance(result, FetchResult):
                self.say(f"{says} {result.error.name}")
        elif isinstance(result, FetchResult):
            if result.diverging is not None:
                ends = result.diverging
                self.say(f"{says} our logs differ; up to epoch {ends.epoch} mine ends at {ends.offset}")
            elif result.snapshot_id is not None:
                self.say(f"{says} load the snapshot up to {result.snapshot_id.end_offset}")
            elif self.tells_fetches:
                batches = list(iter_batches(memoryview(result.records))) if len(result.records) else []
                news = " ".join(self.shown_batches(Disk([bytes(each.data) for each in batches]))) or "nothing new"
                self.say(f"{says} {news}; the high watermark is {result.high_watermark}")
        elif is_forged and isinstance(result, EpochResult):
            self.say(f"{says} all right")
        else:
            assert isinstance(result, EpochResult | FetchSnapshotResult)


def shown(end: tuple[int, int]) -> str:
    return f"{end[0]}@{end[1]}"


def short(record: ControlRecord) -> str:
    names = {
        ControlType.LEADER_CHANGE: "leader",
        ControlType.KRAFT_VOTERS: "voters",
        ControlType.KRAFT_VERSION: "kraft",
    }
    return names[record.kind]


def retell(text: str, story: Story | None = None) -> str:
    """The story with what its commands lead to now."""
    story = story or Story()
    told = []
    for line in text.splitlines():
        if line.startswith(">"):
            told.append(line)
            told += [f"  {each}" for each in story.command(line[1:].strip())]
        elif line.startswith("#") or not line.strip():
            told.append(line)
    return "\n".join(told) + "\n"
