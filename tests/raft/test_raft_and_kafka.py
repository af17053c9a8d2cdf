"""The files of a replica are Apache Kafka's: what one of us writes, the other reads as what it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.ids import Uuid
from barnabas.raft.batches import ControlRecord, build_control, read_batch
from barnabas.raft.log_options import RaftLogOptions
from barnabas.raft.log_view import Divergence, LogView, SnapshotNeeded
from barnabas.raft.quorum_state import read_quorum_state, write_quorum_state
from barnabas.raft.raft_log import RaftLog
from barnabas.raft.snapshots import read_snapshot_file, write_snapshot_file
from barnabas.raft.types import Address, ElectionState, OffsetAndEpoch, ReplicaKey, Snapshot, SnapshotId
from barnabas.raft.voters import QuorumHistory, Voter, VoterSet
from barnabas.records.batch import BatchView
from barnabas.records.control import ControlType
from barnabas.storage.real_files import RealFileSystem
from barnabas.wire.message import Message
from barnabas.wire.stored.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from barnabas.wire.stored.control_records import (
    Voter as VoterInRecord,
)
from tests.oracles import needs_kafka, run_java
from tests.oracles.kafka_controller import KafkaController
from tests.storage.runtime import InlineRuntime

pytestmark = needs_kafka()

FILES = RealFileSystem()
KEYS = [ReplicaKey(each, Uuid(bytes([each]) * 16)) for each in (1, 2, 3)]
VOTERS = VoterSet(
    Voter(key, {"CONTROLLER": Address(f"host-{key.node_id}", 9093), "SSL": Address("10.0.0.1", 19093)}) for key in KEYS
)


def ask_kafka(*commands: dict[str, Any]) -> list[Any]:
    lines = run_java("RaftFiles.java", "".join(json.dumps(each) + "\n" for each in commands)).splitlines()
    assert len(lines) == len(commands)
    return [json.loads(line) for line in lines]


def encoded(message: Message, version: int = 0) -> str:
    return message.encode(version).hex()


# quorum-state

ELECTIONS = [
    ElectionState(0),
    ElectionState(3),
    ElectionState(3, 2),
    ElectionState(4, -1, KEYS[2]),
    ElectionState(5, 3, KEYS[2]),
    ElectionState(6, 1, KEYS[2]),
]


def test_quorum_state_is_kafkas(tmp_path: Path) -> None:
    cases = [(state, version) for version in (0, 1) for state in ELECTIONS]
    commands: list[dict[str, Any]] = []
    for place, (state, version) in enumerate(cases):
        ours, kafkas = tmp_path / f"ours-{place}", tmp_path / f"kafkas-{place}"
        ours.mkdir()
        kafkas.mkdir()
        write_quorum_state(FILES, str(ours), state, kraft_version=version, voter_ids=[1, 2, 3])
        voted = [] if state.voted is None else [state.voted.node_id, str(state.voted.directory_id)]
        commands += [
            {"do": "read_election", "directory": str(ours)},
            {"do": "write_election", "directory": str(kafkas), "epoch": state.epoch, "leader_id": state.leader_id,
             "voted": voted, "voters": [] if version else [1, 2, 3], "kraft_version": version},
        ]  # fmt: skip
    read = ask_kafka(*commands)[::2]
    for place, (state, version) in enumerate(cases):
        epoch, leader_id, voted, voters = read[place]
        expected = with_directory(state, version)
        key = ReplicaKey(voted[0], Uuid.parse(voted[1])) if voted else None
        assert ElectionState(epoch, leader_id, key) == expected
        assert sorted(voters) == ([] if version else [1, 2, 3])
        assert read_quorum_state(FILES, str(tmp_path / f"kafkas-{place}")) == expected
        texts = [(tmp_path / f"{who}-{place}" / "quorum-state").read_bytes() for who in ("ours", "kafkas")]
        assert texts[0] == texts[1]


def with_directory(state: ElectionState, version: int) -> ElectionState:
    """At kraft.version 0 the file does not say of which directory whoever was voted for is."""
    if version or state.voted is None:
        return state
    return ElectionState(state.epoch, state.leader_id, ReplicaKey(state.voted.node_id))


# Control records

CONTROLS: list[tuple[ControlType, Message, int]] = [
    (ControlType.LEADER_CHANGE, LeaderChangeMessage(version=0, leader_id=1, voters=[VoterInRecord(voter_id=1)],
                                                    granting_voters=[VoterInRecord(voter_id=2)]), 0),
    (ControlType.KRAFT_VERSION, KRaftVersionRecord(version=0, k_raft_version=1), 0),
    (ControlType.SNAPSHOT_HEADER, SnapshotHeaderRecord(version=0, last_contained_log_timestamp=1234567890123), 0),
    (ControlType.SNAPSHOT_FOOTER, SnapshotFooterRecord(version=0), 0),
]  # fmt: skip


def test_control_records_and_voters_are_kafkas() -> None:
    voters = VOTERS.to_record().message
    assert isinstance(voters, VotersRecord)
    controls = [*CONTROLS, (ControlType.KRAFT_VOTERS, voters, 0)]
    batches = [
        build_control([ControlRecord(kind, message)], base_offset=77, epoch=5, timestamp_ms=1_700_000_000_000)
        for kind, message, _ in controls
    ]
    commands = [
        {"do": "control", "kind": kind.name, "offset": 77, "epoch": 5, "timestamp_ms": 1_700_000_000_000,
         "hex": encoded(message, version), "version": version}
        for kind, message, version in controls
    ]  # fmt: skip
    *found, (ids, record) = ask_kafka(*commands, {"do": "voters", "hex": encoded(voters)})
    for (kind, message, _), ours, kafkas in zip(controls, batches, found, strict=True):
        assert read_batch(BatchView(bytes.fromhex(kafkas))).controls == (ControlRecord(kind, message),)
        assert bytes(ours).hex() == kafkas
    assert ids == [1, 2, 3]
    assert VoterSet.from_record(VotersRecord.decode(bytes.fromhex(record), 0)) == VOTERS


# Snapshots

VALUES = ["a", "bb", "c" * 1000]
SNAPSHOT = SnapshotId(100, 5)


def test_snapshots_are_kafkas(tmp_path: Path) -> None:
    voters = VOTERS.to_record().message
    assert isinstance(voters, VotersRecord)
    commands: list[dict[str, Any]] = []
    for kraft_version in (0, 1):
        ours, kafkas = tmp_path / f"ours-{kraft_version}", tmp_path / f"kafkas-{kraft_version}"
        ours.mkdir()
        kafkas.mkdir()
        write_snapshot_file(
            FILES,
            str(ours / SNAPSHOT.file_name),
            [each.encode() for each in VALUES],
            epoch=SNAPSHOT.epoch,
            timestamp_ms=1_700_000_000_000,
            last_contained_ms=1_600_000_000_000,
            voters=voter_controls(kraft_version),
        )
        commands += [
            {"do": "read_snapshot", "directory": str(ours), "snapshot_id": SNAPSHOT},
            {"do": "write_snapshot", "directory": str(kafkas), "snapshot_id": SNAPSHOT, "now_ms": 1_700_000_000_000,
             "last_contained_ms": 1_600_000_000_000, "kraft_version": kraft_version,
             "voters": encoded(voters) if kraft_version else None, "values": VALUES},
        ]  # fmt: skip
    for kraft_version, (last_contained_ms, batches) in enumerate(ask_kafka(*commands)[::2]):
        assert last_contained_ms == 1_600_000_000_000
        controls = voter_controls(kraft_version)
        kinds = [kind for *_, kinds, _ in batches for kind in kinds]
        assert kinds == ["SNAPSHOT_HEADER", *(each.kind.name for each in controls), "SNAPSHOT_FOOTER"]
        assert [value for *_, values in batches for value in values] == VALUES
        ours, kafkas = (tmp_path / f"{who}-{kraft_version}" / SNAPSHOT.file_name for who in ("ours", "kafkas"))
        loaded = read_snapshot_file(FILES, str(kafkas))
        assert (loaded.last_contained_ms, list(loaded.controls)) == (1_600_000_000_000, controls)
        assert [each.decode() for each in loaded.values] == VALUES
        assert kafkas.read_bytes() == ours.read_bytes()


def voter_controls(kraft_version: int) -> list[ControlRecord]:
    if not kraft_version:
        return []
    version = KRaftVersionRecord(version=0, k_raft_version=1)
    return [ControlRecord(ControlType.KRAFT_VERSION, version), VOTERS.to_record()]


@pytest.mark.parametrize("way", [pytest.param("--standalone", marks=pytest.mark.slow), "--initial-controllers"])
def test_a_directory_that_kafka_formatted_tells_us_its_voters(tmp_path: Path, way: str) -> None:
    settings = {"controller.quorum.bootstrap.servers": "127.0.0.1:9093"}
    kafka = KafkaController(tmp_path, 1, 9093, settings)
    initial = f"1@127.0.0.1:9093:{KEYS[0].directory_id},2@h2:9094:{KEYS[1].directory_id}"
    kafka.format("4L6g3nShT-eMCtK--X86sw", way, *([] if way == "--standalone" else [initial]))
    found = RaftLog(FILES, str(kafka.metadata_log), RaftLogOptions(), InlineRuntime()).open()
    assert (found.election, found.start_offset, found.end_offset) == (None, 0, 0)
    assert list(found.snapshots) == [SnapshotId(0, 0)]
    history = QuorumHistory(None)
    for offset, record in found.controls:
        history.replay(offset, record)
    assert history.kraft_versions.newest == 1
    voters = history.voter_sets.newest
    first = voters.get(1)
    assert first is not None
    assert first.listeners == {"CONTROLLER": Address("127.0.0.1", 9093)}
    assert (first.min_kraft_version, first.max_kraft_version) == (0, 1)
    if way == "--standalone":
        assert voters.ids == (1,)
        assert first.key.directory_id != Uuid.ZERO
    else:
        assert [each.key for each in voters] == KEYS[:2]


# Where logs end


def a_log(directory: Path, epochs: Sequence[int], snapshot_at: int | None, segment_bytes: int) -> LogView:
    """A log with so many records in each epoch, from 1 on, that may begin behind a snapshot."""
    options = RaftLogOptions(segment_bytes=segment_bytes, retention_bytes=0, delete_delay_ms=0)
    log = RaftLog(FILES, str(directory), options, InlineRuntime())
    log.open()
    for epoch, count in enumerate(epochs, 1):
        for _ in range(count):
            log.append([b"x"], epoch)
    log.set_high_watermark(log.end_offset)
    for at in [] if snapshot_at is None else [1, snapshot_at]:
        last = next(iter(log.batches(at - 1, at)))
        snapshot_id = SnapshotId(at, last.epoch)
        size_bytes = log.begin_snapshot(Snapshot(snapshot_id, last.append_time_ms, [b"x"]), [])()
        log.add_snapshot(snapshot_id, size_bytes, last.append_time_ms)
    log.clean()
    log.close()
    again = RaftLog(FILES, str(directory), RaftLogOptions(), InlineRuntime())
    found = again.open()
    again.close()
    return LogView(found.start_offset, found.end_offset, found.epochs, found.snapshots)


#: One segment for all, and one for each batch: then the log begins where the snapshot ends.
LARGE, TINY = 1024 * 1024, 100
#: How many records each epoch has, from 1 on, where a snapshot ends, if there is one, and the size of segments.
LOGS: list[tuple[list[int], int | None, int]] = [
    ([], None, LARGE),
    ([3], None, LARGE),
    ([2, 0, 3, 1], None, LARGE),
    ([2, 3, 0, 2], 4, LARGE),
    ([2, 3, 0, 2], 4, TINY),
    ([2, 3, 0, 2], 5, TINY),
    ([3, 3], 5, LARGE),
    ([3, 3], 6, TINY),
]


def test_logs_are_compared_as_kafka_compares_them(tmp_path: Path) -> None:
    views, commands = [], []
    for place, (epochs, snapshot_at, segment_bytes) in enumerate(LOGS):
        directory = tmp_path / str(place) / "__cluster_metadata-0"
        directory.parent.mkdir()
        views.append(a_log(directory, epochs, snapshot_at, segment_bytes))
        sizes = {"epochs": len(epochs) + 3, "offsets": sum(epochs) + 3}
        commands.append({"do": "ends", "directory": str(directory), **sizes})
    assert [view.start_offset for view in views] == [0, 0, 0, 0, 4, 5, 0, 5]
    for view, command, found in zip(views, commands, ask_kafka(*commands), strict=True):
        compare(view, command, *found)


def compare(
    view: LogView,
    command: dict[str, Any],
    start: int,
    end: int,
    last_epoch: int,
    ends: list[list[int]],
    validated: list[tuple[str, int, int]],
    cuts: list[int],
) -> None:
    assert (view.start_offset, view.end_offset, view.last_epoch) == (start, end, last_epoch)
    # Whoever is in an epoch before the oldest snapshot's is sent to the newest; and no record is of epoch 0.
    first_epoch = max(1, view.snapshots[0].epoch if view.snapshots else 1)
    for epoch in range(first_epoch, command["epochs"]):
        assert list(view.end_offset_for_epoch(epoch)) == ends[epoch], (command, epoch)
    grid = [(offset, epoch) for epoch in range(command["epochs"]) for offset in range(command["offsets"])]
    for (offset, epoch), (kind, found_offset, found_epoch), cut in zip(grid, validated, cuts, strict=True):
        verdict = view.validate(offset, epoch)
        where = f"{command}: offset {offset}, epoch {epoch}"
        if isinstance(verdict, Divergence):
            assert (kind, OffsetAndEpoch(found_offset, found_epoch)) == ("DIVERGING", verdict.end), where
        elif isinstance(verdict, SnapshotNeeded):
            assert (kind, SnapshotId(found_offset, found_epoch)) == ("SNAPSHOT", verdict.snapshot_id), where
        else:
            assert kind == "VALID", where
        if epoch >= first_epoch:
            assert view.truncation_offset(OffsetAndEpoch(offset, epoch)) == cut, where
