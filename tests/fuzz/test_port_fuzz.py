"""Bad peers at the port of a running node: whatever they do, everybody else goes on and nothing is left of them.

BARNABAS_FUZZ_ROUNDS=50 pytest tests/fuzz        # more seeds; one is the default
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.records import BatchBuilder
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.compat.brokers import OurServer
from tests.compat.mock_cluster import Connection
from tests.fuzz.attacks import ATTACKS, TOPIC, Attack
from tests.fuzz.processes import open_files, resident_bytes

ROUNDS = int(os.environ.get("BARNABAS_FUZZ_ROUNDS", "1"))
GROWTH_BYTES = 160 * 1024 * 1024
SETTLE_S = 10


class Victim:
    """A node in a process of its own, with a healthy client."""

    def __init__(self, folder: Path) -> None:
        self.server = OurServer(folder, {"auto.create.topics.enable": "true"})
        self.server.start()
        self.pid = self.server.pid
        self.check_health()
        self.files = open_files(self.pid)
        self.memory_bytes = resident_bytes(self.pid)
        self.told = 0

    def check_health(self) -> None:
        """Somebody new writes a record and reads it."""
        host, _, port = self.server.bootstrap.rpartition(":")
        client = Connection(host, int(port))
        try:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
            deadline = time.monotonic() + SETTLE_S
            while client.call(request, MetadataResponse, 12).topics[0].error_code != ErrorCode.NONE:
                assert time.monotonic() < deadline, f"{TOPIC} has no leader"
            offset = self._produce(client)
            partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            topic = FetchTopic(topic=TOPIC, topic_id=Uuid.ZERO, partitions=[partition])
            answer = client.call(FetchRequest(max_wait_ms=5000, min_bytes=1, topics=[topic]), FetchResponse, 12)
            (data,) = answer.responses[0].partitions
            assert data.error_code == ErrorCode.NONE
            assert b"good value" in bytes(data.records or b"")
        finally:
            client.close()

    def _produce(self, client: Connection) -> int:
        builder = BatchBuilder(1 << 16)
        builder.append(b"good value" * 1000, None, int(time.time() * 1000))
        data = [PartitionProduceData(index=0, records=memoryview(builder.build()))]
        topics = [TopicProduceData(name=TOPIC, topic_id=Uuid.ZERO, partition_data=data)]
        answer = client.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), ProduceResponse, 9)
        (partition,) = answer.responses[0].partition_responses
        assert partition.error_code == ErrorCode.NONE
        return int(partition.base_offset)

    def check_nothing_is_left(self) -> None:
        """No connection, no memory without bound, no exception that nobody expected."""
        deadline = time.monotonic() + SETTLE_S
        # A partition that an attack created keeps files open, but not one for each bad peer.
        while (left := open_files(self.pid) - self.files) > 20:
            assert time.monotonic() < deadline, f"{left} more open files than before"
            time.sleep(0.05)
        growth = resident_bytes(self.pid) - self.memory_bytes
        assert growth < GROWTH_BYTES, f"the node has grown by {growth / 1e6:.0f} MB"
        # What was told before is another test's business.
        log = self.server.log_path.read_text(errors="replace")[self.told :]
        self.told += len(log)
        assert "Traceback" not in log, log[max(0, log.index("Traceback") - 300) :][:4000]


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    node = Victim(tmp_path_factory.mktemp("fuzz"))
    yield node
    assert node.server.is_running, node.server.log_tail()
    assert node.server.stop() == 0, "the node did not stop cleanly after all this"


@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_everybody_else_goes_on(victim: Victim, attack: Attack, seed: int) -> None:
    attack(victim.server.bootstrap, Random(f"{attack.__name__} {seed}"))
    assert victim.server.is_running, victim.server.log_tail()
    victim.check_health()
    victim.check_nothing_is_left()
