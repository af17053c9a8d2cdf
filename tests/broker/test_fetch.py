"""Fetch: what is read, how much of it, when the answer comes, sessions over the wire, isolation, epochs, bad disks."""

from __future__ import annotations

import asyncio
import errno
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.ids import Uuid
from barnabas.storage.cleaner import CleaningJob, plan_for
from barnabas.storage.log import PartitionLog
from barnabas.storage.real_files import RealFileSystem
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.wire.messages.fetch import ForgottenTopic
from tests.broker.connections import FakeConnection, over_the_wire
from tests.broker.data_plane import (
    DataPlane,
    batch,
    batches_of,
    code_of,
    fetch_request,
    only,
    partitions_of,
    values_of,
)


@pytest.fixture
def plane() -> DataPlane:
    plane = DataPlane()
    plane.create_topic("t", 3)
    return plane


def parked(plane: DataPlane, offsets: dict[tuple[Any, int], int], **how: Any) -> asyncio.Future[Any]:
    answer = plane.begin(fetch_request(offsets, **{"max_wait_ms": 500, **how}), 12)
    assert isinstance(answer, asyncio.Future)
    assert not answer.done()
    return answer


# What is read


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_by_name_is_answered(plane: DataPlane, version: int) -> None:
    plane.append("t", b"a", b"b")
    data = plane.fetch("t", version=version)
    assert (values_of(data), data.high_watermark, data.last_stable_offset) == ([b"a", b"b"], 2, 2)
    assert data.aborted_transactions is None


@pytest.mark.parametrize("version", range(13, 19))
def test_topics_are_named_by_id_from_v13_on(plane: DataPlane, version: int) -> None:
    plane.append("t", b"a")
    topic_id, unknown = plane.image.topics["t"].topic_id, Uuid(bytes(range(16)))
    answers = partitions_of(plane.ask(fetch_request({(topic_id, 0): 0, (unknown, 4): 0}), version))
    assert values_of(answers[topic_id, 0]) == [b"a"]
    assert code_of(answers[unknown, 4]) == "UNKNOWN_TOPIC_ID"


def test_a_batch_comes_whole_although_the_reader_starts_within_it(plane: DataPlane) -> None:
    plane.append("t", b"a", b"b", b"c")
    data = plane.fetch("t", 1)
    assert [each.base_offset for each in batches_of(data)] == [0]
    assert values_of(data, from_offset=1) == [b"b", b"c"]


@pytest.mark.parametrize(("offset", "code"), [(-1, "OFFSET_OUT_OF_RANGE"), (2, "NONE"), (3, "OFFSET_OUT_OF_RANGE")])
def test_offsets_outside_the_log_are_told(plane: DataPlane, offset: int, code: str) -> None:
    plane.append("t", b"a", b"b")
    data = plane.fetch("t", offset)
    assert code_of(data) == code
    assert not data.records
    assert data.high_watermark == (2 if code == "NONE" else -1)


def test_what_is_written_but_not_committed_is_not_shown(plane: DataPlane) -> None:
    plane.create_topic("r", replicas=(1, 2))
    plane.produce({("r", 0): batch([b"a"])}, acks=1)
    for offset in (0, 1):
        data = plane.fetch("r", offset)
        assert (code_of(data), data.high_watermark, data.records) == ("NONE", 0, b"")
    plane.partition("r").leading().update_follower_fetch_state(2, 1)
    assert values_of(plane.fetch("r")) == [b"a"]


def test_missing_partitions_are_told_apart(plane: DataPlane) -> None:
    plane.create_topic("elsewhere", replicas=(3,))
    answers = partitions_of(plane.ask(fetch_request({("nope", 0): 0, ("t", 9): 0, ("elsewhere", 0): 0}), 12))
    assert {key: code_of(each) for key, each in answers.items()} == {
        ("nope", 0): "UNKNOWN_TOPIC_OR_PARTITION",
        ("t", 9): "UNKNOWN_TOPIC_OR_PARTITION",
        ("elsewhere", 0): "NOT_LEADER_OR_FOLLOWER",
    }


