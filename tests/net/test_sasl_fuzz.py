"""Whatever a stranger sends before it has shown who it is: it learns what ApiVersions tells, and nothing stays."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from barnabas.net.phases import ConnectionPhase
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.net.test_sasl_phase import BAD, METADATA, OLD_VERSIONS, VERSIONS, World, frame
from tests.net.worlds import framed, run_simulated
from tests.sweeps import IS_FULL

_CONVERSATIONS = 40
_SEEDS = {
    "versions": VERSIONS,
    "old versions": OLD_VERSIONS,
    "handshake 0": frame(SaslHandshakeRequest(mechanism="PLAIN"), 0),
    "handshake 1": frame(SaslHandshakeRequest(mechanism="PLAIN"), 1),
    "slow handshake": frame(SaslHandshakeRequest(mechanism="SLOW"), 1),
    "token": frame(SaslAuthenticateRequest(auth_bytes=BAD), 2),
    "raw token": BAD,
    "metadata": METADATA,
}


def _mutated(random: Random, seed: bytes) -> bytes:
    """A frame as it should be, or with bytes changed, cut off, added, or of a wrong size."""
    data = bytearray(seed)
    kind = random.randrange(6)
    if kind == 1:
        for _ in range(random.randint(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
    elif kind == 2:
        del data[random.randrange(len(data)) :]
    elif kind == 3:
        data += random.randbytes(random.randrange(300))
    elif kind == 4:
        data = bytearray(random.randbytes(random.randint(1, 1200)))
    whole = framed(bytes(data)) if data else bytes(4)
    if kind == 5:
        return random.randrange(-(2**31), 2**31).to_bytes(4, "big", signed=True) + whole[4:]
    return whole


@pytest.mark.parametrize("seed", range(400 if IS_FULL else 12))
def test_strangers_learn_nothing_and_leave_nothing(seed: int) -> None:
    random = Random(seed)

    async def story() -> None:
        async with World() as world:
            for _ in range(_CONVERSATIONS):
                peer = await world.peer()
                for _ in range(random.randint(1, 5)):
                    peer.transport.write(_mutated(random, random.choice(list(_SEEDS.values()))))
                    await asyncio.sleep(random.choice((0, 0.001, 0.01)))
                    assert all(
                        each.phase is not ConnectionPhase.READY and each.principal == "User:ANONYMOUS"
                        for each in world.server.connections
                    )
                if random.random() < 0.5:
                    peer.transport.abort()
                else:
                    peer.transport.close()
            await asyncio.sleep(1)
            assert not list(world.server.connections)
            assert world.server.request_bytes == 0
            asked = {int.from_bytes(each[:2], "big") for each in world.desk.frames}
            assert asked <= {ApiKey.API_VERSIONS}
            assert world.sasl.counts.successful == 0
            assert world.sasl.counts.failed > 0

    run_simulated(story, seed)
