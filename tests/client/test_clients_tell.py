"""What clients say by the way: which cluster they are in, what it is when it changes, listeners that speak something
else, buffers that are smaller than was asked for. Whatever a task of the program does, lines name their client."""

from __future__ import annotations

import asyncio
import logging
import socket
from random import Random
from typing import Any

import pytest

from barnabas.aio import Consumer, Producer
from barnabas.client.core.metadata import Metadata
from barnabas.client.errors import NoBrokersError
from barnabas.client.network_client import NetworkClient
from barnabas.client.settings import AdminSettings
from barnabas.net import dialing
from barnabas.net.sockets import SocketBuffers, smaller_buffers
from barnabas.wire import ApiKey
from tests.client.cluster import SILENCE, Cluster, LoopClock
from tests.net.worlds import run_simulated


def network_of(cluster: Cluster, kind: str = "admin", client_id: str = "me") -> NetworkClient:
    settings = AdminSettings.load({"bootstrap.servers": cluster.bootstrap_servers, "client.id": client_id})
    randomness = Random(1)
    return NetworkClient(
        settings, Metadata.of(settings, randomness=randomness), clock=LoopClock(), randomness=randomness, kind=kind
    )


def test_the_cluster_id_when_it_is_known_and_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas.client")

    async def story() -> None:
        cluster = Cluster()
        await cluster.start()
        network = network_of(cluster)
        await network.start()
        await network.update_metadata(5000)
        await network.update_metadata(5000)
        assert caplog.messages == ["[admin me] Cluster ID: fakefakefakefakefake00"]
        cluster.cluster_id = "another0another0anothe"
        await network.update_metadata(5000)
        assert caplog.records[-1].levelno == logging.WARNING
        assert caplog.messages[1].startswith(
            "[admin me] The brokers belong to another cluster than before: its ID is another0another0anothe, and was "
            "fakefakefakefakefake00. Addresses of bootstrap.servers lead elsewhere now"
        )
        await network.close()
        await cluster.stop()

    run_simulated(story)


def test_metadata_that_cannot_be_updated(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        cluster = Cluster()
        cluster.add_topic("t", (1, 3))
        await cluster.start()
        network = network_of(cluster)
        await network.start()
        await network.topic_metadata("t", 5000)
        cluster[1].answers[ApiKey.METADATA] = lambda *_: SILENCE
        network.metadata.request_update()
        await asyncio.sleep(100)
        (line, *_) = caplog.messages
        assert line.startswith("[admin me] the metadata of the cluster cannot be updated: ")
        assert "it is tried again" in line
        del cluster[1].answers[ApiKey.METADATA]
        await asyncio.sleep(100)
        assert caplog.messages[-1] == "[admin me] the metadata of the cluster is up to date again"
        await network.close()
        await cluster.stop()

    run_simulated(story)


@pytest.mark.parametrize(
    "answer", [b"\x15\x03\x03\x00\x02\x02\x46", b"", b"\x00\x00"], ids=["an alert of TLS", "nothing", "too little"]
)
def test_a_listener_that_speaks_tls(answer: bytes) -> None:
    async def story() -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with Producer(bootstrap_servers=f"127.0.0.1:{port}", max_block_ms=300) as producer:
            with pytest.raises(NoBrokersError, match=r"listener is one with TLS, security\.protocol must say so"):
                await producer.send("t", b"x")
        server.close()

    asyncio.run(story())


def test_a_listener_that_does_not_speak_tls() -> None:
    async def story() -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Producer(bootstrap_servers=address, max_block_ms=300, security_protocol="SSL") as producer:
            with pytest.raises(NoBrokersError, match=r"SSL handshake failed.*is the listener there one with SSL"):
                await producer.send("t", b"x")
        server.close()

    asyncio.run(story())


def test_buffers_that_the_system_makes_smaller(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        assert smaller_buffers(opened, SocketBuffers(8192, -1)) == []
        (line,) = smaller_buffers(opened, SocketBuffers(1 << 30, -1))
        assert line == (
            "send.buffer.bytes=1073741824 was asked for, and the system gives 8192: net.core.wmem_max limits it"
        )
        dialing._told.clear()
        for _ in range(3):
            dialing._tell_smaller_buffers(opened, SocketBuffers(1 << 30, -1))
        assert caplog.messages == [line]


def test_two_clients_of_one_task_do_not_mix(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas.client")

    async def story() -> None:
        cluster = Cluster()
        cluster.add_topic("t", (1, 3))
        await cluster.start()
        common: dict[str, Any] = {"clock": LoopClock(), "randomness": Random(1)}
        common["bootstrap_servers"] = cluster.bootstrap_servers
        async with (
            Producer(client_id="orders-1", **common) as producer,
            Consumer("misspelt", client_id="orders-2", **common) as consumer,
        ):
            await asyncio.sleep(1)
            sending = asyncio.ensure_future(producer.send("nothing", b"x"))
            assert await consumer.poll(timeout=5) == []
            sending.cancel()
        await cluster.stop()

    run_simulated(story)
    by_client = {line.partition("] ")[0].removeprefix("["): line for line in caplog.messages}
    assert set(by_client) == {"producer orders-1", "consumer orders-2"}
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert any(line.startswith("[producer orders-1] topic 'nothing' does not exist") for line in warnings)
    assert any(line.startswith("[consumer orders-2] topic 'misspelt' does not exist") for line in warnings)
