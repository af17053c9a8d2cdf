"""Nodes that somebody wants at once: the settings that they need, and their directories made on first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from barnabas.base.ids import Uuid
from barnabas.base.runtime import Runtime
from barnabas.broker.quorum.formatting import (
    NotFormattedError,
    format_directories,
    is_formatted,
    node_directories,
)
from barnabas.broker.settings import BrokerSettings
from barnabas.storage.checkpoints import PARTITION_METADATA_FILE
from barnabas.storage.directories import parse_partition_name
from barnabas.storage.files import FileSystem, join
from barnabas.storage.meta_properties import META_PROPERTIES_FILE
from barnabas.wire.stored.cluster_metadata import UserScramCredentialRecord

#: For nodes in tests, which shall start at once: internal topics with one partition each.
TEST_DEFAULTS: Final[Mapping[str, object]] = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}


def replication_for(brokers: int) -> dict[str, str]:
    """How often what is kept, for a cluster of so many brokers that somebody wants to begin with.

    Three replicas, or as many as there are brokers. With three brokers acks=all means that two have a record, so the
    loss of one machine loses nothing and stops nobody; with two, waiting for both would stop everybody at the first
    loss.
    """
    factor, needed = str(min(3, brokers)), "2" if brokers >= 3 else "1"
    return {
        "default.replication.factor": factor,
        "min.insync.replicas": needed,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": needed,
    }


def single_node_settings(
    host: str,
    port: int,
    directory: str,
    *sources: Mapping[str, object],
    controller_host: str = "127.0.0.1",
    controller_port: int = 0,
    **keywords: object,
) -> BrokerSettings:
    """Broker and controller in one, with the replication that one node can have, and no wait for members of new groups.

    What `sources` say by Kafka's names, and keywords by ours, stands over this.
    """
    shown = f"[{host}]" if ":" in host else host
    base: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{controller_host}:{controller_port or 9093}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{shown}:{port},CONTROLLER://{controller_host}:{controller_port}",
        "log.dirs": directory,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    return BrokerSettings.load(base, *sources, **keywords)


def format_if_new(
    files: FileSystem,
    settings: BrokerSettings,
    runtime: Runtime,
    *,
    cluster_id: str | None = None,
    elr_version: int | None = None,
    transaction_version: int | None = None,
    users: Sequence[UserScramCredentialRecord] = (),
) -> None:
    """Make the directories those of a cluster, a new one unless it is named, if they belong to none."""
    if not is_formatted(files, settings):
        _refuse_data(files, settings)
        cluster_id = cluster_id or str(Uuid.random(runtime.randomness))
        now_ms = runtime.clock.now_ms()
        format_directories(
            files,
            settings,
            cluster_id,
            runtime.randomness,
            now_ms=now_ms,
            elr_version=elr_version,
            transaction_version=transaction_version,
            users=users,
        )


def _refuse_data(files: FileSystem, settings: BrokerSettings) -> None:
    """Partitions without `meta.properties` are of a cluster whose name is lost: a new one must not take them over."""
    for directory in node_directories(settings):
        names = files.names(directory) if files.exists(directory) else []
        kept = [name for name in names if parse_partition_name(name) and _has_topic(files, join(directory, name))]
        if kept:
            raise NotFormattedError(
                f"{join(directory, META_PROPERTIES_FILE)} is missing, but {directory} holds {kept[0]}, so it was "
                "formatted before; restore the file, or use another directory"
            )


def _has_topic(files: FileSystem, path: str) -> bool:
    return files.is_directory(path) and files.exists(join(path, PARTITION_METADATA_FILE))
