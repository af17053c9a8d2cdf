"""The cluster's metadata as a tree of names, with the names that Kafka's metadata shell gives them.

A dict is a directory, everything else is what a file holds: text, a number, or a `Leaf`. Secrets are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from barnabas._version import package_build
from barnabas.base.errors import BarnabasError
from barnabas.broker.configs.config_resources import is_secret
from barnabas.broker.quorum.formatting import RELEASES
from barnabas.cli.dump_log import entries
from barnabas.metadata.access_images import ClientQuotasImage, ScramImage
from barnabas.metadata.batches import decode_values
from barnabas.metadata.features import METADATA_VERSION
from barnabas.metadata.image import BrokerImage, ClusterImage, ConfigResourceType, PartitionImage, TopicImage
from barnabas.metadata.replay import ImageBuilder
from barnabas.metadata.snapshot import acl_record, controller_record, token_record
from barnabas.raft.batches import LogBatch, read_batch
from barnabas.raft.snapshots import find_snapshots
from barnabas.raft.types import SnapshotId
from barnabas.records.batch import BatchView
from barnabas.storage.real_files import RealFileSystem
from barnabas.wire.json_form import to_json

Tree = dict[str, Any]

_REDACTED: Final = "[redacted]"
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class Leaf(dict[str, Any]):
    """Values that belong together in one file, where a plain dict would be a directory."""


def load_tree(files: list[Path]) -> Tree:
    """The tree that a snapshot and the logs after it describe. They are only read, so a node may be running on them."""
    image, time_ms = load_image(files)
    return {
        "image": image_tree(image, time_ms),
        "local": {"commitId": package_build().commit, "version": package_build().version},
    }


def load_image(files: list[Path]) -> tuple[ClusterImage, int]:
    """The cluster as these files describe it, and when the last change was written."""
    builder = ImageBuilder(ClusterImage())
    position = (-1, -1, 0)
    for path in files:
        snapshot = SnapshotId.parse(path.name)
        for change in _batches(path, position[0] + 1 if snapshot is None and position[0] >= 0 else 0):
            for record in decode_values(change.values, None if snapshot else change.base_offset):
                builder.replay(record)
            if (change.values or snapshot is None) and not builder.in_transaction:
                position = (change.last_offset, change.epoch, change.append_time_ms)
        if snapshot is not None:
            position = (snapshot.end_offset - 1, snapshot.epoch, position[2])
    return builder.build(position[0], position[1]), position[2]


def files_of(directory: Path) -> list[Path]:
    """What must be read of a `__cluster_metadata-0`: the newest snapshot, and the segments that reach beyond it."""
    if not directory.is_dir():
        raise BarnabasError(f"{directory} is not a directory")
    snapshots = find_snapshots(RealFileSystem(), str(directory))
    segments = sorted(path for path in directory.glob("*.log") if path.stem.isdecimal())
    if not snapshots:
        if not segments:
            raise BarnabasError(f"{directory} holds neither a log nor a snapshot")
        return segments
    end_offset = snapshots[-1].end_offset
    following = [place for place, path in enumerate(segments) if int(path.stem) <= end_offset]
    return [directory / snapshots[-1].file_name, *segments[following[-1] if following else 0 :]]


def _batches(path: Path, from_offset: int) -> Iterator[LogBatch]:
    for _, entry in entries(path):
        if isinstance(entry, BatchView) and entry.base_offset >= from_offset:
            yield read_batch(entry)


def image_tree(image: ClusterImage, time_ms: int) -> Tree:
    time = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return {
        "acls": {
            "byId": {str(acl_id): Leaf(to_json(acl_record(acl_id, acl), 0)) for acl_id, acl in image.acls.items()}
        },
        "clientQuotas": _quotas(image.client_quotas),
        "cluster": {
            "brokers": {str(number): _broker(broker) for number, broker in sorted(image.brokers.items())},
            "controllers": {
                str(number): Leaf(to_json(controller_record(each), 0)) for number, each in image.controllers.items()
            },
        },
        "configs": _configs(image),
        "delegationToken": {
            token_id: Leaf(to_json(token_record(token_id, token), 0))
            for token_id, token in image.delegation_tokens.items()
        },
        "features": _features(image.features),
        "producerIds": {"nextProducerId": image.next_producer_id} if image.next_producer_id > 0 else {},
        "provenance": f"offset {image.offset}, epoch {image.epoch}, time {time}",
        "scram": _scram(image.scram),
        "topics": {
            "byName": {name: _topic(topic) for name, topic in sorted(image.topics.items())},
            "byId": {str(topic.topic_id): _topic(topic) for _, topic in sorted(image.topics.items())},
        },
    }


def _features(levels: Mapping[str, int]) -> Tree:
    level = levels.get(METADATA_VERSION)
    shown: Tree = {} if level is None else {"metadataVersion": RELEASES.get(level, str(level))}
    return shown | {f"finalized_{name}": each for name, each in sorted(levels.items()) if name != METADATA_VERSION}


def _configs(image: ClusterImage) -> Tree:
    shown: Tree = {}
    for resource, settings in sorted(image.configs.items()):
        kind = (
            ConfigResourceType(resource.type).name if resource.type in set(ConfigResourceType) else str(resource.type)
        )
        shown[f"{kind}:{resource.name}" if resource.name else kind] = {
            name: _REDACTED if kind == "BROKER" and is_secret(name) else value
            for name, value in sorted(settings.items())
        }
    return shown


def _topic(topic: TopicImage) -> Tree:
    partitions = {str(number): _partition(each) for number, each in enumerate(topic.partitions)}
    return {"name": topic.name, "id": str(topic.topic_id)} | partitions


def _partition(partition: PartitionImage) -> Leaf:
    shown = Leaf(
        replicas=list(partition.replicas),
        directories=[str(each) for each in partition.directories],
        isr=list(partition.isr),
        removingReplicas=list(partition.removing_replicas),
        addingReplicas=list(partition.adding_replicas),
        leader=partition.leader,
        leaderRecoveryState="RECOVERING" if partition.leader_recovery_state else "RECOVERED",
        leaderEpoch=partition.leader_epoch,
        partitionEpoch=partition.partition_epoch,
    )
    if partition.eligible_leader_replicas or partition.last_known_elr:
        shown["elr"] = list(partition.eligible_leader_replicas)
        shown["lastKnownElr"] = list(partition.last_known_elr)
    return shown


def _broker(broker: BrokerImage) -> Leaf:
    return Leaf(
        id=broker.broker_id,
        epoch=broker.epoch,
        incarnationId=str(broker.incarnation_id),
        listeners=[
            {"name": each.listener, "host": each.host, "port": each.port, "securityProtocol": each.security_protocol}
            for each in broker.endpoints
        ],
        supportedFeatures={name: f"{low}-{high}" for name, (low, high) in sorted(broker.features.items())},
        rack=broker.rack,
        fenced=broker.is_fenced,
        inControlledShutdown=broker.in_controlled_shutdown,
        directories=[str(each) for each in broker.log_dirs],
    )


def _quotas(quotas: ClientQuotasImage) -> Tree:
    return {
        "_".join(f"{'clientId' if kind == 'client-id' else kind}({name or ''})" for kind, name in entity.names): dict(
            values
        )
        for entity, values in quotas.items()
    }


def _scram(credentials: ScramImage) -> Tree:
    shown: Tree = {name: {} for name in _MECHANISMS.values()}
    for user, credential in credentials.items():
        mechanism = _MECHANISMS.get(user.mechanism, str(user.mechanism))
        shown.setdefault(mechanism, {})[user.name] = Leaf(
            salt=_REDACTED, storedKey=_REDACTED, serverKey=_REDACTED, iterations=credential.iterations
        )
    return shown
