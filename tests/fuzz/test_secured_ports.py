"""Bad peers at ports that ask who is there: in the handshake of TLS, in SASL, and in its tokens. Whatever they do, who
can show who it is goes on, nobody else gets in, and nothing is left of them.

BARNABAS_FUZZ_ROUNDS=50 pytest tests/fuzz        # more seeds; one is the default
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from barnabas.base.sasl import Mechanism
from barnabas.base.sasl.scram import ScramClient
from barnabas.wire.apis import ApiKey
from barnabas.wire.headers import decode_response
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.compat.brokers import OurServer
from tests.fuzz.processes import open_files, resident_bytes
from tests.net.tls.test_bad_peers import client_hello
from tests.security.listeners import PROTOCOLS, USERS, Place, any_frame, converse, framed, request_frame, served

ROUNDS = int(os.environ.get("BARNABAS_FUZZ_ROUNDS", "1"))
GROWTH_BYTES = 96 * 1024 * 1024
SETTLE_S = 10
_SASL = ("CLIENTS", "SECURED", "CONTROLLERS")
_TLS = [name for name, protocol in PROTOCOLS.items() if protocol.endswith("SSL")]
#: As many at the same time as stop half way.
_HALF = 150

Attack = Callable[[Place, Random], None]


def _shake(mechanism: str, version: int = 1) -> bytes:
    return framed(request_frame(SaslHandshakeRequest(mechanism=mechanism), version))


def _token(data: bytes) -> bytes:
    return framed(request_frame(SaslAuthenticateRequest(auth_bytes=data), 2))


def _mutated(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.randint(1, 5)):
        kind, place = random.randrange(4), random.randrange(len(changed) + 1)
        if kind == 0 and place < len(changed):
            changed[place] = random.randrange(256)
        elif kind == 1:
            changed[place:place] = random.randbytes(random.randrange(40))
        elif kind == 2:
            del changed[place : place + random.randrange(40)]
        else:
            changed += changed[:place]
    return bytes(changed)


def changed_frames(place: Place, random: Random) -> None:
    frames = [_shake("PLAIN"), _shake("PLAIN", 0), _token(b"\0ann\0no"), framed(any_frame(ApiKey.METADATA, 9))]
    for _ in range(60):
        conversation = [_mutated(random, random.choice(frames)) for _ in range(random.randint(1, 3))]
        with contextlib.suppress(TimeoutError):  # of half a frame there is nothing to say
            converse(place, random.choice(_SASL), conversation, wait_s=0.05)


def changed_tokens(place: Place, random: Random) -> None:
    for _ in range(40):
        scram = ScramClient(Mechanism.SCRAM_SHA_256, random.choice(("ann", "nobody")), "no", f"{random.random()}")
        told = converse(place, "CLIENTS", [_shake("SCRAM-SHA-256"), _token(_mutated(random, scram.first()))])
        assert len(told.answers) <= 2
        for token in (b"\0ann\0wrong", b"ann\0node\0x", random.randbytes(300)):
            refused = converse(place, "CLIENTS", [_shake("PLAIN"), _token(_mutated(random, token))])
            assert refused.is_closed


def proofs_of_others(place: Place, random: Random) -> None:
    """A last message of SCRAM that is changed, or that was good another time."""
    for _ in range(20):
        client = ScramClient(Mechanism.SCRAM_SHA_256, "ann", "no", f"{random.random()}")
        first = [_shake("SCRAM-SHA-256"), _token(client.first())]
        _, asked = decode_response(SaslAuthenticateResponse, 2, converse(place, "CLIENTS", first).answers[1])
        proof = client.respond(asked.auth_bytes) or b""
        for last in (proof, _mutated(random, proof)):
            assert converse(place, "CLIENTS", [*first, _token(last)]).is_closed


def large_frames(place: Place, random: Random) -> None:
    sizes = (-1, -(2**31), 0, 524_289, 100 * 1024 * 1024, 2**31 - 1)
    for size in sizes:
        for listener in _SASL:
            told = converse(place, listener, [struct.pack(">i", size) + random.randbytes(30_000)])
            assert told == ([], True)


def changed_hellos(place: Place, random: Random) -> None:
    hello = client_hello()
    for _ in range(60):
        with contextlib.suppress(OSError), place.connect_in_the_clear(random.choice(_TLS)) as stream:
            stream.settimeout(0.05)
            stream.sendall(_mutated(random, hello))
            stream.recv(1000)


def many_that_stop_half_way(place: Place, random: Random) -> None:
    """They hold their connections; others are served meanwhile."""
    held: list[socket.socket] = []
    try:
        for number in range(_HALF):
            stream = place.connect_in_the_clear("SECURED" if number % 2 else "CLIENTS")
            held.append(stream)
            stream.sendall((client_hello() if number % 2 else _shake("SCRAM-SHA-256") + b"\0\0\1\0")[: 4 + number])
        assert logs_in(place)
    finally:
        for stream in held:
            stream.close()


ATTACKS: tuple[Attack, ...] = (
    changed_frames,
    changed_tokens,
    proofs_of_others,
    large_frames,
    changed_hellos,
    many_that_stop_half_way,
)


def logs_in(place: Place) -> bool:
    """Somebody who can show who it is asks for the topics."""
    for listener in ("CLIENTS", "SECURED"):
        told = converse(
            place,
            listener,
            [
                _shake("PLAIN"),
                _token(f"\0node\0{USERS['node']}".encode()),
                framed(request_frame(MetadataRequest(topics=[]), 9)),
            ],
            wait_s=SETTLE_S,
        )
        _, metadata = decode_response(MetadataResponse, 9, told.answers[2])
        if not metadata.brokers or told.is_closed:
            return False
    return True


class Victim:
    """The node, and what it had before."""

    def __init__(self, place: Place, server: OurServer) -> None:
        self.place = place
        self.server = server
        assert logs_in(place)
        self._files = open_files(server.pid)
        self._memory_bytes = resident_bytes(server.pid)
        self._told = 0

    def check(self) -> None:
        assert self.server.is_running, self.server.log_tail()
        assert logs_in(self.place)
        deadline_s = time.monotonic() + SETTLE_S
        while (left := open_files(self.server.pid) - self._files) > 5:
            assert time.monotonic() < deadline_s, f"{left} more open files than before"
            time.sleep(0.05)
        growth = resident_bytes(self.server.pid) - self._memory_bytes
        assert growth < GROWTH_BYTES, f"the node has grown by {growth / 1e6:.0f} MB"
        log = self.server.log_path.read_text(errors="replace")[self._told :]
        self._told += len(log)
        assert "Traceback" not in log, log[max(0, log.index("Traceback") - 300) :][:4000]


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    folder: Path = tmp_path_factory.mktemp("secured")
    with served(folder) as (place, server):
        yield Victim(place, server)
        assert server.stop() == 0, "the node did not stop cleanly after all this"


@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_those_who_are_known_go_on(victim: Victim, attack: Attack, seed: int) -> None:
    began_s = time.monotonic()
    attack(victim.place, Random(f"{attack.__name__} {seed}"))
    victim.check()
    assert time.monotonic() - began_s < 60