# Limits


def sized(plane: DataPlane, number: int = 0) -> int:
    """Ten batches of equal size; how large one is."""
    for each in range(10):
        plane.append("t", b"%d" % each * 100, number=number)
    return len(plane.fetch("t", number=number).records or b"") // 10


def test_the_first_batch_comes_whole_however_small_the_limits(plane: DataPlane) -> None:
    sized(plane)
    for how in ({"max_bytes": 1}, {"partition_max_bytes": 1}, {"max_bytes": 0, "partition_max_bytes": 0}):
        data = plane.fetch("t", 4, **how)
        assert [each.base_offset for each in batches_of(data)] == [4]


def test_only_the_first_partition_with_data_may_go_beyond_the_limits(plane: DataPlane) -> None:
    size_bytes = sized(plane, 1)
    sized(plane, 2)
    answers = partitions_of(
        plane.ask(fetch_request({("t", 0): 0, ("t", 1): 0, ("t", 2): 0}, max_bytes=size_bytes + 10), 12)
    )
    lengths = [len(answers["t", number].records or b"") for number in range(3)]
    # What is left of the limit does not hold a batch, so there is none.
    assert lengths == [0, size_bytes + 10, 0]
    assert [answers["t", number].high_watermark for number in range(3)] == [0, 10, 10]


def test_the_limit_of_a_partition_may_cut_the_last_batch(plane: DataPlane) -> None:
    size_bytes = sized(plane)
    data = plane.fetch("t", partition_max_bytes=2 * size_bytes + 7)
    assert len(data.records or b"") == 2 * size_bytes + 7
    assert len(batches_of(data)) == 2


def test_the_node_has_a_limit_of_its_own() -> None:
    plane = DataPlane(fetch_max_bytes=1024)
    plane.create_topic("t")
    sized(plane)
    assert len(plane.fetch("t").records or b"") == 1024


def test_without_memory_for_answers_a_fetch_waits_and_then_goes_on(plane: DataPlane) -> None:
    plane.append("t", b"a")
    plane.room_bytes = 0
    waiting = parked(plane, {("t", 0): 0})
    plane.pass_ms(200)
    assert not waiting.done()
    plane.room_bytes = 1
    plane.pass_ms(50)
    assert values_of(only(waiting.result())) == [b"a"]


def test_without_memory_until_the_end_the_answer_is_empty(plane: DataPlane) -> None:
    plane.append("t", b"a")
    plane.room_bytes = -5
    data = only(plane.run(parked(plane, {("t", 0): 0})))
    assert (code_of(data), data.records, data.high_watermark) == ("NONE", b"", 1)


# Waiting


def test_a_fetch_at_the_end_parks_and_wakes_with_the_next_record(plane: DataPlane) -> None:
    plane.append("t", b"a")
    waiting = parked(plane, {("t", 0): 1, ("t", 1): 0})
    plane.append("t", b"for nobody", number=2)
    plane.pass_ms(100)
    assert not waiting.done()
    plane.append("t", b"b", number=1)
    plane.pass_ms(0)
    answers = partitions_of(over_the_wire(waiting.result(), 12))
    assert (answers["t", 0].records, values_of(answers["t", 1])) == (b"", [b"b"])
    assert [plane.partition("t", number).leading().delayed_count for number in range(3)] == [0, 0, 0]


def test_time_up_brings_what_there_is(plane: DataPlane) -> None:
    plane.append("t", b"a")
    started_ms = plane.now_ms
    data = only(plane.run(parked(plane, {("t", 0): 0}, min_bytes=10_000)))
    assert values_of(data) == [b"a"]
    assert plane.now_ms - started_ms == 500
    assert plane.partition("t").leading().delayed_count == 0


def test_without_waiting_time_the_answer_comes_at_once(plane: DataPlane) -> None:
    assert plane.begin(fetch_request({("t", 0): 0}, max_wait_ms=0), 12).responses
    assert plane.begin(fetch_request({("t", 0): 0}, max_wait_ms=100, min_bytes=0), 12).responses


