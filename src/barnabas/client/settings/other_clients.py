"""What other clients call settings, and what to write here instead.

Whoever moves over meets these names in two places: in what a client says of a setting that it does not know, and in the
table of `docs/moving-over.md`, which `table` makes and a test compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

KAFKA_PYTHON: Final = "kafka-python"
AIOKAFKA: Final = "aiokafka"
CONFLUENT: Final = "confluent-kafka"


@dataclass(frozen=True, slots=True)
class OtherName:
    """Names of other clients for one thing. `here` completes the sentence "in place of it: …", in Markdown."""

    clients: tuple[str, ...]
    names: tuple[str, ...]
    here: str
    #: What the table says behind the names, for instance which kind of value is meant.
    note: str = ""

    @property
    def row(self) -> str:
        names = ", ".join(f"`{name}`" for name in self.names)
        return f"| {', '.join(self.clients)} {names}{self.note} | {self.here} |"


_BOTH: Final = (KAFKA_PYTHON, AIOKAFKA)
_KERBEROS: Final = "(Kerberos is not built yet)"

OTHER_NAMES: Final = (
    OtherName((AIOKAFKA,), ("max_batch_size",), "`batch_size`"),
    OtherName((AIOKAFKA,), ("partitioner",), "`partitioner_class`; the same function works", ", a function"),
    OtherName(
        (KAFKA_PYTHON,),
        ("partitioner",),
        "`partitioner_class`, an object with `partition(topic, key, key_bytes, value, value_bytes, view)`",
        ", an object with `partition(topic, key_bytes, cluster)`",
    ),
    OtherName((CONFLUENT,), ("partitioner",), "`partitioner.class`; `murmur2_random` is what happens without it"),
    OtherName(_BOTH, ("api_version",), "leave it out, versions are negotiated"),
    OtherName(
        (CONFLUENT,), ("api.version.request", "broker.version.fallback"), "leave them out, versions are negotiated"
    ),
    OtherName(_BOTH, ("consumer_timeout_ms",), "`poll(timeout)`, which returns `[]` when the time is over"),
    OtherName((AIOKAFKA,), ("rebalance_timeout_ms",), "`max_poll_interval_ms`, which is both"),
    OtherName((AIOKAFKA,), ("loop",), "leave it out: `aio` clients belong to the loop of their first use"),
    OtherName((KAFKA_PYTHON,), ("bootstrap_timeout_ms",), "`default_api_timeout_ms`, for a producer `max_block_ms`"),
    OtherName((KAFKA_PYTHON,), ("default_offset_commit_callback",), "`commit_async(on_commit=…)`"),
    OtherName(
        (KAFKA_PYTHON,),
        ("allow_auto_create_topics",),
        "a consumer has it; a producer asks the broker as Java's does",
        " of a producer",
    ),
    OtherName(
        (KAFKA_PYTHON,),
        ("max_in_flight_requests_per_connection",),
        "a producer has it; others need none",
        " of a consumer or admin",
    ),
    OtherName((KAFKA_PYTHON,), ("enable_incremental_fetch_sessions",), "leave it out, they are always used"),
    OtherName(
        (KAFKA_PYTHON,), ("metrics_enabled", "metric_group_prefix"), "leave them out: `metrics()` is always there"
    ),
    OtherName(
        (KAFKA_PYTHON,), ("receive_message_max_bytes",), "leave it out; `fetch_max_bytes` bounds what a consumer reads"
    ),
    OtherName(
        (KAFKA_PYTHON,), ("kafka_client", "selector", "socket_options"), "leave them out: the network is not exchanged"
    ),
    OtherName((KAFKA_PYTHON,), ("proxy_url", "socks5_proxy"), "there is no proxy support"),
    OtherName((KAFKA_PYTHON,), ("ssl_crlfile",), "there is no setting for it, as in Java; give an `ssl_context`"),
    OtherName(
        (CONFLUENT,), ("ssl.ca.location",), "`ssl.truststore.location` with `ssl.truststore.type=PEM`, or `ssl.cafile`"
    ),
    OtherName(
        (CONFLUENT,),
        ("ssl.certificate.location", "ssl.key.location"),
        "`ssl.keystore.location` with `ssl.keystore.type=PEM`, or `ssl.certfile` and `ssl.keyfile`",
    ),
    OtherName((CONFLUENT,), ("sasl.username", "sasl.password"), "`sasl.plain.username` and `sasl.plain.password`"),
    OtherName((CONFLUENT,), ("sasl.mechanisms",), "`sasl.mechanism`"),
    OtherName((CONFLUENT,), ("oauth_cb",), "`sasl.oauth.token.provider`; the same function, without its argument"),
    OtherName(_BOTH, ("sasl_kerberos_domain_name",), f"leave it out {_KERBEROS}"),
    OtherName((KAFKA_PYTHON,), ("sasl_kerberos_name",), f"`sasl_kerberos_service_name` {_KERBEROS}"),
    OtherName(
        (CONFLUENT,),
        ("queue.buffering.max.kbytes", "queue.buffering.max.messages"),
        "`buffer.memory`, in bytes; records are not counted",
    ),
    OtherName((CONFLUENT,), ("queue.buffering.max.ms",), "`linger.ms`"),
    OtherName((CONFLUENT,), ("batch.num.messages",), "`batch.size`, in bytes; records are not counted"),
    OtherName((CONFLUENT,), ("message.timeout.ms",), "`delivery.timeout.ms`"),
    OtherName((CONFLUENT,), ("message.send.max.retries",), "`retries`"),
    OtherName((CONFLUENT,), ("message.max.bytes",), "`max.request.size` of a producer"),
    OtherName((CONFLUENT,), ("request.required.acks",), "`acks`"),
    OtherName((CONFLUENT,), ("compression.codec",), "`compression.type`"),
    OtherName(
        (CONFLUENT,),
        ("compression.level",),
        "`compression.gzip.level`, `compression.lz4.level` or `compression.zstd.level`",
    ),
    OtherName((CONFLUENT,), ("max.in.flight", "max.in.flight.requests"), "`max.in.flight.requests.per.connection`"),
    OtherName((CONFLUENT,), ("metadata.broker.list",), "`bootstrap.servers`"),
    OtherName((CONFLUENT,), ("topic.metadata.refresh.interval.ms",), "`metadata.max.age.ms`"),
    OtherName((CONFLUENT,), ("socket.timeout.ms",), "`request.timeout.ms`"),
    OtherName((CONFLUENT,), ("socket.nagle.disable",), "leave it out, small requests never wait"),
    OtherName((CONFLUENT,), ("fetch.wait.max.ms",), "`fetch.max.wait.ms`"),
    OtherName((CONFLUENT,), ("fetch.message.max.bytes",), "`max.partition.fetch.bytes`"),
    OtherName(
        (CONFLUENT,),
        ("queued.max.messages.kbytes", "queued.min.messages"),
        "`fetch.max.bytes`, which bounds what is fetched ahead",
    ),
    OtherName((CONFLUENT,), ("enable.partition.eof",), "compare `position(…)` with `end_offsets(…)`"),
    OtherName(
        (CONFLUENT,),
        ("enable.auto.offset.store",),
        "`enable.auto.commit=false` with `commit({…})`",
        " with `store_offsets`",
    ),
    OtherName((CONFLUENT,), ("on_delivery", "delivery.report.only.error"), "`send(…, on_delivery=…)`"),
    OtherName((CONFLUENT,), ("on_commit",), "`commit_async(on_commit=…)`"),
    OtherName((CONFLUENT,), ("statistics.interval.ms", "stats_cb"), "`metrics()`, `prometheus()`, `metric.reporters`"),
    OtherName(
        (CONFLUENT,),
        ("error_cb", "throttle_cb", "logger", "log_level", "debug"),
        "Python's `logging`, under `barnabas`",
    ),
)

#: Rows about values: the name is the same.
_VALUES: Final = (
    f'| {AIOKAFKA}, {KAFKA_PYTHON} `acks="all"` or -1 | the same; here it is the default |',
    f"| {CONFLUENT} `auto.offset.reset=error` | `auto.offset.reset=none` |",
)


def table() -> str:
    """The table of the documentation."""
    return "\n".join(["| theirs | here |", "|---|---|", *_VALUES, *(each.row for each in OTHER_NAMES)])


def _hints() -> Iterator[tuple[str, str]]:
    by_name: dict[str, list[str]] = {}
    for each in OTHER_NAMES:
        owners = " and ".join(f"{client}'s" for client in each.clients)
        for name in each.names:
            by_name.setdefault(name.replace("_", "."), []).append(
                f"in place of {owners} {name}: {each.here.replace('`', '')}"
            )
    for name, found in by_name.items():
        yield name, "; ".join(found)


#: What to say of a name, which is spelt with dots.
HINTS: Final[Mapping[str, str]] = dict(_hints())
