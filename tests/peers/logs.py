"""What lies in the metadata logs of several nodes, to be compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard

from barnabas.metadata.batches import decode_values
from barnabas.metadata.image import ConfigResourceType
from barnabas.raft.snapshots import find_snapshots, read_snapshot_file
from barnabas.raft.types import SnapshotId
from barnabas.storage.real_files import RealFileSystem
from barnabas.wire.stored.cluster_metadata import (
    ConfigRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from tests.peers.nodes import PeerNode
from tests.raft.mixed import log_bytes

_FILES = RealFileSystem()


def newest_snapshot(node: PeerNode) -> SnapshotId | None:
    """The newest state that a node has written down."""
    return max(find_snapshots(_FILES, str(node.metadata_log)), default=None)


def records_of(node: PeerNode, snapshot_id: SnapshotId) -> list[str]:
    """The records of a state, in an order that is not the writer's.

    Settings of topics that are not there are left out. Kafka keeps them if it reads in one go that a topic was created,
    set and deleted: its ConfigurationsDelta looks for them only in the state before.
    """
    loaded = read_snapshot_file(_FILES, str(node.metadata_log / snapshot_id.file_name))
    records = list(decode_values(loaded.values))
    topics = {each.name for each in records if isinstance(each, TopicRecord)}
    found = []
    for each in records:
        if isinstance(each, RegisterBrokerRecord | RegisterControllerRecord):
            each.features.sort(key=lambda feature: feature.name)
        if not _is_of_topic(each) or each.resource_name in topics:
            found.append(str(each))
    return sorted(found)


def _is_of_topic(record: MetadataRecord) -> TypeGuard[ConfigRecord]:
    return isinstance(record, ConfigRecord) and record.resource_type == ConfigResourceType.TOPIC


def assert_same_logs(nodes: Iterable[PeerNode]) -> None:
    """All have the same batches, byte for byte, as far as each goes; who loaded a state begins behind it."""
    logs = {each.node_id: log_bytes(each.metadata_log) for each in nodes}
    longest = max(logs.values(), key=len)
    different = [each for each, log in logs.items() if not log or log not in longest]
    assert not different, f"the logs of {different} are not those of the others"
