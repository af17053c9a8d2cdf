"""Quorums of Apache Kafka's controllers and replicas of ours, over real sockets and files, with nothing above Raft.

Ours are drivers whose owner only remembers what it was told. All of them are in this process, Kafka's in their own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from barnabas.base.ids import Uuid
from barnabas.base.system_runtime import SystemRuntime
from barnabas.broker.quorum.formatting import bootstrap_records, write_bootstrap
from barnabas.metadata.features import encode_record
from barnabas.raft.driver import RaftDriver
from barnabas.raft.log_options import RaftLogOptions
from barnabas.raft.options import QuorumOptions
from barnabas.raft.raft_log import RaftLog
from barnabas.raft.socket_transport import SocketTransport
from barnabas.raft.states.leader import Leader
from barnabas.raft.transitions import Role
from barnabas.raft.types import Address, CommittedBatch, LeaderAndEpoch, ReplicaKey, Snapshot, SnapshotId
from barnabas.raft.voters import DEFAULT_LISTENER, VoterSet
from barnabas.storage.meta_properties import MetaProperties, write_meta_properties
from barnabas.storage.real_files import RealFileSystem
from barnabas.wire.stored.cluster_metadata import NoOpRecord
from tests.oracles.kafka_controller import KafkaController
from tests.ports import free_ports

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
HOST = "127.0.0.1"
FILES = RealFileSystem()
NO_OP = NoOpRecord().encode_framed(0)
#: What the first active controller of a cluster writes.
FIRST_RECORDS = [encode_record(each) for each in bootstrap_records(elr_version=0, transaction_version=0)]
#: The records of a Kafka controller that come by themselves would make two logs hard to compare.
QUIET = {"metadata.max.idle.interval.ms": "0"}
BUSY = {"metadata.max.idle.interval.ms": "100"}

#: The levels that we know too.
LEVELS = ("--release-version", "4.0-IV3", "--feature", "group.version=0", "--feature", "transaction.version=0")
PATIENT = QuorumOptions(election_timeout_ms=60_000, fetch_timeout_ms=60_000, retry_backoff_ms=1000)

_COMPLAINT = re.compile(r" (WARN|ERROR) ")
#: Peers that are not there yet or any more, a slow machine; and no controller is above our replicas to register with.
_EXPECTED = re.compile(
    "could not be established|Performing controller activation|Renouncing the leadership|ControllerRegistration|"
    "already been closed|Graceful shutdown|EventPerformanceMonitor"
)


@dataclass
class Told:
    """A `RaftListener` that remembers."""

    batches: list[CommittedBatch] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    leaders: list[LeaderAndEpoch] = field(default_factory=list)

    def on_snapshot(self, snapshot: Snapshot) -> None:
        self.snapshots.append(Snapshot(snapshot.snapshot_id, snapshot.last_contained_ms, tuple(snapshot.values)))
        self.batches.clear()

    def on_commit(self, batch: CommittedBatch) -> None:
        self.batches.append(batch)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)

    @property
    def values(self) -> list[bytes]:
        """The whole state: what the last snapshot held, and all since."""
        first = list(self.snapshots[-1].values) if self.snapshots else []
        return first + [bytes(value) for batch in self.batches for value in batch.values]


class OurReplica:
    """One replica of ours; it may be stopped and started again in its folder."""

    def __init__(
        self,
        folder: Path,
        node_id: int,
        address: Address,
        voters: VoterSet | None,
        *,
        directory_id: Uuid,
        bootstrap: Sequence[Address] = (),
        quorum: QuorumOptions | None = None,
    ) -> None:
        self.folder = folder
        self.node_id = node_id
        self.address = address
        self.key = ReplicaKey(node_id, directory_id)
        self._voters = voters
        self._bootstrap = bootstrap
        self._quorum = quorum or QuorumOptions()
        self.told = Told()
        self._driver: RaftDriver | None = None
        self._runtime: SystemRuntime | None = None
        self.store: RaftLog | None = None

    @property
    def metadata_log(self) -> Path:
        return self.folder / "data" / "__cluster_metadata-0"

    @property
    def driver(self) -> RaftDriver:
        assert self._driver is not None, "the replica was not started"
        return self._driver

    @property
    def start_offset(self) -> int:
        return self.driver.machine.log.start_offset

    @property
    def is_leader(self) -> bool:
        return self._driver is not None and self._driver.leader.leader_id == self.node_id

    @property
    def leader_id(self) -> int:
        return self.driver.leader.leader_id

    @property
    def epoch(self) -> int:
        return self.driver.machine.epoch

    @property
    def role(self) -> Role:
        return self.driver.machine.state.role

    def acknowledged(self, node_id: int) -> int:
        """As the leader: up to where a follower has told that it has everything."""
        state = self.driver.machine.state
        progress = state.progress if isinstance(state, Leader) else {}
        return max((each.end_offset for key, each in progress.items() if key.node_id == node_id), default=-1)

    async def start(self) -> None:
        self.metadata_log.mkdir(parents=True, exist_ok=True)
        self.told = Told()
        self._runtime = SystemRuntime()
        # A snapshot makes all before the last one superfluous.
        options = RaftLogOptions(directory_id=self.key.directory_id, retention_bytes=0, delete_delay_ms=0)
        self.store = RaftLog(FILES, str(self.metadata_log), options, self._runtime)
        self._driver = RaftDriver(
            self.key,
            cluster_id=CLUSTER_ID,
            voters=self._voters,
            bootstrap=self._bootstrap,
            listeners={DEFAULT_LISTENER: self.address},
            transport=SocketTransport(self.address, randomness=self._runtime.randomness),
            store=self.store,
            listener=self.told,
            runtime=self._runtime,
            options=self._quorum,
        )
        await self._driver.start()

    async def stop(self) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            await driver.stop()
        if self._runtime is not None:
            self._runtime.close()

    async def append(self, values: Sequence[bytes]) -> int:
        """As the leader, and wait until it is committed."""
        offset = self.driver.append(values, self.driver.leader.epoch)
        await until(lambda: self.driver.high_watermark > offset, f"{offset} is committed")
        return offset

    async def take_snapshot(self) -> SnapshotId:
        last = self.told.batches[-1]
        snapshot_id = SnapshotId(last.last_offset + 1, last.epoch)
        await self.driver.take_snapshot(Snapshot(snapshot_id, last.append_time_ms, self.told.values))
        return snapshot_id


class MixedQuorum:
    """Voters by their ids: 1, 2 … are Kafka's, then come ours.

    With `in_log` the voters stand in the log (kraft.version 1): Kafka's own tool formats all of them, ours too.
    `patient` are those of ours that leave it to others to lead. `late_kafkas` are started by the story itself.
    """

    def __init__(
        self,
        folder: Path,
        kafkas: int,
        ours: int,
        *,
        in_log: bool = False,
        patient: Sequence[int] = (),
        late_kafkas: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        ids = range(1, kafkas + ours + 1)
        self._in_log = in_log
        self._late_kafkas = late_kafkas
        self._addresses = {each: Address(HOST, port) for each, port in zip(ids, free_ports(len(ids)), strict=True)}
        randomness = Random(folder.name)
        self._directory_ids = {each: Uuid.random(randomness) for each in ids}
        self._settings = given = self._quorum_settings() | QUIET | dict(settings or {})
        self.kafkas = {
            each: KafkaController(folder / f"kafka-{each}", each, self._addresses[each].port, given)
            for each in ids[:kafkas]
        }
        self.ours = {
            each: OurReplica(
                folder / f"ours-{each}",
                each,
                self._addresses[each],
                None if in_log else VoterSet.of(self._addresses),
                directory_id=self._directory_ids[each],
                bootstrap=tuple(self._addresses.values()),
                quorum=PATIENT if each in patient else None,
            )
            for each in ids[kafkas:]
        }

    def _quorum_settings(self) -> dict[str, str]:
        addresses = self._addresses.items()
        if self._in_log:
            return {"controller.quorum.bootstrap.servers": ",".join(str(address) for _, address in addresses)}
        return {"controller.quorum.voters": ",".join(f"{each}@{address}" for each, address in addresses)}

    async def __aenter__(self) -> MixedQuorum:
        if self._in_log:
            await self._format_all()
        else:
            for kafka in self.kafkas.values():
                format_for_kafka(kafka, self._directory_ids[kafka.node_id])
        for kafka in () if self._late_kafkas else self.kafkas.values():
            kafka.start()
        for ours in self.ours.values():
            await ours.start()
        return self

    async def _format_all(self) -> None:
        voters = ",".join(f"{each}@{address}:{self._directory_ids[each]}" for each, address in self._addresses.items())
        settings = self._quorum_settings()
        to_format = [
            *self.kafkas.values(),
            *(KafkaController(each.folder, each.node_id, each.address.port, settings) for each in self.ours.values()),
        ]
        options = (*LEVELS, "--initial-controllers", voters)
        await asyncio.gather(*(asyncio.to_thread(each.format, CLUSTER_ID, *options) for each in to_format))

    async def __aexit__(self, *_: object) -> None:
        for ours in self.ours.values():
            await ours.stop()
        await asyncio.gather(*(asyncio.to_thread(kafka.stop) for kafka in self.kafkas.values()))

    def move_kafka(self, node_id: int, port: int) -> None:
        """From its next start on it listens at another port."""
        self.kafkas[node_id] = KafkaController(self.kafkas[node_id].folder, node_id, port, self._settings)

    async def until_kafka_answers(self, node_id: int) -> None:
        """A controller fetches some time before it listens."""
        await asyncio.to_thread(self.kafkas[node_id].wait_until_it_answers)

    async def until(self, condition: Callable[[], object], what: str) -> None:
        await until(condition, what, self.kafkas.values(), self.ours.values())

    def complaints(self) -> list[str]:
        """What Kafka's controllers say of others that is not to be expected of a quorum with nothing above Raft."""
        found = [line for kafka in self.kafkas.values() for line in kafka.log_path.read_text().splitlines()]
        return [line for line in found if _COMPLAINT.search(line) and not _EXPECTED.search(line)]


