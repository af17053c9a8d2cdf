"""The MBeans of a running Apache Kafka, as facts: their names and attributes, without what is particular to one run.

`python -m tests.broker.metrics.mbeans` starts Kafka, lets clients work and writes `kafka_mbeans.txt` anew. They are
those of a broker and controller that leads some partitions, and follows another broker in others.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import barnabas
from barnabas.aio import Admin, Consumer, Producer
from barnabas.client.admin import NewTopic, QuotaEntity, QuotaName
from tests.oracles import java, run_java
from tests.oracles.kafka_server import KafkaServer
from tests.ports import free_ports

FACTS: Final = Path(barnabas.__file__).parent / "broker" / "metrics" / "kafka_mbeans.txt"
#: Properties whose values are of one cluster and one run.
_PARTICULAR: Final = {
    "BrokerId",
    "broker",
    "broker-id",
    "brokerHost",
    "brokerPort",
    "client-id",
    "clientId",
    "clientSoftwareName",
    "clientSoftwareVersion",
    "error",
    "fetcher-id",
    "ip",
    "listener",
    "logDirectory",
    "networkProcessor",
    "partition",
    "fetcherType",
    "request",
    "processor",
    "topic",
    "version",
    "id",
    "user",
}
_SOME_TOPIC: Final = "mbeans"
_QUOTAS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")


class KafkaWithJmx(KafkaServer):
    """Apache Kafka whose MBeans can be read over loopback."""

    def __init__(self, folder: Path, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, overrides)
        (self.jmx_port,) = free_ports(1)

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def _java(self) -> list[str]:
        jmx = "-Dcom.sun.management.jmxremote"
        return java(
            "-Xmx512m",
            f"{jmx}.port={self.jmx_port}",
            f"{jmx}.rmi.port={self.jmx_port}",
            f"{jmx}.authenticate=false",
            f"{jmx}.ssl=false",
            f"{jmx}.host=127.0.0.1",
            "-Djava.rmi.server.hostname=127.0.0.1",
            logs=True,
        )


class SecondBroker(KafkaServer):
    """One more broker in the cluster of another server."""

    def __init__(self, folder: Path, first: KafkaServer) -> None:
        super().__init__(folder)
        self._first = first

    def _settings(self) -> dict[str, str]:
        return super()._settings() | {
            "process.roles": "broker",
            "node.id": "2",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.quorum.voters": f"1@{self._first.controller}",
        }


async def _work(bootstrap: str) -> None:
    """A producer, a consumer in a group, a transaction, and requests that fail; everybody has quotas."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.alter_client_quotas(
            {
                QuotaEntity(client_id=QuotaName.DEFAULT): dict.fromkeys(_QUOTAS, 1e9),
                QuotaEntity(ip=QuotaName.DEFAULT): {"connection_creation_rate": 1000},
            }
        )
        await asyncio.sleep(1)
        await admin.create_topics([NewTopic(_SOME_TOPIC, 4, 2)])
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(30):
            await producer.send(_SOME_TOPIC, b"value", key=str(number).encode())
    async with Producer(bootstrap_servers=bootstrap, transactional_id="mbeans") as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send(_SOME_TOPIC, b"value")
    async with Consumer(
        _SOME_TOPIC, bootstrap_servers=bootstrap, group_id="mbeans", auto_offset_reset="earliest"
    ) as consumer:
        seen = 0
        async for _ in consumer:
            seen += 1
            if seen == 31:
                break
        await consumer.commit()


def dumped() -> list[str]:
    with (
        tempfile.TemporaryDirectory() as folder,
        KafkaWithJmx(Path(folder, "1")) as kafka,
        SecondBroker(Path(folder, "2"), kafka),
    ):
        asyncio.run(_work(kafka.bootstrap))
        time.sleep(2)
        printed = run_java("MBeans.java", "", arguments=(str(kafka.jmx_port),)).splitlines()
    return sorted({pattern(line) for line in printed if line.startswith("kafka.")})


def pattern(line: str) -> str:
    """The line of one MBean with `*` for what is particular to a run."""
    name, _, attributes = line.partition("\t")
    domain, _, properties = name.partition(":")
    kept = []
    for each in properties.split(","):
        key, _, value = each.partition("=")
        kept.append(f"{key}=*" if key in _PARTICULAR else f"{key}={value}")
    return f"{domain}:{','.join(kept)}\t{attributes}"


if __name__ == "__main__":
    FACTS.write_text("\n".join(dumped()) + "\n")
