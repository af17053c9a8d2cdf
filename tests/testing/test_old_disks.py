"""Disks that are put back to what they were, and links on which something is lost."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from barnabas.storage.files import read_file
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.testing.sim.loop import SimulationError
from barnabas.testing.sim.network import Link
from barnabas.testing.sim.world import World


def test_a_restored_disk_holds_what_it_held_and_loses_none_of_it() -> None:
    disk = SimulatedDisk(Random(1))
    disk.make_directory("/data/below")
    disk.open("/data/below/file", create=True).write_at(0, b"old")
    before = disk.contents()
    disk.open("/data/below/file").write_at(0, b"new and longer")
    disk.open("/data/another", create=True)
    disk.restore(before)
    assert disk.contents() == before
    assert disk.used_bytes == 3
    disk.crash(power=True)
    assert read_file(disk, "/data/below/file") == b"old"


def test_a_host_comes_back_with_its_old_disk() -> None:
    with World(1) as world:
        host = world.host("10.0.0.1")
        host.start_process("writer")
        host.disk.open("/file", create=True).write_at(0, b"first")
        host.keep_image()
        host.disk.open("/file").write_at(0, b"other")
        with pytest.raises(SimulationError, match="cannot be changed under it"):
            host.restore_image()
        host.power_off()
        host.restore_image()
        host.start_process("writer")
        assert read_file(host.disk, "/file") == b"first"


def test_a_full_disk_takes_nothing_until_there_is_room() -> None:
    with World(1) as world:
        disk = world.host("10.0.0.1").disk
        file = disk.open("/file", create=True)
        file.write_at(0, b"something")
        world.host("10.0.0.1").set_disk_full(True)
        with pytest.raises(OSError, match="No space left"):
            file.write_at(9, b"more")
        world.host("10.0.0.1").set_disk_full(False)
        file.write_at(9, b"more")


class Sink(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = b""
        self.error: Exception | None = None
        self.arrived_s = 0.0

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.arrived_s = asyncio.get_running_loop().time()

    def connection_lost(self, error: Exception | None) -> None:
        self.error = error


def send_over(link: Link, seed: int) -> tuple[Sink, Sink, float]:
    """What arrives of ten writes, what the sender hears, and how long it took."""
    with World(seed) as world:
        receiver, sender = Sink(), Sink()

        async def story() -> float:
            host = world.host("10.0.0.1")
            with host.start_process("receiver").enter():
                await world.loop.create_server(lambda: receiver, "10.0.0.1", 9000)
            transport, _ = await world.loop.create_connection(lambda: sender, "10.0.0.1", 9000)
            world.network.set_link(world.network.own_address(), "10.0.0.1", link)
            began_s = world.loop.time()
            for number in range(10):
                transport.write(b"%d" % number)
            await asyncio.sleep(300)
            return receiver.arrived_s - began_s

        took_s = world.run(story())
        return receiver, sender, took_s


def test_what_is_lost_on_a_link_comes_late_and_in_order() -> None:
    took = []
    for seed in range(10):
        receiver, _, took_s = send_over(Link(loss=0.3), seed)
        assert receiver.data == b"0123456789"
        took.append(took_s)
    assert max(took) > 0.2
    assert send_over(Link(), 1)[2] < 0.01


def test_a_lossy_link_may_break_connections() -> None:
    ends = [send_over(Link(loss=0.3, reset_chance=0.2), seed) for seed in range(10)]
    assert any(isinstance(sender.error, ConnectionResetError) for _, sender, _ in ends)
    assert all(b"0123456789".startswith(receiver.data) for receiver, _, _ in ends)
