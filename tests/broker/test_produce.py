"""Produce: what is taken, what is refused and how, when the answer comes, and what a failing disk means."""

from __future__ import annotations

import asyncio
import errno
from random import Random
from typing import Any

import pytest

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.records import Codec
from barnabas.records.batch import CRC_AT
from barnabas.replication.leader_state import LeaderState
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.testing.sim.runtime import EPOCH_MS
from tests.broker.connections import FakeConnection, over_the_wire
from tests.broker.data_plane import (
    DataPlane,
    answers_of,
    batch,
    batches_of,
    code_of,
    produce_request,
    values_of,
)
from tests.metadata.images import topics_image


@pytest.fixture
def plane() -> DataPlane:
    plane = DataPlane()
    plane.create_topic("t", 2)
    return plane


def test_records_get_offsets_and_the_epoch_of_the_leader(plane: DataPlane) -> None:
    plane.change_partition("t", 0, leader_epoch=4)
    first, second = plane.append("t", b"a", b"b"), plane.append("t", b"c")
    assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 2)
    assert (first.log_append_time_ms, first.log_start_offset, first.error_message) == (-1, 0, None)
    data = plane.fetch("t")
    assert values_of(data) == [b"a", b"b", b"c"]
    assert [each.leader_epoch for each in batches_of(data)] == [4, 4]
    assert data.high_watermark == 3


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_by_name_is_answered(plane: DataPlane, version: int) -> None:
    answer = plane.produce({("t", 0): batch([b"x"]), ("t", 1): batch([b"y"])}, version=version)
    assert {key: (each.error_code, each.base_offset) for key, each in answer.items()} == {
        ("t", 0): (0, 0),
        ("t", 1): (0, 0),
    }


def test_topics_are_named_by_id_from_v13_on(plane: DataPlane) -> None:
    topic_id, unknown = plane.image.topics["t"].topic_id, Uuid(bytes(range(16)))
    response = plane.ask(produce_request({(topic_id, 1): batch([b"x"]), (unknown, 0): batch([b"x"])}), 13)
    found, missing = response.responses
    assert (found.topic_id, found.partition_responses[0].base_offset) == (topic_id, 0)
    assert (missing.topic_id, code_of(missing.partition_responses[0])) == (unknown, "UNKNOWN_TOPIC_ID")


