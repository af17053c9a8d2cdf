"""Requests from broker to broker: versions of each peer, a call for ourselves, and errors that say what happened."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from barnabas.base.ids import Uuid
from barnabas.base.persistent_map import PersistentMap
from barnabas.broker.broker_channels import BrokerChannels
from barnabas.metadata.image import BrokerEndpointImage, BrokerImage, ClusterImage
from barnabas.net import ConnectError, Connection, DisconnectedError, ListenerSpec, RequestTimeoutError, Server
from barnabas.net.errors import UnsupportedRequestError
from barnabas.net.limits import ChannelLimits
from barnabas.wire import ApiKey, decode_request_header, encode_response
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.wire.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest, WriteTxnMarkersResponse
from tests.net.worlds import run_simulated

MARKERS = WriteTxnMarkersRequest(
    markers=[
        WritableTxnMarker(
            producer_id=1,
            producer_epoch=2,
            transaction_result=True,
            topics=[],
            coordinator_epoch=3,
            transaction_version=2,
        )
    ]
)
VERIFY = AddPartitionsToTxnRequest(
    transactions=[AddPartitionsToTxnTransaction(transactional_id="t", producer_id=1, producer_epoch=0, topics=[])]
)
NODE = 1


class Peer:
    """A broker that offers some versions, notes what it is asked, and answers unless it is silent."""

    def __init__(self, **offered: tuple[int, int]) -> None:
        self.offered = {ApiKey[name]: versions for name, versions in offered.items()}
        self.asked: list[tuple[ApiKey, int, Request]] = []
        self.was_asked = asyncio.Event()
        self.silent: set[ApiKey] = set()
        self.server = Server(lambda frame: False)

    async def start(self, port: int = 0) -> Peer:
        await self.server.start([ListenerSpec("INTERNAL", "127.0.0.1", port)], self.dispatch)
        return self

    def image(self, broker_id: int) -> BrokerImage:
        endpoint = BrokerEndpointImage("INTERNAL", "127.0.0.1", self.server.endpoints["INTERNAL"][1], 0)
        outside = BrokerEndpointImage("EXTERNAL", "127.0.0.1", 1, 0)
        return BrokerImage(
            broker_id, 1, Uuid.ZERO, (outside, endpoint), {}, None, is_fenced=False, in_controlled_shutdown=False
        )

    def dispatch(self, connection: Connection, frame: bytearray) -> None:
        header, body = decode_request_header(frame)
        key, version = ApiKey(header.request_api_key), header.request_api_version
        response: Response
        if key is ApiKey.API_VERSIONS:
            keys = [
                ApiVersion(api_key=each, min_version=low, max_version=high)
                for each, (low, high) in {key: (0, 4), **self.offered}.items()
            ]
            response = ApiVersionsResponse(error_code=0, api_keys=keys)
        else:
            kind = WriteTxnMarkersRequest if key is ApiKey.WRITE_TXN_MARKERS else AddPartitionsToTxnRequest
            self.asked.append((key, version, kind.decode(memoryview(frame)[body:], version)))
            self.was_asked.set()
            if key in self.silent:
                return
            response = (
                WriteTxnMarkersResponse(markers=[])
                if key is ApiKey.WRITE_TXN_MARKERS
                else AddPartitionsToTxnResponse(error_code=version)
            )
        connection.respond(encode_response(response, version, header.correlation_id))


class World:
    """The channels of broker 1, and the brokers of the image."""

    def __init__(self) -> None:
        self.calls: list[tuple[Request, int]] = []
        self.channels = BrokerChannels(NODE, "INTERNAL", Random(1), ChannelLimits(), self._call)
        self.brokers: dict[int, BrokerImage] = {}

    async def _call(self, request: Request, version: int) -> Response:
        self.calls.append((request, version))
        if isinstance(request, AddPartitionsToTxnRequest):
            return AddPartitionsToTxnResponse(error_code=version)
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    def apply(self, broker_id: int, broker: BrokerImage | None) -> None:
        if broker is None:
            del self.brokers[broker_id]
        else:
            self.brokers[broker_id] = broker
        self.channels.apply(ClusterImage(brokers=PersistentMap(self.brokers)), (broker_id,))

    async def send(self, broker_id: int, request: Request, timeout_ms: int = 1000) -> Any:
        return await self.channels.send(broker_id, request, timeout_ms=timeout_ms)


def test_each_peer_gets_the_highest_version_that_it_knows() -> None:
    async def story() -> None:
        world = World()
        new = await Peer(WRITE_TXN_MARKERS=(1, 2)).start()
        old = await Peer(WRITE_TXN_MARKERS=(0, 1)).start()
        world.apply(2, new.image(2))
        world.apply(3, old.image(3))
        await world.send(2, MARKERS)
        await world.send(3, MARKERS)
        [(_, new_version, seen)], [(_, old_version, cut)] = new.asked, old.asked
        assert (new_version, old_version) == (2, 1)
        assert isinstance(seen, WriteTxnMarkersRequest)
        assert isinstance(cut, WriteTxnMarkersRequest)
        assert (seen.markers[0].transaction_version, cut.markers[0].transaction_version) == (2, 0)
        await world.channels.close()
        await new.server.stop(0)
        await old.server.stop(0)

    run_simulated(story)


def test_what_a_peer_cannot_be_told_is_an_error() -> None:
    async def story() -> None:
        world = World()
        old = await Peer(ADD_PARTITIONS_TO_TXN=(0, 3)).start()
        world.apply(2, old.image(2))
        with pytest.raises(UnsupportedRequestError, match="AddPartitionsToTxn cannot be sent"):
            await world.send(2, VERIFY)
        with pytest.raises(UnsupportedRequestError, match="does not offer WriteTxnMarkers"):
            await world.send(2, MARKERS)
        await world.channels.close()
        await old.server.stop(0)

    run_simulated(story)


def test_ourselves_we_ask_by_a_call() -> None:
    async def story() -> None:
        world = World()
        answer = await world.send(NODE, VERIFY)
        assert answer.error_code == 5
        assert world.calls == [(VERIFY, 5)]
        with pytest.raises(RequestTimeoutError, match="broker 1: no answer in 50 ms"):
            await world.send(NODE, MARKERS, timeout_ms=50)

    run_simulated(story)


def test_a_question_does_not_wait_behind_markers() -> None:
    async def story() -> None:
        world = World()
        peer = await Peer(WRITE_TXN_MARKERS=(1, 2), ADD_PARTITIONS_TO_TXN=(0, 5)).start()
        peer.silent.add(ApiKey.WRITE_TXN_MARKERS)
        world.apply(2, peer.image(2))
        markers = asyncio.ensure_future(world.send(2, MARKERS, 200))
        await peer.was_asked.wait()
        assert (await world.send(2, VERIFY, 100)).error_code == 5
        with pytest.raises(RequestTimeoutError):
            await markers
        await world.channels.close()
        await peer.server.stop(0)

    run_simulated(story)


def test_who_is_not_there_is_told() -> None:
    async def story() -> None:
        world = World()
        with pytest.raises(ConnectError, match="broker 2: the metadata has no listener INTERNAL of it"):
            await world.send(2, VERIFY)
        peer = await Peer(ADD_PARTITIONS_TO_TXN=(0, 5)).start()
        world.apply(2, peer.image(2))
        await peer.server.stop(0)
        with pytest.raises(ConnectError):
            await world.send(2, VERIFY, 300)
        await world.channels.close()
        with pytest.raises(ConnectError, match="this broker is stopping"):
            await world.send(2, VERIFY)

    run_simulated(story)


def test_who_waits_for_a_broker_that_leaves_is_told_and_one_that_moves_is_found() -> None:
    async def story() -> None:
        world = World()
        peer = await Peer(ADD_PARTITIONS_TO_TXN=(0, 5)).start()
        peer.silent.add(ApiKey.ADD_PARTITIONS_TO_TXN)
        world.apply(2, peer.image(2))
        asked = asyncio.ensure_future(world.send(2, VERIFY, 60_000))
        await peer.was_asked.wait()
        world.apply(2, None)
        with pytest.raises(DisconnectedError):
            await asked
        with pytest.raises(ConnectError, match="the metadata has no listener"):
            await world.send(2, VERIFY)
        other = await Peer(ADD_PARTITIONS_TO_TXN=(0, 4)).start()
        world.apply(2, other.image(2))
        assert (await world.send(2, VERIFY)).error_code == 4
        await world.channels.close()
        await peer.server.stop(0)
        await other.server.stop(0)

    run_simulated(story)
