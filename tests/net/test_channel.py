"""Asking another node: versions, order, time, and what is told when it fails."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.net import (
    Channel,
    ChannelError,
    ChannelLimits,
    ConnectError,
    Connection,
    DisconnectedError,
    ListenerSpec,
    NotSentError,
    RequestTimeoutError,
    Server,
    UnsupportedRequestError,
)
from barnabas.net.dialing import negotiate
from barnabas.net.errors import address_text
from barnabas.net.outgoing import OutgoingConnection
from barnabas.wire import ApiKey, decode_request_header, encode_response, frame_parts
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.create_topics import CreateTopicsRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.compat.mock_cluster import running_mock_cluster
from tests.net.worlds import Story, eventually, run_simulated

Run = Callable[[Story], None]

OFFERED = {ApiKey.API_VERSIONS: (0, 4), ApiKey.FIND_COORDINATOR: (0, 2), ApiKey.METADATA: (7, 9)}


class Node:
    """Answers ApiVersions up to `highest`, and FindCoordinator with the key that was asked for as the host."""

    def __init__(self, highest: int = 4, offered: dict[ApiKey, tuple[int, int]] = OFFERED) -> None:
        self.highest = highest
        self.offered = offered
        self.log: list[tuple[str, int]] = []
        self.is_silent = False
        self.held: list[tuple[Connection, bytearray]] = []
        self.spoil: Callable[[list[Any]], list[Any]] = lambda parts: parts
        self.server = Server(lambda frame: False)

    async def start(self, port: int = 0) -> None:
        await self.server.start([ListenerSpec("A", "127.0.0.1", port)], self.dispatch)

    @property
    def port(self) -> int:
        return self.server.endpoints["A"][1]

    def channel(self, **limits: Any) -> Channel:
        return Channel("127.0.0.1", self.port, client_id="tester", randomness=Random(1), limits=ChannelLimits(**limits))

    def dispatch(self, connection: Connection, frame: bytearray) -> None:
        header, body = decode_request_header(frame)
        key, version = ApiKey(header.request_api_key), header.request_api_version
        self.log.append((key.camel_name, version))
        assert header.client_id == "tester"
        if key is ApiKey.API_VERSIONS:
            self.tell_versions(connection, version, header.correlation_id)
        elif self.is_silent:
            self.held.append((connection, frame))
        else:
            request = FindCoordinatorRequest.decode(memoryview(frame)[body:], version)
            response = FindCoordinatorResponse(host=request.key)
            connection.respond(self.spoil(encode_response(response, version, header.correlation_id)))

    def tell_versions(self, connection: Connection, version: int, correlation_id: int) -> None:
        offered = {**self.offered, ApiKey.API_VERSIONS: (0, self.highest)}
        keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in offered.items()]
        if version > self.highest:
            refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys[:1])
            connection.respond(encode_response(refusal, 0, correlation_id))
            return
        connection.respond(encode_response(ApiVersionsResponse(api_keys=keys), version, correlation_id))


def find(key: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key=key)


def test_the_highest_common_version_is_used(run: Run) -> None:
    async def story() -> None:
        node = Node()
        await node.start()
        channel = node.channel()
        assert (await channel.request(find("a"))).host == "a"
        assert (await channel.request(find("b"), version=1)).host == "b"
        assert node.log == [("ApiVersions", 4), ("FindCoordinator", 2), ("FindCoordinator", 1)]
        assert channel.version_of(MetadataRequest) == 9
        await channel.close()
        assert not channel.is_connected
        await node.server.stop(100)

    run(story)


@pytest.mark.parametrize(("send_bytes", "receive_bytes"), [(-1, -1), (30_000, 50_000), (-1, 50_000)])
def test_sockets_have_the_buffers_that_are_asked_for(run: Run, send_bytes: int, receive_bytes: int) -> None:
    async def story() -> None:
        node = Node()
        await node.start()
        limits = ChannelLimits(send_buffer_bytes=send_bytes, receive_buffer_bytes=receive_bytes)
        channel = Channel("127.0.0.1", node.port, client_id="tester", randomness=Random(1), limits=limits)
        await channel.connect()
        wire = channel._connection
        assert wire is not None
        assert wire._transport is not None
        found = wire._transport.get_extra_info("socket")
        if found is not None:  # not in a simulation
            for option, wanted in ((socket.SO_SNDBUF, send_bytes), (socket.SO_RCVBUF, receive_bytes)):
                # The system counts its own needs in: Linux tells twice what was asked for.
                assert (found.getsockopt(socket.SOL_SOCKET, option) in (wanted, 2 * wanted)) == (wanted > 0)
        await channel.close()
        await node.server.stop(100)

    run(story)


@pytest.mark.parametrize("highest", [0, 2, 3])
def test_an_older_node_is_asked_again_in_a_version_that_it_knows(run: Run, highest: int) -> None:
    async def story() -> None:
        node = Node(highest)
        await node.start()
        channel = node.channel()
        assert (await channel.request(find("a"))).host == "a"
        assert node.log == [("ApiVersions", 4), ("ApiVersions", highest), ("FindCoordinator", 2)]
        await channel.close()
        await node.server.stop(100)

    run(story)


def test_what_the_two_have_not_in_common_is_told(run: Run) -> None:
    async def story() -> None:
        node = Node(offered={ApiKey.METADATA: (90, 91)})
        await node.start()
        channel = node.channel()
        address = f"127.0.0.1:{node.port}"
        with pytest.raises(UnsupportedRequestError, match=f"{address}: it does not offer CreateTopics"):
            await channel.request(CreateTopicsRequest(topics=[]))
        with pytest.raises(UnsupportedRequestError, match="it offers Metadata 90-91, and we know 0-13"):
            await channel.request(MetadataRequest(topics=[]))
        with pytest.raises(UnsupportedRequestError, match="Metadata 13 was to be sent, and it offers Metadata 90-91"):
            await channel.request(MetadataRequest(topics=[]), version=13)
        assert node.log == [("ApiVersions", 4)]
        await channel.close()
        await node.server.stop(100)

    run(story)


def test_requests_leave_in_order_and_few_are_in_flight() -> None:
    async def story() -> None:
        node = Node()
        await node.start()
        channel = node.channel(max_in_flight_requests=3)
        node.is_silent = True
        asking = [asyncio.ensure_future(channel.request(find(f"{number}"))) for number in range(10)]
        await asyncio.sleep(1)
        assert channel._connection is not None
        assert len(channel._connection.in_flight) == 3
        node.is_silent = False
        for connection, frame in node.held:
            node.dispatch(connection, frame)
        answers = await asyncio.gather(*asking)
        assert [answer.host for answer in answers] == [f"{number}" for number in range(10)]
        await channel.close()
        await node.server.stop(100)

    run_simulated(story)


def test_an_answer_that_is_late_closes_the_connection_and_fails_those_behind_it() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        node = Node()
        await node.start()
        channel = node.channel(request_timeout_ms=7000)
        await channel.connect()
        node.is_silent = True
        began_s = loop.time()
        outcomes = await asyncio.gather(
            channel.request(find("a"), timeout_ms=5000), channel.request(find("b")), return_exceptions=True
        )
        assert loop.time() - began_s == pytest.approx(5, abs=0.1)
        for outcome in outcomes:
            assert isinstance(outcome, RequestTimeoutError)
            assert str(outcome) == f"127.0.0.1:{node.port}: FindCoordinator was not answered in 5000 ms"
        node.is_silent = False
        assert (await channel.request(find("c"), version=1)).host == "c", "it connects again by itself"
        await channel.close()
        await node.server.stop(100)

    run_simulated(story)


def test_a_lost_connection_is_told_to_all_who_wait(run: Run) -> None:
    async def story() -> None:
        node = Node()
        await node.start()
        channel = node.channel()
        await channel.connect()
        node.is_silent = True
        asking = [asyncio.ensure_future(channel.request(find(key))) for key in "ab"]
        await eventually(lambda: bool(node.held))
        await node.server.stop(0)
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [DisconnectedError] * 2
        assert str(outcomes[0]).startswith(f"127.0.0.1:{node.port}: ")
        with pytest.raises(ConnectError, match=f"127.0.0.1:{node.port}: no connection: "):
            await channel.request(find("c"))
        await channel.close()
        with pytest.raises(ConnectError, match="the channel was closed"):
            await channel.request(find("d"))

    run(story)


def test_waits_between_attempts_grow() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        channel = Channel("127.0.0.1", 1, client_id="tester", randomness=Random(1))
        times_s = []
        for _ in range(8):
            with pytest.raises(ConnectError):
                await channel.connect()
            times_s.append(loop.time())
        waits_s = [later - earlier for earlier, later in itertools.pairwise(times_s)]
        assert waits_s[0] == pytest.approx(0.05, rel=0.3)
        assert waits_s[2] == pytest.approx(0.2, rel=0.3)
        assert max(waits_s) < 1.1
        await channel.close()

    run_simulated(story)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda parts: [b"\0\0\0\x63", *parts[1:]], "it answers 99 when 2 is due"),
        (lambda parts: [parts[0], b"\0"], "its answer cannot be read"),
        (lambda parts: [parts[0][:2]], "its answer cannot be read"),
    ],
)
def test_an_answer_that_makes_no_sense_ends_the_connection(run: Run, spoil: Any, said: str) -> None:
    async def story() -> None:
        node = Node()
        node.spoil = spoil
        await node.start()
        channel = node.channel()
        with pytest.raises(DisconnectedError, match=said):
            await channel.request(find("a"))
        assert not channel.is_connected
        await channel.close()
        await node.server.stop(100)

    run(story)


def test_a_peer_that_is_no_node_is_told(run: Run) -> None:
    async def story() -> None:
        def greet(connection: Connection, frame: bytearray) -> None:
            connection._transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        server = Server(lambda frame: False)
        await server.start([ListenerSpec("A", "127.0.0.1", 0)], greet)
        port = server.endpoints["A"][1]
        limits = ChannelLimits(max_response_bytes=1 << 20)
        channel = Channel("127.0.0.1", port, client_id="tester", randomness=Random(1), limits=limits)
        with pytest.raises(ConnectError, match="it did not tell its versions: it sent what is no answer"):
            await channel.connect()
        await channel.close()
        await server.stop(0)

    run(story)


def test_a_node_that_refuses_what_it_offers_is_given_up(run: Run) -> None:
    async def story() -> None:
        node = Node()

        def refuse(connection: Connection, version: int, correlation_id: int) -> None:
            keys = [ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=4)]
            refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys)
            connection.respond(encode_response(refusal, 0, correlation_id))

        node.tell_versions = refuse  # type: ignore[method-assign]
        await node.start()
        channel = node.channel()
        with pytest.raises(ConnectError, match=r"ApiVersions with UNSUPPORTED_VERSION \(35\)"):
            await channel.connect()
        assert [version for _, version in node.log] == [4, 3, 2, 1, 0]
        await channel.close()
        await node.server.stop(100)

    run(story)


def test_a_request_that_nobody_waits_for_any_more_disturbs_nobody() -> None:
    async def story() -> None:
        node = Node()
        await node.start()
        channel = node.channel()
        await channel.connect()
        node.is_silent = True
        given_up = asyncio.ensure_future(channel.request(find("a")))
        await asyncio.sleep(1)
        given_up.cancel()
        kept = asyncio.ensure_future(channel.request(find("b")))
        await asyncio.sleep(1)
        node.is_silent = False
        node.dispatch(*node.held[0])
        assert (await kept).host == "b"
        await channel.close()
        await node.server.stop(100)

    run_simulated(story)


def test_answers_can_be_told_to_callbacks(run: Run) -> None:
    async def story() -> None:
        node = Node()
        await node.start()
        ready: list[int] = []
        channel = Channel(
            "127.0.0.1", node.port, client_id="tester", randomness=Random(1), node_id=7, on_ready=ready.append
        )
        told: list[Any] = []

        def ask_again(answer: Any) -> None:
            told.append(answer.host)
            if answer.host == "a":
                channel.request_soon(find("from inside"), ask_again)
                raise ValueError("a callback that fails")

        failures: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context["exception"]))
        channel.request_soon(find("a"), ask_again)
        channel.request_soon(find("b"), ask_again, 1)
        await eventually(lambda: len(told) == 3)
        assert [*told] == ["a", "b", "from inside"]
        assert [str(each) for each in failures] == ["a callback that fails"], "it is told, and harms nobody else"
        assert ready == [7]
        wrong: list[Any] = []
        channel.request_soon(CreateTopicsRequest(topics=[]), wrong.append)
        channel.request_soon(FindCoordinatorRequest(coordinator_keys=["x"]), wrong.append)
        assert len(wrong) == 0, "never from inside the call"
        await eventually(lambda: len(wrong) == 2)
        assert all(isinstance(each, UnsupportedRequestError) for each in wrong)
        assert "FindCoordinator cannot be sent to it" in str(wrong[1])
        assert channel.is_connected
        await channel.close()
        channel.request_soon(find("d"), wrong.append)
        await eventually(lambda: len(wrong) == 3)
        assert isinstance(wrong[2], ConnectError)
        await node.server.stop(100)

    run(story)


def test_what_was_sent_without_an_answer_leaves_before_the_channel_closes(run_real: Run) -> None:
    async def story() -> None:
        received = bytearray()
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readexactly(4)
            asked = await reader.readexactly(int.from_bytes(head, "big"))
            version = int.from_bytes(asked[2:4], "big")
            keys = [ApiVersion(api_key=ApiKey.PRODUCE, min_version=3, max_version=9)]
            answer = encode_response(ApiVersionsResponse(api_keys=keys), version, int.from_bytes(asked[4:8], "big"))
            writer.write(b"".join(frame_parts(answer)))
            while data := await reader.read(1 << 20):
                received.extend(data)
            ended.set()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        channel = Channel("127.0.0.1", port, client_id="tester", randomness=Random(1))
        sent_bytes = 0
        records = bytes(1 << 20)
        for _ in range(12):
            topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
            await channel.send(ProduceRequest(acks=0, timeout_ms=1, topic_data=[topic]))
            sent_bytes += len(records)
        await channel.close()
        await ended.wait()
        assert len(received) > sent_bytes
        server.close()

    run_real(story)


def test_a_request_waits_for_its_turn_no_longer_than_its_timeout() -> None:
    async def story() -> None:
        node = Node()
        await node.start()
        channel = node.channel(max_in_flight_requests=1)
        await channel.connect()
        node.is_silent = True
        first = channel.request(find("a"))
        second = channel.request(find("b"), timeout_ms=2000)
        given_up = channel.request(find("c"))
        last = channel.request(find("d"))
        with pytest.raises(NotSentError, match="FindCoordinator waited 2000 ms for its turn and was not sent"):
            await second
        given_up.cancel()
        node.is_silent = False
        node.dispatch(*node.held[0])
        assert [(await each).host for each in (first, last)] == ["a", "d"]
        assert node.log == [("ApiVersions", 4), *[("FindCoordinator", 2)] * 3], "once more for the one that was held"
        await channel.close()
        await node.server.stop(100)

    run_simulated(story)


def test_silence_closes_a_connection_without_blame() -> None:
    async def story() -> None:
        node = Node()
        await node.start()
        channel = node.channel(connections_max_idle_ms=5000)
        await channel.request(find("a"))
        await asyncio.sleep(4)
        await channel.request(find("b"))
        states = []
        for seconds in (4.5, 1):
            await asyncio.sleep(seconds)
            states.append(channel.is_connected)
        assert states == [True, False]
        assert channel.backoff_ms == 0
        assert channel.last_failure is None
        node.is_silent = True
        pending = channel.request(find("c"))
        await asyncio.sleep(20)
        assert channel.is_connected, "who waits for an answer is not idle"
        node.is_silent = False
        node.dispatch(*node.held[0])
        await pending
        await channel.close()
        await node.server.stop(100)

    run_simulated(story)


def test_bytes_behind_an_answer_are_passed_over(run: Run) -> None:
    async def story() -> None:
        node = Node()
        node.spoil = lambda parts: [*parts, b"\0\0\0"]
        await node.start()
        channel = node.channel()
        assert (await channel.request(find("a"))).host == "a"
        await channel.close()
        await node.server.stop(100)

    run(story)


@pytest.mark.parametrize("trusted_bytes", [0, 8 << 20])
def test_large_answers_arrive_whole(run_real: Run, trusted_bytes: int) -> None:
    async def story() -> None:
        node = Node()
        await node.start()
        channel = node.channel(trusted_response_bytes=trusted_bytes)
        for size in (1, 30_000, 32_000):
            assert (await channel.request(find("x" * size))).host == "x" * size
        node.spoil = lambda parts: [*parts, bytes(5 << 20)]
        assert (await channel.request(find("y" * 1000))).host == "y" * 1000
        await channel.close()
        await node.server.stop(100)

    run_real(story)


def test_a_peer_that_leaves_right_after_telling_its_versions_is_not_taken_for_connected(run_real: Run) -> None:
    async def story() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            answer = encode_response(ApiVersionsResponse(api_keys=[]), asked[3], int.from_bytes(asked[4:8], "big"))
            writer.write(b"".join(frame_parts(answer)))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        channel = Channel("127.0.0.1", port, client_id="tester", randomness=Random(1))
        for _ in range(3):
            # Whether it notices at once or a moment later is up to the loop.
            with contextlib.suppress(ChannelError):
                await channel.connect()
            await eventually(lambda: not channel.is_connected)
            assert channel.backoff_ms > 0
            assert channel.last_failure is not None
        await channel.close()
        server.close()

    run_real(story)


def test_a_peer_that_ends_a_connection_before_anything_was_asked_is_not_waited_for() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        owner = Channel("127.0.0.1", 9092, client_id="tester", randomness=Random(1))
        connection = OutgoingConnection(owner, owner.address, 1 << 20, 1 << 20)
        connection.connection_made(Gone())
        connection.connection_lost(None)
        began_s = loop.time()
        with pytest.raises(ConnectError, match="did not tell its versions: the connection ended"):
            await negotiate(connection, owner.address, "tester", 30_000, lambda size_bytes: None)
        assert loop.time() == began_s

    run_simulated(story)


class Gone(asyncio.Transport):
    """What is left of a connection that has ended."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_extra_info(self, name: str, default: object = None) -> object: ...

    def write(self, data: object) -> None: ...

    def abort(self) -> None: ...


