"""What the answers to requests of transactions say: one error, or one for each partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.client.core.producing.transaction_requests import Consequence, Kind, TransactionRequest, verdict

#: Of errors that differ by partition the first of these decides.
_ORDER: Final = (
    Consequence.FENCED,
    Consequence.FATAL,
    Consequence.ABORT_AND_BUMP,
    Consequence.ABORT,
    Consequence.LOOK_UP,
    Consequence.TRY_AGAIN,
    Consequence.REFUSED,
    Consequence.DONE,
)


def errors_of(request: TransactionRequest, response: Any) -> list[tuple[TopicPartition | None, ErrorCode]]:
    """The errors of an answer, with the partitions that they are about. What was asked and is not answered is one that
    can pass."""
    if request.kind is Kind.ADD_PARTITIONS:
        told = {
            TopicPartition(topic.name, each.partition_index): ErrorCode.of(each.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }
        return _asked(request.subject, told)
    if request.kind is Kind.TXN_OFFSET_COMMIT:
        told = {
            TopicPartition(topic.name, each.partition_index): ErrorCode.of(each.error_code)
            for topic in response.topics
            for each in topic.partitions
        }
        return _asked(request.subject[0], told)
    return [(None, ErrorCode.of(response.error_code))]


def _asked(
    wanted: Iterable[TopicPartition], told: dict[TopicPartition, ErrorCode]
) -> list[tuple[TopicPartition | None, ErrorCode]]:
    return [(each, told.get(each, ErrorCode.REQUEST_TIMED_OUT)) for each in wanted]


def worst(kind: Kind, errors: list[tuple[TopicPartition | None, ErrorCode]]) -> tuple[Consequence, ErrorCode, str]:
    """The verdict that decides, the error that it is of, and what to tell."""
    judged = [(verdict(kind, code), code, partition) for partition, code in errors]
    found = min((each[0] for each in judged), key=_ORDER.index)
    those = [(code, partition) for each, code, partition in judged if each is found]
    # That a partition was not tried is the least that can be said.
    code, _ = next((each for each in those if each[0] is not ErrorCode.OPERATION_NOT_ATTEMPTED), those[0])
    names = [str(partition) for each, partition in those if partition is not None and each is code][:5]
    return found, code, f"{', '.join(names)}: {code.text}" if names else code.text
