"""The embedded cluster: what a test may do to its nodes, and what the others and clients see of it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator

import pytest

from barnabas import Consumer, Producer
from barnabas.base.errors import BarnabasError
from barnabas.testing import EmbeddedCluster
from barnabas.testing.memory_files import MemoryFileSystem
from tests.virtual_time import play

TIMEOUT_S = 30.0


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3) as made:
        yield made


def send(cluster: EmbeddedCluster, topic: str, *values: bytes) -> list[int]:
    with Producer(cluster.bootstrap_servers, acks="all") as producer:
        return [producer.send(topic, value, partition=0).result(TIMEOUT_S).offset for value in values]


def read(cluster: EmbeddedCluster, topic: str, count: int) -> list[bytes]:
    with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        found: list[bytes] = []
        while len(found) < count:
            found += [record.value or b"" for record in consumer.poll(TIMEOUT_S)]
        return found


def answers(cluster: EmbeddedCluster, node: int, timeout_s: float) -> bool | None:
    """Whether it says anything; None if it takes no connection."""
    host, _, port = cluster.bootstrap_of(node).rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
            return len(connection.recv(4)) == 4
    except ConnectionRefusedError:
        return None
    except TimeoutError:
        return False


def test_a_whole_cluster(cluster: EmbeddedCluster) -> None:
    assert cluster.nodes == cluster.running == [1, 2, 3]
    assert cluster.controller in cluster.nodes
    assert len(cluster.bootstrap_servers.split(",")) == 3
    cluster.create_topic("orders", partitions=3, replication_factor=1, retention_ms=60_000)
    assert sorted(cluster.leader("orders", each) for each in range(3)) == [1, 2, 3]
    assert send(cluster, "orders", b"one", b"two") == [0, 1]
    assert read(cluster, "orders", 2) == [b"one", b"two"]
    assert repr(cluster) == "<EmbeddedCluster: 1 running, 2 running, 3 running>"


def test_what_was_written_outlives_a_kill(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders", replication_factor=1)
    victim = cluster.leader("orders")
    send(cluster, "orders", b"one")
    cluster.kill(victim)
    assert answers(cluster, victim, TIMEOUT_S) is None
    assert victim not in cluster.running
    assert f"{victim} not running" in repr(cluster)
    cluster.kill(victim)
    cluster.restart(victim)
    assert cluster.leader("orders") == victim
    assert send(cluster, "orders", b"two") == [1]
    assert read(cluster, "orders", 2) == [b"one", b"two"]


def test_a_killed_node_says_no_more(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas")
    victim = cluster.controller
    caplog.clear()
    cluster.kill(victim)
    assert cluster.controller != victim
    said = [record.getMessage() for record in caplog.records if record.threadName == f"embedded-node-{victim}"]
    assert said == []


def test_a_stop_is_told_beforehand(cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas")
    cluster.stop(2)
    assert answers(cluster, 2, TIMEOUT_S) is None
    assert "[node 2] Node 2: shut down completed" in [record.getMessage() for record in caplog.records]
    cluster.restart(2)
    assert cluster.running == [1, 2, 3]


def test_a_paused_node_takes_connections_and_says_nothing(cluster: EmbeddedCluster) -> None:
    victim = cluster.controller
    cluster.pause(victim)
    cluster.pause(victim)
    assert f"{victim} paused" in repr(cluster)
    assert answers(cluster, victim, 0.2) is False
    assert cluster.controller != victim  # The others elect one of them.
    cluster.resume(victim)
    assert answers(cluster, victim, TIMEOUT_S) is True
    assert cluster.controller != victim


def test_a_paused_node_can_be_killed_and_stopped(cluster: EmbeddedCluster) -> None:
    cluster.pause(1)
    cluster.kill(1)
    cluster.restart(1)
    cluster.pause(1)
    cluster.stop(1)
    cluster.restart(1)
    assert cluster.running == [1, 2, 3]


def test_a_node_that_is_cut_off_loses_the_lead(cluster: EmbeddedCluster) -> None:
    victim = cluster.controller
    cluster.cut(victim)
    others = [each for each in cluster.nodes if each != victim]
    assert all(f"{min(victim, each)}-{max(victim, each)}" in repr(cluster) for each in others)
    assert answers(cluster, victim, TIMEOUT_S) is True  # Clients reach it.
    cluster._wait("another leads", lambda: cluster.controller != victim or None)
    cluster.heal()
    cluster.create_topic("orders", partitions=3, replication_factor=1)
    assert sorted(cluster.leader("orders", each) for each in range(3)) == [1, 2, 3]


def test_the_others_do_not_hear_of_the_death_of_one_that_is_cut_off(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Early fencing needs a connection that its peer closed: across a cut, nobody sees that."""
    caplog.set_level(logging.WARNING, "barnabas")
    victim = next(each for each in cluster.nodes if each != cluster.controller)
    cluster.cut(victim)
    cluster.kill(victim)
    cluster._wait("it is fenced", lambda: not cluster._is_at_work(victim) or None)
    assert not [record for record in caplog.records if "early" in record.getMessage()]
    cluster.heal()
    cluster.restart(victim)