def format_for_kafka(kafka: KafkaController, directory_id: Uuid) -> None:
    """What Kafka's own `format` writes for a quorum of static voters, without a JVM."""
    data = kafka.folder / "data"
    data.mkdir(parents=True)
    write_bootstrap(FILES, str(data), bootstrap_records(elr_version=0, transaction_version=0), now_ms=0)
    write_meta_properties(FILES, str(data), MetaProperties(CLUSTER_ID, kafka.node_id, directory_id))


async def until(
    condition: Callable[[], object],
    what: str,
    kafkas: Iterable[KafkaController] = (),
    ours: Iterable[OurReplica] = (),
    timeout_s: float = 60,
) -> None:
    """Wait for something that only real processes can bring about."""
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        if asyncio.get_running_loop().time() > deadline_s:
            states = [f"{each.node_id}: {each.role.value} in {each.epoch}" for each in ours]
            tails = "\n".join(each.log_tail() for each in kafkas)
            raise AssertionError(f"it did not happen that {what}; {states}\n{tails}")
        await asyncio.sleep(0.02)


def log_bytes(folder: Path) -> bytes:
    """All batches of a metadata log, as they lie there."""
    return b"".join(each.read_bytes() for each in sorted(folder.glob("*.log"))).rstrip(b"\0")
