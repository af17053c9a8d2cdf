"""Transactions that are open in a partition, and whether a coordinator knows of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, TransactionDescription
    from barnabas.client.admin.transactions import ProducerState

#: Partitions that are asked about in one call.
_BATCH: Final = 500


class OpenTransaction(NamedTuple):
    """What a partition knows of a transaction in it, and what its coordinator knows, if there is one."""

    place: TopicPartition
    producer: ProducerState
    known: TransactionDescription | None = None

    @property
    def hangs(self) -> bool:
        """Whether nobody will end it: only a coordinator that has it among its partitions does."""
        return self.known is None or self.place not in self.known.partitions


async def open_transactions(
    admin: Admin, places: Sequence[TopicPartition], broker_id: int | None = None
) -> list[OpenTransaction]:
    """Those of some partitions, as the leaders, or one replica, tell; `known` is not asked for."""
    found: list[OpenTransaction] = []
    for start in range(0, len(places), _BATCH):
        told = await admin.describe_producers(places[start : start + _BATCH], broker_id=broker_id)
        found += [
            OpenTransaction(place, each)
            for place, producers in told.items()
            for each in producers
            if each.transaction_start_offset is not None
        ]
    return found


async def with_coordinators(admin: Admin, open_ones: Iterable[OpenTransaction]) -> list[OpenTransaction]:
    """The same, with what the coordinators know of their producers."""
    asked = list(open_ones)
    if not asked:
        return []
    listed = await admin.list_transactions(producer_ids={each.producer.producer_id for each in asked})
    by_producer = {each.producer_id: each.transactional_id for each in listed}
    described = await _described(admin, set(by_producer.values()))
    return [each._replace(known=described.get(by_producer.get(each.producer.producer_id, ""))) for each in asked]


async def _described(admin: Admin, transactional_ids: set[str]) -> dict[str, TransactionDescription]:
    from barnabas.client.errors import KeyedError

    if not transactional_ids:
        return {}
    try:
        return await admin.describe_transactions(sorted(transactional_ids))
    except KeyedError as problem:
        _raise_unless_gone(problem.errors.values())
        return dict(problem.results)
    except BrokerError as problem:
        _raise_unless_gone([problem])
        return {}


def _raise_unless_gone(errors: Iterable[BaseException]) -> None:
    """An id may expire between two questions."""
    for each in errors:
        if not (isinstance(each, BrokerError) and each.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
            raise each


async def find_hanging_transactions(
    admin: Admin, broker_id: int | None, topic: str | None, partition: int | None, longest_ms: int, now_ms: int
) -> list[OpenTransaction]:
    """Of a topic, a partition or a broker: those that were not written for longer than this, and that hang."""
    places = await _places(admin, broker_id, topic, partition)
    found = await open_transactions(admin, places, broker_id)
    old = [each for each in found if now_ms - each.producer.last_timestamp_ms > longest_ms]
    return [each for each in await with_coordinators(admin, old) if each.hangs]


async def _places(
    admin: Admin, broker_id: int | None, topic: str | None, partition: int | None
) -> list[TopicPartition]:
    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    topics = [topic] if topic is not None else sorted(await admin.list_topics(include_internal=True))
    described = await admin.describe_topics(topics)
    return [
        TopicPartition(name, each.partition)
        for name, found in described.items()
        for each in found.partitions
        if broker_id is None or any(node.node_id == broker_id for node in each.replicas)
    ]
