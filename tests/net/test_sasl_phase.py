"""A connection before its peer has shown who it is: what may be asked, what is answered, how it fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.runtime import ManualClock
from barnabas.base.sasl import Authenticated, SaslError
from barnabas.base.sasl.plain import PlainServer, verify_among
from barnabas.net import Connection, ListenerSpec, Server, ServerLimits
from barnabas.net.phases import ConnectionPhase
from barnabas.net.sasl_server import SaslListener
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.headers import decode_response, encode_request
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.net.worlds import Desk, Peer, Story, is_urgent

Run = Callable[[Story], None]

GOOD = b"\0ann\0swordfish"
BAD = b"\0ann\0wrong"
DELAY_MS = 40


class Slow:
    """A mechanism of two steps, whose users change as a test wants."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._steps = 0
        self.outcome: Authenticated | None = None

    def respond(self, token: bytes) -> bytes:
        self._steps += 1
        if token == b"no":
            raise SaslError("it was told to fail")
        if self._steps == 2:
            self.outcome = self._world.next_outcome
        return b"step %d" % self._steps


@dataclass
class World:
    """A server whose listener asks for SASL, and what its desk has seen."""

    desk: Desk = field(default_factory=Desk)
    clock: ManualClock = field(default_factory=ManualClock)
    next_outcome: Authenticated = field(default_factory=lambda: Authenticated("ann"))
    max_reauth_ms: int = 0
    server: Server = field(
        default_factory=lambda: Server(
            is_urgent,
            ServerLimits(connection_failed_authentication_delay_ms=DELAY_MS, sasl_server_max_receive_size=1000),
        )
    )

    def __post_init__(self) -> None:
        self.sasl = SaslListener(
            {"PLAIN": lambda: PlainServer(verify_among({"ann": "swordfish"})), "SLOW": lambda: Slow(self)},
            self.clock,
            {"PLAIN": self.max_reauth_ms, "SLOW": self.max_reauth_ms},
        )

    async def __aenter__(self) -> World:
        spec = ListenerSpec("SASL", "127.0.0.1", 0, sasl=self.sasl)
        await self.server.start([spec], self.desk.dispatch)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop(0)

    @property
    def connection(self) -> Connection:
        (found,) = self.server.connections
        return found

    async def peer(self) -> Peer:
        return await Peer.connect(self.server, "SASL")


def frame(request: Request, version: int, correlation_id: int = 7) -> bytes:
    return b"".join(map(bytes, encode_request(request, version, correlation_id, "test")))


async def ask(peer: Peer, request: Request, version: int) -> Response:
    kind = api(request.API_KEY).response
    correlation_id, answer = decode_response(kind, version, await peer.ask(frame(request, version)))
    assert correlation_id == 7
    return answer


