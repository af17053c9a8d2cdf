"""Nodes of Apache Kafka in the place of ours, to see whether a test asks for what Kafka does."""

from __future__ import annotations

import subprocess
import time
from typing import Final

from barnabas.wire.messages.api_versions import ApiVersionsRequest
from tests.cluster.asking import ask
from tests.cluster.nodes import START_TIMEOUT_S, Node, end_with_parent
from tests.oracles import QUICK_JVM, kafka_jars

_FORMAT: Final = ("--release-version", "4.0-IV3", "--feature", "transaction.version=2")


def _java() -> list[str]:
    return ["java", *QUICK_JVM, "-Xmx384m", "-cp", f"{kafka_jars()}/*"]


class KafkaNode(Node):
    """A process from Kafka's jars."""

    def launch(self) -> None:
        assert not self.is_running
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*_java(), "kafka.Kafka", str(self.file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                preexec_fn=end_with_parent,
            )

    def until_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """It says nothing that can be waited for: it is asked until it answers."""
        deadline_s = time.monotonic() + timeout_s
        request = ApiVersionsRequest(client_software_name="tests", client_software_version="0")
        while time.monotonic() < deadline_s:
            assert self.is_running, f"Kafka's node {self.node_id} has ended:\n{self.tail()}"
            try:
                ask(self.bootstrap, request)
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise AssertionError(f"Kafka's node {self.node_id} was not ready:\n{self.tail()}")


def format_with_kafka(node: Node, cluster_id: str) -> None:
    command = [*_java(), "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(node.file), *_FORMAT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"Kafka cannot format:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
