"""The clusters that are compared: three nodes each, with the same settings, each node a process of its own."""

from __future__ import annotations

import select
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.asking import ask
from tests.cluster.nodes import START_TIMEOUT_S, Cluster, Node
from tests.oracles import kafka_jars

from barnabas.wire.messages.api_versions import ApiVersionsRequest

#: What a user of both would set who has one replica of everything; sessions and timeouts are the defaults of both.
SETTINGS = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
}
#: A heap that three nodes of a small machine can have, and Kafka's collector.
_JVM = ("-Xmx512m", "-Xms512m", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
#: The levels that both know.
_FORMAT = ("--release-version", "4.0-IV3", "--feature", "group.version=0", "--feature", "transaction.version=0")


class OurCluster(Cluster):
    """`barnabas server start`, three times."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, settings={**SETTINGS, **(settings or {})})


class KafkaNode(Node):
    """Apache Kafka from its jars."""

    def launch(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*java(), "kafka.Kafka", str(self.file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def until_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """It says nothing that can be waited for: it is asked until it answers."""
        deadline_s = time.monotonic() + timeout_s
        request = ApiVersionsRequest(client_software_name="bench", client_software_version="0")
        while time.monotonic() < deadline_s:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError(f"Kafka's node {self.node_id} has ended:\n{self.tail()}")
            try:
                ask(self.bootstrap, request)
            except OSError:
                select.select([], [], [], 0.05)
            else:
                return
        raise TimeoutError(f"Kafka's node {self.node_id} was not ready:\n{self.tail()}")


class KafkaCluster(Cluster):
    """The same properties, formatted and run by Apache Kafka."""

    NODE = KafkaNode

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, settings={**SETTINGS, **(settings or {})})

    def format(self, node: Node, cluster_id: str | None = None) -> None:
        arguments = ["format", "-t", cluster_id or self.cluster_id, "-c", str(node.file), *_FORMAT]
        done = subprocess.run(
            [*java(), "kafka.tools.StorageTool", *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"Kafka cannot format:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")


def java() -> list[str]:
    return ["java", *_JVM, "-cp", f"{kafka_jars()}/*"]
