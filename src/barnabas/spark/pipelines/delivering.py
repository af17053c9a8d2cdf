"""What flows that write exactly once have decided, and what they have open, as their clusters tell it.

Every decision is a record in a control topic. Who follows that topic from the beginning of a run counts the
transactions, rows and bytes of all batches; a batch that is repeated, or that another driver takes over, counts once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from barnabas.base.errors import BarnabasError
from barnabas.spark.core.exactly_once.control import Control
from barnabas.spark.pipelines.graph import Graph
from barnabas.spark.pipelines.reporting import Delivered

_log: Final = logging.getLogger(__name__)
#: Numbers for people: they are not worth a long wait.
_TIMEOUT_S: Final = 3.0


T = TypeVar("T")


class DeliveryFollower(Protocol):
    """What is asked of a `ControlFollower`."""

    def delivered(self, query: str) -> Delivered: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class _Counted:
    """Of one sink."""

    batch: int = -1
    transactions: int = 0
    rows: int = 0
    size_bytes: int = 0


class ControlFollower:
    """Follows one control topic with clients of its own."""

    def __init__(self, cluster: Mapping[str, str], control_topic: str) -> None:
        from barnabas import Admin, Consumer, TopicPartition
        from barnabas.client.settings import ADMIN_SETTINGS, CONSUMER_SETTINGS
        from barnabas.spark.client_settings import settings_for

        self._place = TopicPartition(control_topic, 0)
        self._counted: dict[str, _Counted] = {}
        self._has_begun = False
        with ExitStack() as opened:
            self._admin = opened.enter_context(Admin(settings_for(cluster, ADMIN_SETTINGS)))
            read = {
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": "false",
                "allow.auto.create.topics": "false",
                "fetch.max.wait.ms": "1",
            }
            self._consumer = opened.enter_context(Consumer(settings_for(cluster, CONSUMER_SETTINGS) | read))
            self._open = opened.pop_all()

    def begin(self) -> None:
        """What is there now is of earlier runs; a topic that is not there yet has nothing."""
        if self._exists():
            self._consumer.assign([self._place])
            self._consumer.seek(self._place, self._consumer.end_offsets([self._place], _TIMEOUT_S)[self._place])
            self._has_begun = True

    def delivered(self, query: str) -> Delivered:
        from barnabas.spark.core.exactly_once.names import prefix_of_query

        prefix = prefix_of_query(query)
        self._follow()
        mine = [each for key, each in self._counted.items() if key.startswith(prefix)]
        return Delivered(
            sum(each.transactions for each in mine),
            self._count_open(prefix),
            sum(each.rows for each in mine),
            sum(each.size_bytes for each in mine),
        )

    def close(self) -> None:
        self._open.close()

    def _exists(self) -> bool:
        from barnabas.spark.sink.control_topic import has_topic

        return has_topic(self._admin, self._place.topic)

    def _follow(self) -> None:
        if not self._has_begun:
            # It came to be in this run: all of it counts.
            if not self._exists():
                return
            self._consumer.assign([self._place])
            self._consumer.seek_to_beginning([self._place])
            self._has_begun = True
        end = self._consumer.end_offsets([self._place], _TIMEOUT_S)[self._place]
        give_up_s = time.monotonic() + _TIMEOUT_S
        while self._consumer.position(self._place) < end and time.monotonic() < give_up_s:
            for record in self._consumer.poll(_TIMEOUT_S):
                if record.key is not None and record.value is not None:
                    self._count(record.key.decode(errors="replace"), Control.decode(record.value))

    def _count(self, key: str, control: Control) -> None:
        is_first = key not in self._counted
        counted, decision = self._counted.setdefault(key, _Counted()), control.decision
        if decision is None or decision.batch <= counted.batch:
            return
        counted.batch = decision.batch
        if is_first and decision.run != control.owner:
            return  # decided before this run, and taken over by it
        counted.transactions += len(decision.parts)
        counted.rows += decision.rows
        counted.size_bytes += decision.size_bytes

    def _count_open(self, prefix: str) -> int | None:
        """None where the cluster does not tell."""
        from barnabas.client.errors import KeyedError
        from barnabas.net.errors import UnsupportedRequestError

        try:
            listed = self._admin.list_transactions(states=["Ongoing"], timeout=_TIMEOUT_S)
        except (UnsupportedRequestError, KeyedError):
            return None
        return sum(each.transactional_id.startswith(prefix) for each in listed)


def _follower_of(cluster: Mapping[str, str], control_topic: str) -> DeliveryFollower:
    follower = ControlFollower(cluster, control_topic)
    try:
        follower.begin()
    except BaseException:
        follower.close()
        raise
    return follower


class Deliveries:
    """Of all flows of a run."""

    def __init__(
        self,
        short: Callable[[str], str] = str,
        follower_of: Callable[[Mapping[str, str], str], DeliveryFollower] = _follower_of,
    ) -> None:
        self._graph = Graph()
        self._short = short
        self._follower_of = follower_of
        self._followers: list[tuple[Mapping[str, str], str, DeliveryFollower]] = []

    def follow(self, graph: Graph) -> None:
        """From here on: to be called before the flows of an update start."""
        self._graph = graph
        for dataset in graph.datasets.values():
            if dataset.control is not None:
                self._told(partial(self._follower, *dataset.control))

    def after(self, progress: Mapping[str, Any]) -> Delivered | None:
        """Of the flow whose query has just told this; None if it is not exactly once, or nobody answers."""
        flow = self._graph.flows.get(self._short(progress.get("name") or ""))
        dataset = None if flow is None else self._graph.datasets.get(flow.target)
        control = None if dataset is None else dataset.control
        if control is None:
            return None
        return self._told(lambda: self._follower(*control).delivered(str(progress.get("id"))))

    def close(self) -> None:
        for _, _, follower in self._followers:
            follower.close()
        self._followers.clear()

    def _told(self, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except (BarnabasError, ValueError) as failure:
            _log.debug("what is decided cannot be had: %s", failure)
            return None

    def _follower(self, cluster: Mapping[str, str], control_topic: str) -> DeliveryFollower:
        for known, topic, follower in self._followers:
            if (known, topic) == (cluster, control_topic):
                return follower
        self._followers.append((cluster, control_topic, self._follower_of(cluster, control_topic)))
        return self._followers[-1][2]
