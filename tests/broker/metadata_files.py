"""A quorum of one to test with: small files, a disk in memory, and an owner that remembers what it was told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from barnabas.broker.formatting import format_directories, read_identity
from barnabas.broker.metadata_snapshots import SnapshotId
from barnabas.broker.quorum_of_one import QuorumOfOne
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.committer import CommittedBatch
from barnabas.storage.files import FileSystem
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.wire.stored.cluster_metadata import ConfigRecord, FeatureLevelRecord, MetadataRecord
from tests.storage.runtime import InlineRuntime

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
DIRECTORY = "/data"
LOG_DIRECTORY = f"{DIRECTORY}/__cluster_metadata-0"

BASE_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
}


def node_settings(directory: str = DIRECTORY, **overrides: Any) -> BrokerSettings:
    given = {name.replace("_", "."): str(value) for name, value in overrides.items()}
    return BrokerSettings.load({**BASE_SETTINGS, "log.dirs": directory, **given})


def formatted_disk(settings: BrokerSettings | None = None, **how: Any) -> SimulatedDisk:
    disk = SimulatedDisk(Random(1), **how)
    disk.make_directory("/data")
    disk.sync_directory("/")
    format_directories(disk, settings or node_settings(), CLUSTER_ID, Random(7))
    return disk


def config(name: str, value: str | None = "1") -> ConfigRecord:
    return ConfigRecord(resource_type=4, resource_name="", name=name, value=value)


class Owner:
    """Holds the state that the records describe: here, the settings of all brokers, and the features."""

    def __init__(self) -> None:
        self.configs: dict[str, str] = {}
        self.features: dict[str, int] = {}
        self.told: list[CommittedBatch] = []
        self.snapshots: list[SnapshotId] = []
        self.failures: list[BaseException] = []

    def on_snapshot(self, records: Iterator[MetadataRecord], snapshot: SnapshotId, time_ms: int) -> None:
        self.snapshots.append(snapshot)
        for record in records:
            self._replay(record)

    def on_commit(self, batch: CommittedBatch) -> None:
        self.told.append(batch)
        for record in batch.records:
            self._replay(record)

    def _replay(self, record: MetadataRecord) -> None:
        if isinstance(record, ConfigRecord):
            self.configs[record.name] = record.value or ""
        elif isinstance(record, FeatureLevelRecord):
            self.features[record.name] = record.feature_level

    def records(self) -> Iterator[MetadataRecord]:
        features = [FeatureLevelRecord(name=name, feature_level=level) for name, level in self.features.items()]
        configs = [config(name, value) for name, value in self.configs.items()]
        return iter([*features, *configs])


class RunningQuorum:
    """A quorum of one that was started on a disk, with its owner."""

    def __init__(self, files: FileSystem, settings: BrokerSettings, runtime: InlineRuntime | None = None) -> None:
        self.owner = Owner()
        self.runtime = runtime or InlineRuntime()
        self.quorum = QuorumOfOne(files, settings, read_identity(files, settings), self.runtime)

    async def start(self, *, takes_snapshots: bool = False) -> RunningQuorum:
        await self.quorum.start(
            self.owner.on_snapshot,
            self.owner.on_commit,
            state_records=self.owner.records if takes_snapshots else None,
            on_failure=self.owner.failures.append,
        )
        if self.quorum.first_records:
            self.quorum.append(self.quorum.first_records)
            await self.settled()
        return self

    async def commit(self, *records: MetadataRecord) -> int:
        offset = self.quorum.append(records)
        await self.settled()
        return offset

    async def settled(self) -> None:
        """Until everything that was begun is done."""
        while tasks := [each for each in (self.quorum._syncing, self.quorum._snapshotting) if each is not None]:
            await asyncio.wait(tasks)
        if self.quorum.failure is not None:
            raise self.quorum.failure


async def started(files: FileSystem, settings: BrokerSettings | None = None, **how: Any) -> RunningQuorum:
    return await RunningQuorum(files, settings or node_settings()).start(**how)


def flat(batches: Sequence[CommittedBatch]) -> list[MetadataRecord]:
    return [record for batch in batches for record in batch.records]
