"""Versions are agreed on before anything is asked, as Kafka does it; and bytes that others encoded are understood."""

from __future__ import annotations

import asyncio
import datetime
import io
import uuid
from collections.abc import Mapping
from typing import Any

import kio.schema.fetch.v17.request as kio_fetch_17
import kio.schema.fetch.v18.request as kio_fetch_18
import kio.schema.fetch_snapshot.v1.request as kio_fetch_snapshot_1
import kio.schema.vote.v0.request as kio_vote_0
import kio.schema.vote.v1.request as kio_vote_1
import kio.schema.vote.v2.request as kio_vote_2
import pytest
from kio.serial import entity_writer

from barnabas.base.error_codes import ErrorCode
from barnabas.raft.messages import FetchLog
from barnabas.raft.replica_fetch import ReplicaFetch
from barnabas.raft.socket_parts import RAFT_APIS
from barnabas.raft.types import Address
from barnabas.raft.wire_form import LogName, request_from_wire
from barnabas.wire import ApiKey, api, decode_request_header, encode_response, frame_parts
from barnabas.wire.headers import decode_response
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from barnabas.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
from barnabas.wire.messages.fetch import FetchRequest
from barnabas.wire.messages.fetch_snapshot import FetchSnapshotRequest
from barnabas.wire.messages.vote import VoteRequest
from tests.raft.conftest import Run
from tests.raft.replicas import HOST, RawPeer, Replica, default_answer, fetch_request, framed, vote_request
from tests.virtual_time import on_virtual_time

# We are asked


async def told(data: bytes) -> bytearray:
    """The frame that answers these bytes."""
    replica = Replica()
    peer = await RawPeer.connect(await replica.start())
    peer.transport.write(data)
    frame = (await peer.until_frames(1))[0]
    peer.transport.close()
    await replica.stop()
    return frame


@pytest.mark.parametrize("version", range(5))
def test_versions_are_told_in_every_version(version: int, run: Run) -> None:
    async def story() -> None:
        request = ApiVersionsRequest(client_software_name="kafka", client_software_version="4.3.1")
        frame = await told(framed(request, version, 99))
        # Without tags in the header, in every version.
        correlation_id, answer = decode_response(ApiVersionsResponse, version, frame)
        assert correlation_id == 99
        assert answer.error_code == 0
        offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert offered == {key: (api(key).served.low, api(key).served.high) for key in (*RAFT_APIS, 18)}
        features = [(each.name, each.min_version, each.max_version) for each in answer.supported_features]
        # Clients that ask in v3 could not read a level 0.
        assert features == ([("kraft.version", 0, 1)] if version == 4 else [])

    run(story)


@on_virtual_time
async def test_an_unknown_version_of_the_question_is_refused_in_the_oldest_form() -> None:
    body = (18).to_bytes(2, "big") + (5).to_bytes(2, "big") + (7).to_bytes(4, "big") + b"anything at all"
    frame = await told(len(body).to_bytes(4, "big") + body)
    correlation_id, answer = decode_response(ApiVersionsResponse, 0, frame)
    assert correlation_id == 7
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.api_keys == [ApiVersion(api_key=18, min_version=0, max_version=4)]


@on_virtual_time
async def test_software_without_a_name_is_refused() -> None:
    request = ApiVersionsRequest(client_software_name="-", client_software_version="1")
    _, answer = decode_response(ApiVersionsResponse, 3, await told(framed(request, 3, 1)))
    assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, [])


# We ask


class OlderNode(RawPeer):
    """Offers what it is told to, and answers."""

    highest = 4
    offered: Mapping[int, tuple[int, int]] = {}
    error_code = 0
    log: list[tuple[str, int]]

    def on_frame(self, frame: bytearray) -> None:
        header, body = decode_request_header(frame)
        key, version = ApiKey(header.request_api_key), header.request_api_version
        assert header.client_id == "tester"
        self.log.append((key.camel_name, version))
        if key is not ApiKey.API_VERSIONS:
            answer = default_answer(api(key).request.decode(memoryview(frame)[body:], version))
        else:
            offered = {18: (0, self.highest), **self.offered}
            keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in offered.items()]
            answer = ApiVersionsResponse(error_code=self.error_code, api_keys=keys)
            if version > self.highest:
                answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys[:1])
                version = 0
        self.transport.write(b"".join(frame_parts(encode_response(answer, version, header.correlation_id))))


async def older_node(**how: Any) -> tuple[Address, list[tuple[str, int]]]:
    """Where it listens, and what it is asked."""
    log: list[tuple[str, int]] = []
    kind = type("Node", (OlderNode,), {**how, "log": log})
    server = await asyncio.get_running_loop().create_server(kind, HOST, 0)
    return Address(HOST, server.sockets[0].getsockname()[1]), log


@pytest.mark.parametrize("highest", [0, 1, 2, 3, 4])
def test_an_older_node_is_asked_again_in_a_version_that_it_knows(highest: int, run: Run) -> None:
    async def story() -> None:
        address, log = await older_node(highest=highest, offered={52: (0, 1), 1: (4, 99)})
        replica = Replica()
        await replica.start()
        assert await replica.ask(address, vote_request()) is not None
        first = [("ApiVersions", 3), *([("ApiVersions", highest)] if highest < 3 else [])]
        assert log == [*first, ("Vote", 1)]
        assert await replica.ask(address, fetch_request()) is not None
        assert log[len(first) + 1 :] == [*first, ("Fetch", 18)]
        await replica.stop()

    run(story)


