"""Finds a position for every assigned partition, in the background: committed, reset, validated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from random import Random

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.base.log_context import logger
from barnabas.base.runtime import Clock
from barnabas.client.consumer.offset_lookup import OffsetLookup, is_not_offered
from barnabas.client.core.consuming.offsets import OffsetAndMetadata
from barnabas.client.core.consuming.partition_state import FetchState, PartitionState
from barnabas.client.core.consuming.positions import (
    question_for,
    take_committed,
    take_epoch_end,
    take_listed,
    trust,
)
from barnabas.client.core.consuming.subscription import Subscription
from barnabas.client.errors import ClientTimeoutError
from barnabas.client.network_client import NetworkClient
from barnabas.client.settings.consumer import ConsumerSettings
from barnabas.net.errors import ChannelError, RefusedError

_log = logger(__name__)

Committed = Callable[[Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]]]
_States = dict[TopicPartition, PartitionState]


class PositionKeeper:
    """`wake` it when something may have changed; `on_progress` is called when something has. What the program must hear
    of is left with the partitions that it concerns."""

    def __init__(
        self,
        network: NetworkClient,
        subscription: Subscription,
        lookup: OffsetLookup,
        settings: ConsumerSettings,
        *,
        clock: Clock,
        randomness: Random,
        committed: Committed | None,
        on_progress: Callable[[], None],
    ) -> None:
        self._network = network
        self._subscription = subscription
        self._lookup = lookup
        self._clock = clock
        self._randomness = randomness
        self._committed = committed
        self._on_progress = on_progress
        self._backoff_ms = settings.retry_backoff_ms
        self._backoff_max_ms = settings.retry_backoff_max_ms
        self._woken = asyncio.Event()
        self._tasks: dict[FetchState, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="consumer positions")

    async def close(self) -> None:
        tasks = [*self._tasks.values(), *([self._task] if self._task is not None else [])]
        self._task = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self) -> None:
        self._woken.set()

    async def _run(self) -> None:
        """The three kinds of work run beside each other: a coordinator that is away must not hold up resets."""
        steps = {
            FetchState.INITIALIZING: self._look_up,
            FetchState.AWAIT_RESET: self._reset,
            FetchState.AWAIT_VALIDATION: self._validate,
        }
        loop = asyncio.get_running_loop()
        while True:
            self._woken.clear()
            now_ms = self._clock.monotonic_ms()
            for fetch_state, step in steps.items():
                task = self._tasks.get(fetch_state)
                if task is not None and task.done():
                    del self._tasks[fetch_state]
                    task = None
                due = self._due(fetch_state, now_ms)
                if task is None and due:
                    self._tasks[fetch_state] = loop.create_task(self._guarded(step, due))
            try:
                async with asyncio.timeout(self._wait_s(now_ms)):
                    await self._woken.wait()
            except TimeoutError:
                pass

    def _due(self, fetch_state: FetchState, now_ms: int) -> _States:
        return {
            partition: state
            for partition, state in self._subscription.states().items()
            if state.fetch_state is fetch_state and not state.backs_off(now_ms) and state.failure is None
        }

    def _wait_s(self, now_ms: int) -> float | None:
        waits_ms = [
            state.retry_at_ms - now_ms
            for state in self._subscription.states().values()
            if state.fetch_state is not FetchState.FETCHING
            and state.failure is None
            and state.fetch_state not in self._tasks
        ]
        return None if not waits_ms else max(0, min(waits_ms)) / 1000

    async def _guarded(self, step: Callable[[_States], Awaitable[None]], states: _States) -> None:
        try:
            await step(states)
        except Exception as error:
            self._back_off(states.values())
            if not _is_passing(error):
                if not isinstance(error, BarnabasError):
                    _log.exception("looking up positions of %s failed", ", ".join(map(str, states)))
                for state in states.values():
                    state.error = error
        finally:
            self._woken.set()
            self._on_progress()

    async def _look_up(self, states: _States) -> None:
        committed = {} if self._committed is None else await self._committed(list(states))
        for partition, found in committed.items():
            if found is not None and found.leader_epoch is not None:
                self._network.metadata.epoch_seen(partition, found.leader_epoch)
        take_committed(self._subscription, states, committed)

    async def _reset(self, states: _States) -> None:
        now_ms = self._clock.now_ms()
        strategies = {
            partition: strategy for partition, state in states.items() if (strategy := state.reset_strategy) is not None
        }
        view = self._network.view
        outcome = await self._lookup.list_once(
            {partition: strategy.timestamp_ms(now_ms) for partition, strategy in strategies.items()}
        )
        for partition, listed in outcome.found.items():
            take_listed(self._subscription, partition, states[partition], strategies[partition], listed, view)
        self._later(states, outcome.retry, outcome.failed)

    async def _validate(self, states: _States) -> None:
        asked = {partition: state.fetch for partition, state in states.items()}
        questions = {partition: question_for(state) for partition, state in states.items()}
        outcome = await self._lookup.epoch_ends_once(questions)
        for partition, end in outcome.found.items():
            if is_not_offered(end):
                trust(states[partition])
                continue
            take_epoch_end(
                self._subscription, partition, states[partition], asked[partition], questions[partition], end
            )
        self._later(states, outcome.retry, outcome.failed)

    def _later(
        self,
        states: _States,
        retry: Mapping[TopicPartition, ErrorCode],
        failed: Mapping[TopicPartition, BrokerError],
    ) -> None:
        self._back_off(states[partition] for partition in (*retry, *failed))
        for partition, error in failed.items():
            states[partition].error = error

    def _back_off(self, states: Iterable[PartitionState]) -> None:
        now_ms = self._clock.monotonic_ms()
        # The same for all, so that they can be asked for together again.
        jitter = self._randomness.uniform(0.8, 1.2)
        for state in states:
            grown_ms = min(self._backoff_ms * 2 ** min(state.retry_count, 20), self._backoff_max_ms)
            state.retry_count += 1
            state.retry_at_ms = now_ms + int(grown_ms * jitter)


def _is_passing(error: Exception) -> bool:
    """Whether trying again may help, so that the program need not hear of it."""
    if isinstance(error, RefusedError):
        return False
    if isinstance(error, BrokerError):
        return error.code.retriable
    return isinstance(error, (ChannelError, ClientTimeoutError))