def test_one_partition_that_fails_does_not_keep_the_others_from_success(plane: DataPlane) -> None:
    answers = plane.produce({("t", 0): batch([b"x"]), ("t", 7): batch([b"x"]), ("nope", 0): batch([b"x"])})
    assert {key: code_of(each) for key, each in answers.items()} == {
        ("t", 0): "NONE",
        ("t", 7): "UNKNOWN_TOPIC_OR_PARTITION",
        ("nope", 0): "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert answers["t", 7].base_offset == -1


IN_TRANSACTION = batch([b"x"], producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)


def two_batches() -> bytes:
    return bytes(batch([b"x"]) + batch([b"y"]))


def corrupt() -> bytearray:
    data = batch([b"x"])
    data[CRC_AT] ^= 1
    return data


@pytest.mark.parametrize(
    ("records", "version", "code"),
    [
        (b"", 12, "INVALID_RECORD"),
        (two_batches(), 12, "INVALID_RECORD"),
        (corrupt(), 12, "CORRUPT_MESSAGE"),
        (batch([b"x" * 2_000_000]), 12, "MESSAGE_TOO_LARGE"),
        (batch([b"x" * 500], codec=Codec.ZSTD), 6, "UNSUPPORTED_COMPRESSION_TYPE"),
        (batch([b"x" * 500], codec=Codec.ZSTD), 7, "NONE"),
        (batch([b"x"], timestamp_ms=EPOCH_MS + 10**9), 12, "INVALID_TIMESTAMP"),
        (IN_TRANSACTION, 12, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    ],
)
def test_what_is_refused(plane: DataPlane, records: bytes, version: int, code: str) -> None:
    answer = plane.produce({("t", 0): records}, version=version)["t", 0]
    assert code_of(answer) == code
    assert (answer.error_message is None) == (code == "NONE" or version < 8)
    assert plane.partition("t").leading().end_offset(0) == (1 if code == "NONE" else 0)  # type: ignore[arg-type]


def test_a_refusal_names_the_records_that_are_wrong(plane: DataPlane) -> None:
    plane.create_topic("compacted", cleanup_policy="compact")
    answer = plane.produce({("compacted", 0): batch([b"a", b"b"], key=None)})["compacted", 0]
    assert code_of(answer) == "INVALID_RECORD"
    assert answer.error_message == "a compacted topic takes no records without keys"
    assert [each.batch_index for each in answer.record_errors] == [0, 1]
    assert answer.log_start_offset == 0
    older = plane.produce({("compacted", 0): batch([b"a"], key=None)}, version=7)["compacted", 0]
    assert (code_of(older), older.record_errors, older.error_message) == ("INVALID_RECORD", [], None)


def test_append_time_is_told_where_the_topic_asks_for_it(plane: DataPlane) -> None:
    plane.create_topic("stamped", message_timestamp_type="LogAppendTime")
    plane.pass_ms(1234)
    answer = plane.produce({("stamped", 0): batch([b"x"], timestamp_ms=5)})["stamped", 0]
    assert answer.log_append_time_ms == plane.now_ms
    assert batches_of(plane.fetch("stamped"))[0].max_timestamp_ms == plane.now_ms


def test_only_minus_one_zero_and_one_are_acks(plane: DataPlane) -> None:
    answers = plane.produce({("t", 0): batch([b"x"]), ("t", 1): batch([b"x"])}, acks=2)
    assert [code_of(each) for each in answers.values()] == ["INVALID_REQUIRED_ACKS"] * 2
    assert plane.fetch("t").high_watermark == 0


def test_acks_0_gets_no_answer_and_a_failure_closes_the_connection(plane: DataPlane) -> None:
    fine, failed = FakeConnection(), FakeConnection()
    assert plane.begin(produce_request({("t", 0): batch([b"x"])}, acks=0), 12, connection=fine) is None
    assert fine.closed is None
    assert plane.begin(produce_request({("nope", 0): batch([b"x"])}, acks=0), 12, connection=failed) is None
    assert failed.closed == "1 partitions of a request with acks=0 failed"
    assert plane.fetch("t").high_watermark == 1


def test_internal_topics_are_for_the_cluster_and_for_repair(plane: DataPlane) -> None:
    plane.create_topic("__consumer_offsets")
    request = produce_request({("__consumer_offsets", 0): batch([b"x"])})
    [refused] = answers_of(plane.ask(request, 12)).values()
    assert code_of(refused) == "INVALID_TOPIC_EXCEPTION"
    [repaired] = answers_of(plane.ask(request, 12, client_id="__admin_client")).values()
    assert code_of(repaired) == "NONE"


def test_a_batch_that_comes_again_is_not_written_again(plane: DataPlane) -> None:
    def send(sequence: int) -> Any:
        return plane.append("t", b"x", b"y", producer_id=9, producer_epoch=0, base_sequence=sequence)

    assert [send(0).base_offset, send(2).base_offset] == [0, 2]
    again = send(0)
    assert (again.error_code, again.base_offset, again.log_append_time_ms) == (0, 0, EPOCH_MS)
    assert code_of(send(8)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert plane.fetch("t").high_watermark == 4


def test_another_leader_is_hinted_at_from_v10_on(plane: DataPlane) -> None:
    plane.create_topic("moved", replicas=(1, 2))
    plane.change_partition("moved", leader=2, leader_epoch=3)
    plane.create_topic("elsewhere", replicas=(3,))
    request = produce_request({("moved", 0): batch([b"x"]), ("elsewhere", 0): batch([b"x"])})
    response = plane.ask(request, 10)
    answers = answers_of(response)
    assert {code_of(each) for each in answers.values()} == {"NOT_LEADER_OR_FOLLOWER"}
    leaders = [each.current_leader for each in answers.values()]
    hints = [(each.leader_id, each.leader_epoch) for each in leaders if each is not None]
    assert hints == [(2, 3), (3, 0)]
    assert [(each.node_id, each.host, each.port) for each in response.node_endpoints] == [
        (2, "host-2", 9002),
        (3, "host-3", 9003),
    ]
    assert plane.ask(request, 9).node_endpoints == []


# Several replicas


def test_acks_all_waits_until_the_replicas_in_sync_have_it(plane: DataPlane) -> None:
    plane.create_topic("r", replicas=(1, 2, 3))
    waiting = plane.begin(produce_request({("r", 0): batch([b"a", b"b"]), ("t", 0): batch([b"x"])}), 12)
    plane.partition("r").leading().update_follower_fetch_state(2, 2)
    plane.pass_ms(100)
    assert not waiting.done()
    plane.partition("r").leading().update_follower_fetch_state(3, 2)
    answers = answers_of(over_the_wire(plane.run(waiting), 12))
    assert {key: (code_of(each), each.base_offset) for key, each in answers.items()} == {
        ("r", 0): ("NONE", 0),
        ("t", 0): ("NONE", 0),
    }
    assert plane.partition("r").leading().delayed_count == 0


def test_acks_1_does_not_wait(plane: DataPlane) -> None:
    plane.create_topic("r", replicas=(1, 2))
    assert plane.produce({("r", 0): batch([b"a"])}, acks=1)["r", 0].base_offset == 0
    assert plane.fetch("r").high_watermark == 0


def test_time_runs_out_although_the_records_are_written(plane: DataPlane) -> None:
    plane.create_topic("r", replicas=(1, 2))
    waiting = plane.begin(produce_request({("r", 0): batch([b"a"])}, timeout_ms=300), 12)
    plane.pass_ms(299)
    assert not waiting.done()
    plane.pass_ms(2)
    [answer] = answers_of(over_the_wire(plane.run(waiting), 12)).values()
    assert (code_of(answer), answer.base_offset) == ("REQUEST_TIMED_OUT", 0)
    plane.partition("r").leading().update_follower_fetch_state(2, 1)
    assert values_of(plane.fetch("r")) == [b"a"]


def test_too_few_replicas_in_sync_are_told_before_or_after_the_append(plane: DataPlane) -> None:
    plane.create_topic("r", replicas=(1, 2), min_insync_replicas="2")
    plane.change_partition("r", isr=(1,))
    refused = plane.produce({("r", 0): batch([b"a"])})["r", 0]
    assert code_of(refused) == "NOT_ENOUGH_REPLICAS"
    # Without waiting for all it is written, but while too few are in sync nothing is committed.
    assert plane.produce({("r", 0): batch([b"b"])}, acks=1)["r", 0].base_offset == 0
    assert plane.fetch("r").high_watermark == 0
    plane.change_partition("r", isr=(1, 2))
    waiting = plane.begin(produce_request({("r", 0): batch([b"c"])}), 12)
    plane.change_partition("r", isr=(1,))
    plane.partition("r").leading().update_follower_fetch_state(2, 2)
    [answer] = answers_of(over_the_wire(plane.run(waiting), 12)).values()
    assert code_of(answer) == "REQUEST_TIMED_OUT"
    plane.change_partition("r", isr=(1, 2))
    assert plane.fetch("r").high_watermark == 2


def test_min_isr_is_never_more_than_there_are_replicas(plane: DataPlane) -> None:
    plane.create_topic("small", min_insync_replicas="3")
    assert code_of(plane.append("small", b"x")) == "NONE"


def test_losing_the_lead_ends_the_waiting(plane: DataPlane) -> None:
    plane.create_topic("r", replicas=(1, 2))
    waiting = plane.begin(produce_request({("r", 0): batch([b"a"])}), 12)
    plane.change_partition("r", leader=2, leader_epoch=1)
    [answer] = answers_of(over_the_wire(plane.run(waiting), 12)).values()
    assert code_of(answer) == "NOT_LEADER_OR_FOLLOWER"


def test_deleting_the_topic_ends_the_waiting(plane: DataPlane) -> None:
    plane.create_topic("r", replicas=(1, 2))
    waiting = plane.begin(produce_request({("r", 0): batch([b"a"])}), 12)
    plane.delete_topic("r")
    [answer] = answers_of(over_the_wire(plane.run(waiting), 12)).values()
    assert code_of(answer) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_client_that_goes_while_it_waits_leaves_nothing_behind(plane: DataPlane) -> None:
    plane.create_topic("r", replicas=(1, 2))
    waiting = plane.begin(produce_request({("r", 0): batch([b"a"])}), 12)
    plane.connection.close()
    assert waiting.cancelled()
    plane.pass_ms(1)
    assert plane.partition("r").leading().delayed_count == 0


# Large batches


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
def test_large_compressed_batches_are_checked_elsewhere_and_appended_all_the_same(
    plane: DataPlane, codec: Codec
) -> None:
    values = [Random(each).randbytes(500) * 2 for each in range(200)]
    request = produce_request(
        {("t", 0): batch(values, codec=codec), ("t", 1): batch([b"small"]), ("nope", 0): batch([b"x"])}
    )
    answer = plane.begin(request, 12)
    assert isinstance(answer, asyncio.Future)
    answers = answers_of(over_the_wire(plane.run(answer), 12))
    assert {key: (code_of(each), each.base_offset) for key, each in answers.items()} == {
        ("t", 0): ("NONE", 0),
        ("t", 1): ("NONE", 0),
        ("nope", 0): ("UNKNOWN_TOPIC_OR_PARTITION", -1),
    }
    assert values_of(plane.fetch("t")) == values


def test_a_large_batch_of_a_topic_that_goes_meanwhile_is_refused(plane: DataPlane) -> None:
    values = [Random(each).randbytes(500) * 2 for each in range(200)]
    answer = plane.begin(produce_request({("t", 0): batch(values, codec=Codec.LZ4)}), 12)
    plane.delete_topic("t")
    [told] = answers_of(over_the_wire(plane.run(answer), 12)).values()
    assert code_of(told) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_little_that_becomes_much_is_checked_away_from_the_loop(plane: DataPlane) -> None:
    values = [bytes(900_000)] * 3
    data = batch(values, codec=Codec.GZIP)
    assert len(data) < 10_000
    answer = plane.begin(produce_request({("t", 0): data}), 12)
    assert isinstance(answer, asyncio.Future)
    [told] = answers_of(over_the_wire(plane.run(answer), 12)).values()
    assert code_of(told) == "NONE"
    assert values_of(plane.fetch("t")) == values


def test_a_topic_with_a_codec_of_its_own_recompresses(plane: DataPlane) -> None:
    plane.create_topic("zipped", compression_type="gzip")
    values = [b"%06d" % each for each in range(5000)]
    assert code_of(plane.append("zipped", *values)) == "NONE"
    data = plane.fetch("zipped")
    assert batches_of(data)[0].codec is Codec.GZIP
    assert values_of(data) == values


# Disks


def test_a_failed_disk_takes_its_partitions_offline_and_no_others() -> None:
    disk = SimulatedDisk(Random(1))
    plane = DataPlane(disk, log_dirs="/one,/two")
    plane.create_topic("t", 2)
    places = {number: plane.partition("t", number).led_log().directory for number in (0, 1)}
    assert sorted(place.split("/")[1] for place in places.values()) == ["one", "two"]
    disk.fail_next(errno.EIO, path=places[0], name="write_at")
    answers = plane.produce({("t", 0): batch([b"x"]), ("t", 1): batch([b"y"])})
    assert [code_of(each) for each in answers.values()] == ["KAFKA_STORAGE_ERROR", "NONE"]
    assert code_of(plane.append("t", b"x")) == "KAFKA_STORAGE_ERROR"
    assert code_of(plane.append("t", b"y", number=1)) == "NONE"
    assert code_of(plane.fetch("t", version=6)) == "KAFKA_STORAGE_ERROR"
    assert code_of(plane.fetch("t", version=5)) == "NOT_LEADER_OR_FOLLOWER"


def test_a_full_disk_can_be_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk(Random(1))
    plane = DataPlane(disk)
    plane.create_topic("t")
    assert code_of(plane.append("t", b"x")) == "NONE"
    disk.capacity_bytes = disk.used_bytes
    refused = plane.append("t", b"y")
    assert code_of(refused) == "KAFKA_STORAGE_ERROR"
    assert "the disk is full" in (refused.error_message or "")
    disk.capacity_bytes = None
    assert plane.append("t", b"y").base_offset == 1
    assert [each.levelname for each in caplog.records] == ["ERROR", "WARNING"]
    assert "log directory /one: the disk is full" in caplog.messages[0]


def test_after_a_restart_the_log_of_another_topic_with_the_same_name_is_not_used() -> None:
    disk = SimulatedDisk(Random(1))
    plane = DataPlane(disk)
    old = plane.create_topic("t")
    plane.append("t", b"old")
    plane.run(plane.logs.stop())

    # Deleted and created again while the node was away.
    again = DataPlane(disk)
    again.services.runtime.randomness.random()
    new = again.create_topic("t")
    assert new.topic_id != old.topic_id
    assert again.fetch("t").high_watermark == 0
    assert again.append("t", b"new").base_offset == 0
    [stray] = [name for name in disk.names("/one") if name.endswith("-stray")]
    assert stray.startswith("t-0.")


def test_strays_are_set_aside_once_all_is_known() -> None:
    disk = SimulatedDisk(Random(1))
    plane = DataPlane(disk)
    plane.create_topic("kept")
    plane.create_topic("gone")
    kept = plane.image.topics["kept"]
    plane.run(plane.logs.stop())

    again = DataPlane(disk)
    again.apply(
        type(plane.image)(brokers=plane.image.brokers, topics=topics_image([kept])),
        partitions_changed=(TopicPartition("kept", 0),),
    )
    assert again.replica_manager.set_aside_strays(again.image) == [TopicPartition("gone", 0)]
    assert [name.partition(".")[0] for name in disk.names("/one") if name.endswith("-stray")] == ["gone-0"]
    assert again.append("kept", b"x").base_offset == 0


# What nobody had thought of


def large(seed: int) -> bytearray:
    return batch([Random(each).randbytes(500) * 2 for each in range(seed, seed + 200)], codec=Codec.LZ4)


def test_a_large_batch_of_a_topic_that_goes_meanwhile_is_refused_by_its_id(plane: DataPlane) -> None:
    topic_id = plane.image.topics["t"].topic_id
    answer = plane.begin(produce_request({(topic_id, 0): large(1)}), 13)
    plane.delete_topic("t")
    [told] = answers_of(over_the_wire(plane.run(answer), 13)).values()
    assert code_of(told) == "UNKNOWN_TOPIC_ID"


def test_waiting_for_replicas_of_a_topic_that_goes_ends_with_its_id(plane: DataPlane) -> None:
    topic_id = plane.create_topic("r", replicas=(1, 2)).topic_id
    answer = plane.begin(produce_request({(topic_id, 0): batch([b"x"])}), 13)
    plane.delete_topic("r")
    [told] = answers_of(over_the_wire(plane.run(answer), 13)).values()
    assert code_of(told) == "UNKNOWN_TOPIC_ID"


def test_a_large_batch_that_fails_unexpectedly_fails_alone(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append = LeaderState.append

    def fail(leader: LeaderState, *arguments: Any, **options: Any) -> Any:
        if leader.partition.name.partition == 0:
            raise ZeroDivisionError
        return append(leader, *arguments, **options)

    monkeypatch.setattr(LeaderState, "append", fail)
    answers = plane.produce({("t", 0): large(1), ("t", 1): large(2)})
    assert [code_of(each) for each in answers.values()] == ["UNKNOWN_SERVER_ERROR", "NONE"]
    assert "ZeroDivisionError" in caplog.text
