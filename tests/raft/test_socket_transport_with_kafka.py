"""Apache Kafka's own Raft asks us, and we ask an Apache Kafka controller."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.raft.replica_fetch import ReplicaFetch
from barnabas.raft.types import Address
from barnabas.wire import Request, api
from barnabas.wire.messages import describe_quorum, fetch
from barnabas.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from barnabas.wire.messages.fetch import FetchRequest
from barnabas.wire.messages.fetch_snapshot import FetchSnapshotRequest
from barnabas.wire.messages.update_raft_voter import UpdateRaftVoterRequest
from barnabas.wire.messages.vote import VoteRequest
from tests.oracles import needs_kafka, run_java
from tests.oracles.kafka_server import KafkaServer
from tests.raft.replicas import Replica, vote_request
from tests.virtual_time import until

METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")


@needs_kafka()
def test_kafkas_network_channel_understands_us() -> None:
    replica = Replica()

    async def story() -> str:
        address = await replica.start()
        try:
            return await asyncio.to_thread(run_java, "RaftChannel.java", "", arguments=(str(address.port),))
        finally:
            await replica.stop()

    answers = asyncio.run(story()).splitlines()
    asked = [type(request) for request, _ in replica.received]
    assert [line.partition("(")[0] for line in answers] == [
        f"{api(each.API_KEY).response.__name__}Data" for each in asked
    ]
    assert [version for _, version in replica.received] == [each.VERSIONS.high for each in asked]
    assert len(asked) == 7
    assert "leaderEpoch=5, voteGranted=true" in answers[0]
    found: dict[type[Request], Any] = {type(request): request for request, _ in replica.received}
    partition = found[VoteRequest].topics[0].partitions[0]
    assert (partition.replica_epoch, partition.replica_id, partition.last_offset) == (6, 3, 1234)
    assert not partition.pre_vote
    assert replica.received[0][0].topics[0].partitions[0].pre_vote  # type: ignore[attr-defined]
    assert found[BeginQuorumEpochRequest].leader_endpoints[0].port == 9093
    # Kafka's own bytes go the quick way, too.
    fetched = found[ReplicaFetch].fetch
    assert (fetched.offset, fetched.high_watermark) == (1234, 1000)
    assert found[FetchSnapshotRequest].topics[0].partitions[0].position == 17
    assert found[UpdateRaftVoterRequest].k_raft_version_feature.max_supported_version == 1


def fetch_from(offset: int, epoch: int, last_fetched_epoch: int) -> FetchRequest:
    partition = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_fetched_epoch,
        partition_max_bytes=0,
    )
    return FetchRequest(
        replica_state=fetch.ReplicaState(replica_id=99),
        max_wait_ms=1000,
        min_bytes=0,
        max_bytes=8 * 1024 * 1024,
        topics=[fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


@needs_kafka()
def test_a_controller_of_kafka_understands_us(tmp_path: Path) -> None:
    # Without records that come of themselves, a Fetch at the end of the log is kept.
    with KafkaServer(tmp_path, {"metadata.max.idle.interval.ms": "0"}) as server:
        asyncio.run(asyncio.wait_for(talk_to_kafka(server), 60))


async def talk_to_kafka(server: KafkaServer) -> None:
    host, _, port = server.controller.rpartition(":")
    address, replica = Address(host, int(port)), Replica()
    await replica.start()
    log = describe_quorum.TopicData(
        topic_name="__cluster_metadata", partitions=[describe_quorum.PartitionData(partition_index=0)]
    )
    described = (
        (await replica.ask(address, describe_quorum.DescribeQuorumRequest(topics=[log]))).topics[0].partitions[0]
    )
    assert (described.error_code, described.leader_id) == (0, 1)
    epoch, end_offset = described.leader_epoch, described.high_watermark
    fetched = (await replica.ask(address, fetch_from(0, epoch, 0))).responses[0].partitions[0]
    assert fetched.error_code == 0
    assert len(fetched.records) > 100

    order: list[str] = []
    kept = replica.ask(address, fetch_from(end_offset, epoch, epoch), 5000)
    kept.add_done_callback(lambda _: order.append("fetch"))
    vote = replica.ask(address, vote_request(), 5000)
    vote.add_done_callback(lambda _: order.append("vote"))
    assert (await vote).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert (await kept).responses[0].partitions[0].error_code == 0
    assert order == ["vote", "fetch"]

    await asyncio.to_thread(server.kill)
    await until(lambda: replica.refused)
    assert replica.refused == [address]
    assert await replica.ask(address, vote_request()) is None
    await replica.stop()
