"""Apache Kafka and a `RaftLog` take turns on the files of a quorum whose voters may change."""

from __future__ import annotations

from pathlib import Path

from barnabas.raft.batches import ControlRecord
from barnabas.raft.log_options import RaftLogOptions
from barnabas.raft.ports import FoundReplica
from barnabas.raft.quorum_state import write_quorum_state
from barnabas.raft.raft_log import RaftLog
from barnabas.raft.types import ElectionState, SnapshotId
from barnabas.storage.real_files import RealFileSystem
from barnabas.wire.stored.cluster_metadata import NoOpRecord
from barnabas.wire.stored.control_records import KRaftVersionRecord, VotersRecord
from tests.oracles import needs_kafka
from tests.oracles.kafka_server import KafkaServer
from tests.raft.stores import commit, leader_change
from tests.storage.runtime import InlineRuntime

pytestmark = needs_kafka()

FILES = RealFileSystem()


class DynamicKafka(KafkaServer):
    """One controller, which is found by its address and not by a list of voters."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, format_options=("--standalone", "--release-version", "4.0-IV3"))

    def _settings(self) -> dict[str, str]:
        settings = super()._settings()
        _, _, address = settings.pop("controller.quorum.voters").partition("@")
        return settings | {"controller.quorum.bootstrap.servers": address}


def opened(directory: Path) -> tuple[RaftLog, FoundReplica]:
    store = RaftLog(FILES, str(directory), RaftLogOptions(), InlineRuntime())
    return store, store.open()


def told(record: ControlRecord) -> object:
    """The level, or the ids of the voters."""
    if isinstance(record.message, VotersRecord):
        return [each.voter_id for each in record.message.voters]
    return record.message.k_raft_version if isinstance(record.message, KRaftVersionRecord) else None


def test_each_goes_on_with_what_the_other_left(tmp_path: Path) -> None:
    directory = tmp_path / "data" / "__cluster_metadata-0"
    kafka = DynamicKafka(tmp_path)
    with kafka:
        pass
    kafkas_state = (directory / "quorum-state").read_bytes()

    store, found = opened(directory)
    assert found.snapshots[0] == SnapshotId(0, 0)
    assert found.start_offset == 0
    assert [(offset, told(record)) for offset, record in found.controls[:2]] == [(-1, 1), (-1, [1])]
    assert found.election is not None
    assert (found.election.epoch, found.election.leader_id) == (1, 1)
    snapshot, controls = store.read_snapshot(SnapshotId(0, 0))
    assert [told(each) for each in controls] == [1, [1]]
    assert list(snapshot.values) == []
    write_quorum_state(FILES, str(tmp_path), found.election, kraft_version=1, voter_ids=[1])
    assert (tmp_path / "quorum-state").read_bytes() == kafkas_state
    # We lead in the next epoch.
    store.save_election(ElectionState(2, 1), kraft_version=1, voter_ids=[1])
    store.append_control([leader_change()], 2)
    ours = store.append([NoOpRecord().encode_framed(0)], 2)
    commit(store)
    store.close()

    with kafka:
        pass
    store, found = opened(directory)
    assert [epoch for epoch, _ in found.epochs] == [1, 2, 3]
    assert found.election is not None
    assert found.election.epoch == 3
    batch = next(iter(store.batches(ours.first_offset, found.end_offset)))
    assert (batch.epoch, batch.values) == (2, (NoOpRecord().encode_framed(0),))
    store.close()