def test_min_bytes_are_counted_over_all_partitions(plane: DataPlane) -> None:
    size_bytes = len(batch([b"x" * 100]))
    waiting = parked(plane, {("t", 0): 0, ("t", 1): 0}, min_bytes=3 * size_bytes)
    for number, is_done in ((0, False), (1, False), (0, True)):
        plane.append("t", b"x" * 100, number=number)
        plane.pass_ms(1)
        assert waiting.done() is is_done
    answers = partitions_of(waiting.result())
    assert [len(batches_of(answers["t", number])) for number in (0, 1)] == [2, 1]


def test_min_bytes_above_max_bytes_do_not_keep_a_reader_waiting(plane: DataPlane) -> None:
    waiting = parked(plane, {("t", 0): 0}, min_bytes=1 << 20, max_bytes=500)
    for _ in range(5):
        plane.append("t", b"x" * 100)
    plane.pass_ms(1)
    assert waiting.done()


def test_what_lies_in_an_older_segment_is_enough(plane: DataPlane) -> None:
    log = plane.partition("t").led_log()
    plane.append("t", b"a")
    waiting = parked(plane, {("t", 0): 0}, min_bytes=2000)
    log.roll(plane.now_ms)
    plane.append("t", b"b" * 2000)
    plane.pass_ms(1)
    # Only a range of one segment can be sent at a time, so there is nothing more to wait for.
    assert values_of(only(waiting.result())) == [b"a"]
    assert plane.begin(fetch_request({("t", 0): 0}, min_bytes=9999, max_wait_ms=500), 12).responses


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"leader": 2, "leader_epoch": 1}, "FENCED_LEADER_EPOCH"),
        ({"leader": 2}, "NOT_LEADER_OR_FOLLOWER"),
        ({"leader_epoch": 1}, "FENCED_LEADER_EPOCH"),
    ],
)
def test_another_leader_or_epoch_ends_the_waiting(plane: DataPlane, change: dict[str, int], code: str) -> None:
    plane.create_topic("r", replicas=(1, 2))
    waiting = parked(plane, {("r", 0): 0}, leader_epoch=0)
    plane.change_partition("r", **change)
    plane.pass_ms(0)
    assert code_of(only(waiting.result())) == code


def test_deletion_ends_the_waiting(plane: DataPlane) -> None:
    waiting = parked(plane, {("t", 0): 0, ("t", 1): 0})
    plane.delete_topic("t")
    plane.pass_ms(0)
    assert {code_of(each) for each in partitions_of(waiting.result()).values()} == {"UNKNOWN_TOPIC_OR_PARTITION"}


def test_a_client_that_goes_while_it_waits_leaves_nothing_behind(plane: DataPlane) -> None:
    waiting = parked(plane, {("t", 0): 0})
    plane.connection.close()
    assert waiting.cancelled()
    plane.pass_ms(1)
    assert plane.partition("t").leading().delayed_count == 0


def test_a_reader_of_uncommitted_tails_wakes_when_they_are_committed(plane: DataPlane) -> None:
    plane.create_topic("r", replicas=(1, 2))
    plane.produce({("r", 0): batch([b"a"])}, acks=1)
    waiting = parked(plane, {("r", 0): 0})
    plane.partition("r").leading().update_follower_fetch_state(2, 1)
    plane.pass_ms(0)
    assert values_of(only(waiting.result())) == [b"a"]


def test_a_follower_sees_and_wakes_at_the_end_of_the_log(plane: DataPlane) -> None:
    plane.create_topic("r", replicas=(1, 2))
    plane.produce({("r", 0): batch([b"a"])}, acks=1)
    assert values_of(plane.fetch("r", replica_id=2)) == [b"a"]
    waiting = parked(plane, {("r", 0): 1}, replica_id=2)
    assert plane.partition("r").led_log().high_watermark == 1
    plane.produce({("r", 0): batch([b"b"])}, acks=1)
    plane.pass_ms(0)
    data = only(waiting.result())
    assert (values_of(data), data.high_watermark) == ([b"b"], 1)
    assert code_of(plane.fetch("r", replica_id=3)) == "NOT_LEADER_OR_FOLLOWER"


