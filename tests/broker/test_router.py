"""From frames to handlers: versions, bad bytes, errors, waiting, order of answers."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.broker.context import NoQuotas, RequestContext
from barnabas.broker.handlers import broker_handlers, controller_handlers
from barnabas.broker.router import Answer, Router, is_urgent
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, Turns, settled
from barnabas.net import Connection, ConnectionPhase
from barnabas.raft.socket_parts import RAFT_APIS
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.headers import decode_response, encode_request
from barnabas.wire.message import Listeners, Request
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.wire.messages.produce import ProduceRequest
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.broker.connections import FakeConnection

SERVICES = cast(Services, SimpleNamespace(quotas=NoQuotas()))


def handler(key: ApiKey, handle: Any) -> ModuleType:
    return cast(ModuleType, SimpleNamespace(API_KEY=key, handle=handle))


def answering(response: Answer | Awaitable[Answer]) -> Any:
    return lambda services, context, request: response


def router(*handlers: ModuleType) -> Router:
    made = Router(handlers, Turns())
    made.open(SERVICES)
    return made


def send(to: Router, request: Request, version: int, connection: FakeConnection | None = None) -> FakeConnection:
    connection = connection or FakeConnection()
    frame = bytearray(b"".join(encode_request(request, version, 42, "tests")))
    to.dispatch(cast(Connection, connection), frame)
    return connection


def test_the_answer_carries_the_correlation_id_and_the_version_of_the_question() -> None:
    connection = send(
        router(handler(ApiKey.LIST_GROUPS, answering(ListGroupsResponse(groups=[])))), ListGroupsRequest(), 5
    )
    assert decode_response(ListGroupsResponse, 5, connection.answers[0]) == (42, ListGroupsResponse(groups=[]))


def test_a_handler_learns_who_asks() -> None:
    seen: list[RequestContext] = []

    def handle(services: Services, context: RequestContext, request: Request) -> Answer:
        seen.append(context)
        return ListGroupsResponse(groups=[])

    send(router(handler(ApiKey.LIST_GROUPS, handle)), ListGroupsRequest(), 4)
    (context,) = seen
    assert (context.api_key, context.version, context.correlation_id, context.client_id) == (16, 4, 42, "tests")
    assert (context.listener, context.principal, context.client_host) == ("PLAINTEXT", "User:ANONYMOUS", "127.0.0.1")


@pytest.mark.parametrize("phase", [ConnectionPhase.AUTHENTICATING, ConnectionPhase.CLOSING_UNAUTHENTICATED])
def test_before_authentication_a_produce_request_closes_the_connection(phase: ConnectionPhase) -> None:
    asked: list[Request] = []

    def handle(services: Services, context: RequestContext, request: Request) -> Answer:
        asked.append(request)
        return None

    to = router(
        handler(ApiKey.PRODUCE, handle),
        handler(ApiKey.API_VERSIONS, answering(ApiVersionsResponse(api_keys=[]))),
        handler(ApiKey.SASL_HANDSHAKE, answering(SaslHandshakeResponse(mechanisms=[]))),
        handler(ApiKey.SASL_AUTHENTICATE, answering(SaslAuthenticateResponse(auth_bytes=b""))),
    )
    connection = FakeConnection()
    connection.phase = phase
    send(to, ApiVersionsRequest(), 4, connection)
    send(to, SaslHandshakeRequest(mechanism="PLAIN"), 1, connection)
    send(to, SaslAuthenticateRequest(auth_bytes=b"token"), 2, connection)
    assert (len(connection.answers), connection.closed) == (3, None)
    send(to, ProduceRequest(acks=1, timeout_ms=1000, topic_data=[]), 11, connection)
    assert connection.closed is not None
    assert "Produce when it was" in connection.closed
    assert (len(connection.answers), asked) == (3, [])
    send(to, ProduceRequest(acks=0, timeout_ms=1000, topic_data=[]), 11)
    assert len(asked) == 1


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_an_unknown_version_of_api_versions_is_refused_in_version_0(version: int) -> None:
    to = router(handler(ApiKey.API_VERSIONS, answering(None)))
    connection = FakeConnection()
    frame = bytearray((18).to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + bytes([0, 0, 0, 7]) + b"junk")
    to.dispatch(cast(Connection, connection), frame)
    correlation_id, response = decode_response(ApiVersionsResponse, 0, connection.answers[0])
    assert correlation_id == 7
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.min_version, each.max_version) for each in response.api_keys] == [(18, 0, 4)]
    assert connection.closed is None


def test_other_unknown_versions_and_apis_close_the_connection() -> None:
    to = router(handler(ApiKey.LIST_GROUPS, answering(None)), handler(ApiKey.PRODUCE, answering(None)))
    produce = ProduceRequest(acks=1, timeout_ms=1, topic_data=[])
    for request, version in [
        (ListGroupsRequest(), 5),
        (HeartbeatRequest(group_id="", generation_id=0, member_id=""), 0),
    ]:
        frame = bytearray(b"".join(encode_request(request, version, 1)))
        frame[2:4] = (77).to_bytes(2, "big")
        connection = FakeConnection()
        to.dispatch(cast(Connection, connection), frame)
        assert connection.closed
        assert not connection.answers
    assert send(to, produce, 2).closed


def test_produce_is_advertised_from_0_on() -> None:
    to = router(handler(ApiKey.PRODUCE, answering(None)))
    assert [(each.min_version, each.max_version) for each in to.advertised()] == [(0, 13)]


def test_each_role_serves_what_belongs_on_its_listeners() -> None:
    for modules, listener in (
        (broker_handlers(), Listeners.BROKER),
        (controller_handlers(), Listeners.CONTROLLER),
    ):
        assert all(api(module.API_KEY).listeners & listener for module in modules)
    on_controllers = Router(controller_handlers(), Turns())
    on_controllers.open(SERVICES)
    advertised = [each.api_key for each in on_controllers.advertised()]
    # There, Fetch asks for the metadata log.
    assert {ApiKey.API_VERSIONS, ApiKey.FETCH, ApiKey.VOTE, ApiKey.BROKER_HEARTBEAT} <= set(advertised)
    assert set(RAFT_APIS) - set(advertised) == {ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER}
    assert ApiKey.PRODUCE not in advertised
    on_brokers = {module.API_KEY for module in broker_handlers()}
    assert not on_brokers & {ApiKey.VOTE, ApiKey.BROKER_HEARTBEAT, ApiKey.ENVELOPE}
    assert send(on_controllers, ProduceRequest(acks=1, timeout_ms=1, topic_data=[]), 9).closed


def test_a_handler_that_names_a_connection_gets_it() -> None:
    def handle(services: Services, context: RequestContext, request: Request, connection: Connection) -> Answer:
        seen.append(connection)
        return ListGroupsResponse(groups=[])

    seen: list[Connection] = []
    connection = send(router(handler(ApiKey.LIST_GROUPS, handle)), ListGroupsRequest(), 4)
    assert seen == [cast(Connection, connection)]


@pytest.mark.parametrize("length", [0, 1, 3, 7, 9, 11])
def test_half_a_request_closes_the_connection(length: int) -> None:
    to = router(handler(ApiKey.LIST_GROUPS, answering(ListGroupsResponse(groups=[]))))
    frame = bytearray(b"".join(encode_request(ListGroupsRequest(), 5, 1, "c"))[:length])
    connection = FakeConnection()
    to.dispatch(cast(Connection, connection), frame)
    assert connection.closed is not None
    assert not connection.answers


def test_bytes_after_a_request_are_passed_over_as_in_kafka() -> None:
    to = router(handler(ApiKey.LIST_GROUPS, answering(ListGroupsResponse(groups=[]))))
    connection = FakeConnection()
    frame = bytearray(b"".join(encode_request(ListGroupsRequest(), 0, 1, "c"))) + b"!"
    to.dispatch(cast(Connection, connection), frame)
    assert len(connection.answers) == 1


def test_a_handler_that_fails_becomes_an_error_in_a_normal_answer(caplog: pytest.LogCaptureFixture) -> None:
    def handle(services: Services, context: RequestContext, request: Request) -> Answer:
        raise ValueError("a bug")

    connection = send(router(handler(ApiKey.LIST_GROUPS, handle)), ListGroupsRequest(), 5)
    _, response = decode_response(ListGroupsResponse, 5, connection.answers[0])
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert connection.closed is None
    assert "a bug" in caplog.text


def test_a_handler_may_raise_the_code_that_the_client_gets() -> None:
    def handle(services: Services, context: RequestContext, request: Request) -> Answer:
        raise BrokerError(ErrorCode.NOT_CONTROLLER, "ask somebody else")

    connection = send(router(handler(ApiKey.FIND_COORDINATOR, handle)), FindCoordinatorRequest(key="g"), 2)
    _, response = decode_response(FindCoordinatorResponse, 2, connection.answers[0])
    assert (response.error_code, response.error_message) == (ErrorCode.NOT_CONTROLLER, "ask somebody else")


def test_no_answer_where_none_is_expected() -> None:
    connection = send(
        router(handler(ApiKey.PRODUCE, answering(None))), ProduceRequest(acks=0, timeout_ms=1, topic_data=[]), 9
    )
    assert (connection.answers, connection.unanswered, connection.closed) == ([], 1, None)


def test_an_answer_that_comes_later_is_sent_when_it_comes() -> None:
    async def story() -> None:
        parked: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        connection = send(router(handler(ApiKey.LIST_GROUPS, answering(parked))), ListGroupsRequest(), 5)
        await asyncio.sleep(0)
        assert not connection.answers
        parked.set_result(ListGroupsResponse(groups=[]))
        await asyncio.sleep(0)
        assert len(connection.answers) == 1

    asyncio.run(story())


def test_a_late_failure_is_told_too() -> None:
    async def story() -> None:
        parked: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        connection = send(router(handler(ApiKey.LIST_GROUPS, answering(parked))), ListGroupsRequest(), 5)
        parked.set_exception(BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        await asyncio.sleep(0)
        _, response = decode_response(ListGroupsResponse, 5, connection.answers[0])
        assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    asyncio.run(story())


def test_requests_wait_until_the_node_is_ready() -> None:
    to = Router([handler(ApiKey.LIST_GROUPS, answering(ListGroupsResponse(groups=[])))], Turns())
    connection = send(to, ListGroupsRequest(), 5)
    assert not connection.answers
    to.open(SERVICES)
    assert len(connection.answers) == 1


def test_an_interceptor_answers_in_a_handlers_place() -> None:
    to = router(handler(ApiKey.LIST_GROUPS, answering(ListGroupsResponse(groups=[]))))
    refusal = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, groups=[])
    to.interceptor = lambda context, request: refusal if context.version == 5 else None
    assert decode_response(ListGroupsResponse, 5, send(to, ListGroupsRequest(), 5).answers[0])[1] == refusal
    assert decode_response(ListGroupsResponse, 4, send(to, ListGroupsRequest(), 4).answers[0])[1].error_code == 0


def test_throttling_is_told_and_mutes_the_connection() -> None:
    to = Router([handler(ApiKey.HEARTBEAT, answering(HeartbeatResponse()))], Turns())
    to.open(cast(Services, SimpleNamespace(quotas=SimpleNamespace(throttle_ms=lambda *_: 250))))
    connection = send(to, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
    assert decode_response(HeartbeatResponse, 4, connection.answers[0])[1].throttle_time_ms == 250
    assert connection.muted_ms == [250]


def test_what_fails_without_an_answer_is_charged() -> None:
    def fail(services: Services, context: RequestContext, request: ProduceRequest) -> Answer:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)

    charged: list[Any] = []
    to = Router([handler(ApiKey.PRODUCE, fail)], Turns())
    quotas = SimpleNamespace(throttle_ms=lambda _, request, *__: charged.append(request))
    to.open(cast(Services, SimpleNamespace(quotas=quotas)))
    request = ProduceRequest(acks=0, timeout_ms=1, topic_data=[])
    assert send(to, request, 9).closed == "its request with acks=0 failed"
    assert charged == [request]


def test_heartbeats_are_urgent_and_data_is_not() -> None:
    heartbeat = b"".join(encode_request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 1))
    assert is_urgent(bytearray(heartbeat))
    assert not is_urgent(bytearray(b"".join(encode_request(ProduceRequest(acks=1, timeout_ms=1, topic_data=[]), 9, 1))))
    assert not is_urgent(bytearray())


def test_an_unexpected_failure_without_acks_closes_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any) -> Answer:
        raise ZeroDivisionError

    to = router(handler(ApiKey.PRODUCE, fail))
    connection = send(to, ProduceRequest(acks=0, timeout_ms=1, topic_data=[]), 9)
    assert (connection.answers, connection.closed) == ([], "its request with acks=0 failed")
    assert "ZeroDivisionError" in caplog.text
    assert send(to, ProduceRequest(acks=1, timeout_ms=1, topic_data=[]), 9).answers


# Many elements


def asking_for(count: int) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=0, coordinator_keys=[f"key{number}" for number in range(count)])


@pytest.mark.parametrize(("count", "at_a_time"), [(100, 50), (700, 32), (2000, 8), (12_000, 1)])
def test_of_requests_with_many_elements_few_are_worked_on_at_a_time(count: int, at_a_time: int) -> None:
    """700 keys are a frame that is decoded at once; the others are decoded in slices."""

    async def story() -> None:
        begun: list[FakeConnection] = []
        answers: list[asyncio.Future[Answer]] = []

        def handle(
            services: Services, context: RequestContext, request: FindCoordinatorRequest, connection: Connection
        ) -> Steps[Answer]:
            begun.append(cast(FakeConnection, connection))
            assert len(request.coordinator_keys) == count
            answers.append(asyncio.get_running_loop().create_future())
            return (yield from settled(answers[-1]))

        to = router(handler(ApiKey.FIND_COORDINATOR, handle))
        peers = [send(to, asking_for(count), 4) for _ in range(50)]
        await turns_of_the_loop(2000)
        assert len(begun) == at_a_time
        for number in range(50):
            answers[number].set_result(FindCoordinatorResponse())
            await turns_of_the_loop(200)
        assert begun == peers, "each in its turn"
        assert all(len(peer.answers) == 1 for peer in peers)

    asyncio.run(story())


async def turns_of_the_loop(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_who_waits_for_a_place_keeps_only_its_frame() -> None:
    async def story() -> None:
        seen: list[FindCoordinatorRequest] = []

        def handle(services: Services, context: RequestContext, request: FindCoordinatorRequest) -> Awaitable[Answer]:
            seen.append(request)
            return asyncio.get_running_loop().create_future()

        to = router(handler(ApiKey.FIND_COORDINATOR, handle))
        send(to, asking_for(12_000), 4)
        await turns_of_the_loop(50)
        tracemalloc.start()
        try:
            for _ in range(20):
                send(to, asking_for(12_000), 4)
            await turns_of_the_loop(2000)
            held_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        frame_bytes = len(asking_for(12_000).encode(4))
        assert len(seen) == 1
        assert held_bytes < 20 * (frame_bytes + 20_000)

    asyncio.run(story())


def test_who_waits_for_others_leaves_its_place() -> None:
    async def story() -> None:
        def handle(
            services: Services, context: RequestContext, request: FindCoordinatorRequest, connection: Connection
        ) -> Awaitable[Answer]:
            waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            seen.append(connection.park(waiting.cancel))
            return waiting

        seen: list[object] = []
        to = router(handler(ApiKey.FIND_COORDINATOR, handle))
        for _ in range(3):
            send(to, asking_for(12_000), 4)
        await turns_of_the_loop(200)
        assert len(seen) == 3

    asyncio.run(story())


def test_room_for_an_answer_is_asked_for_by_the_number_of_elements_unless_the_handler_does() -> None:
    async def story() -> None:
        of_its_own = handler(ApiKey.FIND_COORDINATOR, answering(FindCoordinatorResponse()))
        to = router(of_its_own)
        for count, asked_bytes in [(100, 0), (12_000, 128 * 12_000)]:
            peer = send(to, asking_for(count), 4)
            await turns_of_the_loop(50)
            assert asked_bytes <= peer.asked_bytes <= 1.1 * asked_bytes
            assert len(peer.answers) == 1
        of_its_own.ANSWER_BYTES_PER_ELEMENT = 0  # type: ignore[attr-defined]
        peer = send(router(of_its_own), asking_for(12_000), 4)
        await turns_of_the_loop(50)
        assert (peer.asked_bytes, len(peer.answers)) == (0, 1)

    asyncio.run(story())


def test_a_failure_of_very_many_is_explained_to_the_first() -> None:
    async def story() -> None:
        def handle(services: Services, context: RequestContext, request: FindCoordinatorRequest) -> Answer:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "because")

        peer = send(router(handler(ApiKey.FIND_COORDINATOR, handle)), asking_for(2000), 4)
        await turns_of_the_loop(100)
        _, response = decode_response(FindCoordinatorResponse, 4, peer.answers[0])
        messages = [each.error_message for each in response.coordinators]
        assert messages == ["because"] * 1000 + [""] * 1000

    asyncio.run(story())
