"""Settings for a node that is alone, in a test: small, and without the waits that serve a production cluster."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from barnabas.base.ids import Uuid
from barnabas.broker.formatting import NotFormattedError, format_directories, read_identity
from barnabas.broker.settings import BrokerSettings
from barnabas.storage.files import FileSystem

__all__ = ["TEST_DEFAULTS", "format_if_new", "single_node_settings"]

#: What differs from Kafka's defaults. Each of these either cannot be met by one node or makes a test wait.
TEST_DEFAULTS: Final[Mapping[str, object]] = {
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
}


def single_node_settings(
    host: str,
    port: int,
    directory: str,
    overrides: Mapping[str, object] | None = None,
    *,
    controller_port: int = 0,
    **keywords: object,
) -> BrokerSettings:
    """Broker and controller in one, listening on `host`. `overrides` have Kafka's names, keywords ours."""
    base: dict[str, object] = {
        "node.id": 1,
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{host}:{controller_port or 9093}",
        "log.dirs": directory,
    }
    return BrokerSettings.load(base, TEST_DEFAULTS, overrides or {}, **keywords)


def format_if_new(files: FileSystem, settings: BrokerSettings, randomness: Random) -> None:
    """Make the directories those of a new cluster, unless they belong to one."""
    try:
        read_identity(files, settings)
    except NotFormattedError:
        format_directories(files, settings, str(Uuid.random(randomness)), randomness, ignore_formatted=True)
