"""Requests and answers over TLS, from peers with Python's own TLS and from our channels; who they are, and who is sent
away."""

from __future__ import annotations

import asyncio
import datetime
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from barnabas.net import Channel, ChannelLimits, ConnectError, Connection, Server, SslAuthenticationError
from barnabas.net.security import ChannelSecurity
from barnabas.testing.certificates import IssuedCertificate
from barnabas.wire.message import Response
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.net.tls.worlds import alice, authority, client, listener, node, python_context
from tests.net.worlds import MIB, Desk, Peer, Story, eventually, started

Run = Callable[[Story], None]


async def dialled(server: Server, context: ssl.SSLContext | None = None) -> Peer:
    return await Peer.connect(server, "SSL", ssl=context or python_context(), server_hostname="localhost")


def files_of(issued: IssuedCertificate, folder: Path) -> tuple[str, str]:
    certificate, key = folder / "it.crt", folder / "it.key"
    certificate.write_text(issued.chain_pem)
    key.write_text(issued.key_pem)
    return str(certificate), str(key)


class Answering(Desk):
    """Answers ApiVersions, as a channel asks it first."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = self._answer
        self.principals: list[str] = []

    def _answer(self, connection: Connection, frame: bytes) -> None:
        self.principals.append(connection.principal)
        response: Response = ApiVersionsResponse(api_keys=[])
        connection.respond([frame[4:8], *response.encode_parts(0)])


async def asked(server: Server, tls: object, host: str = "127.0.0.1") -> Channel:
    """A channel that was connected, by the oldest version of ApiVersions, since `Answering` knows no other."""
    security = ChannelSecurity(tls=tls)  # type: ignore[arg-type]
    limits = ChannelLimits(socket_connection_setup_timeout_ms=2000, request_timeout_ms=2000)
    channel = Channel(
        host, server.endpoints["SSL"][1], client_id="c", randomness=Random(1), limits=limits, security=security
    )
    await channel.connect()
    return channel


@pytest.fixture(autouse=True)
def _oldest_api_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ApiVersionsRequest, "VERSIONS", type(ApiVersionsRequest.VERSIONS)(0, 0))


def test_small_and_large_frames_go_both_ways(run_real: Run) -> None:
    async def story() -> None:
        server = await started(Desk(), listener())
        peer = await dialled(server)
        for frame in (b"x", b"y" * 100, b"z" * 70_000, bytes(range(256)) * (20 * 1024)):
            assert await peer.ask(frame) == frame
        peer.send(*(b"%d" % number for number in range(500)))
        assert (await peer.answers(504))[-1] == b"499"
        await server.stop()

    run_real(story)


def test_who_has_no_certificate_is_anonymous_and_who_has_one_is_called_by_its_name(
    run_real: Run, tmp_path: Path
) -> None:
    async def story() -> None:
        desk = Desk()
        server = await started(desk, listener(client_auth="requested"))
        await (await dialled(server)).ask(b"who?")
        await (await dialled(server, python_context(files_of(alice(), tmp_path)))).ask(b"and I?")
        assert [connection.principal for connection, _ in desk.requests] == [
            "User:ANONYMOUS",
            "User:CN=alice,O=Barnabas try-out",
        ]
        assert server.authentications.succeeded_count == 2
        await server.stop()

    run_real(story)


def test_rules_say_who_somebody_is_and_who_is_nobody(run_real: Run, tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk()
        server = await started(desk, listener(client_auth="required", rules="RULE:^CN=(a[a-z]*),.*$/$1/U"))
        await (await dialled(server, python_context(files_of(alice(), tmp_path)))).ask(b"who?")
        assert desk.requests[0][0].principal == "User:ALICE"
        stranger = authority().issue("bob")
        peer = await dialled(server, python_context(files_of(stranger, tmp_path)))
        await peer.closed()
        assert server.authentications.failed_count == 1
        await server.stop()

    run_real(story)


def test_a_peer_that_reads_nothing_holds_one_piece_and_is_not_asked_for_more(run_real: Run) -> None:
    """What is left of an answer of 40 MiB is the answer itself, not a second copy of it that is encrypted."""

    async def story() -> None:
        desk = Desk()
        answer = bytes(40 * MIB)
        desk.answer = lambda connection, _: connection.respond([answer])
        server = await started(desk, listener())
        peer = await dialled(server)
        peer.stop_reading()
        peer.send(b"a lot", b"more")
        await desk.arrived(1)
        connection = next(server.connections)
        await asyncio.sleep(0.1)
        below = connection._transport._below  # type: ignore[attr-defined]
        assert 0 < below.get_write_buffer_size() <= 256 * 1024
        assert connection.unsent_bytes > 20 * MIB
        assert len(desk.requests) == 1
        peer.read_on()
        await peer.answers(2)
        await eventually(lambda: connection.unsent_bytes == 0)
        await server.stop()

    run_real(story)


def test_what_was_asked_is_answered_when_the_peer_says_goodbye(run_real: Run) -> None:
    async def story() -> None:
        desk = Desk(is_patient=True)
        server = await started(desk, listener())
        peer = await dialled(server)
        peer.send(b"last words")
        await desk.arrived(1)
        peer.transport.close()
        await asyncio.sleep(0.05)
        desk.answer_next()
        await eventually(lambda: not list(server.connections))
        await server.stop()

    run_real(story)


def test_channels_talk_over_tls_on_every_loop(run: Run) -> None:
    async def story() -> None:
        desk = Answering()
        server = await started(desk, listener(client_auth="required"))
        channel = await asked(server, client(alice()))
        assert channel.is_connected
        assert desk.principals == ["User:CN=alice,O=Barnabas try-out"]
        await channel.close()
        await eventually(lambda: not list(server.connections))
        await server.stop()

    run(story)


# Who is turned away


async def refused(server: Server, tls: object, match: str, host: str = "127.0.0.1") -> None:
    before = len(list(server.connections))
    with pytest.raises(SslAuthenticationError, match=match):
        await asked(server, tls, host)
    await eventually(lambda: len(list(server.connections)) == before)


def test_a_server_whose_certificate_is_not_good_gets_no_request(run: Run) -> None:
    async def story() -> None:
        desk = Answering()
        past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        expired = authority().issue("node", ("127.0.0.1",), starts=past, days=1)
        elsewhere = authority().issue("node", ("other.example",))
        for issued, words in ((expired, "expired"), (elsewhere, "mismatch")):
            server = await started(desk, listener(issued))
            await refused(server, client(), words)
            await server.stop()
        server = await started(desk, listener())
        await refused(server, client(trusted=authority("Other CA")), "not accepted")
        await server.stop()
        assert not desk.requests

    run(story)


def test_a_host_name_is_not_compared_where_nobody_wants_that(run: Run) -> None:
    async def story() -> None:
        server = await started(Answering(), listener(authority().issue("node", ("other.example",))))
        channel = await asked(server, client(checks_host=False))
        await channel.close()
        await server.stop()

    run(story)


@pytest.mark.parametrize("versions", [("TLSv1.2",), ("TLSv1.3",)])
def test_a_client_whose_certificate_is_not_good_asks_nothing(run: Run, versions: tuple[str, ...]) -> None:
    async def story() -> None:
        desk = Answering()
        past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
        expired = authority().issue("alice", starts=past, days=1)
        other = authority("Other CA").issue("alice")
        server = await started(desk, listener(client_auth="required", enabled_protocols=versions))
        await refused(server, client(), "certificate")
        await refused(server, client(expired), "expired")
        await refused(server, client(other), "does not trust|refuses")
        assert not desk.requests
        assert server.authentications.failed_count == 3
        await server.stop()

    run(story)


def test_no_version_or_suite_in_common(run: Run) -> None:
    async def story() -> None:
        desk = Answering()
        server = await started(desk, listener(enabled_protocols=("TLSv1.3",)))
        await refused(server, client(enabled_protocols=("TLSv1.2",)), "ssl.enabled.protocols")
        await server.stop()
        suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
        server = await started(desk, listener(cipher_suites=(suite,)))
        await refused(server, client(cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",)), "cipher suite")
        channel = await asked(server, client(cipher_suites=(suite,)))
        await channel.close()
        await server.stop()
        assert len(desk.requests) == 1

    run(story)


def test_a_suite_of_tls_1_3_that_was_not_listed_is_turned_away_after_the_handshake(run: Run) -> None:
    async def story() -> None:
        desk = Answering()
        server = await started(desk, listener(cipher_suites=("TLS_AES_128_GCM_SHA256",)))
        with pytest.raises(ConnectError):
            await asked(server, client())
        assert not desk.requests
        assert server.authentications.failed_count == 1
        await server.stop()

    run(story)


def test_a_failure_is_told_once_a_second_and_without_the_name_of_a_secret(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        server = await started(Answering(), listener(client_auth="required"))
        for _ in range(3):
            await refused(server, client(), "certificate")
        await server.stop()

    with caplog.at_level(logging.INFO, "barnabas.net"):
        run(story)
    lines = [each.getMessage() for each in caplog.records if "Failed authentication" in each.getMessage()]
    assert 1 <= len(lines) <= 3
    assert "it showed no certificate, and one is required" in lines[0]
    assert "on SSL" in lines[0]


def test_new_certificates_are_for_new_connections(run: Run) -> None:
    async def story() -> None:
        spec = listener()
        server = await started(Answering(), spec)
        old = await asked(server, client())
        assert spec.tls is not None
        spec.tls.contexts.replace(listener(authority("Other CA").issue("node", ("127.0.0.1",))).tls.contexts.options)  # type: ignore[union-attr]
        await refused(server, client(), "not accepted")
        new = await asked(server, client(trusted=authority("Other CA")))
        assert old.is_connected
        await old.close()
        await new.close()
        await server.stop()

    run(story)


def test_a_node_trusts_itself_or_says_so_at_the_start() -> None:
    from barnabas.base.errors import SettingsError
    from barnabas.net.tls.contexts import TlsContexts
    from tests.net.tls.worlds import options

    TlsContexts(options(node(), client_auth="required"), has_server=True).check_itself()
    with pytest.raises(SettingsError, match="not trusted by"):
        TlsContexts(options(node(), trusted=authority("Other CA")), has_server=True).check_itself()
