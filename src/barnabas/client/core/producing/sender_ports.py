"""What a sender is told, whom it asks, and what it says: the edges of `sender`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.client.core.producing.produce_requests import NodeRequest
    from barnabas.client.core.producing.transaction_requests import TransactionRequest
    from barnabas.client.settings import ProducerSettings
    from barnabas.wire.message import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderSettings:
    """What of the producer's settings matters here."""

    acks: int = -1
    is_idempotent: bool = True
    retries: int = 2**31 - 1
    max_in_flight: int = 5
    max_request_bytes: int = 2**20
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000
    uses_zstd: bool = False

    @classmethod
    def of(cls, settings: ProducerSettings) -> SenderSettings:
        return cls(
            acks=-1 if settings.acks == "all" else int(settings.acks),
            is_idempotent=settings.enable_idempotence,
            retries=settings.retries,
            max_in_flight=settings.max_in_flight_requests_per_connection,
            max_request_bytes=settings.max_request_size,
            request_timeout_ms=settings.request_timeout_ms,
            delivery_timeout_ms=settings.delivery_timeout_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
            retry_backoff_max_ms=settings.retry_backoff_max_ms,
            uses_zstd=settings.compression_type == "zstd",
        )


class SenderNetwork(Protocol):
    """What a sender asks of the network; see `Network`."""

    def delay_ms(self, node_id: int, now_ms: int) -> float: ...

    def version_of(self, node_id: int, request: type[Request]) -> int | None: ...

    def connect_soon(self, node_id: int) -> None: ...


class SenderMetrics(Protocol):
    """What a sender counts; see `ProducerMetrics`."""

    def batch_drained(
        self,
        topic: str,
        records: int,
        size_bytes: int,
        uncompressed_bytes: int,
        queue_ms: float,
        largest_record_bytes: int,
        /,
    ) -> None: ...

    def request_sent(self, records: int, /) -> None: ...

    def request_latency(self, node_id: int, ms: float, /) -> None: ...

    def throttled(self, node_id: int, ms: float, /) -> None: ...

    def records_failed(self, topic: str, records: int, /) -> None: ...

    def records_retried(self, topic: str, records: int, /) -> None: ...

    def batch_split(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now, and when to ask again."""

    #: To be sent in this order.
    requests: list[NodeRequest]
    #: After how long to ask again if nothing happens meanwhile; infinite if only an event can bring something new.
    wait_ms: float
    #: A producer id is needed: send `producer_id_request` to any node.
    wants_producer_id: bool = False
    #: For a coordinator; ends in `answered` or `failed` of the transaction manager.
    transaction: TransactionRequest | None = None
