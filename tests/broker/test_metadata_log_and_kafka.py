"""Apache Kafka and we take turns on one directory: each goes on with the cluster that the other left."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from random import Random

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Uuid
from barnabas.broker.quorum.formatting import format_directories, read_identity
from barnabas.metadata.batches import decode_values
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.replay import ImageBuilder
from barnabas.raft.quorum_state import read_quorum_state
from barnabas.raft.snapshots import find_snapshots, read_snapshot_file
from barnabas.storage.real_files import RealFileSystem
from barnabas.wire.stored.cluster_metadata import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from tests.broker.metadata_files import BASE_SETTINGS, CLUSTER_ID, RunningQuorum, flat, node_settings
from tests.oracles import needs_kafka
from tests.oracles.kafka_controller import run_kafka
from tests.oracles.kafka_server import FORMAT, FORMAT_WITHOUT_ELR, KafkaServer

pytestmark = needs_kafka()

FILES = RealFileSystem()
SMALL_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "300"}


class OurTurn:
    """We open the directory that Kafka uses, as the next leader."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.settings = node_settings(str(self.data))
        self.running = RunningQuorum(FILES, self.settings)

    async def write(self, *records: MetadataRecord, snapshot: bool = False) -> None:
        await self.running.start()
        await self.running.commit(*records)
        if snapshot:
            await self.running.take_snapshot()
        await self.running.stop()

    def image(self) -> ClusterImage:
        builder = ImageBuilder(ClusterImage())
        for snapshot in self.running.owner.snapshots:
            path = f"{self.data}/__cluster_metadata-0/{snapshot.file_name}"
            for record in decode_values(read_snapshot_file(FILES, path).values):
                builder.replay(record)
        for record in flat(self.running.owner.told):
            builder.replay(record)
        return builder.build(self.running.owner.told[-1].last_offset, self.running.quorum.epoch)

    @property
    def directory_id(self) -> Uuid:
        return read_identity(FILES, self.settings).directory_ids[str(self.data)]


def format_for_us(folder: Path, elr_version: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    format_directories(FILES, node_settings(str(folder / "data")), CLUSTER_ID, Random(3), elr_version=elr_version)


def topics_of(bootstrap: str) -> dict[str, int]:
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).topics
    return {name: len(topic.partitions) for name, topic in found.items()}


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config={"retention.ms": "60000"})
    for created in admin.create_topics([topic]).values():
        created.result(20)


def a_topic(name: str, directory: Uuid, *, number: int) -> list[MetadataRecord]:
    topic_id = Uuid((1000 + number).to_bytes(16, "big"))
    return [
        TopicRecord(name=name, topic_id=topic_id),
        PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=[1],
            isr=[1],
            removing_replicas=[],
            adding_replicas=[],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[directory],
        ),
        ConfigRecord(resource_type=2, resource_name=name, name="retention.ms", value="70000"),
    ]


def a_broker(offset: int, directory: Uuid) -> list[MetadataRecord]:
    return [
        RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=Uuid(bytes(range(16))),
            broker_epoch=offset,
            end_points=[BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=9092, security_protocol=0)],
            features=[BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=25)],
            rack=None,
            log_dirs=[directory],
        ),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=offset, fenced=-1),
    ]


def dumped(path: Path) -> str:
    """What Kafka's own tool says of a file of the metadata log."""
    dump = "org.apache.kafka.tools.DumpLogSegments"
    return run_kafka(dump, "--cluster-metadata-decoder", "--files", str(path))


def test_kafka_starts_on_a_directory_that_we_formatted_and_wrote(tmp_path: Path) -> None:
    format_for_us(tmp_path)
    ours = OurTurn(tmp_path)
    # The broker is at offset 4, after the leader change and the three bootstrap records.
    records = [*a_broker(4, ours.directory_id), *a_topic("ours", ours.directory_id, number=1)]
    asyncio.run(ours.write(*records, snapshot=True))
    (snapshot,) = find_snapshots(FILES, f"{ours.data}/__cluster_metadata-0")
    told = dumped(ours.data / "__cluster_metadata-0" / snapshot.file_name)
    assert "isvalid: false" not in told
    assert '"name":"ours"' in told

    with KafkaServer(tmp_path) as server:
        assert topics_of(server.bootstrap)["ours"] == 1
        create_topic(server.bootstrap, "kafkas", 2)

    again = OurTurn(tmp_path)
    asyncio.run(again.write())
    image = again.image()
    assert {name: len(topic.partitions) for name, topic in image.topics.items()} == {"ours": 1, "kafkas": 2}
    # Kafka led in the epoch after ours, we lead in the one after Kafka's.
    assert again.running.quorum.epoch == 3