# Isolation


def test_a_reader_of_committed_data_stops_before_the_first_open_transaction(plane: DataPlane) -> None:
    plane.append("t", b"plain")
    plane.append_in_transaction("t", 7, b"maybe")
    plane.append("t", b"after")
    data = plane.fetch("t", isolation_level=1)
    assert values_of(data) == [b"plain"]
    assert (data.high_watermark, data.last_stable_offset, data.aborted_transactions) == (3, 1, [])
    assert values_of(plane.fetch("t")) == [b"plain", b"maybe", b"after"]
    assert plane.fetch("t").last_stable_offset == 1

    waiting = parked(plane, {("t", 0): 1}, isolation_level=1)
    plane.append("t", b"more")
    plane.pass_ms(10)
    assert not waiting.done()
    plane.end_transaction("t", 7, committed=True)
    plane.pass_ms(0)
    data = only(waiting.result())
    assert values_of(data) == [b"maybe", b"after", b"more"]
    assert data.last_stable_offset == 5
    # The marker comes too: clients know what it is.
    assert batches_of(data)[-1].is_control


def test_a_reader_of_committed_data_is_told_what_to_leave_out(plane: DataPlane) -> None:
    plane.append_in_transaction("t", 7, b"never")
    plane.append_in_transaction("t", 8, b"yes")
    plane.end_transaction("t", 7, committed=False)
    plane.append("t", b"plain")
    plane.end_transaction("t", 8, committed=True)
    plane.append_in_transaction("t", 7, b"never again")
    plane.end_transaction("t", 7, committed=False)
    data = plane.fetch("t", isolation_level=1)
    assert [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()] == [(7, 0), (7, 5)]
    later = plane.fetch("t", 5, isolation_level=1)
    assert [(each.producer_id, each.first_offset) for each in later.aborted_transactions or ()] == [(7, 5)]
    assert plane.fetch("t").aborted_transactions is None


# Epochs


def test_readers_with_an_older_or_newer_epoch_are_told(plane: DataPlane) -> None:
    plane.change_partition("t", 0, leader_epoch=5)
    plane.append("t", b"a")
    assert code_of(plane.fetch("t", leader_epoch=4)) == "FENCED_LEADER_EPOCH"
    assert code_of(plane.fetch("t", leader_epoch=6)) == "UNKNOWN_LEADER_EPOCH"
    assert values_of(plane.fetch("t", leader_epoch=5)) == [b"a"]
    assert values_of(plane.fetch("t", leader_epoch=6, version=8)) == [b"a"]


def test_the_leader_is_hinted_at_from_v16_on(plane: DataPlane) -> None:
    plane.create_topic("r", replicas=(1, 2))
    plane.change_partition("r", leader=2, leader_epoch=7)
    request = fetch_request({(plane.image.topics["r"].topic_id, 0): 0})
    response = plane.ask(request, 16)
    leader = only(response).current_leader
    assert leader is not None
    assert (leader.leader_id, leader.leader_epoch) == (2, 7)
    assert [(each.node_id, each.host, each.port) for each in response.node_endpoints] == [(2, "host-2", 9002)]
    assert only(plane.ask(request, 15)).current_leader is None


def test_a_reader_whose_log_left_ours_is_told_where(plane: DataPlane) -> None:
    plane.append("t", b"a", b"b")
    plane.change_partition("t", 0, leader_epoch=2)
    plane.append("t", b"c")
    diverging = plane.fetch("t", 3, last_fetched_epoch=0).diverging_epoch
    assert diverging is not None
    assert (diverging.epoch, diverging.end_offset) == (0, 2)
    diverging = plane.fetch("t", 2, last_fetched_epoch=1).diverging_epoch
    assert diverging is not None
    assert (diverging.epoch, diverging.end_offset) == (0, 2)
    assert values_of(plane.fetch("t", 2, last_fetched_epoch=0)) == [b"c"]
    assert code_of(plane.fetch("t", 2, last_fetched_epoch=9)) == "OFFSET_OUT_OF_RANGE"