def test_what_was_acknowledged_outlives_its_leader(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders")
    with Producer(cluster.bootstrap_servers, acks="all") as producer:
        for number in range(10):
            assert producer.send("orders", b"%d" % number).result(TIMEOUT_S).offset == number
            if number == 4:
                victim = cluster.leader("orders")
                cluster.kill(victim)
    assert read(cluster, "orders", 10) == [b"%d" % number for number in range(10)]
    cluster.restart(victim)
    cluster.until_in_sync()
    assert cluster.in_sync("orders") == [1, 2, 3]


def test_all_processes_die_at_once(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders")
    assert send(cluster, "orders", b"one", b"two") == [0, 1]
    for node in cluster.nodes:
        cluster.kill(node)
    assert not cluster.is_running
    cluster.restart(*cluster.nodes)
    cluster.until_in_sync()
    assert send(cluster, "orders", b"three") == [2]
    assert read(cluster, "orders", 3) == [b"one", b"two", b"three"]


def test_a_node_with_an_empty_disk_fetches_everything(cluster: EmbeddedCluster) -> None:
    """As when a machine is replaced. What it does not have any more it does not bring back to the others."""
    cluster.create_topic("orders")
    old = cluster.leader("orders")
    assert send(cluster, "orders", b"one", b"two") == [0, 1]
    cluster.kill(old)
    cluster._nodes[old]._files = MemoryFileSystem()
    cluster.restart(old)
    cluster.until_in_sync()
    others = [each for each in cluster.nodes if each != old]
    cluster.stop(others[0])
    assert send(cluster, "orders", b"three") == [2]
    assert read(cluster, "orders", 3) == [b"one", b"two", b"three"]


def test_a_leader_that_is_cut_off_acknowledges_nothing(cluster: EmbeddedCluster) -> None:
    """Clients reach it, and it does not know that another leads by now; but it lacks the others' consent."""
    cluster.create_topic("orders")
    old = cluster.leader("orders")
    send(cluster, "orders", b"one")
    cluster.cut(old)
    with Producer(cluster.bootstrap_of(old), acks="all", client_id="stale", enable_idempotence=False) as stale:
        lost = stale.send("orders", b"never")
        others = [each for each in cluster.nodes if each != old]
        cluster._wait("another leads", lambda: _leader_by(cluster, others, "orders") not in (None, old) or None)
        with Producer(",".join(map(cluster.bootstrap_of, others)), acks="all") as producer:
            assert producer.send("orders", b"two").result(TIMEOUT_S).offset == 1
        assert not lost.done()
        cluster.heal()
        # It is sent on to the leader of now, and written behind what that has taken meanwhile.
        assert lost.result(TIMEOUT_S).offset == 2
    assert read(cluster, "orders", 3) == [b"one", b"two", b"never"]
    cluster.until_in_sync()


def _leader_by(cluster: EmbeddedCluster, nodes: list[int], topic: str) -> int | None:
    """Who leads, as these nodes know."""
    images = [cluster._nodes[each].image() for each in nodes]
    found = max(images, key=lambda image: image.offset).topics[topic].partitions[0].leader
    return found if found >= 0 else None


def test_a_paused_leader_that_wakes_is_fenced(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders")
    old = cluster.leader("orders")
    cluster.pause(old)
    with Producer(cluster.bootstrap_servers, acks="all", request_timeout_ms=2000) as producer:
        # It waits at first for the one that sleeps.
        assert producer.send("orders", b"one").result(TIMEOUT_S).offset == 0
        cluster.resume(old)
        assert producer.send("orders", b"two").result(TIMEOUT_S).offset == 1
    cluster.until_in_sync()
    assert read(cluster, "orders", 2) == [b"one", b"two"]


def test_two_nodes_are_cut_from_each_other(cluster: EmbeddedCluster) -> None:
    cluster.cut(1, 2)
    assert "cut: 1-2>" in repr(cluster)
    cluster.heal()
    assert "cut" not in repr(cluster)


def test_on_asyncio() -> None:
    async def story() -> None:
        async with EmbeddedCluster(2) as cluster:
            assert await cluster.controller() in (1, 2)
            await cluster.create_topic("orders", partitions=2, replication_factor=1)
            leader = await cluster.leader("orders", 1)
            await cluster.pause(leader)
            await cluster.resume(leader)
            await cluster.cut(1, 2)
            await cluster.heal()
            await cluster.kill(leader)
            assert cluster.running == [each for each in (1, 2) if each != leader]
            await cluster.restart(leader)
            await cluster.until_in_sync()
            assert await cluster.in_sync("orders", 1) == [leader]
            await cluster.stop(leader)
            assert repr(cluster).startswith("<AsyncEmbeddedCluster: ")
        assert not cluster.is_running

    asyncio.run(story())


def test_it_has_no_virtual_time() -> None:
    async def story() -> None:
        with pytest.raises(BarnabasError, match=r"real time; in virtual time, use sim\.World\.start_cluster"):
            async with EmbeddedCluster(2):
                pass

    play(story())


def test_what_does_not_work_is_told() -> None:
    cluster = EmbeddedCluster(2)
    with pytest.raises(ValueError, match="at least one"):
        EmbeddedCluster(0)
    with pytest.raises(BarnabasError, match="was not started"):
        _ = cluster.bootstrap_servers
    with pytest.raises(BarnabasError, match="was not started"):
        cluster.kill(1)
    with pytest.raises(ValueError, match="there is no node 3: the nodes are 1, 2"):
        cluster.kill(3)
    with cluster:
        with pytest.raises(BarnabasError, match="already running"):
            cluster.start()
        cluster.kill(1)
        with pytest.raises(BarnabasError, match="node 1 does not run"):
            cluster.pause(1)
    assert not cluster.is_running


def test_what_keeps_a_node_from_starting_is_raised() -> None:
    with pytest.raises(BarnabasError, match=r"num\.partitions"):
        EmbeddedCluster(2, overrides={"num.partitions": "nonsense"}).start()


def test_files_are_copied_as_they_are() -> None:
    files = MemoryFileSystem()
    files.make_directory("/a/b")
    file = files.open("/a/b/c", create=True)
    file.write_at(0, b"one")
    files.lock("/a/lock")
    other = files.copy()
    file.write_at(3, b" more")
    files.remove("/a/lock")
    assert other.open("/a/b/c").read_at(0, 100) == b"one"
    assert other.names("/a") == ["b", "lock"]
    other.lock("/a/lock").release()
    assert files.open("/a/b/c").read_at(0, 100) == b"one more"