def test_we_start_on_a_directory_that_kafka_formatted_and_wrote(tmp_path: Path) -> None:
    server = KafkaServer(tmp_path, SMALL_SNAPSHOTS)
    with server:
        create_topic(server.bootstrap, "kafkas", 3)
        create_topic(server.bootstrap, "more", 1)
    log_directory = f"{tmp_path}/data/__cluster_metadata-0"
    assert find_snapshots(FILES, log_directory), "Kafka took no snapshot, so this proves too little"
    kafkas_state = (tmp_path / "data" / "__cluster_metadata-0" / "quorum-state").read_text()

    ours = OurTurn(tmp_path)
    asyncio.run(ours.write(*a_topic("ours", ours.directory_id, number=1)))
    assert ours.running.owner.snapshots
    assert {name: len(topic.partitions) for name, topic in ours.image().topics.items()} == {
        "kafkas": 3,
        "more": 1,
        "ours": 1,
    }
    our_state = (tmp_path / "data" / "__cluster_metadata-0" / "quorum-state").read_text()
    assert our_state == kafkas_state.replace('"leaderEpoch":1', '"leaderEpoch":2')
    assert json.loads(our_state)["data_version"] == 0

    with server:
        assert topics_of(server.bootstrap) == {"kafkas": 3, "more": 1, "ours": 1}
    state = read_quorum_state(FILES, log_directory)
    assert state is not None
    assert state.epoch == 3


@pytest.mark.parametrize("elr_version", [0, 1])
def test_our_files_look_as_kafkas_do(tmp_path: Path, elr_version: int) -> None:
    """Formatted and started once by either: the same names, the same first records, in the same batches."""
    with KafkaServer(tmp_path / "kafka", format_options=FORMAT if elr_version else FORMAT_WITHOUT_ELR):
        pass
    mine = tmp_path / "ours"
    format_for_us(mine, elr_version)
    asyncio.run(OurTurn(mine).write())

    theirs = tmp_path / "kafka" / "data"
    assert _names(mine / "data" / "__cluster_metadata-0") == _names(theirs / "__cluster_metadata-0")
    assert {"meta.properties", "bootstrap.checkpoint"} <= set(_names(mine / "data")) & set(_names(theirs))
    for name in ("meta.properties", "bootstrap.checkpoint"):
        assert _without_what_varies(mine / "data" / name) == _without_what_varies(theirs / name)
    for name in ("partition.metadata", "leader-epoch-checkpoint", "quorum-state"):
        path = Path("__cluster_metadata-0", name)
        assert (mine / "data" / path).read_bytes() == (theirs / path).read_bytes()
    log_file = Path("__cluster_metadata-0", "00000000000000000000.log")
    first_ours, first_kafkas = _shape(dumped(mine / "data" / log_file)), _shape(dumped(theirs / log_file))
    # The leader's change with its batch, the bootstrap records with theirs: with ELR two more.
    assert first_ours == first_kafkas[: len(first_ours)]
    assert len(first_ours) == 7 + 2 * elr_version


def test_a_directory_of_kafkas_newest_level_is_refused_with_the_reason(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    settings = {**BASE_SETTINGS, "log.dirs": str(tmp_path / "data")}
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    run_kafka("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
    with pytest.raises(BarnabasError, match=r"metadata\.version 30 \(4\.3-IV0\), (?s:.*)Kafka has no way back"):
        asyncio.run(OurTurn(tmp_path).write())


def _names(directory: Path) -> list[str]:
    # Kafka names the producer snapshot of a clean stop by where its log ended.
    return sorted(re.sub(r"[0-9]{20}\.snapshot", "N.snapshot", each.name) for each in directory.iterdir())


def _without_what_varies(path: Path) -> list[str]:
    if path.suffix == ".checkpoint":
        return _shape(dumped(path))
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return sorted(re.sub(r"(cluster|directory)\.id=.*", r"\1.id=", line) for line in lines)


def _shape(told: str) -> list[str]:
    """The lines of Kafka's tool without times and checksums."""
    lines = [line for line in told.splitlines() if line.startswith(("| ", "baseOffset"))]
    return [re.sub(r"(CreateTime|crc): [0-9]+", r"\1", line) for line in lines]