async def shake(peer: Peer, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
    answer = await ask(peer, SaslHandshakeRequest(mechanism=mechanism), version)
    assert isinstance(answer, SaslHandshakeResponse)
    return answer


async def show(peer: Peer, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
    answer = await ask(peer, SaslAuthenticateRequest(auth_bytes=token), version)
    assert isinstance(answer, SaslAuthenticateResponse)
    return answer


VERSIONS = frame(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
OLD_VERSIONS = frame(ApiVersionsRequest(), 0)
METADATA = frame(MetadataRequest(topics=None), 1)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_who_has_shown_who_it_is_may_ask(run: Run, version: int) -> None:
    async def story() -> None:
        async with World() as world:
            peer = await world.peer()
            assert await peer.ask(VERSIONS) == VERSIONS, "the desk answers with the question"
            answer = await shake(peer)
            assert (answer.error_code, answer.mechanisms) == (0, ["PLAIN", "SLOW"])
            assert world.connection.phase is ConnectionPhase.AUTHENTICATING
            shown = await show(peer, GOOD, version)
            assert (shown.error_code, shown.auth_bytes, shown.session_lifetime_ms) == (0, b"", 0)
            assert world.connection.phase is ConnectionPhase.READY
            assert world.connection.principal == "User:ann"
            assert await peer.ask(METADATA) == METADATA
            assert await peer.ask(bytes(METADATA[:8]) + bytes(5000)), "frames may be large now"
            assert world.desk.frames[:2] == [VERSIONS, METADATA]
            assert world.sasl.counts.successful == 1

    run(story)


def test_tokens_after_the_first_version_of_the_handshake_have_no_header(run: Run) -> None:
    async def story() -> None:
        async with World() as world:
            peer = await world.peer()
            await shake(peer, "SLOW", version=0)
            assert await peer.ask(b"one") == b"step 1"
            assert await peer.ask(b"two") == b"step 2"
            assert world.connection.principal == "User:ann"
            assert await peer.ask(METADATA) == METADATA

    run(story)


class Raw(Peer):
    """A peer that takes bytes as they are."""

    def data_received(self, data: bytes) -> None:
        self.frames.append(data)
        self._changed.set()


def test_an_empty_answer_without_header_has_a_frame(run: Run) -> None:
    async def story() -> None:
        async with World() as world:
            peer = await Raw.connect(world.server, "SASL")
            peer.send(frame(SaslHandshakeRequest(mechanism="PLAIN"), 0))
            await peer.until(lambda: bool(peer.frames))
            before = len(b"".join(peer.frames))
            peer.send(GOOD)
            await peer.until(lambda: len(b"".join(peer.frames)) > before)
            assert b"".join(peer.frames)[before:] == bytes(4)
            assert world.connection.principal == "User:ann"

    run(story)


def test_a_failure_without_headers_is_told_by_the_end_of_the_connection(run: Run) -> None:
    async def story() -> None:
        async with World() as world:
            peer = await world.peer()
            await shake(peer, version=0)
            peer.send(BAD)
            await peer.closed()
            assert len(peer.frames) == 1

    run(story)


def test_a_failure_is_told_late_and_says_nothing(run: Run) -> None:
    async def story() -> None:
        async with World() as world:
            peer = await world.peer()
            await shake(peer)
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            answer = await show(peer, BAD)
            assert loop.time() - began_s >= DELAY_MS / 1000 - 0.002
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert answer.error_message == "Authentication failed: Invalid username or password"
            await peer.closed()
            assert world.sasl.counts.failed == 1
            assert not world.desk.frames
            other = await world.peer()
            await shake(other, "SLOW")
            answer = await show(other, b"no")
            assert answer.error_message == (
                "Authentication failed during authentication due to invalid credentials with SASL mechanism SLOW"
            )

    run(story)


def test_nothing_is_read_while_a_failure_waits(run: Run) -> None:
    async def story() -> None:
        async with World() as world:
            peer = await world.peer()
            await shake(peer)
            peer.send(
                frame(SaslAuthenticateRequest(auth_bytes=BAD), 2), frame(SaslAuthenticateRequest(auth_bytes=GOOD), 2)
            )
            await peer.closed()
            assert len(peer.frames) == 2
            assert world.sasl.counts.successful == 0
            assert not world.desk.frames

    run(story)


def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are(run: Run) -> None:
    async def story() -> None:
        async with World() as world:
            peer = await world.peer()
            answer = await shake(peer, "GSSAPI")
            assert (answer.error_code, answer.mechanisms) == (
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                ["PLAIN", "SLOW"],
            )
            await peer.closed()

    run(story)


@pytest.mark.parametrize(
    "frames",
    [
        [METADATA],
        [VERSIONS, METADATA],
        [OLD_VERSIONS, OLD_VERSIONS],
        [frame(SaslAuthenticateRequest(auth_bytes=GOOD), 2)],
        [bytes.fromhex("00110009000000070000")],  # a version of the handshake that nobody knows
        [b"\x60\x82\x01\x01" + bytes(40)],  # what clients of Kafka 0.9 with Kerberos send
        [b"GET / HTTP/1.1\r\n\r\n"],
        [b"\0\x11\0\x01\0\0\0\x07\0\x04test\x7f\xff"],
        [bytes(2000)],
    ],
    ids=lambda frames: str(len(frames)),
)
def test_what_does_not_belong_there_ends_the_connection(run: Run, frames: list[bytes]) -> None:
    async def story() -> None:
        async with World() as world:
            peer = await world.peer()
            for each in frames[:-1]:
                await peer.ask(each)
            peer.send(frames[-1])
            await peer.closed()
            assert len(peer.frames) == len(frames) - 1
            assert all(int.from_bytes(each[:2], "big") == ApiKey.API_VERSIONS for each in world.desk.frames)

    run(story)


@pytest.mark.parametrize(
    ("request_", "version", "is_told"),
    [
        (SaslHandshakeRequest(mechanism="PLAIN"), 1, True),
        (ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3, True),
        (MetadataRequest(topics=None), 1, False),
    ],
)
def test_in_the_midst_of_the_exchange_nothing_else_is_taken(
    run: Run, request_: Request, version: int, is_told: bool
) -> None:
    async def story() -> None:
        async with World() as world:
            peer = await world.peer()
            await shake(peer, "SLOW")
            await show(peer, b"one")
            peer.send(frame(request_, version))
            await peer.closed()
            assert len(peer.frames) == (3 if is_told else 2)
            if is_told:
                _, answer = decode_response(api(request_.API_KEY).response, version, peer.frames[2])
                assert getattr(answer, "error_code", None) == ErrorCode.ILLEGAL_SASL_STATE
            assert not world.desk.frames

    run(story)


def test_large_frames_are_for_those_who_are_known(run: Run) -> None:
    """CVE-2022-34917: the size is refused when it is announced, before anything is allocated."""

    async def story() -> None:
        async with World() as world:
            peer = await world.peer()
            peer.transport.write((100 * 1024 * 1024).to_bytes(4, "big"))
            await peer.closed()
            assert world.server.request_bytes == 0

    run(story)


def test_a_session_ends_unless_its_peer_shows_itself_again(run: Run) -> None:
    async def story() -> None:
        async with World(max_reauth_ms=60) as world:
            peer = await world.peer()
            await shake(peer)
            assert (await show(peer, GOOD)).session_lifetime_ms == 60
            assert await peer.ask(METADATA) == METADATA
            await asyncio.sleep(0.03)
            await shake(peer)
            assert (await show(peer, GOOD)).session_lifetime_ms == 60
            await asyncio.sleep(0.04)
            assert await peer.ask(METADATA) == METADATA, "it would be over without the second time"
            await asyncio.sleep(0.05)
            peer.send(METADATA)
            await peer.closed()
            counts = world.sasl.counts
            assert (counts.successful, counts.successful_reauthentication) == (1, 1)
            assert counts.expired_connections_killed == 1

    run(story)


def test_the_end_of_what_was_shown_is_the_end_of_the_session(run: Run) -> None:
    async def story() -> None:
        async with World(max_reauth_ms=500) as world:
            world.next_outcome = Authenticated("ann", expires_at_ms=world.clock.now_ms() + 200, is_token=True)
            peer = await world.peer()
            await shake(peer, "SLOW")
            assert (await show(peer, b"one")).session_lifetime_ms == 0
            assert (await show(peer, b"two")).session_lifetime_ms == 200
            assert world.connection.is_token_authenticated

    run(story)


def test_nobody_becomes_another_by_showing_itself_again(run: Run) -> None:
    async def story() -> None:
        async with World(max_reauth_ms=10_000) as world:
            peer = await world.peer()
            await shake(peer, "SLOW")
            await show(peer, b"one")
            await show(peer, b"two")
            world.next_outcome = Authenticated("root")
            await shake(peer, "SLOW")
            await show(peer, b"one")
            answer = await show(peer, b"two")
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert answer.error_message == "Cannot change principals during re-authentication from User.ann: User.root"
            await peer.closed()
            assert world.sasl.counts.failed_reauthentication == 1

    run(story)


def test_nobody_changes_the_mechanism_by_showing_itself_again(run: Run) -> None:
    async def story() -> None:
        async with World(max_reauth_ms=10_000) as world:
            peer = await world.peer()
            await shake(peer, "SLOW")
            await show(peer, b"one")
            await show(peer, b"two")
            assert (await shake(peer, "PLAIN")).error_code == 0
            peer.send(frame(SaslAuthenticateRequest(auth_bytes=GOOD), 2))
            await peer.closed()
            assert len(peer.frames) == 4

    run(story)


def test_where_sessions_do_not_end_another_handshake_is_a_request_like_others(run: Run) -> None:
    async def story() -> None:
        async with World() as world:
            peer = await world.peer()
            await shake(peer)
            await show(peer, GOOD)
            again = frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert await peer.ask(again) == again, "the handlers say that it is too late"

    run(story)


def test_a_peer_that_stops_half_way_is_sent_away_for_its_silence(run: Run) -> None:
    async def story() -> None:
        limits = ServerLimits(connections_max_idle_ms=50)
        async with World(server=Server(is_urgent, limits)) as world:
            silent, begun, torn = await world.peer(), await world.peer(), await world.peer()
            await shake(begun, "SLOW")
            torn.transport.write(b"\0\0\0\x40half")
            for peer in (silent, begun, torn):
                await peer.closed()
            assert not list(world.server.connections)

    run(story)


def test_a_peer_that_leaves_while_its_failure_waits_harms_nobody(run: Run) -> None:
    async def story() -> None:
        async with World() as world:
            peer = await world.peer()
            await shake(peer)
            peer.send(frame(SaslAuthenticateRequest(auth_bytes=BAD), 2))
            while not world.sasl.counts.failed:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            peer.transport.abort()
            await asyncio.sleep(3 * DELAY_MS / 1000)
            assert not list(world.server.connections)
            other = await world.peer()
            await shake(other)
            assert (await show(other, GOOD)).error_code == 0

    run(story)


def test_no_password_is_in_the_log(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with World() as world:
            for token in (GOOD, BAD, b"\0ann\0swordfish\0more", b"bob\0ann\0swordfish"):
                peer = await world.peer()
                await shake(peer)
                await show(peer, token)

    with caplog.at_level(logging.DEBUG):
        run(story)
    assert "Failed authentication with 127.0.0.1" in caplog.text
    for secret in ("swordfish", "wrong"):
        assert secret not in caplog.text