@on_virtual_time
async def test_what_the_peer_cannot_be_asked_is_not_sent() -> None:
    address, log = await older_node(offered={52: (0, 1), 53: (7, 9)})
    replica = Replica()
    await replica.start()
    asked = [
        replica.ask(address, vote_request(pre_vote=True)),
        replica.ask(address, vote_request()),
        replica.ask(address, BeginQuorumEpochRequest(topics=[])),
        replica.ask(address, EndQuorumEpochRequest(topics=[])),
    ]
    assert [each is None for each in await asyncio.gather(*asked)] == [True, False, True, True]
    # The connection is none the worse for it.
    assert await replica.ask(address, vote_request(pre_vote=True)) is None
    assert await replica.ask(address, vote_request()) is not None
    assert log == [("ApiVersions", 3), ("Vote", 1), ("Vote", 1)]
    await replica.stop()


@on_virtual_time
async def test_a_peer_that_tells_no_versions_is_not_talked_to() -> None:
    address, log = await older_node(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, offered={52: (0, 2)})
    replica = Replica()
    await replica.start()
    assert await replica.ask(address, vote_request()) is None
    assert log == [("ApiVersions", 3)]
    await replica.stop()


# Bytes of others

DIRECTORY = uuid.UUID(int=77)


def kio_vote(module: Any, version: int) -> Any:
    newer = {"replica_directory_id": DIRECTORY, "voter_directory_id": DIRECTORY} if version else {}
    partition = module.PartitionData(
        partition_index=0,
        replica_epoch=5,
        replica_id=3,
        last_offset_epoch=4,
        last_offset=1234,
        **newer,
        **({"pre_vote": True} if version == 2 else {}),
    )
    topic = module.TopicData(topic_name="__cluster_metadata", partitions=(partition,))
    return module.VoteRequest(cluster_id="cluster", topics=(topic,), **({"voter_id": 2} if version else {}))


def kio_fetch(module: Any, version: int) -> Any:
    partition = module.FetchPartition(
        partition=0,
        current_leader_epoch=5,
        fetch_offset=1234,
        last_fetched_epoch=4,
        partition_max_bytes=0,
        replica_directory_id=DIRECTORY,
        **({"high_watermark": 1000} if version == 18 else {}),
    )
    topic = module.FetchTopic(topic_id=uuid.UUID(int=1), partitions=(partition,))
    return module.FetchRequest(
        cluster_id="cluster",
        replica_state=module.ReplicaState(replica_id=3),
        max_wait=datetime.timedelta(milliseconds=500),
        min_bytes=0,
        max_bytes=8 * 1024 * 1024,
        topics=(topic,),
        forgotten_topics_data=(),
    )


def kio_fetch_snapshot(module: Any) -> Any:
    snapshot = module.SnapshotId(end_offset=1234, epoch=4)
    partition = module.PartitionSnapshot(
        partition=0, current_leader_epoch=5, snapshot_id=snapshot, position=17, replica_directory_id=DIRECTORY
    )
    topic = module.TopicSnapshot(name="__cluster_metadata", partitions=(partition,))
    return module.FetchSnapshotRequest(cluster_id="cluster", replica_id=3, max_bytes=1000, topics=(topic,))


def kio_frame(message: Any, correlation_id: int) -> bytes:
    buffer = io.BytesIO()
    header_kind = message.__header_schema__
    header = header_kind(
        request_api_key=message.__api_key__,
        request_api_version=message.__version__,
        correlation_id=correlation_id,
        client_id="kio",
    )
    entity_writer(header_kind)(buffer, header)
    entity_writer(type(message))(buffer, message)
    return len(buffer.getvalue()).to_bytes(4, "big") + buffer.getvalue()


@on_virtual_time
async def test_requests_that_another_implementation_encoded_are_understood() -> None:
    replica = Replica()
    peer = await RawPeer.connect(await replica.start())
    messages = [
        *(kio_vote(module, version) for version, module in enumerate((kio_vote_0, kio_vote_1, kio_vote_2))),
        kio_fetch(kio_fetch_17, 17),
        kio_fetch(kio_fetch_18, 18),
        kio_fetch_snapshot(kio_fetch_snapshot_1),
    ]
    peer.transport.write(b"".join(kio_frame(each, number) for number, each in enumerate(messages)))
    frames = await peer.until_frames(len(messages))
    # Tags follow the correlation id in all of these.
    assert [frame[:5] for frame in frames] == [number.to_bytes(4, "big") + b"\0" for number in range(len(messages))]
    assert [version for _, version in replica.received] == [0, 1, 2, 17, 18, 1]
    for (request, version), pre_vote in zip(replica.received[:3], (False, False, True), strict=True):
        assert isinstance(request, VoteRequest)
        partition = request.topics[0].partitions[0]
        assert (partition.replica_epoch, partition.last_offset, partition.pre_vote) == (5, 1234, pre_vote)
        assert bytes(partition.voter_directory_id) == (DIRECTORY.bytes if version else bytes(16))
    for request, version in replica.received[3:5]:
        # What comes in v18 is read the quick way, also from others.
        assert isinstance(request, ReplicaFetch if version == 18 else FetchRequest)
        fetch = request.fetch if isinstance(request, ReplicaFetch) else request_from_wire(request, LogName())
        assert isinstance(fetch, FetchLog)
        assert (fetch.cluster_id, fetch.replica.node_id, fetch.max_wait_ms) == ("cluster", 3, 500)
        assert bytes(fetch.replica.directory_id) == DIRECTORY.bytes
        assert fetch.high_watermark == (1000 if version == 18 else 2**63 - 1)
    snapshot = replica.received[5][0]
    assert isinstance(snapshot, FetchSnapshotRequest)
    assert snapshot.topics[0].partitions[0].position == 17
    await replica.stop()
