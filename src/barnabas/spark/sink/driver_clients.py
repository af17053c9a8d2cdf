"""Clients with which a driver decides. They outlive a batch: Spark commits the next one in the same process, as a rule,
and what is open and known need not be asked for again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from barnabas.spark.client_settings import settings_for
from barnabas.spark.core.exactly_once.names import Stream
from barnabas.spark.pool import ClientPool
from barnabas.spark.sink.control_topic import check_control_topic, new_admin

if TYPE_CHECKING:
    from barnabas import Consumer, TopicPartition


class DriverClients:
    """An admin client, and consumers by what they see of transactions. For one batch at a time."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = client
        self.admin = new_admin(client)
        #: By control topic and stream: the newest batch that was seen to come to its end here, behind its run.
        self.newest_done: dict[tuple[str, Stream], tuple[str, int]] = {}
        self._consumers: dict[str, Consumer] = {}
        self._checked: set[str] = set()

    def check_control_topic(self, topic: str) -> None:
        """Once. Raises if it does not keep decisions."""
        if topic not in self._checked:
            check_control_topic(self.admin, topic)
            self._checked.add(topic)

    @contextmanager
    def reading(self, place: TopicPartition, isolation_level: str) -> Iterator[Consumer]:
        """A consumer of one partition. It reads nothing ahead when this is over."""
        consumer = self._consumers.get(isolation_level)
        if consumer is None:
            consumer = self._consumers[isolation_level] = self._new_consumer(isolation_level)
        consumer.assign([place])
        try:
            yield consumer
        finally:
            consumer.unsubscribe()

    def close(self, timeout: float | None = None) -> None:
        for consumer in self._consumers.values():
            consumer.close(timeout)
        self.admin.close()

    def _new_consumer(self, isolation_level: str) -> Consumer:
        from barnabas import Consumer
        from barnabas.client.settings import CONSUMER_SETTINGS

        return Consumer(
            settings_for(self._client, CONSUMER_SETTINGS)
            | {"isolation.level": isolation_level, "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
            # A fetch that reads ahead, and waits at the end, holds up what is asked next on its connection.
            | {"fetch.max.wait.ms": "1"}
        )


driver_clients: Final = ClientPool(DriverClients)