# Sessions over the wire; the rules are in tests/replication


def test_a_session_tells_only_news(plane: DataPlane) -> None:
    plane.append("t", b"a")
    full = plane.ask(fetch_request({("t", number): 0 for number in range(3)}, session_epoch=0), 12)
    assert full.session_id
    assert len(partitions_of(full)) == 3

    def next_fetch(epoch: int, offsets: dict[tuple[Any, int], int], **how: Any) -> Any:
        return plane.ask(fetch_request(offsets, session_id=full.session_id, session_epoch=epoch, **how), 12)

    assert next_fetch(1, {("t", 0): 1}).responses == []
    plane.append("t", b"b", number=2)
    news = next_fetch(2, {})
    assert list(partitions_of(news)) == [("t", 2)]
    assert news.session_id == full.session_id
    assert code_of(next_fetch(2, {})) == "INVALID_FETCH_SESSION_EPOCH"
    # A log start that moved is news, too.
    plane.append("t", b"c")
    assert list(partitions_of(next_fetch(3, {("t", 2): 1}))) == [("t", 0)]
    plane.partition("t", 0).delete_records(-1)
    assert code_of(partitions_of(next_fetch(4, {}))["t", 0]) == "OFFSET_OUT_OF_RANGE"
    moved = partitions_of(next_fetch(5, {("t", 0): 2}))["t", 0]
    assert (moved.log_start_offset, moved.records) == (2, b"")
    forgotten = [ForgottenTopic(topic="t", partitions=[0, 1, 2])]
    assert next_fetch(6, {}, forgotten_topics_data=forgotten).session_id == 0
    assert code_of(next_fetch(7, {})) == "FETCH_SESSION_ID_NOT_FOUND"


