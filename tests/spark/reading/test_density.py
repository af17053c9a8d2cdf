"""How many bytes there are to an offset."""

from __future__ import annotations

import pytest

from barnabas import Admin, Producer, TopicPartition
from barnabas.spark.core.ranges import OffsetRange
from barnabas.spark.density import DEFAULT_BYTES, bytes_per_offset, fill_in, sample_places, spanned
from barnabas.testing import EmbeddedBroker

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_samples_are_spread_over_the_span() -> None:
    spans = spanned([OffsetRange(A, 200, 400), OffsetRange(B, 5, 7), OffsetRange(A, 100, 200)])
    assert [sample_places(spans, number) for number in range(3)] == [{A: 100, B: 5}, {A: 200}, {A: 300, B: 6}]


def test_a_partition_without_samples_gets_the_average_of_the_others() -> None:
    assert fill_in({A: [10.0, 30.0], B: []}) == {A: 20.0, B: 20.0}
    assert fill_in({A: []}) == {A: DEFAULT_BYTES}


def test_partitions_are_told_apart_by_what_their_records_weigh() -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t", 2)
        with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=5) as producer:
            for number in range(6000):
                # The second partition holds heavier records towards its end.
                producer.send("t", b"x" * 90, partition=0)
                producer.send("t", b"x" * (100 if number < 3000 else 900), partition=1)
            producer.flush()
        client = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "not used"}
        gone = TopicPartition("no-such-topic", 0)
        found = bytes_per_offset(client, [OffsetRange(A, 0, 6000), OffsetRange(B, 0, 6000)])
        assert found[A] == pytest.approx(100, rel=0.2)
        assert 250 < found[B] < 800
        found = bytes_per_offset(client, [OffsetRange(A, 0, 6000), OffsetRange(gone, 0, 10)], timeout_s=1.5)
        assert found[gone] == pytest.approx(100, rel=0.2)
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert "no-such-topic" not in admin.list_topics()
