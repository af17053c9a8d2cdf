"""What a driver asks the brokers, and what it says where they have no answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

import barnabas
from barnabas import Admin, NewPartitions, Producer, TopicPartition
from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.client.errors import NoBrokersError
from barnabas.spark.cluster import SparkCluster
from barnabas.spark.core.admission_limits import Timestamp
from barnabas.spark.core.errors import OptionError, SparkConnectorError
from barnabas.testing import EmbeddedBroker
from barnabas.wire import ApiKey
from tests.spark.source.support import NewTopic, send, source_options

Clusters = Callable[..., SparkCluster]


@pytest.fixture
def clusters(broker: EmbeddedBroker) -> Iterator[Clusters]:
    made: list[SparkCluster] = []

    def make(
        sleep: Callable[[float], None] = lambda _: None, now_ms: Callable[[], float] = lambda: 0.0, **options: object
    ) -> SparkCluster:
        parsed = source_options(broker, **options)
        made.append(SparkCluster(parsed, parsed.client, sleep=sleep, now_ms=now_ms))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


def test_a_topic_that_is_not_there_is_named_with_the_brokers(clusters: Clusters, broker: EmbeddedBroker) -> None:
    cluster = clusters(subscribe="no-such-topic,nor-this")
    with pytest.raises(SparkConnectorError) as raised:
        cluster.earliest()
    assert "'no-such-topic', 'nor-this'" in str(raised.value)
    assert broker.bootstrap_servers in str(raised.value)


def test_topics_are_found_by_a_part_of_their_name_and_internal_ones_never(
    clusters: Clusters, broker: EmbeddedBroker, admin: Admin, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    admin.alter_group_offsets("some-group", {TopicPartition(topic, 0): 0})  # brings __consumer_offsets about
    assert clusters(subscribePattern=topic[5:-1]).partitions() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    assert "__consumer_offsets" not in {each.topic for each in clusters(subscribePattern=".*").partitions()}


def test_of_assigned_partitions_those_that_exist_are_read(
    clusters: Clusters, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(partitions=2)
    cluster = clusters(assign={topic: [1, 7]})
    assert cluster.partitions() == {TopicPartition(topic, 1)}
    assert f"{topic}-7" in caplog.text


def test_partitions_are_remembered_for_as_long_as_the_option_says(
    clusters: Clusters, admin: Admin, new_topic: NewTopic
) -> None:
    topic, now_ms = new_topic(), 0.0
    cached = clusters(now_ms=lambda: now_ms, subscribe=topic, partition__metadata__cache__ttl__ms=1000)
    fresh = clusters(subscribe=topic)
    assert len(cached.latest({})) == len(fresh.latest({})) == 1
    admin.create_partitions({topic: NewPartitions(2)})
    now_ms = 999
    assert (len(cached.latest({})), len(fresh.latest({}))) == (1, 2)
    now_ms = 1000
    assert len(cached.latest({})) == 2


def test_times_become_offsets(clusters: Clusters, broker: EmbeddedBroker, new_topic: NewTopic) -> None:
    topic = new_topic(retention_ms=-1)
    here = TopicPartition(topic, 0)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for timestamp_ms in (1000, 2000, 1500, 3000):
            producer.send(topic, b"", timestamp_ms=timestamp_ms)
    cluster = clusters(subscribe=topic)
    assert [cluster.at_times({here: each})[here] for each in (0, 1000, 1001, 2001, 3001)] == [0, 0, 1, 3, None]
    assert cluster.resolve(Timestamp(3001, "latest"), is_start=True) == {here: 4}
    with pytest.raises(OptionError, match=f"{topic}-0 has no record with a timestamp of 3001 or later"):
        cluster.resolve(Timestamp(3001, "error"), is_start=True)


def test_blanks_around_a_setting_mean_nothing(clusters: Clusters, new_topic: NewTopic) -> None:
    topic = new_topic()
    cluster = clusters(subscribe=topic, kafka__isolation__level=" read_committed ")
    assert cluster.latest() == {TopicPartition(topic, 0): 0}


@pytest.mark.parametrize("option", ["startingOffsets", "startingOffsetsByTimestamp"])
def test_partitions_that_an_option_leaves_out_are_named(option: str, clusters: Clusters, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    cluster = clusters(subscribe=topic, **{option: {topic: {"0": 1, "5": 1}}})
    with pytest.raises(SparkConnectorError, match=rf"MATCH_ASSIGNED\].* Not given: {topic}-1\. .*there: {topic}-5\."):
        cluster.resolve(cluster._options.starting, is_start=True)


def test_an_answer_that_lies_behind_is_asked_for_again(
    clusters: Clusters, broker: EmbeddedBroker, new_topic: NewTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic()
    send(broker, topic, 5)
    here = TopicPartition(topic, 0)
    waits: list[float] = []
    cluster = clusters(waits.append, subscribe=topic, fetchOffset__numRetries=4)
    assert cluster.latest({here: 9}) == {here: 5}
    assert caplog.text.count("end before what was read") == 4
    assert len(waits) == 3


def test_questions_are_tried_as_often_as_the_option_says() -> None:
    with EmbeddedBroker() as faulty:
        faulty.create_topic("t")
        options = source_options(faulty, subscribe="t", fetchOffset__numRetries=3)
        cluster = SparkCluster(options, options.client, sleep=lambda _: None)
        faulty.faults.fail_next(ApiKey.LIST_OFFSETS, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=2)
        assert cluster.earliest() == {TopicPartition("t", 0): 0}
        faulty.faults.fail_next(ApiKey.LIST_OFFSETS, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=3)
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
            cluster.earliest()
        cluster.close()


def test_a_topic_that_is_not_there_yet_is_asked_for_again(broker: EmbeddedBroker) -> None:
    options = source_options(broker, subscribe="comes-late", fetchOffset__numRetries=3)
    waits: list[float] = []

    def sleep(wait_s: float) -> None:
        waits.append(wait_s)
        if len(waits) == 2:
            broker.create_topic("comes-late")

    cluster = SparkCluster(options, options.client, sleep=sleep)
    assert cluster.latest() == {TopicPartition("comes-late", 0): 0}
    assert waits == [options.fetch_retry_interval_ms / 1000] * 2
    cluster.close()


def test_brokers_that_nobody_reaches_are_named_with_the_reason() -> None:
    options = source_options(
        "127.0.0.1:1", subscribe="t", kafka__default__api__timeout__ms=500, kafka__request__timeout__ms=400
    )
    waits: list[float] = []
    cluster = SparkCluster(options, options.client, sleep=waits.append)
    with pytest.raises(NoBrokersError, match=r"127\.0\.0\.1:1 \(no connection: Connection refused\)"):
        cluster.latest()
    cluster.close()
    assert not waits


def test_brokers_that_are_away_for_a_while_are_asked_as_often_as_the_option_says(
    clusters: Clusters, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, waits = new_topic(), list[float]()

    def admin_of_brokers_that_are_away(client: Mapping[str, object]) -> Admin:
        if len(waits) == 3:
            monkeypatch.undo()
            return Admin(client)
        raise NoBrokersError("nobody answers")

    cluster = clusters(waits.append, subscribe=topic, fetchOffset__numRetries=4)
    before = cluster.latest()
    cluster.close()
    monkeypatch.setattr(barnabas, "Admin", admin_of_brokers_that_are_away)
    assert cluster.latest() == before
    assert len(waits) == 3
