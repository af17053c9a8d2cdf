"""A quorum of one: what it tells its owner, when something counts as committed, and what it does by itself."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.broker.quorum.metadata_log import metadata_log_options
from barnabas.raft.raft_log import RaftLog
from barnabas.raft.snapshots import find_snapshots
from barnabas.raft.types import CommittedBatch, SnapshotId
from barnabas.storage.errors import LogDirectoryError
from barnabas.wire.stored.cluster_metadata import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)
from tests.broker.metadata_files import (
    LOG_DIRECTORY,
    RunningQuorum,
    config,
    flat,
    formatted_disk,
    node_settings,
    started,
)
from tests.storage.runtime import InlineRuntime

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


class GatedRuntime(InlineRuntime):
    """Blocking work waits until it is let through, so that a test can look in between."""

    def __init__(self) -> None:
        super().__init__()
        self.gate: asyncio.Event | None = None
        self.count = 0

    def offload(self, work: Callable[[], T]) -> Awaitable[T]:
        async def done() -> T:
            self.count += 1
            if self.gate is not None:
                await self.gate.wait()
            return work()

        return done()


def test_a_new_cluster_begins_with_the_bootstrap_records_in_a_transaction() -> None:
    async def story() -> None:
        running = await started(formatted_disk())
        assert flat(running.owner.told) == [
            BeginTransactionRecord(name="Bootstrap records"),
            FeatureLevelRecord(name="metadata.version", feature_level=25),
            EndTransactionRecord(),
        ]
        # The leader's change comes before them, and counts.
        assert (running.quorum.epoch, running.quorum.high_watermark) == (1, 4)
        await running.stop()

    run(story())


def test_an_old_cluster_needs_no_first_records_and_gets_a_new_epoch() -> None:
    async def story() -> None:
        disk = formatted_disk()
        first = await started(disk)
        await first.commit(config("a"), config("b"))
        await first.stop()
        second = await started(disk)
        assert flat(second.owner.told[-1:]) == []
        assert second.quorum.epoch == 2
        assert second.owner.configs == {"a": "1", "b": "1"}
        assert second.owner.features == {"metadata.version": 25}
        described = second.quorum.describe()
        assert described.leader == (1, 2)
        assert described.high_watermark == described.voters[0].log_end_offset == 7
        await second.stop()

    run(story())


def test_batches_are_told_in_order_with_their_offsets() -> None:
    async def story() -> None:
        running = await started(formatted_disk())
        assert running.append(config("a"), config("b")) == 5
        assert running.append(config("c")) == 6
        await running.settled()
        told = [(each.base_offset, each.last_offset, len(each.values)) for each in running.owner.told]
        assert told == [(0, 0, 0), (1, 3, 3), (4, 5, 2), (6, 6, 1)]
        assert {each.epoch for each in running.owner.told} == {1}
        await running.stop()

    run(story())


def test_nothing_is_committed_before_its_sync_and_changes_share_one() -> None:
    async def story() -> None:
        runtime = GatedRuntime()
        disk = formatted_disk()
        running = await RunningQuorum(disk, node_settings(), runtime).start()
        quorum = running.quorum
        runtime.gate, runtime.count = asyncio.Event(), 0
        before = quorum.high_watermark
        running.append(config("first"))
        for _ in range(3):
            await asyncio.sleep(0)
        # The first sync is under way: these wait for the next, all of them for the same.
        for number in range(50):
            running.append(config(f"later {number}"))
        assert quorum.high_watermark == before
        assert "first" not in running.owner.configs
        runtime.gate.set()
        await running.settled()
        assert quorum.high_watermark == before + 51
        assert len(running.owner.configs) == 51
        assert runtime.count == 2
        await running.stop()

    run(story())


def test_a_change_at_the_very_end_of_a_sync_is_committed_too() -> None:
    """The task that syncs has ended, and nobody has heard of it yet."""

    async def story() -> None:
        running = await started(formatted_disk())
        loop, is_done = asyncio.get_running_loop(), asyncio.Event()
        listener, tell = running.owner, running.owner.on_commit

        def tell_and_append(batch: CommittedBatch) -> None:
            tell(batch)
            if "late" in running.owner.configs:
                is_done.set()
            else:
                loop.call_soon(running.append, config("late"))

        listener.on_commit = tell_and_append  # type: ignore[method-assign]
        running.append(config("early"))
        await asyncio.wait_for(is_done.wait(), 5)
        await running.stop()

    run(story())


def test_a_change_that_is_too_large_for_a_batch_is_still_all_or_nothing() -> None:
    async def story() -> None:
        settings = node_settings(internal_metadata_max_batch_size_in_bytes=2000)
        disk = formatted_disk()
        running = await started(disk, settings)
        records = [config(f"setting {number}", "x" * 100) for number in range(60)]
        last_offset = await running.commit(*records)
        change = running.owner.told[-1]
        written = flat([change])
        assert len(written) == 62
        # Each record's offset is the first one's plus its place, with begin and end counted.
        assert last_offset == change.last_offset == change.base_offset + 61
        assert written[1:-1] == records
        await running.stop()
        again = await started(disk, settings)
        assert len(again.owner.configs) == 60
        assert flat(again.owner.told)[3:-1] == written[:-1]
        await again.stop()

    run(story())


def test_a_transaction_that_a_stop_cut_short_is_aborted_and_never_told() -> None:
    async def story() -> None:
        disk = formatted_disk()
        first = await started(disk)
        await first.commit(config("before"))
        await first.commit(BeginTransactionRecord(), config("half done"))
        await first.stop()
        second = await started(disk)
        assert "half done" not in second.owner.configs
        await second.commit(config("after"))
        await second.stop()
        third = await started(disk)
        assert sorted(third.owner.configs) == ["after", "before"]
        await third.stop()

    run(story())


def test_appending_nothing_writes_nothing() -> None:
    async def story() -> None:
        running = await started(formatted_disk())
        end = running.quorum.log_end_offset
        assert running.quorum.append([], running.quorum.epoch) == end - 1
        assert running.quorum.log_end_offset == end
        await running.stop()

    run(story())


def test_after_a_failed_sync_nothing_more_is_promised() -> None:
    async def story() -> None:
        disk = formatted_disk()
        running = await started(disk)
        disk.fail_next(errno.EIO, name="sync", path=".log")
        running.append(config("lost?"))
        with pytest.raises(LogDirectoryError, match="a sync failed"):
            await running.settled()
        assert len(running.owner.failures) == 1
        assert "lost?" not in running.owner.configs
        with pytest.raises(BrokerError) as refused:
            running.append(config("later"))
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        await running.stop()

    run(story())


def test_an_owner_that_cannot_follow_ends_the_quorum() -> None:
    async def story() -> None:
        disk = formatted_disk()
        running = await started(disk)

        def refuse(_: object) -> None:
            raise ValueError("this record makes no sense")

        running.owner.on_commit = refuse  # type: ignore[assignment]
        running.append(config("a"))
        with pytest.raises(ValueError, match="makes no sense"):
            await running.settled()
        assert [str(each) for each in running.owner.failures] == ["this record makes no sense"]
        await running.stop()

    run(story())


def test_a_full_disk_refuses_a_change_and_the_next_one_goes_through(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        disk = formatted_disk()
        running = await started(disk)
        disk.capacity_bytes = disk.used_bytes + 10
        with pytest.raises(BarnabasError, match="the disk is full"):
            running.append(config("too much"))
        disk.capacity_bytes = None
        await running.commit(config("fits"))
        assert running.owner.configs == {"fits": "1"}
        assert not running.owner.failures
        await running.stop()

    run(story())
    full, over = (each.getMessage() for each in caplog.records)
    assert "__cluster_metadata-0: the disk is full; refused" in full
    assert "__cluster_metadata-0 works again" in over


def test_stopping_commits_what_was_appended_and_takes_nothing_more() -> None:
    async def story() -> None:
        disk = formatted_disk()
        running = await started(disk)
        running.append(config("last"))
        stopping = asyncio.ensure_future(running.stop())
        while not running.quorum._is_stopping:  # noqa: ASYNC110
            await asyncio.sleep(0)
        with pytest.raises(BrokerError, match="stopping"):
            running.append(config("too late"))
        await stopping
        assert running.owner.configs == {"last": "1"}

    run(story())


# Snapshots


def test_a_start_goes_by_the_snapshot_and_what_follows_it() -> None:
    async def story() -> None:
        disk = formatted_disk()
        first = await started(disk)
        await first.commit(config("old"), config("changed"))
        snapshot = await first.take_snapshot()
        assert snapshot == SnapshotId(6, 1)
        await first.commit(config("changed", "2"), config("new"))
        await first.stop()
        second = await started(disk)
        assert second.owner.snapshots == [snapshot]
        assert second.owner.told[0].base_offset == 6
        assert second.owner.configs == {"old": "1", "changed": "2", "new": "1"}
        await second.stop()

    run(story())


def test_a_snapshot_is_taken_after_so_many_bytes() -> None:
    async def story() -> None:
        settings = node_settings(metadata_log_max_record_bytes_between_snapshots=1000)
        disk = formatted_disk()
        running = await started(disk, settings, takes_snapshots=True)
        for number in range(30):
            await running.commit(config(f"setting {number}"))
        taken = find_snapshots(disk, LOG_DIRECTORY)
        assert 2 <= len(taken) <= 4
        await running.stop()
        again = await started(disk, settings)
        assert again.owner.snapshots == taken[-1:]
        assert len(again.owner.configs) == 30
        await again.stop()

    run(story())


def test_a_snapshot_is_taken_after_so_long_but_only_if_something_changed() -> None:
    async def story() -> None:
        disk = formatted_disk()
        running = await started(disk, takes_snapshots=True)
        running.runtime.clock.advance(3_600_000)
        await running.look()
        await running.settled()
        assert len(find_snapshots(disk, LOG_DIRECTORY)) == 1
        running.runtime.clock.advance(3_600_000)
        await running.look()
        await running.settled()
        assert len(find_snapshots(disk, LOG_DIRECTORY)) == 1
        await running.stop()

    run(story())


def test_a_snapshot_that_waits_for_a_broker_does_not_hold_up_the_stop() -> None:
    """A broker whose start fails never applies what the snapshot waits for."""

    async def never(_: int) -> bool:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nobody ends this future")

    async def story() -> None:
        settings = node_settings(metadata_log_max_record_bytes_between_snapshots=1)
        disk = formatted_disk()
        running = await started(disk, settings, takes_snapshots=True, until_applied=never)
        waiting = running._snapshotting
        assert waiting is not None
        await running.stop()
        assert waiting.cancelled()
        assert not find_snapshots(disk, LOG_DIRECTORY)

    run(story())


def test_the_same_state_is_not_written_twice() -> None:
    async def story() -> None:
        disk = formatted_disk()
        running = await started(disk)
        first = await running.take_snapshot()
        assert await running.take_snapshot() == first
        await running.stop()

    run(story())


def test_a_snapshot_that_cannot_be_written_harms_nothing() -> None:
    async def story() -> None:
        settings = node_settings(metadata_log_max_record_bytes_between_snapshots=100)
        disk = formatted_disk()
        running = await started(disk, settings, takes_snapshots=True)
        disk.fail_next(errno.EIO, name="write_at", path=".part")
        await running.commit(config("a"), config("b"))
        assert not running.owner.failures
        await running.commit(config("c"))
        assert find_snapshots(disk, LOG_DIRECTORY)
        await running.stop()

    run(story())


def test_a_snapshot_that_waits_for_a_broker_that_never_applies_it_does_not_keep_the_node_from_ending() -> None:
    async def never(_: int) -> bool:
        await asyncio.get_running_loop().create_future()
        return True

    async def story() -> None:
        settings = node_settings(metadata_log_max_record_bytes_between_snapshots=100)
        disk = formatted_disk()
        running = await started(disk, settings, takes_snapshots=True, until_applied=never)
        running.append(config("a"), config("b"))
        while running._snapshotting is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await running.stop()
        assert not find_snapshots(disk, LOG_DIRECTORY)

    run(story())


def test_old_snapshots_and_the_log_before_them_go_when_there_is_too_much() -> None:
    async def story() -> None:
        settings = node_settings(
            metadata_log_max_record_bytes_between_snapshots=1000,
            metadata_max_retention_bytes=3000,
            internal_metadata_log_segment_bytes=600,
            internal_metadata_delete_delay_millis=0,
        )
        disk = formatted_disk()
        running = await started(disk, settings, takes_snapshots=True)
        for number in range(200):
            await running.commit(config(f"setting {number % 5}", str(number)))
        snapshots = find_snapshots(disk, LOG_DIRECTORY)
        assert running.quorum.log_start_offset == snapshots[0].end_offset > 0
        assert sum(len(content or b"") for path, content in disk.contents().items() if path.endswith(".log")) < 3000
        await running.stop()
        again = await started(disk, settings)
        assert again.owner.configs == {f"setting {number}": str(195 + number) for number in range(5)}
        await again.stop()

    run(story())


def test_snapshots_that_are_too_old_go_but_never_the_newest() -> None:
    async def story() -> None:
        settings = node_settings(metadata_max_retention_ms=1000, internal_metadata_delete_delay_millis=500)
        disk = formatted_disk()
        running = await started(disk, settings)
        for number in range(3):
            await running.commit(config(f"setting {number}"))
            await running.take_snapshot()
        running.runtime.clock.advance(5000)
        await running.look()
        kept = find_snapshots(disk, LOG_DIRECTORY)
        assert kept == [SnapshotId(7, 1)]
        assert len([path for path in disk.contents() if path.endswith(".checkpoint.deleted")]) == 2
        running.runtime.clock.advance(500)
        await running.look()
        assert not [path for path in disk.contents() if path.endswith(".deleted")]
        await running.stop()

    run(story())


# What happens by itself


def test_an_idle_node_writes_nothing_unless_it_is_asked_to() -> None:
    async def story(asked: bool) -> list[object]:
        settings = node_settings(metadata_max_idle_interval_ms=20) if asked else node_settings()
        running = await started(formatted_disk(), settings)
        running.runtime.clock.advance(20)
        await running.controller._say_nothing()
        await running.look()
        await running.settled()
        told = flat(running.owner.told[2:])
        await running.stop()
        return list(told)

    assert run(story(asked=False)) == []
    assert run(story(asked=True)) == [NoOpRecord()]


def test_who_is_not_idle_does_not_say_nothing() -> None:
    async def story() -> None:
        running = await started(formatted_disk(), node_settings(metadata_max_idle_interval_ms=100))
        running.runtime.clock.advance(99)
        await running.commit(config("a"))
        running.runtime.clock.advance(99)
        await running.controller._say_nothing()
        await running.settled()
        assert NoOpRecord() not in flat(running.owner.told)
        await running.stop()

    run(story())


# What is refused


@pytest.mark.parametrize(
    ("feature", "level", "said"),
    [
        ("metadata.version", 30, r"metadata\.version 30 \(4\.3-IV0\); built is .*\nKafka has no way back"),
        (
            "group.version",
            1,
            r"group\.version 1; built is .*\n.*\n.* downgrade --feature group\.version=0",
        ),
    ],
)
def test_features_that_are_not_built_are_refused(feature: str, level: int, said: str) -> None:
    async def story() -> None:
        disk = formatted_disk()
        first = await started(disk)
        await first.commit(FeatureLevelRecord(name=feature, feature_level=level))
        await first.stop()
        before = disk.contents()
        with pytest.raises(BarnabasError, match=said):
            await started(disk)
        # Another node may go on with it: nothing was written.
        assert disk.contents()[f"{LOG_DIRECTORY[1:]}/quorum-state"] == before[f"{LOG_DIRECTORY[1:]}/quorum-state"]

    run(story())


def test_a_metadata_directory_of_its_own_is_locked() -> None:
    async def story() -> None:
        settings = node_settings(metadata_log_dir="/data/meta")
        disk = formatted_disk(settings)
        first = await started(disk, settings)
        with pytest.raises(BarnabasError, match="/data/meta: another process is using it"):
            await started(disk, settings)
        await first.stop()
        second = await started(disk, settings)
        await second.stop()

    run(story())


def test_a_missing_snapshot_is_told_of_and_not_made_up_for() -> None:
    async def story() -> None:
        settings = node_settings(
            metadata_max_retention_bytes=0,
            internal_metadata_log_segment_bytes=300,
            internal_metadata_delete_delay_millis=0,
        )
        disk = formatted_disk()
        first = await started(disk, settings)
        for number in range(20):
            await first.commit(config(f"setting {number}"))
            await first.take_snapshot()
        await first.stop()
        for snapshot in find_snapshots(disk, LOG_DIRECTORY):
            disk.remove(f"{LOG_DIRECTORY}/{snapshot.file_name}")
        with pytest.raises(BarnabasError, match="there is no snapshot of what came before"):
            RaftLog(disk, LOG_DIRECTORY, metadata_log_options(settings, None), InlineRuntime()).open()

    run(story())