def test_partitions_take_turns_when_not_all_fit(plane: DataPlane) -> None:
    sizes = {sized(plane, number) for number in range(3)}
    [size_bytes] = sizes
    offsets = {("t", number): 0 for number in range(3)}
    session = plane.ask(fetch_request(offsets, session_epoch=0, max_bytes=size_bytes), 12)
    order = [key[1] for key, data in partitions_of(session).items() if data.records]
    for epoch in range(1, 9):
        request = fetch_request(
            {("t", order[-1]): 1 + (epoch - 1) // 3},
            session_id=session.session_id,
            session_epoch=epoch,
            max_bytes=size_bytes,
        )
        order += [key[1] for key, data in partitions_of(plane.ask(request, 12)).items() if data.records]
    assert sorted(order) == [0] * 3 + [1] * 3 + [2] * 3
    assert {tuple(sorted(order[at : at + 3])) for at in (0, 3, 6)} == {(0, 1, 2)}


def test_names_and_ids_do_not_mix_in_a_session(plane: DataPlane) -> None:
    session = plane.ask(fetch_request({("t", 0): 0}, session_epoch=0), 12)
    topic_id = plane.image.topics["t"].topic_id
    request = fetch_request({(topic_id, 1): 0}, session_id=session.session_id, session_epoch=1)
    assert code_of(plane.ask(request, 13)) == "FETCH_SESSION_TOPIC_ID_ERROR"


# Disks


def test_a_corrupt_log_goes_offline_alone() -> None:
    disk = SimulatedDisk(Random(1))
    plane = DataPlane(disk)
    plane.create_topic("t", 2)
    plane.append("t", b"a")
    plane.append("t", b"b", number=1)
    log = plane.partition("t").led_log()
    log.active_segment.file.write_at(0, b"\xff" * 30)
    log.active_segment.recent.clear()
    assert code_of(plane.fetch("t")) == "KAFKA_STORAGE_ERROR"
    assert code_of(plane.append("t", b"more")) == "KAFKA_STORAGE_ERROR"
    assert values_of(plane.fetch("t", number=1)) == [b"b"]


def test_what_is_not_in_memory_is_read_elsewhere(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    plane.append("t", b"a")
    plane.append("t", b"b", number=1)
    cold = plane.partition("t").led_log().active_segment.file
    read_now = type(cold).read_now

    def cold_at_first(file: Any, position: int, size_bytes: int) -> Any:
        return None if file is cold else read_now(file, position, size_bytes)

    monkeypatch.setattr(type(cold), "read_now", cold_at_first)
    answer = plane.begin(fetch_request({("t", 0): 0, ("t", 1): 0}), 12)
    assert isinstance(answer, asyncio.Future)
    answers = partitions_of(over_the_wire(plane.run(answer), 12))
    assert [values_of(answers["t", number]) for number in (0, 1)] == [[b"a"], [b"b"]]

    # The topic goes while its bytes are being read.
    answer = plane.begin(fetch_request({("t", 0): 0}), 12)
    plane.delete_topic("t")
    assert code_of(only(plane.run(answer))) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert plane.logs.directories[0].is_online


def cold_segments(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch, **settings: Any
) -> tuple[asyncio.Future[Any], PartitionLog]:
    """A fetch from the start of a log of several segments that waits for the disk."""
    plane.create_topic("s", segment_bytes="1048576", file_delete_delay_ms="0", **settings)
    for each in range(30):
        plane.append("s", b"%d" % (each % 3) * 100_000)
    log = plane.partition("s").led_log()
    assert len(log.segments) > 2
    monkeypatch.setattr(type(log.active_segment.file), "read_now", lambda file, position, size_bytes: None)
    answer = plane.begin(fetch_request({("s", 0): 0}), 12)
    assert isinstance(answer, asyncio.Future)
    return answer, log


def test_records_that_are_deleted_while_they_are_read(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, log = cold_segments(plane, monkeypatch)
    log.advance_log_start(25)
    log.delete_old_segments(plane.now_ms)
    log.remove_deleted(plane.now_ms)
    assert code_of(only(plane.run(answer))) == "OFFSET_OUT_OF_RANGE"
    assert plane.logs.directories[0].is_online
    assert values_of(plane.fetch("s", 29)) == [b"2" * 100_000]


def test_records_that_are_compacted_while_they_are_read(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, log = cold_segments(plane, monkeypatch, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    job = CleaningJob(log, plan_for(log, None, plane.now_ms), 1 << 20, plane.now_ms)
    assert job.apply_to(log, job.run(), plane.now_ms)
    log.remove_deleted(plane.now_ms)
    data = only(plane.run(answer))
    assert code_of(data) == "NONE"
    assert batches_of(data)[0].base_offset > 0, "what compaction left of it"
    assert plane.logs.directories[0].is_online


def test_a_disk_that_fails_a_read_elsewhere_takes_its_partitions_offline(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, log = cold_segments(plane, monkeypatch)
    assert isinstance(plane.files, SimulatedDisk)
    plane.files.fail_next(errno.EIO, name="read_at", path=log.segments[0].file.path)
    assert code_of(only(plane.run(answer))) == "KAFKA_STORAGE_ERROR"
    assert not plane.logs.directories[0].is_online


def test_on_a_real_disk(tmp_path: Any) -> None:
    plane = DataPlane(RealFileSystem(), log_dirs=str(tmp_path))
    plane.create_topic("t")
    for each in range(100):
        plane.append("t", b"%d" % each * 50)
    data = plane.fetch("t")
    assert len(values_of(data)) == 100
    plane.run(plane.logs.stop())


# Everything together


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_record_arrives_once_and_in_order(data: st.DataObject) -> None:
    """Writers append to several partitions, small segments roll; a reader in a session waits, with odd limits."""
    plane = DataPlane()
    plane.create_topic("t", 3, internal_segment_bytes="400")
    written: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    seen: dict[int, list[bytes | None]] = {0: [], 1: [], 2: []}
    offsets = dict.fromkeys(range(3), 0)
    session_id, epoch = 0, 0 if data.draw(st.booleans()) else -1
    changed = dict(offsets)

    def append() -> None:
        number = data.draw(st.integers(0, 2))
        values = [b"%d-%d" % (number, len(written[number]) + each) for each in range(data.draw(st.integers(1, 3)))]
        assert plane.append("t", *values, number=number).base_offset == len(written[number])
        written[number] += values

    def take(response: Any) -> None:
        nonlocal session_id, epoch
        assert code_of(response) == "NONE"
        changed.clear()
        for (_, number), told in partitions_of(response).items():
            assert code_of(told) == "NONE"
            for each in batches_of(told):
                for record in each.records(offsets[number]):
                    seen[number].append(record.value)
                offsets[number] = max(offsets[number], each.next_offset)
                changed[number] = offsets[number]
        if epoch >= 0:
            session_id, epoch = response.session_id, epoch + 1

    def fetch(max_wait_ms: int) -> None:
        asked = changed if epoch > 0 else offsets
        answer = plane.begin(
            fetch_request(
                {("t", number): offset for number, offset in asked.items()},
                session_id=session_id,
                session_epoch=epoch,
                max_wait_ms=max_wait_ms,
                min_bytes=data.draw(st.sampled_from([1, 200, 1000])),
                max_bytes=data.draw(st.sampled_from([1, 150, 500, 100_000])),
                partition_max_bytes=data.draw(st.sampled_from([1, 100, 300, 100_000])),
            ),
            12,
        )
        while isinstance(answer, asyncio.Future):
            if answer.done():
                answer = over_the_wire(answer.result(), 12)
            elif data.draw(st.booleans()):
                append()
            else:
                plane.pass_ms(data.draw(st.sampled_from([0, 10, 100])))
        take(answer)

    for _ in range(data.draw(st.integers(1, 15))):
        if data.draw(st.booleans()):
            append()
        else:
            fetch(data.draw(st.sampled_from([0, 100])))
    for _ in range(200):
        if seen == written:
            break
        fetch(0)
    assert seen == written
    assert [plane.partition("t", number).leading().delayed_count for number in range(3)] == [0, 0, 0]


# Memory


@pytest.mark.parametrize("cold_reads", [0.0, 1.0])
def test_fetches_that_are_read_together_leave_room_for_each_other(cold_reads: float) -> None:
    plane = DataPlane(SimulatedDisk(Random(1), cold_reads=cold_reads))
    plane.create_topic("t")
    connections = [FakeConnection() for _ in range(3)]
    plane.services.response_room = lambda: 5000 - sum(each.expected_bytes for each in connections)
    # Waiting fetches that one append wakes, or fetches of what is not in memory.
    values = [bytes([number]) * 3000 for number in range(4)]
    if cold_reads:
        for value in values:
            plane.append("t", value)
    request = fetch_request({("t", 0): 0}, max_wait_ms=100)
    waiting = [plane.begin(request, 12, connection=each) for each in connections]
    if not cold_reads:
        plane.produce({("t", 0): batch(values)})
    answers = [values_of(only(over_the_wire(plane.run(each), 12))) for each in waiting]
    assert [bool(each) for each in answers] == [True, False, False], "no room for the others before their time is up"
    assert [each.expected_bytes > 0 for each in connections] == [True, False, False]


def test_a_node_that_stops_answers_with_what_is_there(plane: DataPlane) -> None:
    plane.append("t", b"a")
    waiting = parked(plane, {("t", 0): 0}, min_bytes=10_000, max_wait_ms=60_000)
    plane.services.replica_manager.close_purgatories()
    assert values_of(only(over_the_wire(waiting.result(), 12))) == [b"a"]
    assert only(plane.begin(fetch_request({("t", 0): 1}, max_wait_ms=60_000), 12)).error_code == 0
    assert plane.partition("t").leading().delayed_count == 0


def test_a_client_that_goes_while_its_answer_is_read_does_not_disturb(plane: DataPlane) -> None:
    plane = DataPlane(SimulatedDisk(Random(1), cold_reads=1.0))
    plane.create_topic("t")
    waiting = parked(plane, {("t", 0): 0})
    plane.append("t", b"a")
    plane.pass_ms(0)
    assert not waiting.done()
    plane.connection.close()
    plane.services.replica_manager.close_purgatories()
    assert values_of(only(over_the_wire(plane.run(waiting), 12))) == [b"a"]
