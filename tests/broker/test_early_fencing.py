"""Which closed connections of brokers count as the end of their process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from barnabas.broker.controller.early_fencing import OWN_GRACE_MS, EarlyFencing
from barnabas.net import Connection


class _Connection:
    client_software = ("barnabas", "1")
    was_ended_by_peer = True

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] = []

    def on_close(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def close(self) -> None:
        for each in self._callbacks:
            each()


async def _fenced(*, is_let_go: bool) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    fencing = EarlyFencing(lambda broker_id, epoch: found.append((broker_id, epoch)), 2000, 9000)
    connection = _Connection()
    fencing.heard(1, 7, cast(Connection, connection))
    if is_let_go:
        fencing.let_go(1)
    connection.close()
    await asyncio.sleep(OWN_GRACE_MS / 1000 + 0.05)
    return found


def test_a_broker_whose_connection_closes_is_gone() -> None:
    assert asyncio.run(_fenced(is_let_go=False)) == [(1, 7)]


def test_a_broker_that_was_let_go_is_not_fenced_once_more() -> None:
    assert asyncio.run(_fenced(is_let_go=True)) == []
