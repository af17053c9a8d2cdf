"""The file `quorum-state`, which Kafka reads and writes too."""

from __future__ import annotations

import json

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Uuid
from barnabas.raft.quorum_state import read_quorum_state, write_quorum_state
from barnabas.raft.types import ElectionState, ReplicaKey
from tests.raft.stores import new_disk

DIRECTORY_ID = Uuid(bytes(range(16)))


def test_at_level_0_it_is_the_line_that_kafka_writes() -> None:
    disk = new_disk(1)
    assert read_quorum_state(disk, "/data") is None
    write_quorum_state(disk, "/data", ElectionState(7, 1), kraft_version=0, voter_ids=[1, 2])
    assert disk.contents()["data/quorum-state"] == (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}'
    )
    assert read_quorum_state(disk, "/data") == ElectionState(7, 1)


def test_at_level_1_it_has_the_directory_of_the_vote() -> None:
    disk = new_disk(1)
    state = ElectionState(8, -1, ReplicaKey(3, DIRECTORY_ID))
    write_quorum_state(disk, "/data", state, kraft_version=1, voter_ids=[1, 2])
    assert disk.contents()["data/quorum-state"] == (
        b'{"leaderId":-1,"leaderEpoch":8,"votedId":3,"votedDirectoryId":"AAECAwQFBgcICQoLDA0ODw","data_version":1}'
    )
    assert read_quorum_state(disk, "/data") == state


def test_at_level_0_a_vote_has_no_directory() -> None:
    disk = new_disk(1)
    state = ElectionState(8, -1, ReplicaKey(3, DIRECTORY_ID))
    write_quorum_state(disk, "/data", state, kraft_version=0, voter_ids=[1, 2])
    assert read_quorum_state(disk, "/data") == ElectionState(8, -1, ReplicaKey(3))


def changed(**values: object) -> str:
    right = {"leaderId": 1, "leaderEpoch": 7, "votedId": -1, "votedDirectoryId": str(Uuid.ZERO), "data_version": 1}
    return json.dumps(right | values)


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{}", "null", "\x00" * 100, "[" * 100_000, json.dumps({"data_version": 9}), changed()[:-1]),
        *(changed(data_version="1"), changed(data_version=[]), changed(data_version=True), changed(data_version=None)),
        *(changed(leaderEpoch=-1), changed(leaderId=-2), changed(votedId=-2), changed(leaderEpoch="7")),
        *(changed(votedDirectoryId="nobody"), changed(votedDirectoryId=None)),
    ],
)
def test_what_makes_no_sense_is_refused_by_name_and_with_what_to_do(content: str) -> None:
    disk = new_disk(1)
    disk.open("/data/quorum-state", create=True).write_at(0, content.encode())
    before = disk.contents()
    with pytest.raises(
        BarnabasError, match=r"/data/quorum-state cannot be read: .*\. Restore it from a backup"
    ) as said:
        read_quorum_state(disk, "/data")
    assert "\n" not in str(said.value)
    assert disk.contents() == before
