"""Runs what must be done from time to time, on the event loop's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from barnabas.base.log_context import logger
from barnabas.storage.manager import PeriodicTask

_log = logger("barnabas.broker")


class Scheduler:
    """One asyncio task per periodic task. A run that fails is logged, and the next one comes as if it had not."""

    def __init__(self, tasks: Iterable[PeriodicTask]) -> None:
        self._running = [asyncio.get_running_loop().create_task(self._repeat(each), name=each.name) for each in tasks]

    async def _repeat(self, task: PeriodicTask) -> None:
        delay_ms = task.interval_ms if task.first_delay_ms is None else task.first_delay_ms
        while True:
            await asyncio.sleep(delay_ms / 1000)
            delay_ms = task.interval_ms
            try:
                await task.run()
            except Exception:
                _log.exception("the task %r failed; it runs again in %d ms", task.name, task.interval_ms)

    async def stop(self) -> None:
        for each in self._running:
            each.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
