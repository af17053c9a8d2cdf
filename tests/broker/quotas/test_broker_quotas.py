"""What a broker makes of quotas, one request at a time: whom it measures by what, and whom not."""

from __future__ import annotations

from typing import Any, cast

import pytest

from barnabas.base.quotas import QuotaWindow
from barnabas.base.runtime import ManualClock
from barnabas.broker.context import RequestContext
from barnabas.broker.quotas.broker_quotas import BrokerQuotas
from barnabas.metadata.access_images import ClientQuotaEntity, ClientQuotasImage
from barnabas.net._kernel.metering import RequestFields
from barnabas.wire.apis import ApiKey
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.messages.produce import ProduceRequest, ProduceResponse
from barnabas.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

MS = 1_000_000
WINDOW = QuotaWindow(11, 1000)


class Sender:
    """As much of a connection as quotas look at."""

    principal = "User:ann"
    client_id = "shop"
    request_bytes = 1000

    def __init__(self, elapsed_ns: int = 0) -> None:
        self.elapsed_ns = elapsed_ns
        self._charged_ns = 0

    def charge_ns(self) -> int:
        uncharged_ns, self._charged_ns = self.elapsed_ns - self._charged_ns, self.elapsed_ns
        return uncharged_ns


def context_of(request: Request, user: str = "ann") -> RequestContext:
    return RequestContext(ApiKey(request.API_KEY), 9, 1, "shop", "PLAINTEXT", f"User:{user}", "127.0.0.1")


class Desk:
    def __init__(self, **quotas: float) -> None:
        self.clock = ManualClock()
        self.quotas = BrokerQuotas(WINDOW, self.clock)
        self.quotas.set_quotas(ClientQuotasImage({ClientQuotaEntity((("user", "ann"),)): quotas} if quotas else {}))

    def answer(self, request: Request, response: Response | None, *, took_ms: float = 0, user: str = "ann") -> int:
        sender: Any = Sender(int(took_ms * MS))
        return self.quotas.throttle_ms(context_of(request, user), request, response, sender)


def produce(acks: int = 1) -> ProduceRequest:
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=0, topic_data=[])


ASKED, TOLD = MetadataRequest(topics=[]), MetadataResponse(brokers=[], topics=[])


def test_the_time_of_requests_is_bounded_and_nobody_waits_longer_than_a_sample() -> None:
    desk = Desk(request_percentage=10.0)
    waits = []
    for _ in range(30):
        waits.append(desk.answer(ASKED, TOLD, took_ms=50))
        desk.clock.advance(50)
    # Ten percent of ten seconds are twenty times 50 ms.
    assert waits[:10] == [0] * 10
    assert waits[-1] == 1000
    assert all(wait <= 1000 for wait in waits)


def test_in_the_long_run_the_time_is_what_the_quota_says() -> None:
    desk = Desk(request_percentage=20.0)
    used_ms, begin_ms = 0.0, 0
    while desk.clock.monotonic_ms() < 80_000:
        if begin_ms == 0 and desk.clock.monotonic_ms() >= 20_000:
            used_ms, begin_ms = 0.0, desk.clock.monotonic_ms()
        desk.clock.advance(40)
        used_ms += 40
        desk.clock.advance(desk.answer(ASKED, TOLD, took_ms=40))
    share = used_ms / (desk.clock.monotonic_ms() - begin_ms)
    assert share == pytest.approx(0.2, rel=0.1)


def test_without_an_answer_bytes_count_and_time_does_not() -> None:
    desk = Desk(producer_byte_rate=100.0, request_percentage=0.001)
    assert desk.answer(produce(acks=0), None, took_ms=1000) == 0
    assert desk.answer(produce(acks=0), None, took_ms=1000) == 10_000, "1,000 bytes too many, at 100 a second"
    assert desk.answer(produce(acks=1), ProduceResponse(responses=[]), took_ms=1000) == 20_000


def test_the_longer_wait_counts() -> None:
    desk = Desk(request_percentage=0.001)
    told = CreateTopicsResponse(topics=[], throttle_time_ms=5000)
    assert desk.answer(CreateTopicsRequest(topics=[]), told, took_ms=1000) == 5000, "the controller says so"
    told = CreateTopicsResponse(topics=[], throttle_time_ms=5)
    assert desk.answer(CreateTopicsRequest(topics=[]), told, took_ms=1000) == 1000


def test_nodes_of_the_cluster_and_others_do_not_wait() -> None:
    desk = Desk(request_percentage=0.001, consumer_byte_rate=1.0)
    follower = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[], replica_state=ReplicaState(replica_id=3, replica_epoch=1)
    )
    assert desk.answer(follower, FetchResponse(responses=[]), took_ms=1000) == 0
    markers = WriteTxnMarkersRequest(markers=[])
    assert desk.answer(markers, WriteTxnMarkersResponse(markers=[]), took_ms=1000) == 0
    assert desk.answer(ASKED, TOLD, took_ms=1000, user="bob") == 0
    assert desk.answer(ASKED, TOLD, took_ms=1000) == 1000


def test_a_fetch_that_is_refused_costs_its_time_and_one_that_was_read_is_told_no_more() -> None:
    desk = Desk(request_percentage=0.001)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    assert desk.answer(request, FetchResponse(responses=[], throttle_time_ms=7), took_ms=1000) == 7
    assert desk.answer(request, FetchResponse(responses=[], error_code=70), took_ms=1000) == 1000


def test_who_is_gone_before_the_answer_has_used_what_was_done() -> None:
    desk = Desk(request_percentage=0.001)
    assert desk.answer(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), None, took_ms=1000) == 1000
    follower = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[], replica_state=ReplicaState(replica_id=3, replica_epoch=1)
    )
    assert desk.answer(follower, None, took_ms=1000) == 0
    desk = Desk(producer_byte_rate=100.0)
    sender: Any = Sender()
    for _ in range(11):
        desk.quotas.charge_given_up(sender)
    assert desk.answer(produce(), ProduceResponse(responses=[])) == 110_000, "11,000 bytes too many, at 100 a second"


def test_what_a_request_takes_after_its_wait_was_told_is_charged_once() -> None:
    desk = Desk(request_percentage=50.0)
    sender: Any = Sender(1000 * MS)
    context = context_of(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]))
    assert desk.quotas.fetch_throttle_ms(context, sender, 100) == (0, True)
    sender.elapsed_ns = 8000 * MS
    desk.quotas.charge_rest(context, sender)
    desk.quotas.charge_rest(context, sender)
    ((_, rate),) = filter(None, desk.quotas.rates("request_percentage"))
    assert rate == pytest.approx(80), "8 of 10 s"
    assert desk.answer(ASKED, TOLD) == 1000, "the next one waits"


def test_who_has_a_quota_is_known_until_quotas_change() -> None:
    desk, sender = Desk(), Sender()

    def are_limited(client_id: str | None, key: str) -> tuple[bool, bool]:
        """Anybody, and the sender."""
        desk.quotas.set_quotas(ClientQuotasImage({ClientQuotaEntity((("client-id", client_id),)): {key: 1.0}}))
        is_free = desk.quotas.allowance(cast(Any, sender)).covers(RequestFields(), bytes(10))
        return desk.quotas.limits_frames, not is_free

    assert not desk.quotas.limits_frames
    assert are_limited("till", "producer_byte_rate") == (True, False)
    assert are_limited(None, "request_percentage") == (True, True)
    assert are_limited(None, "controller_mutation_rate") == (False, False), "that is for the controller"
