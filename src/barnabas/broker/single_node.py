"""A node that is alone: the settings that it needs, and its directories made on first use."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.base.ids import Uuid
from barnabas.base.runtime import Runtime
from barnabas.broker.formatting import format_directories, is_formatted
from barnabas.broker.settings import BrokerSettings
from barnabas.storage.files import FileSystem


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


def format_if_new(files: FileSystem, settings: BrokerSettings, runtime: Runtime) -> None:
    """Make the directories those of a new cluster, unless they belong to one."""
    if not is_formatted(files, settings):
        cluster_id = str(Uuid.random(runtime.randomness))
        format_directories(files, settings, cluster_id, runtime.randomness, now_ms=runtime.clock.now_ms())
