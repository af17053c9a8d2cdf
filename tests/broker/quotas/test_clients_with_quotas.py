"""A node whose clients have quotas, on virtual time: how much they get in a minute, what they are told, who is not
touched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.broker import turns
from barnabas.broker.data.fetching import Fetch
from barnabas.broker.data.waiting_produce import WaitingProduce
from barnabas.broker.quotas.broker_quotas import BrokerQuotas
from barnabas.broker.router import Router
from barnabas.metadata.access_images import ClientQuotaEntity
from barnabas.metadata.image import PartitionImage
from barnabas.net.channel import Channel, ChannelLimits
from barnabas.replication.leader_state import LeaderState
from barnabas.testing import AsyncEmbeddedBroker
from barnabas.testing.sim.loop import VirtualTimeLoop
from barnabas.wire.apis import ApiKey
from barnabas.wire.message import Request
from barnabas.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.fetch import FetchRequest, FetchResponse, FetchTopic, ReplicaState
from barnabas.wire.messages.metadata import MetadataRequest
from tests.broker.data_plane import batch, fetch_request, produce_request
from tests.virtual_time import on_virtual_time

RATE = 20_000
WARM_UP_S, MINUTE_S = 15, 60
#: Over which quotas are measured, and up to a tenth more.
WINDOW_S = 10


class Client:
    """A connection that sends as fast as it may, and does not wait when it is told to: the broker must see to that."""

    def __init__(self, broker: AsyncEmbeddedBroker, client_id: str) -> None:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        self.loop = asyncio.get_running_loop()
        # Nothing times out that a broker is slow to take up.
        limits = ChannelLimits(request_timeout_ms=10_000_000)
        self.channel = Channel(host, int(port), client_id=client_id, randomness=Random(1), limits=limits)
        self.throttled_ms: list[int] = []

    async def ask(self, request: Request, version: int | None = None) -> Any:
        answer: Any = await self.channel.request(request, version=version)
        self.channel._throttled_until_s = 0.0
        if answer.throttle_time_ms:
            self.throttled_ms.append(answer.throttle_time_ms)
        return answer

    async def produce(self, until_s: float, size_bytes: int = 4000) -> int:
        """How many bytes were taken between the warm-up and the end."""
        taken, request = 0, produce_request({("t", 0): batch([b"x" * size_bytes])})
        while self.loop.time() < until_s:
            (partition,) = (await self.ask(request, 11)).responses[0].partition_responses
            assert partition.error_code == 0
            if until_s - MINUTE_S <= self.loop.time() < until_s:
                taken += size_bytes
        return taken

    async def fetch(self, until_s: float) -> int:
        taken, offset = 0, 0
        while self.loop.time() < until_s:
            answer = await self.ask(fetch_request({("t", 0): offset}, max_wait_ms=100, max_bytes=8000), 11)
            assert answer.error_code == 0
            for partition in answer.responses[0].partitions if answer.responses else ():
                assert partition.error_code == 0
                size_bytes = len(partition.records or b"")
                offset = (offset + 1) % 200 if size_bytes else 0
                if until_s - MINUTE_S <= self.loop.time() < until_s:
                    taken += size_bytes
        return taken


async def set_quota(client: Client, entity: ClientQuotaEntity, **quotas: float | None) -> None:
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.names],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
    )
    answer = await client.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False))
    assert [each.error_code for each in answer.entries] == [0]


def by_id(name: str | None) -> ClientQuotaEntity:
    return ClientQuotaEntity((("client-id", name),))


def anybody_has_one(broker: AsyncEmbeddedBroker) -> bool:
    return broker.node.services.quotas.limits_frames


def minute_from_now() -> float:
    return asyncio.get_running_loop().time() + WARM_UP_S + MINUTE_S


@on_virtual_time
async def test_two_producers_get_what_their_quotas_say_and_a_third_is_not_touched() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 1)
        admin, one, other, free = (Client(broker, name) for name in ("admin", "one", "other", "free"))
        await set_quota(admin, by_id("one"), producer_byte_rate=RATE)
        await set_quota(admin, by_id("other"), producer_byte_rate=2 * RATE)
        until_s = minute_from_now()
        taken = await asyncio.gather(one.produce(until_s), other.produce(until_s))
        assert taken[0] / MINUTE_S == pytest.approx(RATE, rel=0.1)
        assert taken[1] / MINUTE_S == pytest.approx(2 * RATE, rel=0.1)
        assert one.throttled_ms, "it was told"
        await free.produce(asyncio.get_running_loop().time() + 0.05)
        assert free.throttled_ms == []


async def steadily(client: Client, until_s: float) -> list[float]:
    """How long each of its requests took, of which it sends one every 50 ms."""
    took_s, request = [], produce_request({("t", 0): batch([b"x" * 1000])})
    while client.loop.time() < until_s:
        began_s = client.loop.time()
        await client.ask(request, 11)
        took_s.append(client.loop.time() - began_s)
        await asyncio.sleep(0.05)
    return took_s


@on_virtual_time
async def test_who_floods_over_a_quota_is_felt_by_nobody_else() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 1)
        admin, steady = Client(broker, "admin"), Client(broker, "steady")
        flood = [Client(broker, "noisy") for _ in range(20)]
        await set_quota(admin, by_id("noisy"), producer_byte_rate=RATE)
        alone_s = await steadily(steady, steady.loop.time() + MINUTE_S)
        until_s = steady.loop.time() + MINUTE_S
        flooding = asyncio.gather(*(each.produce(until_s) for each in flood))
        beside_s, taken = await steadily(steady, until_s), await flooding
        assert len(beside_s) == pytest.approx(len(alone_s), rel=0.05)
        assert sum(beside_s) == pytest.approx(sum(alone_s), rel=0.1)
        assert max(beside_s) < 2 * max(alone_s)
        assert steady.throttled_ms == []
        assert all(each.throttled_ms for each in flood)
        assert sum(taken) / MINUTE_S < 2 * RATE, "what may come at once at first, and its quota from there on"


def test_quotas_hold_where_requests_are_not_counted() -> None:
    """On a clock as nodes have it: where time is virtual, requests are always counted."""

    async def story() -> None:
        async with AsyncEmbeddedBroker(overrides={"metrics.requests.enable": "false"}) as broker:
            await broker.create_topic("t", 1)
            admin, one = (Client(broker, name) for name in ("admin", "one"))
            await set_quota(admin, by_id("one"), producer_byte_rate=1000)
            answer = await one.ask(produce_request({("t", 0): batch([b"x" * 50_000])}), 11)
            assert answer.throttle_time_ms > 1000
            for each in (admin, one):
                await each.channel.close()

    asyncio.run(story())


@on_virtual_time
async def test_two_clients_of_a_user_share_the_users_quota() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 1)
        admin, one, other = (Client(broker, name) for name in ("admin", "one", "other"))
        # Large beside what is sent at once. Otherwise who asks next when the oldest sample goes gets all that it held:
        # as in Kafka, shares are any then.
        rate = 50 * 4000
        await set_quota(admin, ClientQuotaEntity((("user", "ANONYMOUS"),)), producer_byte_rate=rate)
        until_s = minute_from_now()
        taken = await asyncio.gather(one.produce(until_s, 4000), other.produce(until_s, 4000))
        assert sum(taken) / MINUTE_S == pytest.approx(rate, rel=0.1)
        assert min(taken) / max(taken) > 0.9


@on_virtual_time
async def test_consumers_get_what_their_quotas_say_and_followers_all() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 1)
        admin, one, other = (Client(broker, name) for name in ("admin", "one", "other"))
        request = produce_request({("t", 0): batch([b"x" * 1000])})
        for _ in range(220):
            await admin.ask(request, 11)
        await set_quota(admin, by_id(None), consumer_byte_rate=RATE)
        until_s = minute_from_now()
        taken = await asyncio.gather(one.fetch(until_s), other.fetch(until_s))
        for each in taken:
            assert each / MINUTE_S == pytest.approx(RATE, rel=0.1)
        assert one.throttled_ms
        # A throttled answer is empty, so nothing was read for it.
        waits = one.throttled_ms
        assert max(waits) < 12_000
        follower = Client(broker, "follower")
        for _ in range(100):
            answer = await follower.ask(_as_follower(fetch_request({("t", 0): 0}, max_bytes=1_000_000)), 17)
            assert answer.throttle_time_ms == 0


def _as_follower(request: FetchRequest) -> FetchRequest:
    request.replica_id = -1
    request.replica_state = ReplicaState(replica_id=7, replica_epoch=1)
    request.topics = cast(list[FetchTopic], [])
    return request


@on_virtual_time
async def test_a_batch_larger_than_the_quota_of_a_window_is_read_once_and_waited_for() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 1)
        admin, reader = Client(broker, "admin"), Client(broker, "reader")
        await admin.ask(produce_request({("t", 0): batch([b"x" * 50_000])}), 11)
        await set_quota(admin, by_id("reader"), consumer_byte_rate=1000.0)
        began_s = reader.loop.time()
        answer = await reader.ask(fetch_request({("t", 0): 0}), 11)
        assert len(answer.responses[0].partitions[0].records) > 50_000
        assert answer.throttle_time_ms == pytest.approx(40_000, rel=0.01), "50 s worth of it, less a window"
        assert reader.loop.time() - began_s < 1, "the answer leaves at once"
        answer = await reader.ask(fetch_request({("t", 0): 0}, max_wait_ms=0), 11)
        assert reader.loop.time() - began_s >= 40, "and the next request waits"


@on_virtual_time
async def test_without_an_answer_the_connection_is_muted_all_the_same() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 1)
        admin, one = Client(broker, "admin"), Client(broker, "one")
        await set_quota(admin, by_id("one"), producer_byte_rate=1000.0)
        request = produce_request({("t", 0): batch([b"x" * 20_000])}, acks=0)
        began_s = one.loop.time()
        await one.channel.send(request, version=11)
        await one.ask(MetadataRequest(topics=[]))
        assert one.loop.time() - began_s == pytest.approx(10, rel=0.05), "20 s worth of it, less a window of 10 s"


@on_virtual_time
async def test_quotas_change_while_clients_work_and_go() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 1)
        admin, one = Client(broker, "admin"), Client(broker, "one")
        assert not anybody_has_one(broker)
        await set_quota(admin, by_id("one"), producer_byte_rate=RATE)
        assert anybody_has_one(broker)
        slow = await one.produce(minute_from_now())
        await set_quota(admin, by_id("one"), producer_byte_rate=4.0 * RATE)
        fast = await one.produce(minute_from_now())
        assert fast / slow == pytest.approx(4, rel=0.1)
        await set_quota(admin, by_id("one"), producer_byte_rate=None)
        assert not anybody_has_one(broker)
        one.throttled_ms.clear()
        await one.produce(one.loop.time() + 0.05)
        assert one.throttled_ms == []


def takes(seconds: float, work: Callable[..., Any]) -> Callable[..., Any]:
    """The same work on a loop that is slow."""

    def worked(*arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop._now_s += seconds
        return work(*arguments)

    return worked


@pytest.mark.parametrize("partitions", [3, 200])
@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("waits", [False, True])
def test_a_fetch_is_charged_what_it_takes_of_the_loop_and_no_waiting(
    partitions: int, is_cold: bool, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_now: Any = (lambda *_: None) if is_cold else Fetch._read_now
    monkeypatch.setattr(Fetch, "_read_now", takes(0.003, read_now))
    monkeypatch.setattr(FetchResponse, "encode_in_slices", takes(0.05, FetchResponse.encode_in_slices))
    monkeypatch.setattr(FetchResponse, "encode_parts", takes(0.05, FetchResponse.encode_parts))

    @on_virtual_time
    async def story() -> None:
        async with AsyncEmbeddedBroker() as broker:
            await broker.create_topic("t", partitions)
            admin, reader = Client(broker, "admin"), Client(broker, "reader")
            await set_quota(admin, by_id("reader"), request_percentage=90.0)
            everywhere = {("t", number): bytes(batch([b"x" * 100])) for number in range(partitions)}
            fetch = fetch_request(dict.fromkeys(everywhere, 0), max_wait_ms=60_000)
            if waits:
                fetching = asyncio.ensure_future(reader.ask(fetch, 11))
                await asyncio.sleep(5)
                await admin.ask(produce_request({**everywhere}), 11)
                await fetching
            else:
                await admin.ask(produce_request({**everywhere}), 11)
                await reader.ask(fetch, 11)
            counts = broker.node._server.meter.counts_of(ApiKey.FETCH)
            assert counts is not None
            local_s = counts[5][1][0] / 1e9
            assert 0.05 < local_s < 2
            quotas = cast(BrokerQuotas, broker.node.services.quotas)
            ((_, percent),) = filter(None, quotas.rates("request_percentage"))
            assert percent / 100 * WINDOW_S == pytest.approx(local_s, rel=0.1)

    story()


@pytest.mark.parametrize("is_cold", [False, True])
def test_nobody_pays_for_the_slices_of_others(is_cold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    count, ids = 200, ("one", "two", "three")
    read_now: Any = (lambda *_: None) if is_cold else Fetch._read_now
    monkeypatch.setattr(Fetch, "_read_now", takes(0.003, read_now))
    monkeypatch.setattr(turns, "STEPS_PER_TURN", 1)

    @on_virtual_time
    async def story() -> None:
        async with AsyncEmbeddedBroker() as broker:
            await broker.create_topic("t", count)
            admin, *readers = (Client(broker, each) for each in ("admin", *ids))
            for each in ids:
                await set_quota(admin, by_id(each), request_percentage=90.0)
            everywhere = {("t", number): bytes(batch([b"x" * 100])) for number in range(count)}
            await admin.ask(produce_request({**everywhere}), 11)
            began_s = admin.loop.time()
            fetch = fetch_request(dict.fromkeys(everywhere, 0))
            await asyncio.gather(*(each.ask(fetch, 11) for each in readers))
            assert admin.loop.time() - began_s > len(ids) * count * 0.003, "they took turns"
            quotas = cast(BrokerQuotas, broker.node.services.quotas)
            for _, percent in filter(None, quotas.rates("request_percentage")):
                assert percent / 100 * WINDOW_S == pytest.approx(count * 0.003, rel=0.1)

    story()


async def all_but_committed(broker: AsyncEmbeddedBroker) -> LeaderState:
    """A topic of which another node is said to have a replica in sync: nobody answers for that."""
    await broker.create_topic("t", 1)
    partition = broker.node.services.replica_manager.get(TopicPartition("t", 0))
    assert partition is not None
    both = (partition.node_id, partition.node_id + 1)
    partition.update(PartitionImage(both, both, partition.node_id, partition.leader_epoch, 1))
    return partition.leading()


@pytest.mark.parametrize("in_frame", [False, True])
def test_who_leaves_before_followers_have_its_records_has_used_its_quotas(
    in_frame: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WaitingProduce, "start", takes(0.5, WaitingProduce.start))
    if not in_frame:
        monkeypatch.setattr(Router, "_is_answered", lambda *_: False)

    @on_virtual_time
    async def story() -> None:
        async with AsyncEmbeddedBroker() as broker:
            leader = await all_but_committed(broker)
            admin, leaving = Client(broker, "admin"), Client(broker, "leaving")
            await set_quota(admin, by_id("leaving"), producer_byte_rate=RATE, request_percentage=90.0)
            request = produce_request({("t", 0): batch([b"x" * 50_000])}, timeout_ms=60_000)
            asked = asyncio.ensure_future(leaving.channel.request(request, version=11))
            await asyncio.sleep(3)
            assert leader.delayed_count == 1
            await leaving.channel.close()
            await asyncio.gather(asked, return_exceptions=True)
            await asyncio.sleep(0.1)
            quotas = cast(BrokerQuotas, broker.node.services.quotas)
            ((_, rate),) = filter(None, quotas.rates("producer_byte_rate"))
            assert rate * WINDOW_S == pytest.approx(50_000, rel=0.1)
            ((_, percent),) = filter(None, quotas.rates("request_percentage"))
            assert percent / 100 * WINDOW_S == pytest.approx(0.5, rel=0.1), "and not for what it waited"

    story()


def creation(name: str, partitions: int) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=60_000)


@on_virtual_time
async def test_changes_are_refused_before_they_are_decided_and_told_when_to_come_again() -> None:
    async with AsyncEmbeddedBroker() as broker:
        admin, one = Client(broker, "admin"), Client(broker, "one")
        await set_quota(admin, by_id("one"), controller_mutation_rate=1.0)
        answer = await one.ask(creation("a", 15), 7)
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 0), "the bucket was full"
        began_s = one.loop.time()
        answer = await one.ask(creation("b", 1), 7)
        assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert answer.throttle_time_ms == pytest.approx(4000, abs=50), "15 of 11 were taken"
        assert "b" not in broker.node.services.metadata.image.topics
        answer = await one.ask(creation("b", 1), 7)
        assert one.loop.time() - began_s >= 3.9, "the connection was muted"
        assert answer.topics[0].error_code == 0
        growth = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="a", count=20, assignments=None)], timeout_ms=60_000, validate_only=False
        )
        answer = await one.ask(growth, 3)
        assert answer.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="b", topic_id=Uuid.ZERO)], timeout_ms=60_000)
        answer = await one.ask(deletion, 6)
        assert answer.responses[0].error_code == 0, "by now there is a token again"
        answer = await one.ask(creation("c", 30), 5)
        assert (answer.topics[0].error_code, answer.throttle_time_ms > 29_000) == (0, True), (
            "older clients wait after it"
        )
        answer = await admin.ask(creation("d", 100), 7)
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 0)