def test_every_address_of_a_host_is_tried(run_real: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        node = Node()
        await node.start()

        async def addresses(host: str, port: int) -> list[str]:
            assert host == "some.name"
            return ["127.0.0.2", "127.0.0.3", "127.0.0.1"][: 3 if node.port == port else 2]

        monkeypatch.setattr("barnabas.net.dialing._addresses", addresses)
        channel = Channel("some.name", node.port, client_id="tester", randomness=Random(1))
        assert (await channel.request(find("a"))).host == "a"
        await channel.close()
        port = node.port
        await node.server.stop(100)
        channel = Channel("some.name", port + 1 if port < 65535 else port - 1, client_id="t", randomness=Random(1))
        with pytest.raises(ConnectError, match=r"no connection: 127\.0\.0\.2: .*; 127\.0\.0\.3: "):
            await channel.connect()
        await channel.close()

    run_real(story)


@pytest.mark.parametrize("host", ["kafka..local", "k" * 70])
def test_a_name_that_no_host_can_have_fails_like_one_that_is_not_found(run_real: Run, host: str) -> None:
    async def story() -> None:
        channel = Channel(host, 9092, client_id="tester", randomness=Random(1))
        with pytest.raises(ConnectError, match="no connection: no host can have this name"):
            await channel.connect()
        assert channel.backoff_ms > 0
        await channel.close()

    run_real(story)


def test_closing_breaks_off_an_attempt_to_connect() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        channel = Channel("127.0.0.1", 1, client_id="tester", randomness=Random(1))
        for _ in range(6):
            with pytest.raises(ConnectError):
                await channel.connect()
        waiting = [asyncio.ensure_future(channel.connect()), channel.request(find("a"))]
        await asyncio.sleep(0.001)
        began_s = loop.time()
        await channel.close()
        assert loop.time() - began_s < 0.01
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in outcomes] == [ConnectError] * 2
        with pytest.raises(ConnectError, match="the channel was closed"):
            await channel.connect()

    run_simulated(story)


def test_addresses_are_written_as_people_write_them() -> None:
    assert [address_text("a", 1), address_text("::1", 2), address_text("", 3)] == ["a:1", "[::1]:2", "*:3"]


def test_the_mock_cluster_of_librdkafka_answers(run_real: Run) -> None:
    with running_mock_cluster() as cluster:

        async def story() -> None:
            channel = Channel(cluster.host, cluster.port, client_id="tester", randomness=Random(1))
            # The mock ends Metadata of 9 and later with bytes that do not belong there.
            answers = await asyncio.gather(*[channel.request(MetadataRequest(topics=[]), version=8) for _ in range(20)])
            assert all(isinstance(answer, MetadataResponse) for answer in answers)
            assert [(broker.host, broker.port) for broker in answers[0].brokers] == [(cluster.host, cluster.port)]
            assert channel.offered[ApiKey.API_VERSIONS] == cluster.versions[ApiKey.API_VERSIONS]
            own = await channel.request(ApiVersionsRequest(), version=2)
            assert own.error_code == 0
            await channel.close()

        run_real(story)
