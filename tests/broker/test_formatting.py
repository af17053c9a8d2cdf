"""Formatting directories and reading back whose they are, and what is said when they are not as they should be."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Uuid
from barnabas.base.properties import parse_properties
from barnabas.broker.quorum.formatting import (
    NotFormattedError,
    bootstrap_records,
    format_directories,
    is_formatted,
    read_bootstrap,
    read_first_voters,
    read_identity,
)
from barnabas.raft.snapshots import read_snapshot_file
from barnabas.raft.types import Address, ReplicaKey
from barnabas.raft.voters import VOTERS_IN_LOG, QuorumHistory, Voter, VoterSet
from barnabas.storage.files import read_file, replace_file
from barnabas.storage.meta_properties import read_meta_properties
from barnabas.storage.real_files import RealFileSystem
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.wire.stored.cluster_metadata import FeatureLevelRecord
from tests.broker.metadata_files import CLUSTER_ID, node_settings

OTHER_CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
TWO = "/data/a,/data/b"


def disk() -> SimulatedDisk:
    files = SimulatedDisk(Random(1))
    files.make_directory("/data")
    files.sync_directory("/")
    return files


def formatted(directories: str = TWO, **overrides: Any) -> SimulatedDisk:
    files = disk()
    format_directories(files, node_settings(directories, **overrides), CLUSTER_ID, Random(2))
    return files


def change(files: SimulatedDisk, directory: str, **entries: str | None) -> None:
    path = f"{directory}/meta.properties"
    found: dict[str, str | None] = dict(parse_properties(read_file(files, path).decode()))
    found |= {name.replace("_", "."): value for name, value in entries.items()}
    text = "".join(f"{name}={value}\n" for name, value in found.items() if value is not None)
    replace_file(files, path, text.encode())


def test_every_directory_gets_an_identity_of_its_own() -> None:
    files = disk()
    lines = format_directories(files, node_settings(TWO), CLUSTER_ID, Random(2))
    assert lines == [
        "Formatting metadata directory /data/a with metadata.version 4.0-IV3.",
        "Formatting data directory /data/b with metadata.version 4.0-IV3.",
    ]
    identity = read_identity(files, node_settings(TWO))
    assert (identity.cluster_id, identity.node_id) == (CLUSTER_ID, 1)
    assert list(identity.directory_ids) == ["/data/a", "/data/b"]
    assert len(set(identity.directory_ids.values())) == 2
    assert [path for path in files.contents() if "." in path] == [
        "data/a/bootstrap.checkpoint",
        "data/a/meta.properties",
        "data/b/meta.properties",
    ]


BUILT = [
    FeatureLevelRecord(name="metadata.version", feature_level=25),
    FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
    FeatureLevelRecord(name="transaction.version", feature_level=2),
]


def test_a_new_cluster_begins_with_what_is_built_and_no_other_feature() -> None:
    assert read_bootstrap(formatted(), "/data/a") == BUILT


def test_a_metadata_version_without_elr_begins_without() -> None:
    assert bootstrap_records(22) == [FeatureLevelRecord(name="metadata.version", feature_level=22)]
    assert bootstrap_records(elr_version=0, transaction_version=0) == BUILT[:1]


def test_the_metadata_directory_may_be_one_of_its_own() -> None:
    settings = node_settings("/data/a", metadata_log_dir="/data/meta")
    files = disk()
    lines = format_directories(files, settings, CLUSTER_ID, Random(2))
    assert "metadata directory /data/meta" in lines[1]
    assert list(read_identity(files, settings).directory_ids) == ["/data/a", "/data/meta"]


def test_what_is_formatted_is_formatted_again_only_when_asked_and_then_left_alone() -> None:
    files = formatted("/data/a")
    settings = node_settings(TWO)
    before = files.contents()
    with pytest.raises(BarnabasError, match="/data/a is already formatted; use --ignore-formatted"):
        format_directories(files, settings, CLUSTER_ID, Random(3))
    assert files.contents() == before
    lines = format_directories(files, settings, CLUSTER_ID, Random(3), ignore_formatted=True)
    assert lines == ["Formatting data directory /data/b with metadata.version 4.0-IV3."]
    assert files.contents()["data/a/meta.properties"] == before["data/a/meta.properties"]
    assert format_directories(files, settings, CLUSTER_ID, Random(4), ignore_formatted=True) == [
        "All of the log directories are already formatted."
    ]


@pytest.mark.parametrize("ignore_formatted", [False, True])
def test_a_directory_of_another_cluster_or_node_is_never_taken_over(ignore_formatted: bool) -> None:
    files = formatted("/data/a")
    with pytest.raises(BarnabasError, match=f"/data/a belongs to cluster {CLUSTER_ID}, not to {OTHER_CLUSTER_ID}"):
        format_directories(files, node_settings(TWO), OTHER_CLUSTER_ID, Random(3), ignore_formatted=ignore_formatted)
    other_node = node_settings(TWO, node_id=2, controller_quorum_voters="2@127.0.0.1:9093")
    with pytest.raises(BarnabasError, match=r"/data/a belongs to node 1, but node\.id is 2"):
        format_directories(files, other_node, CLUSTER_ID, Random(3), ignore_formatted=ignore_formatted)
    assert "data/b" not in files.contents()


@pytest.mark.parametrize("cluster_id", ["", "two words"])
def test_a_cluster_id_is_one_word(cluster_id: str) -> None:
    with pytest.raises(BarnabasError, match="is not a cluster id; make one with 'barnabas storage random-uuid'"):
        format_directories(disk(), node_settings(), cluster_id, Random(1))


def first_voters(files: SimulatedDisk, *node_ids: int, node_id: int = 1) -> list[str]:
    """Format a node of a quorum whose log names the voters."""
    keys = [ReplicaKey(each, Uuid(bytes([each]) * 16)) for each in node_ids]
    voters = VoterSet(Voter(key, {"CONTROLLER": Address(f"host{key.node_id}", 9093)}) for key in keys)
    settings = node_settings(
        TWO, node_id=node_id, controller_quorum_voters="", controller_quorum_bootstrap_servers="host1:9093"
    )
    return format_directories(files, settings, CLUSTER_ID, Random(2), voters=voters, now_ms=5)


def test_the_first_voters_stand_before_the_log() -> None:
    files = disk()
    assert first_voters(files, 1, 2) == [
        "Formatting dynamic metadata voter directory /data/a with metadata.version 4.0-IV3.",
        "Formatting data directory /data/b with metadata.version 4.0-IV3.",
    ]
    path = "/data/a/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
    snapshot = read_snapshot_file(files, path)
    assert (snapshot.last_contained_ms, snapshot.values) == (5, ())
    history = QuorumHistory(None)
    history.restart(-1, snapshot.controls)
    assert history.kraft_versions.newest == VOTERS_IN_LOG
    found = read_first_voters(files, "/data/a")
    assert history.voter_sets.newest == found
    assert found is not None
    assert found.ids == (1, 2)
    meta = read_meta_properties(files, "/data/a")
    assert meta is not None
    assert meta.directory_id == Uuid(bytes([1]) * 16)
    # Features are where they are in any cluster.
    assert read_bootstrap(files, "/data/a") == BUILT


def test_a_node_that_is_not_among_the_first_voters_knows_them() -> None:
    files = disk()
    line = first_voters(files, 1, 2, node_id=3)[0]
    assert line == "Formatting dynamic metadata directory /data/a with metadata.version 4.0-IV3."
    assert read_first_voters(files, "/data/a") is not None


def test_what_was_left_of_a_formatting_that_was_broken_off_counts_no_more() -> None:
    files = disk()
    first_voters(files, 1, 2)
    files.remove("/data/a/meta.properties")
    files.remove("/data/b/meta.properties")
    format_directories(files, node_settings(TWO), CLUSTER_ID, Random(1))
    assert read_first_voters(files, "/data/a") is None


def test_formatting_at_an_older_level() -> None:
    files = disk()
    lines = format_directories(files, node_settings("/data/a"), CLUSTER_ID, Random(1), metadata_version=7)
    assert lines == ["Formatting metadata directory /data/a with metadata.version 3.3-IV3."]
    assert read_bootstrap(files, "/data/a") == [FeatureLevelRecord(name="metadata.version", feature_level=7)]


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_a_node_with_one_role_is_formatted_as_one_with_both(role: str) -> None:
    """Also a broker, which needs no first records: Kafka writes them too."""
    settings = node_settings(
        "/data/a",
        process_roles=role,
        listeners="PLAINTEXT://a:9092" if role == "broker" else "CONTROLLER://a:9093",
        controller_quorum_voters=f"{2 if role == 'broker' else 1}@a:9093,3@b:9093",
    )
    files = disk()
    assert format_directories(files, settings, CLUSTER_ID, Random(2))
    assert [path for path in files.contents() if "." in path] == [
        "data/a/bootstrap.checkpoint",
        "data/a/meta.properties",
    ]


def test_a_path_below_a_file_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for path, said in ((f"{tmp_path}/file/data", "Not a directory"), (f"{tmp_path}/file", "not a directory")):
        with pytest.raises(BarnabasError, match=said) as told:
            format_directories(RealFileSystem(), node_settings(path), CLUSTER_ID, Random(1))
        assert path in str(told.value)
        assert "\n" not in str(told.value)


def test_directories_that_were_never_formatted() -> None:
    files = disk()
    settings = node_settings(TWO)
    assert not is_formatted(files, settings)
    with pytest.raises(NotFormattedError, match=r"/data/a, /data/b is not formatted.*run 'barnabas storage format"):
        read_identity(files, settings)
    partly = formatted("/data/a")
    assert is_formatted(partly, settings)
    with pytest.raises(NotFormattedError, match=r"/data/b is not formatted.*--ignore-formatted"):
        read_identity(partly, settings)


@pytest.mark.parametrize(
    ("directory", "entries", "said"),
    [
        ("/data/b", {"cluster_id": OTHER_CLUSTER_ID}, f"/data/b belongs to cluster {OTHER_CLUSTER_ID}, but /data/a to"),
        ("/data/b", {"node_id": "7"}, r"/data/b belongs to node 7, but node\.id is 1"),
        ("/data/a", {"version": "0"}, "version 0 was written by a Kafka with ZooKeeper"),
        ("/data/a", {"version": None}, "version 0 was written by a Kafka with ZooKeeper"),
        ("/data/a", {"version": "2"}, "version 2 is not known, only 1 is"),
        ("/data/a", {"cluster_id": None}, r"cluster\.id is missing"),
        ("/data/a", {"node_id": None}, r"node\.id is missing"),
        ("/data/a", {"node_id": "one"}, r"node\.id = 'one' is not a number"),
        ("/data/a", {"directory_id": None}, r"has no valid directory\.id"),
        ("/data/a", {"directory_id": "AAAAAAAAAAAAAAAAAAAAAQ"}, r"has no valid directory\.id"),
        ("/data/a", {"directory_id": "nonsense"}, r"directory\.id: 'nonsense' is not an id"),
    ],
)
def test_directories_that_are_not_this_nodes(directory: str, entries: dict[str, str | None], said: str) -> None:
    files = formatted()
    change(files, directory, **entries)
    with pytest.raises(BarnabasError, match=said):
        read_identity(files, node_settings(TWO))


def test_a_copied_directory_is_noticed() -> None:
    files = formatted()
    replace_file(files, "/data/b/meta.properties", read_file(files, "/data/a/meta.properties"))
    with pytest.raises(BarnabasError, match=r"/data/a and /data/b have the same directory\.id"):
        read_identity(files, node_settings(TWO))
