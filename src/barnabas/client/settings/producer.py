"""Settings of a producer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from barnabas.base.settings import (
    HIGH,
    LOW,
    MEDIUM,
    NOT_BUILT,
    GivenValue,
    Int,
    Long,
    Plugin,
    Registry,
    SettingsWarning,
    again,
    rule,
    setting,
)
from barnabas.base.settings.allowed import GZIP_LEVEL, LZ4_LEVEL, NOT_EMPTY, ZSTD_LEVEL, at_least, items, one_of
from barnabas.base.settings.units import INT_MAX, KIB, MIB, MINUTE_MS
from barnabas.client.settings.common import ClientSettings
from barnabas.client.settings.plugins import PARTITIONERS, SERIALIZERS


class ProducerSettings(ClientSettings, title="Producer", importance=LOW):
    """How records become batches and batches become acknowledged."""

    connections_max_idle_ms: Long = again(default=9 * MINUTE_MS)
    receive_buffer_bytes: Int = again(default=32 * KIB)
    enable_metrics_push: bool = again(default=True)

    key_serializer: Plugin = setting(
        "Turns the keys of records into bytes.", default="bytes", builtin=SERIALIZERS, importance=HIGH
    )
    value_serializer: Plugin = setting(
        "Turns the values of records into bytes.", default="bytes", builtin=SERIALIZERS, importance=HIGH
    )
    acks: str = setting(
        "Who must have a record before it counts as sent: all in-sync replicas, the leader (1), or nobody (0).",
        default="all",
        allowed=one_of("all", "-1", "0", "1"),
    )
    enable_idempotence: bool = setting(
        "Whether retries can neither repeat nor reorder records.",
        default=True,
        dependents=("acks", "retries", "max.in.flight.requests.per.connection"),
    )
    retries: Int = setting(
        "How often a batch is sent again; delivery.timeout.ms is the better limit.",
        default=INT_MAX,
        allowed=at_least(0),
        importance=HIGH,
    )
    max_in_flight_requests_per_connection: Int = setting(
        "How many requests may wait for an answer on one connection.", default=5, allowed=at_least(1)
    )
    delivery_timeout_ms: Int = setting(
        "How long after send() a record is either acknowledged or failed.",
        default=120_000,
        allowed=at_least(0),
        importance=MEDIUM,
        dependents=("linger.ms", "request.timeout.ms"),
    )
    linger_ms: Long = setting(
        "How long a batch waits for more records.", default=5, allowed=at_least(0), importance=MEDIUM
    )
    batch_size: Int = setting(
        "How large a batch may grow before it is sent. Where it is not given, one that has not left yet grows on, "
        "up to 1 MiB (256 KiB with compression).",
        default=16 * KIB,
        allowed=at_least(0),
        importance=MEDIUM,
    )
    buffer_memory: Long = setting(
        "How much memory holds records that are not sent yet.", default=32 * MIB, allowed=at_least(0), importance=HIGH
    )
    max_block_ms: Long = setting(
        "How long send() may wait for metadata or memory.", default=60_000, allowed=at_least(0), importance=MEDIUM
    )
    max_request_size: Int = setting(
        "The largest request, and with it the largest record.", default=MIB, allowed=at_least(0), importance=MEDIUM
    )
    compression_type: str = setting(
        "How batches are compressed.",
        default="none",
        allowed=one_of("none", "gzip", "snappy", "lz4", "zstd"),
        importance=HIGH,
    )
    compression_gzip_level: Int = setting(
        "Level for gzip; -1 for its own default.", default=-1, allowed=GZIP_LEVEL, importance=MEDIUM
    )
    compression_lz4_level: Int = setting("Level for lz4.", default=9, allowed=LZ4_LEVEL, importance=MEDIUM)
    compression_zstd_level: Int = setting("Level for zstd.", default=3, allowed=ZSTD_LEVEL, importance=MEDIUM)
    partitioner_class: Plugin | None = setting(
        "Picks the partition of a record; null hashes the key, or fills one partition after another.",
        default=None,
        importance=MEDIUM,
        builtin=PARTITIONERS,
    )
    partitioner_ignore_keys: bool = setting(
        "Whether keys play no part in picking a partition.", default=False, importance=MEDIUM
    )
    partitioner_adaptive_partitioning_enable: bool = setting(
        "Whether faster brokers get more of the records without a key.", default=True
    )
    partitioner_availability_timeout_ms: Long = setting(
        "After how long a partition that takes no batches is avoided; 0 for never.", default=0, allowed=at_least(0)
    )
    metadata_max_idle_ms: Long = setting(
        "After how long the metadata of an unused topic is forgotten.", default=5 * MINUTE_MS, allowed=at_least(5000)
    )
    interceptor_classes: tuple[Plugin, ...] = setting(
        "Plug-ins that see records before they are sent and after they are acknowledged.", default=(), allowed=items()
    )
    transactional_id: str | None = setting(
        "The name under which transactions survive a restart; null for no transactions.",
        default=None,
        allowed=NOT_EMPTY,
        dependents=("transaction.timeout.ms",),
    )
    transaction_timeout_ms: Int = setting(
        "How long a transaction may stay open before the broker aborts it.", default=60_000
    )
    transaction_two_phase_commit_enable: bool = setting(
        "Whether another system decides how transactions end.", default=False, state=NOT_BUILT
    )

    @classmethod
    def _adjust(cls, values: dict[str, Any], given: Mapping[str, GivenValue]) -> Iterator[SettingsWarning]:
        """What nobody asked for gives way: idempotence to weak acks, the delivery timeout to its parts."""
        yield from super()._adjust(values, given)
        for name, weak in (("acks", values.get("acks") in ("0", "1")), ("retries", values.get("retries") == 0)):
            if weak and values.get("enable_idempotence") and "enable.idempotence" not in given:
                values["enable_idempotence"] = False
                text = f"idempotence is switched off, because {name} = {values[name]} does not allow it"
                yield SettingsWarning("enable.idempotence", text)
        shortest_ms = min(values["linger_ms"] + values["request_timeout_ms"], INT_MAX)
        if "delivery.timeout.ms" not in given and values["delivery_timeout_ms"] < shortest_ms:
            values["delivery_timeout_ms"] = shortest_ms
            text = f"raised to {shortest_ms}, the sum of linger.ms and request.timeout.ms"
            yield SettingsWarning("delivery.timeout.ms", text)

    @rule("enable_idempotence", "acks")
    def _idempotence_needs_all_acks(self) -> str | None:
        return "idempotence needs acks = all" if self.enable_idempotence and self.acks not in ("all", "-1") else None

    @rule("enable_idempotence", "retries")
    def _idempotence_needs_retries(self) -> str | None:
        return "idempotence needs retries" if self.enable_idempotence and self.retries == 0 else None

    @rule("enable_idempotence", "max_in_flight_requests_per_connection")
    def _idempotence_limits_requests_in_flight(self) -> str | None:
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > 5:
            return "idempotence allows at most 5 requests in flight, as brokers remember only the last 5 batches"
        return None

    @rule("transactional_id", "enable_idempotence")
    def _transactions_need_idempotence(self) -> str | None:
        return "transactions need idempotence" if self.transactional_id and not self.enable_idempotence else None

    @rule("delivery_timeout_ms", "linger_ms", "request_timeout_ms")
    def _delivery_leaves_time_for_one_request(self) -> str | None:
        if self.delivery_timeout_ms < min(self.linger_ms + self.request_timeout_ms, INT_MAX):
            return "the delivery timeout must be at least linger.ms + request.timeout.ms"
        return None


PRODUCER_SETTINGS = Registry("producer", ProducerSettings)
