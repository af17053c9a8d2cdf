"""The simulated network: TCP as asyncio shows it, with delays and pieces from a seed, and faults on request."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any

import pytest

from barnabas.testing.sim import Link, Network, Process, VirtualTimeLoop
from barnabas.testing.sim.network import HOME
from barnabas.testing.sim.process import ProcessState

SERVER = "10.0.0.1"
Story = Callable[[Network], Coroutine[Any, Any, Any]]


def play(story: Story, seed: int = 1, **options: Any) -> Any:
    loop = VirtualTimeLoop(Random(seed))
    network = Network(loop, Random(seed + 1), **options)
    try:
        return loop.run_until_complete(story(network), limit_s=3600)
    finally:
        loop.close()


class Recorder(asyncio.Protocol):
    """Takes note of everything that it is told."""

    def __init__(self, keeps_half_open: bool = False) -> None:
        self.pieces: list[bytes] = []
        self.events: list[str] = []
        self.lost: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self.keeps_half_open = keeps_half_open
        self.transport: Any = None

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.events.append("made")
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self.keeps_half_open

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.events.append("lost")
        self.lost.set_result(exc)


def on_server(work: Awaitable[Any], process: Process | None = None) -> asyncio.Task[Any]:
    with (process or Process("server", SERVER)).enter():
        return asyncio.ensure_future(work)


class Pair:
    """A client and a server that are connected."""

    def __init__(self, client: Recorder, server: Recorder, process: Process, listening: Any) -> None:
        self.client, self.server, self.process, self.listening = client, server, process, listening


async def connected(keeps_half_open: bool = False) -> Pair:
    loop = asyncio.get_running_loop()
    process = Process("server", SERVER)
    accepted: asyncio.Queue[Recorder] = asyncio.Queue()

    def accept() -> Recorder:
        accepted.put_nowait(Recorder(keeps_half_open))
        return accepted._queue[-1]  # type: ignore[attr-defined,no-any-return]

    listening = await on_server(loop.create_server(accept, SERVER, 9092), process)
    _, client = await loop.create_connection(lambda: Recorder(keeps_half_open), SERVER, 9092)
    return Pair(client, await accepted.get(), process, listening)


def test_streams_work_both_ways() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def story(network: Network) -> None:
        server = await on_server(asyncio.start_server(echo, SERVER, 7))
        reader, writer = await asyncio.open_connection(SERVER, 7)
        for number in range(20):
            writer.write(b"line %d\n" % number)
            assert await reader.readline() == b"LINE %d\n" % number
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()

    play(story)


def test_bytes_arrive_whole_in_order_and_in_pieces() -> None:
    sent = Random(3).randbytes(3_000_000)

    async def story(network: Network) -> list[int]:
        pair = await connected()
        pair.client.transport.write(sent)
        pair.client.transport.close()
        assert await pair.server.lost is None
        assert pair.server.data == sent
        return [len(piece) for piece in pair.server.pieces]

    sizes = play(story)
    assert len(sizes) > 50
    assert min(sizes) < 1000 < 20_000 < max(sizes)
    assert sizes == play(story)
    assert sizes != play(story, seed=2)


def test_borders_between_writes_are_not_kept() -> None:
    async def story(network: Network) -> None:
        pair = await connected()
        pair.server.transport.pause_reading()
        for number in range(1000):
            pair.client.transport.write(b"%03d" % number)
        await asyncio.sleep(1)
        pair.server.transport.resume_reading()
        await asyncio.sleep(1)
        assert pair.server.data == b"".join(b"%03d" % number for number in range(1000))
        assert any(len(piece) > 3 for piece in pair.server.pieces)
        assert any(len(piece) % 3 for piece in pair.server.pieces)

    play(story)


def test_buffered_protocols_are_fed_through_their_buffers() -> None:
    class Buffered(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.room = bytearray(10)
            self.data = b""
            self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.room

        def buffer_updated(self, nbytes: int) -> None:
            self.data += self.room[:nbytes]

        def eof_received(self) -> None:
            self.done.set_result(None)

    async def story(network: Network) -> None:
        receiver = Buffered()
        await network.create_server(lambda: receiver, None, 5)
        transport, _ = await network.create_connection(Recorder, "localhost", 5)
        transport.writelines([b"one ", b"two ", b"x" * 1000])
        transport.write_eof()
        await receiver.done
        assert receiver.data == b"one two " + b"x" * 1000

    play(story)


def test_a_reader_that_pauses_holds_the_writer_back() -> None:
    async def story(network: Network) -> None:
        pair = await connected()
        pair.server.transport.pause_reading()
        transport = pair.client.transport
        transport.set_write_buffer_limits(high=10_000)
        transport.write(b"x" * 105_000)
        assert transport.get_write_buffer_size() == 5_000
        assert pair.client.events == ["made"]
        transport.write(b"y" * 10_000)
        assert pair.client.events == ["made", "pause"]
        await asyncio.sleep(100)
        assert pair.server.pieces == []
        assert transport.get_write_buffer_size() == 15_000
        pair.server.transport.resume_reading()
        await asyncio.sleep(1)
        assert pair.server.data == b"x" * 105_000 + b"y" * 10_000
        assert pair.client.events == ["made", "pause", "resume"]
        assert transport.get_write_buffer_size() == 0

    play(story, link=Link(window_bytes=100_000))


def test_names_of_both_ends_agree() -> None:
    async def story(network: Network) -> None:
        pair = await connected()
        near, far = pair.client.transport, pair.server.transport
        assert far.get_extra_info("sockname") == near.get_extra_info("peername") == (SERVER, 9092)
        assert far.get_extra_info("peername") == near.get_extra_info("sockname")
        assert near.get_extra_info("sockname")[0] == HOME
        assert near.get_extra_info("socket") is None
        assert pair.listening.sockets[0].getsockname() == (SERVER, 9092)

    play(story)


def test_ports_are_taken_once_and_chosen_when_asked() -> None:
    async def story(network: Network) -> None:
        loop = asyncio.get_running_loop()
        first = await on_server(loop.create_server(Recorder, SERVER, 80))
        for host in (SERVER, "0.0.0.0", None):
            with pytest.raises(OSError, match="in use") as failure:
                await on_server(loop.create_server(Recorder, host, 80))
            assert failure.value.errno == errno.EADDRINUSE
        await on_server(loop.create_server(Recorder, "127.0.0.1", 80))
        await loop.create_server(Recorder, None, 80)  # another host
        with pytest.raises(OSError, match="not an address") as failure:
            await on_server(loop.create_server(Recorder, "10.0.0.9", 80))
        assert failure.value.errno == errno.EADDRNOTAVAIL
        chosen = [(await on_server(loop.create_server(Recorder, SERVER, 0))).sockets[0].getsockname() for _ in "12"]
        assert chosen[0] != chosen[1]
        first.close()
        await on_server(loop.create_server(Recorder, SERVER, 80))

    play(story)


def test_nobody_listening_refuses_and_loopback_stays_at_home() -> None:
    async def story(network: Network) -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recorder, SERVER, 1)
        await on_server(loop.create_server(Recorder, "127.0.0.1", 1))
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recorder, SERVER, 1)
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recorder, "127.0.0.1", 1)
        await on_server(loop.create_connection(Recorder, "127.0.0.1", 1))
        with pytest.raises(OSError, match="no host 'elsewhere'"):
            await loop.create_connection(Recorder, "elsewhere", 1)

    play(story)


def test_closing_sends_what_was_written_and_aborting_does_not() -> None:
    async def story(network: Network) -> None:
        pair = await connected()
        pair.client.transport.write(b"x" * 500_000)
        pair.client.transport.close()
        pair.client.transport.close()
        assert await pair.server.lost is None
        assert len(pair.server.data) == 500_000
        assert pair.server.events == ["made", "eof", "lost"]
        assert await pair.client.lost is None

        pair = await connected_again(pair)
        pair.client.transport.write(b"x" * 500_000)
        pair.client.transport.abort()
        assert isinstance(await pair.server.lost, ConnectionResetError)
        assert await pair.client.lost is None
        assert len(pair.server.data) < 500_000

    async def connected_again(pair: Pair) -> Pair:
        pair.listening.close()
        return await connected()

    play(story)


def test_closing_with_unread_data_resets() -> None:
    async def story(network: Network) -> None:
        pair = await connected()
        pair.server.transport.pause_reading()
        pair.client.transport.write(b"never read")
        await asyncio.sleep(1)
        pair.server.transport.close()
        assert isinstance(await pair.client.lost, ConnectionResetError)

    play(story)


def test_writing_to_who_has_gone_resets() -> None:
    async def story(network: Network) -> None:
        pair = await connected(keeps_half_open=True)
        pair.server.transport.close()
        await asyncio.sleep(1)
        assert pair.client.events == ["made", "eof"]
        pair.client.transport.write(b"anybody there?")
        assert isinstance(await pair.client.lost, ConnectionResetError)

    play(story)


def test_half_open_connections_go_on_in_the_other_direction() -> None:
    async def story(network: Network) -> None:
        pair = await connected(keeps_half_open=True)
        pair.client.transport.write(b"question")
        pair.client.transport.write_eof()
        await asyncio.sleep(1)
        assert (pair.server.data, pair.server.events) == (b"question", ["made", "eof"])
        pair.server.transport.write(b"answer")
        pair.server.transport.close()
        await asyncio.sleep(1)
        assert (pair.client.data, pair.client.events) == (b"answer", ["made", "eof"])

    play(story)


def test_a_cut_that_heals_in_time_loses_nothing() -> None:
    async def story(network: Network) -> None:
        pair = await connected()
        network.partition([HOME], [SERVER])
        pair.client.transport.write(b"patience")
        await asyncio.sleep(30)
        assert pair.server.pieces == []
        assert pair.client.events == ["made"]
        network.heal()
        await asyncio.sleep(1)
        assert pair.server.data == b"patience"

    play(story)


def test_a_cut_that_lasts_breaks_the_connection_of_who_sends_only() -> None:
    async def story(network: Network) -> None:
        pair = await connected()
        network.partition([HOME], [SERVER])
        pair.client.transport.write(b"in vain")
        assert isinstance(await pair.client.lost, TimeoutError)
        await asyncio.sleep(1000)
        assert pair.server.events == ["made"]
        network.heal()
        pair.server.transport.write(b"still here?")
        assert isinstance(await pair.server.lost, ConnectionResetError)
        assert pair.server.pieces == []

    play(story)


def test_a_cut_in_one_direction_only() -> None:
    async def story(network: Network) -> None:
        pair = await connected()
        network.cut(HOME, SERVER)
        pair.client.transport.write(b"lost")
        pair.server.transport.write(b"heard")
        await asyncio.sleep(1)
        assert (pair.client.data, pair.server.data) == (b"heard", b"")

    play(story)


def test_connecting_across_a_cut_waits_and_gives_up() -> None:
    async def story(network: Network) -> None:
        loop = asyncio.get_running_loop()
        await on_server(loop.create_server(Recorder, SERVER, 1))
        network.partition([HOME], [SERVER])
        begin_s = loop.time()
        with pytest.raises(TimeoutError):
            await loop.create_connection(Recorder, SERVER, 1)
        assert loop.time() - begin_s > 100
        loop.call_later(5, network.heal)
        await loop.create_connection(Recorder, SERVER, 1)

    play(story)


def test_slow_links_take_their_time() -> None:
    async def story(network: Network) -> None:
        pair = await connected()
        network.set_link(HOME, SERVER, Link(min_delay_s=2, max_delay_s=2, bytes_per_s=1000))
        pair.client.transport.write(b"x" * 3000)
        await asyncio.sleep(4.9)
        assert pair.server.pieces == []
        await asyncio.sleep(0.2)
        assert len(pair.server.data) == 3000

    play(story)


def test_reset_breaks_both_ends() -> None:
    async def story(network: Network) -> None:
        pair = await connected()
        network.reset(HOME, "10.0.0.9")
        await asyncio.sleep(1)
        assert pair.client.events == ["made"]
        network.reset(SERVER)
        assert isinstance(await pair.client.lost, ConnectionResetError)
        assert isinstance(await pair.server.lost, ConnectionResetError)

    play(story)


def test_a_killed_process_is_noticed_and_what_its_kernel_had_arrives() -> None:
    async def story(network: Network) -> None:
        pair = await connected()
        pair.server.transport.write(b"last words")
        pair.process.state = ProcessState.DEAD
        network.kill(pair.process)
        assert await pair.client.lost is None
        assert pair.client.data == b"last words"
        assert pair.server.events == ["made"]
        with pytest.raises(ConnectionRefusedError):
            await connected_to(SERVER)

    play(story)


def test_a_killed_process_answers_later_data_with_a_reset() -> None:
    async def story(network: Network) -> None:
        pair = await connected(keeps_half_open=True)
        pair.client.transport.write(b"on its way")
        pair.process.state = ProcessState.DEAD
        network.kill(pair.process)
        assert isinstance(await pair.client.lost, ConnectionResetError)

    play(story)


def test_a_power_loss_is_noticed_only_by_who_speaks() -> None:
    async def story(network: Network) -> None:
        pair = await connected()
        pair.process.state = ProcessState.DEAD
        network.power_off(SERVER)
        await asyncio.sleep(8)
        assert pair.client.events == ["made"]
        network.power_on(SERVER)
        await asyncio.sleep(8)
        assert pair.client.events == ["made"]
        pair.client.transport.write(b"hello?")
        assert isinstance(await pair.client.lost, ConnectionResetError)

    play(story)


@pytest.mark.parametrize(("back_s", "error", "after_s"), [(1, ConnectionResetError, 20), (99, TimeoutError, 35)])
def test_the_kernel_asks_after_who_is_silent(back_s: float, error: type[OSError], after_s: float) -> None:
    async def story(network: Network) -> None:
        pair = await connected()
        pair.process.state = ProcessState.DEAD
        began_s = network.loop.world_time()
        network.power_off(SERVER)
        network.loop.call_later(back_s, network.power_on, SERVER)
        assert isinstance(await pair.client.lost, error)
        assert network.loop.world_time() - began_s == pytest.approx(after_s)

    play(story)


def test_what_is_sent_to_a_host_without_power_times_out() -> None:
    async def story(network: Network) -> None:
        pair = await connected()
        pair.process.state = ProcessState.DEAD
        network.power_off(SERVER)
        pair.client.transport.write(b"hello?")
        assert isinstance(await pair.client.lost, TimeoutError)
        with pytest.raises(TimeoutError):
            await connected_to(SERVER)

    play(story)


async def connected_to(address: str) -> Any:
    return await asyncio.get_running_loop().create_connection(Recorder, address, 9092)


def test_a_paused_process_accepts_and_answers_later() -> None:
    async def story(network: Network) -> None:
        loop = asyncio.get_running_loop()
        pair = await connected()
        pair.process.state = ProcessState.PAUSED
        pair.client.transport.write(b"hello")
        _, second = await loop.create_connection(Recorder, SERVER, 9092)
        second.transport.write(b"you too")
        await asyncio.sleep(100)
        assert pair.server.pieces == []
        asyncio.get_running_loop().resume(pair.process)  # type: ignore[attr-defined]
        await asyncio.sleep(1)
        assert pair.server.data == b"hello"

    play(story)


def test_giving_up_a_connection_attempt_leaves_nothing_open() -> None:
    async def story(network: Network) -> None:
        loop = asyncio.get_running_loop()
        accepted: list[Recorder] = []

        def accept() -> Recorder:
            accepted.append(Recorder())
            return accepted[-1]

        await on_server(loop.create_server(accept, SERVER, 9092))
        network.set_link(SERVER, HOME, Link(min_delay_s=5, max_delay_s=5))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(loop.create_connection(Recorder, SERVER, 9092), 1)
        await asyncio.sleep(20)
        assert [each.events[-1] for each in accepted] == ["lost"]
        assert network._connections == {}

    play(story)


def test_a_protocol_that_fails_ends_the_run() -> None:
    class Fails(Recorder):
        def data_received(self, data: bytes) -> None:
            raise ValueError("cannot take it")

    async def story(network: Network) -> None:
        await network.create_server(Fails, None, 5)
        transport, _ = await network.create_connection(Recorder, "localhost", 5)
        transport.write(b"x")
        await asyncio.sleep(1)

    with pytest.raises(Exception, match="cannot take it"):
        play(story)
