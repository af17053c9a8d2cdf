"""A quorum of one to test with: small files, a disk in memory, and an owner that remembers what it was told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from barnabas.base.errors import BrokerError
from barnabas.broker.controller.quorum_controller import QuorumController
from barnabas.broker.controller_server import ControllerServer
from barnabas.broker.quorum.formatting import check_features, format_directories, read_identity
from barnabas.broker.quorum.quorum_transport import QuorumTransport
from barnabas.broker.quorum.raft_quorum import RaftQuorum
from barnabas.broker.quorum.snapshot_generator import SnapshotGenerator, UntilApplied, snapshot_of
from barnabas.broker.router import Router
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.turns import Turns
from barnabas.metadata.batches import decode_values
from barnabas.metadata.image import ConfigResourceType
from barnabas.metadata.loader import MetadataLoader
from barnabas.net.channel import ChannelLimits
from barnabas.raft.ports import RequestReceiver
from barnabas.raft.types import Address, CommittedBatch, LeaderAndEpoch, Snapshot, SnapshotId
from barnabas.raft.voters import VoterSet
from barnabas.storage.files import FileSystem
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.wire.message import Request, Response
from barnabas.wire.stored.cluster_metadata import ConfigRecord, MetadataRecord
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
    format_directories(disk, settings or node_settings(), CLUSTER_ID, Random(7), elr_version=0, transaction_version=0)
    return disk


def config(name: str, value: str | None = "1") -> ConfigRecord:
    return ConfigRecord(resource_type=4, resource_name="", name=name, value=value)


class Owner:
    """A listener that remembers what it was told, over a loader that makes an image of it."""

    def __init__(self) -> None:
        self.loader = MetadataLoader()
        self.told: list[CommittedBatch] = []
        self.snapshots: list[SnapshotId] = []
        self.failures: list[BaseException] = []

    @property
    def configs(self) -> dict[str, str]:
        return dict(self.loader.image.config(ConfigResourceType.BROKER, ""))

    @property
    def features(self) -> dict[str, int]:
        return dict(self.loader.image.features)

    def on_snapshot(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot.snapshot_id)
        self.loader.on_snapshot(snapshot)

    def on_commit(self, batch: CommittedBatch) -> None:
        self.told.append(batch)
        self.loader.on_commit(batch)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.loader.on_leader_change(leader)


async def applied_at_once(_: int) -> bool:
    return True


class NoTransport:
    """A sole voter has nobody to talk to."""

    async def start(self, receive: RequestReceiver, on_refused: Callable[[Address], None]) -> None:
        pass

    def send(
        self, to: Address, request: Request, on_response: Callable[[Response | None], None], *, timeout_ms: int
    ) -> None:
        raise AssertionError(f"{request} was sent to {to}")

    async def stop(self) -> None:
        pass


class RunningQuorum:
    """A quorum of one on a disk, with a controller that writes to it: what a node has below its roles."""

    def __init__(self, files: FileSystem, settings: BrokerSettings, runtime: InlineRuntime | None = None) -> None:
        self.settings = settings
        self.files = files
        self.owner = Owner()
        self.runtime = runtime or InlineRuntime()
        self.identity = read_identity(files, settings)
        self.quorum = RaftQuorum(
            files,
            settings,
            self.identity,
            self.runtime,
            self.owner,
            self._failed,
            transport=NoTransport(),
            voters=VoterSet.of({self.identity.node_id: Address("127.0.0.1", 9093)}),
        )
        self.server: ControllerServer | None = None
        self.snapshots: SnapshotGenerator | None = None

    async def start(
        self, *, takes_snapshots: bool = False, until_applied: UntilApplied = applied_at_once
    ) -> RunningQuorum:
        loader, quorum = self.owner.loader, self.quorum
        await quorum.open()
        check_features(loader.image.features, quorum.log.directory)
        self.server = ControllerServer(
            self.settings,
            self.identity,
            quorum,
            loader,
            files=self.files,
            runtime=self.runtime,
            router=Router([], Turns()),
            endpoints={"CONTROLLER": ("127.0.0.1", 9093)},
            transport=QuorumTransport(Random(1), "raft", ChannelLimits()),
            on_failure=self._failed,
        )
        self.server.start()
        if takes_snapshots:
            self.snapshots = SnapshotGenerator(quorum, loader, self.settings, self.runtime, until_applied)
            loader.publish_to(self.snapshots)
        await quorum.start()
        try:
            await self.controller.until_active()
        except BrokerError as failure:
            raise quorum.failure or failure from None
        return self

    def _failed(self, failure: BaseException) -> None:
        self.owner.failures.append(failure)
        self.controller.close(str(failure))

    @property
    def controller(self) -> QuorumController:
        assert self.server is not None
        return self.server.controller

    def append(self, *records: MetadataRecord) -> int:
        """Write one change; the offset of its last record."""
        self.controller._write(records)
        return self.quorum.log_end_offset - 1

    async def commit(self, *records: MetadataRecord) -> int:
        offset = self.append(*records)
        await self.settled()
        return offset

    async def take_snapshot(self) -> SnapshotId:
        snapshot = snapshot_of(self.owner.loader.image, self.owner.loader.last_append_ms)
        await self.quorum.take_snapshot(snapshot)
        return snapshot.snapshot_id

    async def settled(self) -> None:
        """Until everything that was begun is done."""
        driver = self.quorum.driver
        while driver.failure is None and (driver._syncing or driver._effects or self._snapshotting):  # noqa: ASYNC110
            await asyncio.sleep(0)
        if self.quorum.failure is not None:
            raise self.quorum.failure

    @property
    def _snapshotting(self) -> asyncio.Task[None] | None:
        return None if self.snapshots is None else self.snapshots._taking

    async def look(self) -> None:
        """What a node does from time to time."""
        if self.snapshots is not None:
            self.snapshots.take_if_due()
        await self.quorum._clean()

    async def stop(self) -> None:
        if self.snapshots is not None:
            await self.snapshots.stop()
        if self.server is not None:
            await self.server.stop()
        await self.quorum.stop()


async def started(files: FileSystem, settings: BrokerSettings | None = None, **how: Any) -> RunningQuorum:
    return await RunningQuorum(files, settings or node_settings()).start(**how)


def flat(batches: Sequence[CommittedBatch]) -> list[MetadataRecord]:
    return [record for batch in batches for record in decode_values(batch.values)]
