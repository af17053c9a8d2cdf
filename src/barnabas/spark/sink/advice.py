"""What a cluster has refused a write that is exactly once, in one sentence, and in the next what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError
from barnabas.client.errors import KeyedError
from barnabas.net.errors import UnsupportedRequestError
from barnabas.spark.core.exactly_once.names import Stream
from barnabas.spark.sink.control_topic import new_admin


def with_advice(error: BaseException, stream: Stream, control_topic: str) -> str:
    """The reason, and what helps. Where nothing is known to help, the reason alone."""
    reason, advice = str(error).rstrip("."), advice_for(error, stream, control_topic)
    return f"{reason}. {advice}" if advice else f"{reason}."


def advice_for(error: BaseException, stream: Stream, control_topic: str) -> str | None:
    for each in _causes(error):
        if isinstance(each, UnsupportedRequestError):
            return "Brokers of Apache Kafka have what is needed from 2.5 on; use these, or delivery=at-least-once."
        match getattr(each, "code", None):
            case ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                return f"Allow Write and Describe on transactional ids that begin with {stream.name}."
            case ErrorCode.GROUP_AUTHORIZATION_FAILED:
                return f"Allow Read on groups whose names begin with {stream.name}, where receipts are kept."
            case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                return f"Allow Read, Write and Describe on the control topic '{control_topic}'."
            case ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                return "Make kafka.transaction.timeout.ms no longer than transaction.max.timeout.ms of the brokers."
            case ErrorCode.UNSTABLE_OFFSET_COMMIT:
                return (
                    "A task or driver that is gone has left a transaction open, which hides what was committed. It "
                    "ends with its time-out, kafka.transaction.timeout.ms of a task; start the query again then. "
                    "Nothing is lost, and nothing is twice."
                )
    return None


def longest_timeout_ms(client: Mapping[str, str]) -> int | None:
    """How long the brokers let a transaction be; None if they do not tell us."""
    from barnabas.client.admin import ConfigResource, ConfigResourceType

    name = "transaction.max.timeout.ms"
    try:
        with new_admin(client) as admin:
            broker = ConfigResource(ConfigResourceType.BROKER, str(admin.describe_cluster().nodes[0].node_id))
            return int(admin.describe_configs([broker], names=[name])[broker][name].value or "")
    except (BarnabasError, LookupError, ValueError):
        return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        if isinstance(error, KeyedError):
            yield from error.errors.values()
        error = error.__cause__
