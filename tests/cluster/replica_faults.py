"""Leaders are killed, paused, cut off and left without disk, again and again, and no acknowledged record is lost.

    python -m tests.cluster.replica_faults --rounds 20

Three combined nodes, a topic with three replicas, min.insync.replicas 2; librdkafka, Java's producer and ours write
with acks=all, a group of librdkafka reads and commits. In each round the leader of a partition gets one of the faults;
then every partition must take records again, the fault is healed, and all replicas must be in sync. In the end every
acknowledged record is there once, at its offset, in order; the group has read all; the logs of the replicas are alike
byte for byte. The fault "full" needs a file system of its own for each node, so it is left out unless this runs as
root.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.asking import active, all_unfenced, brokers, replicas_in_sync, until
from tests.cluster.nodes import Cluster, Node
from tests.cluster.records import GroupReader, JavaSender, LibrdkafkaSender, OurSender, Sender, check, read_all
from tests.cluster.wires import TO_BROKER, Wires
from tests.oracles import missing
from tests.ports import free_ports

TOPIC: Final = "replicated"
PARTITIONS: Final = 6
FAULTS: Final = ("kill", "pause", "cut", "full")
PATIENCE_S: Final = 90.0
#: How long a disk stays full: long enough for what is written meanwhile to need it.
_FULL_S: Final = 6.0
_DISK_MIB: Final = 192
_SETTINGS: Final = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
    "replica.lag.time.max.ms": "6000",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "min.insync.replicas": "2",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "REPLICATION",
}


class Seen(NamedTuple):
    """One fault: from it until every partition took records again, and from its end until all were in sync."""

    fault: str
    write_s: float
    in_sync_s: float


class ReplicatedCluster(Cluster):
    """Brokers find each other over a listener of their own, on which something stands between."""

    def __init__(self, folder: Path, wires: Wires, settings: Mapping[str, str] | None = None) -> None:
        controllers = {each: address for each, address in wires.addresses.items() if each < TO_BROKER}
        super().__init__(folder, settings={**_SETTINGS, **(settings or {})}, between=controllers)
        self._wires = wires
        ports = free_ports(len(self.nodes))
        self.replication = {each: f"127.0.0.1:{port}" for each, port in zip(self.nodes, ports, strict=True)}
        wires.carry_to(self.controllers)
        wires.carry_to_brokers(self.replication)

    def properties(self, node: Node, changes: Mapping[str, str] | None = None) -> dict[str, str]:
        found = super().properties(node, changes)
        between = self._wires.addresses[TO_BROKER + node.node_id]
        return found | {
            "listeners": f"{found['listeners']},REPLICATION://{self.replication[node.node_id]}",
            "advertised.listeners": f"PLAINTEXT://{node.bootstrap},REPLICATION://{between}",
        }


class Faulty:
    """A cluster of which any part can fail, and clients that use it."""

    def __init__(self, cluster: ReplicatedCluster, wires: Wires, folder: Path, *, has_own_disks: bool) -> None:
        self.cluster = cluster
        self.wires = wires
        self.folder = folder
        self.has_own_disks = has_own_disks
        self.senders: list[Sender] = []
        self.librdkafka = LibrdkafkaSender(cluster.bootstrap, TOPIC, PARTITIONS)

    def inject(self, fault: str, node: Node) -> None:
        if fault == "kill":
            self.wires.down(node.node_id)
            node.kill()
        elif fault == "pause":
            node.pause()
        elif fault == "cut":
            self.wires.cut(node.node_id)
        else:
            with (node.data / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
                while True:
                    filler.write(bytes(2**16))

    def heal(self, node: Node) -> None:
        (node.data / "filler").unlink(missing_ok=True)
        self.wires.heal()
        self.wires.up(node.node_id)
        self.cluster.start_missing()

    def until_all_are_back(self) -> None:
        """A node without disk may take its time to end: it is started again whenever it has."""
        everybody = set(self.cluster.nodes)

        def are_back() -> bool:
            self.cluster.start_missing()
            return all(everybody <= _unfenced(each) for each in self.cluster.brokers)

        until("all brokers are unfenced", are_back, patience_s=PATIENCE_S)
        active(self.cluster)

    def until_in_sync(self) -> None:
        everybody = sorted(self.cluster.nodes)
        for node in self.cluster.brokers:
            until(
                f"node {node.node_id} sees all replicas in sync",
                lambda node=node: set(map(tuple, replicas_in_sync(node, TOPIC))) == {tuple(everybody)},  # type: ignore[misc]
                patience_s=PATIENCE_S,
            )

    def until_written(self, since_s: float) -> None:
        """Every partition has taken a record that was sent after this."""
        until(
            "every partition takes records",
            lambda: min(self.librdkafka.latest_s.values()) > since_s,
            patience_s=PATIENCE_S,
        )


def _unfenced(node: Node) -> set[int]:
    return {broker_id for broker_id, told in brokers(node).items() if not told.is_fenced}


@contextlib.contextmanager
def own_disks(folder: Path, node_ids: Sequence[int]) -> Iterator[bool]:
    """A small file system for each node, if we may have that."""
    mounted: list[Path] = []
    try:
        if os.geteuid() == 0:
            for each in node_ids:
                path = folder / f"node-{each}"
                path.mkdir(parents=True)
                command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_MIB}m", "tmpfs", str(path)]
                if subprocess.run(command, capture_output=True, check=False).returncode != 0:
                    break
                mounted.append(path)
        yield len(mounted) == len(node_ids)
    finally:
        for path in mounted:
            subprocess.run(["umount", str(path)], capture_output=True, check=False)


@contextlib.contextmanager
def faulty_cluster(folder: Path, *, wants_disks: bool) -> Iterator[Faulty]:
    ids = (1, 2, 3)
    with contextlib.ExitStack() as made:
        has_disks = made.enter_context(own_disks(folder, ids)) if wants_disks else False
        wires = made.enter_context(Wires([*ids, *(TO_BROKER + each for each in ids)]))
        cluster = ReplicatedCluster(folder, wires)
        made.enter_context(cluster)
        all_unfenced(cluster)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for each in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)]).values():
            each.result(30)
        yield Faulty(cluster, wires, folder, has_own_disks=has_disks)


@contextlib.contextmanager
def clients(faulty: Faulty) -> Iterator[GroupReader]:
    """They write and read until it is left; then what they saw is checked."""
    bootstrap = faulty.cluster.bootstrap
    with contextlib.ExitStack() as sending, GroupReader(bootstrap, TOPIC) as reader:
        faulty.senders = [faulty.librdkafka, OurSender(bootstrap, TOPIC, PARTITIONS)]
        if missing() is None:
            faulty.senders.append(JavaSender(bootstrap, TOPIC, faulty.folder))
        for each in faulty.senders:
            sending.enter_context(each)
        faulty.until_written(0)
        yield reader
        sending.close()
        reader.finish({value for sender in faulty.senders for _, _, value in sender.acknowledged})


def one_round(faulty: Faulty, fault: str, node: Node) -> Seen:
    began_s = time.monotonic()
    faulty.inject(fault, node)
    if fault == "full":
        # A leader may wait for room: only that nothing is lost is promised.
        time.sleep(_FULL_S)
        faulty.heal(node)
    faulty.until_written(began_s)
    write_s = time.monotonic() - began_s
    healed_s = time.monotonic()
    faulty.heal(node)
    faulty.until_all_are_back()
    faulty.until_in_sync()
    return Seen(fault, write_s, time.monotonic() - healed_s)


def check_all(faulty: Faulty, reader: GroupReader) -> int:
    """What is promised; returns how many records were acknowledged. The nodes are stopped."""
    failures = [each for sender in faulty.senders for each in sender.failures]
    assert not failures, f"{len(failures)} records were not acknowledged, such as {failures[:2]}"
    count = check(read_all(faulty.cluster.bootstrap, TOPIC, PARTITIONS), faulty.senders)
    assert reader.committed() == reader.positions
    faulty.until_in_sync()
    for each in faulty.cluster.nodes.values():
        each.stop()
    for partition in range(PARTITIONS):
        logs = {each.node_id: _log(each, partition) for each in faulty.cluster.nodes.values()}
        assert len(set(logs.values())) == 1, f"the replicas of partition {partition} differ: {_sizes(logs)}"
    return count


def _log(node: Node, partition: int) -> bytes:
    return b"".join(each.read_bytes() for each in sorted((node.data / f"{TOPIC}-{partition}").glob("*.log")))


def _sizes(logs: Mapping[int, bytes]) -> dict[int, int]:
    return {node_id: len(log) for node_id, log in logs.items()}


def summary(seen: Sequence[Seen]) -> Iterator[str]:
    groups: dict[str, list[Seen]] = defaultdict(list)
    for each in seen:
        groups[each.fault].append(each)
    yield f"{'fault':<6} {'rounds':>6} {'writes p50':>11} {'max':>8} {'in sync p50':>12} {'max':>8}"
    for fault, found in groups.items():
        write, again = [each.write_s for each in found], [each.in_sync_s for each in found]
        yield (
            f"{fault:<6} {len(found):>6} {statistics.median(write):>9.2f} s {max(write):>6.2f} s "
            f"{statistics.median(again):>10.2f} s {max(again):>6.2f} s"
        )


def play(folder: Path, faults: Sequence[str]) -> tuple[list[Seen], int]:
    """These faults, one after the other, each at the next node; what was seen, and how much was acknowledged."""
    with faulty_cluster(folder, wants_disks="full" in faults) as faulty:
        possible = [each for each in faults if each != "full" or faulty.has_own_disks]
        faulty.until_in_sync()
        seen: list[Seen] = []
        with clients(faulty) as reader:
            nodes = list(faulty.cluster.nodes.values())
            for number, fault in enumerate(possible):
                node = nodes[number % len(nodes)]
                seen.append(one_round(faulty, fault, node))
                last = seen[-1]
                print(
                    f"{number + 1}/{len(possible)}: {fault} of node {node.node_id}: all partitions written "
                    f"after {last.write_s:.2f} s, in sync {last.in_sync_s:.2f} s after its end",
                    flush=True,
                )
        return seen, check_all(faulty, reader)


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.replica_faults", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="of each fault (default %(default)s)")
    parser.add_argument("--fault", choices=FAULTS, help="only this one")
    asked = parser.parse_args(given)
    faults = [asked.fault] if asked.fault else list(FAULTS)
    with tempfile.TemporaryDirectory() as folder:
        seen, count = play(Path(folder), faults * asked.rounds)
    print(*summary(seen), sep="\n")
    print(f"{count:,} records acknowledged: each is there once, at its offset, in order, on all replicas alike")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
