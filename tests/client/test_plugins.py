"""What a program plugs into a client: how it is loaded, what it sees, and that its failures stay its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from barnabas import Consumer, Producer
from barnabas.base.errors import SettingsError
from barnabas.base.ids import TopicPartition
from barnabas.base.settings import InvalidSettingsError
from barnabas.client._kernel.receiving import ConsumerRecord
from barnabas.client._kernel.sending import RecordMetadata
from barnabas.client.consumer.consumer import Consumer as AsyncConsumer
from barnabas.client.core.consuming.offsets import OffsetAndMetadata
from barnabas.client.core.metrics import Metric, MetricsRegistry
from barnabas.client.plugins import (
    ClusterResourceListeners,
    ConsumerInterceptors,
    PluginSettings,
    ProducerInterceptors,
    ProducerRecord,
    RebalanceListener,
    close_all,
    load_consumer_interceptors,
    load_producer_interceptors,
    load_reporters,
)
from barnabas.client.producer.producer import Producer as AsyncProducer
from barnabas.client.settings import ConsumerSettings, ProducerSettings

LOCAL = {"bootstrap.servers": "127.0.0.1:9092"}
T0 = TopicPartition("t", 0)


class Suffix:
    """Adds to values, and notes what is acknowledged."""

    def __init__(self, suffix: str = "!") -> None:
        self.suffix = suffix
        self.acknowledged: list[tuple[str, int, int, str]] = []
        self.is_closed = False

    def configure(self, settings: Mapping[str, object]) -> None:
        self.suffix = str(settings.get("suffix", self.suffix))

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return replace(record, value=record.value + self.suffix)

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.acknowledged.append((metadata.topic, metadata.partition, metadata.offset, str(error)))

    def close(self) -> None:
        self.is_closed = True


class Broken:
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise RuntimeError("cannot see")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        raise RuntimeError("cannot hear")

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        raise RuntimeError("cannot eat")

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        raise RuntimeError("cannot commit")

    def close(self) -> None:
        raise RuntimeError("cannot go")


class Evens:
    """Lets only even offsets through."""

    def __init__(self) -> None:
        self.commits: list[Mapping[TopicPartition, OffsetAndMetadata]] = []
        self.is_closed = False

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return [record for record in records if record.offset % 2 == 0]

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.commits.append(offsets)

    def close(self) -> None:
        self.is_closed = True


def test_interceptors_of_a_producer_run_one_after_the_other() -> None:
    interceptors = ProducerInterceptors([Suffix("a"), Suffix("b")])
    record = ProducerRecord("t", "x", key="k", headers=[("h", b"1")], partition=3, timestamp_ms=5)
    assert interceptors.on_send(record) == replace(record, value="xab")
    assert record.value == "x"
    assert not ProducerInterceptors()


def test_an_interceptor_that_fails_is_passed_over_and_named(caplog: pytest.LogCaptureFixture) -> None:
    last = Suffix("b")
    interceptors = ProducerInterceptors([Suffix("a"), Broken(), last])
    with caplog.at_level(logging.WARNING):
        assert interceptors.on_send(ProducerRecord("t", "x")).value == "xab"
        interceptors.on_acknowledgement(RecordMetadata("t", 0, 7, -1), None)
        interceptors.close()
    assert last.acknowledged == [("t", 0, 7, "None")]
    assert last.is_closed
    for text in ("Broken failed in on_send of a record for topic t", "cannot see", "cannot hear", "cannot go"):
        assert text in caplog.text


def test_a_record_that_never_was_in_a_batch_is_acknowledged_with_its_error() -> None:
    interceptor = Suffix()
    interceptors = ProducerInterceptors([interceptor])
    interceptors.on_send_error(ProducerRecord("t", "x"), ValueError("too large"))
    interceptors.on_send_error(ProducerRecord("t", "x", partition=2), ValueError("too large"))
    assert interceptor.acknowledged == [("t", -1, -1, "too large"), ("t", 2, -1, "too large")]


def test_interceptors_of_a_consumer_run_one_after_the_other(caplog: pytest.LogCaptureFixture) -> None:
    evens = Evens()
    interceptors = ConsumerInterceptors([Broken(), evens])
    records = [ConsumerRecord("t", 0, offset) for offset in range(5)]
    offsets = {T0: OffsetAndMetadata(5)}
    with caplog.at_level(logging.WARNING):
        assert [record.offset for record in interceptors.on_consume(records)] == [0, 2, 4]
        interceptors.on_commit(offsets)
        interceptors.close()
    assert evens.commits == [offsets]
    assert evens.is_closed
    assert "cannot eat" in caplog.text
    assert "cannot commit" in caplog.text


def test_settings_name_interceptors_by_class_object_or_path() -> None:
    given = [Suffix, Suffix("b"), f"{__name__}.Suffix"]
    settings = ProducerSettings.load(LOCAL, {"interceptor.classes": given})
    assert load_producer_interceptors(settings).on_send(ProducerRecord("t", "x")).value == "x!b!"
    settings = ProducerSettings.load(LOCAL, {"interceptor.classes": given, "suffix": "?"})
    assert load_producer_interceptors(settings).on_send(ProducerRecord("t", "x")).value == "x???"
    assert settings.unused() == ()
    assert load_consumer_interceptors(ConsumerSettings.load(LOCAL, {"interceptor.classes": Evens}))


def test_what_is_no_interceptor_is_refused_and_the_others_are_closed() -> None:
    first = Suffix()
    settings = ProducerSettings.load(LOCAL, {"interceptor.classes": [first, Evens]})
    with pytest.raises(
        SettingsError, match=r"interceptor\.classes: .*Evens cannot be used, as it has no method on_send"
    ):
        load_producer_interceptors(settings)
    assert first.is_closed


def test_plugins_are_handed_all_settings_and_secrets_open() -> None:
    settings = PluginSettings(ProducerSettings.load(LOCAL, {"linger.ms": 7, "mine": "x"}))
    assert settings["linger.ms"] == 7
    assert settings["acks"] == "all"
    assert settings["mine"] == "x"
    assert settings.get("nobody's") is None
    assert len(settings) == len(list(settings))


class Reporter:
    def __init__(self) -> None:
        self.names: list[str] = []

    def init(self, metrics: list[Metric]) -> None: ...

    def metric_change(self, metric: Metric) -> None:
        self.names.append(metric.name.name)

    def metric_removal(self, metric: Metric) -> None: ...

    def close(self) -> None: ...


def test_reporters_are_plugins_and_jmx_is_none() -> None:
    assert load_reporters(ProducerSettings.load(LOCAL)) == []
    java = "org.apache.kafka.common.metrics.JmxReporter"
    reporter = Reporter()
    reporters = load_reporters(ProducerSettings.load(LOCAL, {"metric.reporters": [java, reporter]}))
    assert reporters == [reporter]
    MetricsRegistry(lambda: 0, reporters=reporters)
    assert reporter.names == ["count"]
    with pytest.raises(InvalidSettingsError, match="names a Java class that has no counterpart here"):
        ProducerSettings.load(LOCAL, {"metric.reporters": "org.apache.kafka.other.Reporter"})


def test_whoever_wants_it_is_told_the_cluster_when_it_is_new(caplog: pytest.LogCaptureFixture) -> None:
    class Listening:
        def __init__(self) -> None:
            self.ids: list[str | None] = []

        def on_update(self, cluster_id: str | None) -> None:
            self.ids.append(cluster_id)

    class Faulty:
        def on_update(self, cluster_id: str | None) -> None:
            raise RuntimeError("no cluster")

    listening = Listening()
    listeners = ClusterResourceListeners([Suffix(), Faulty(), listening, str.encode])
    with caplog.at_level(logging.WARNING):
        for cluster_id in (None, "one", "one", "two"):
            listeners.tell(cluster_id)
    assert listening.ids == ["one", "two"]
    assert "no cluster" in caplog.text


def test_a_lost_partition_is_a_revoked_one_unless_somebody_says_otherwise() -> None:
    class Listener(RebalanceListener):
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            self.seen.append(partitions)

    listener = Listener()
    listener.on_partitions_assigned([T0])
    listener.on_partitions_lost([T0])
    assert listener.seen == [[T0]]


def test_closing_asks_only_those_that_can_be_closed() -> None:
    last = Suffix()
    close_all([object(), str.encode, Broken(), last])
    assert last.is_closed


class Closable:
    """Any plug-in: it notes that it was closed."""

    def __init__(self) -> None:
        self.closed_count = 0

    def serialize(self, topic: str, headers: Any, data: Any) -> bytes:
        return b""

    deserialize = partition = on_send = on_acknowledgement = on_consume = on_commit = serialize

    def close(self) -> None:
        self.closed_count += 1


class ClosableReporter(Closable):
    def init(self, metrics: list[Metric]) -> None: ...

    metric_change = metric_removal = init


@pytest.mark.parametrize("kind", [Producer, AsyncProducer])
def test_what_a_producer_has_built_is_closed_when_a_later_part_cannot_be(kind: Any) -> None:
    key, value, partitioner, interceptor = built = [Closable() for _ in range(4)]
    parts = {"key_serializer": key, "value_serializer": value, "partitioner_class": partitioner}
    with pytest.raises(SettingsError, match=r"metric\.reporters"):
        kind(LOCAL, **parts, interceptor_classes=[interceptor], metric_reporters=[object()])
    assert [each.closed_count for each in built] == [1, 1, 1, 1]
    with pytest.raises(SettingsError, match=r"partitioner\.class"):
        kind(LOCAL, key_serializer=key, value_serializer=value, partitioner_class=7)
    assert [each.closed_count for each in built] == [2, 2, 1, 1]


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_what_a_consumer_has_built_is_closed_when_a_later_part_cannot_be(kind: Any) -> None:
    key, value, interceptor = built = [Closable() for _ in range(3)]
    reporter = ClosableReporter()
    parts = {"key_deserializer": key, "value_deserializer": value, "interceptor_classes": [interceptor]}
    with pytest.raises(SettingsError, match=r"metric\.reporters"):
        kind(**parts, metric_reporters=[object()], bootstrap_servers="127.0.0.1:9092")
    assert [each.closed_count for each in built] == [1, 1, 1]
    with pytest.raises(ValueError, match="the names of topics must be text"):
        kind("", **parts, metric_reporters=[reporter], bootstrap_servers="127.0.0.1:9092")
    assert [each.closed_count for each in [*built, reporter]] == [2, 2, 2, 1]


def test_a_producer_whose_thread_cannot_start_closes_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("barnabas.client.producer.sync_producer.LoopThread", fail)
    monkeypatch.setattr("barnabas.client.consumer.sync_consumer.LoopThread", fail)
    serializer, deserializer = Closable(), Closable()
    with pytest.raises(RuntimeError, match="new thread"):
        Producer(LOCAL, value_serializer=serializer)
    with pytest.raises(RuntimeError, match="new thread"):
        Consumer(bootstrap_servers="127.0.0.1:9092", value_deserializer=deserializer)
    assert (serializer.closed_count, deserializer.closed_count) == (1, 1)
