"""Changes of topics and settings that go on while controllers come and go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from barnabas import BarnabasError
from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from tests.peers.work import Work


class Changes:
    """Makes changes through several brokers by turns, and remembers what there must be in the end."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._works = [Work(each) for each in addresses]
        self._thread = threading.Thread(target=self._run, name="changes")
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        #: Each topic that must be there with its retention, and those that must not.
        self.retention: dict[str, str] = {}
        self.deleted: set[str] = set()
        #: How often nobody could be asked.
        self.refusals = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        if self._failure is not None and kind is None:
            raise self._failure

    def _run(self) -> None:
        number = 0
        try:
            while not self._is_over.wait(0.1):
                number += 1
                self._change(number)
        except BaseException as failure:
            self._failure = failure

    def _change(self, number: int) -> None:
        work, topic, retention = self._works[number % len(self._works)], f"topic-{number}", str(1_000_000 + number)
        work.create(topic, 1 + number % 3)
        self._insist(lambda: work.set_option(topic, "retention.ms", retention))
        self.retention[topic] = retention
        if number % 3 == 0:
            victim = f"topic-{number - 1}"
            del self.retention[victim]
            self._insist(lambda: _delete(work, victim))
            self.deleted.add(victim)

    def _insist(self, change: Callable[[], None]) -> None:
        """What may be done twice is tried until it is done."""
        for _ in range(20):
            try:
                change()
            except BarnabasError:
                self.refusals += 1
                time.sleep(0.2)
            else:
                return
        change()


def _delete(work: Work, topic: str) -> None:
    """That it is not there is an answer, too: the controller may have gone after it deleted it, before it said so."""
    try:
        work.delete(topic)
    except BrokerError as refusal:
        if refusal.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
