"""Which broker coordinates a group or a transaction: looked up once, for all who wait together, and kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Final, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.log_context import logger
from barnabas.client.core.metadata import Node
from barnabas.client.core.troubles import Trouble
from barnabas.client.errors import ClientClosedError, ClientError, ClientTimeoutError
from barnabas.net.backoff import Backoff
from barnabas.net.errors import ChannelError, RefusedError, address_text
from barnabas.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from barnabas.client.network_client import NetworkClient

_log = logger(__name__)

_BATCHED_VERSION: Final = 4


class CoordinatorType(IntEnum):
    """What a coordinator coordinates, by its number in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2

    @property
    def noun(self) -> str:
        return {0: "group", 1: "transactional id", 2: "share partition"}[self.value]


#: Where coordinators keep what they know, and the setting that says on how many brokers.
_STATE_TOPICS: Final = {
    CoordinatorType.GROUP: ("__consumer_offsets", "offsets.topic.replication.factor"),
    CoordinatorType.TRANSACTION: ("__transaction_state", "transaction.state.log.replication.factor"),
    CoordinatorType.SHARE: ("__share_group_state", "share.coordinator.state.topic.replication.factor"),
}


class _Lookup:
    """One key that is looked up, and who waits for it."""

    __slots__ = ("future", "last_cause", "refusal", "tries", "waiter_count")

    def __init__(self, future: asyncio.Future[int]) -> None:
        self.future = future
        self.waiter_count = 0
        self.last_cause = "nobody was asked yet"
        #: What a broker last answered, if it was that; and how often.
        self.refusal: ErrorCode | None = None
        self.tries = 0


class Coordinators:
    """See the module. Keys of one kind that are looked up at the same time travel in one request, where the broker
    knows how (2.8 on)."""

    def __init__(self, network: NetworkClient, add_node: Callable[[Node], int], backoff: Callable[[], Backoff]) -> None:
        self._network = network
        self._add_node = add_node
        self._new_backoff = backoff
        self._known: dict[tuple[CoordinatorType, str], int] = {}
        self._lookups: dict[CoordinatorType, dict[str, _Lookup]] = {}
        self._tasks: dict[CoordinatorType, asyncio.Task[None]] = {}
        self._is_closed = False

    def known(self, kind: CoordinatorType, key: str) -> int | None:
        return self._known.get((kind, key))

    def forget(self, kind: CoordinatorType, key: str, why: str) -> int | None:
        """The number of the node that is not used as coordinator any more, by this key or others."""
        forgotten = self._known.pop((kind, key), None)
        if forgotten is None:
            return None
        _log.debug("the coordinator of %s %r is looked up again: %s", kind.noun, key, why)
        return forgotten if forgotten not in self._known.values() else None

    async def find(self, kind: CoordinatorType, key: str, timeout_ms: float) -> int:
        known = self._known.get((kind, key))
        if known is not None:
            return known
        if self._is_closed:
            raise ClientClosedError("the client was closed")
        lookups = self._lookups.setdefault(kind, {})
        lookup = lookups.get(key)
        if lookup is None:
            lookup = lookups[key] = _Lookup(asyncio.get_running_loop().create_future())
        if kind not in self._tasks:
            self._tasks[kind] = asyncio.get_running_loop().create_task(self._look_up_all(kind))
        lookup.waiter_count += 1
        try:
            with self._network.watch.expecting_error(timeout_ms):
                async with asyncio.timeout(timeout_ms / 1000):
                    return await asyncio.shield(lookup.future)
        except TimeoutError:
            if not self._network.view.nodes:
                raise self._network.gave_up(
                    f"the coordinator of {kind.noun} {key!r} was to be found", timeout_ms
                ) from None
            raise ClientTimeoutError(
                f"the coordinator of {kind.noun} {key!r} was not found within {timeout_ms:.0f} ms: {lookup.last_cause}"
            ) from None
        finally:
            lookup.waiter_count -= 1
            if not lookup.waiter_count and lookups.get(key) is lookup:
                del lookups[key]
                lookup.future.cancel()

    def troubles(self) -> dict[Hashable, Trouble]:
        """Those whose coordinators the brokers do not tell. That nobody can be asked is another's trouble."""
        found: dict[Hashable, Trouble] = {}
        for kind, lookups in self._lookups.items():
            for key, lookup in lookups.items():
                if lookup.refusal is not None:
                    found["coordinator", (kind, key)] = Trouble(_trouble_text(kind, key, lookup.refusal), lookup.tries)
        return found

    def trouble_ended(self, kind: str, name: object) -> str | None:
        node_id = self._known.get(cast(tuple[CoordinatorType, str], name)) if kind == "coordinator" else None
        if node_id is None:
            return None
        noun, key = cast(tuple[CoordinatorType, str], name)
        node = self._network.node(node_id)
        where = f"broker {node.node_id} at {address_text(node.host, node.port)}" if node is not None else "found"
        return f"the coordinator of {noun.noun} {key!r} is {where}"

    async def find_all(self, kind: CoordinatorType, keys: Iterable[str], timeout_ms: float) -> dict[str, int]:
        names = list(dict.fromkeys(keys))
        found = await asyncio.gather(*(self.find(kind, name, timeout_ms) for name in names))
        return dict(zip(names, found, strict=True))

    async def close(self) -> None:
        self._is_closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for lookups in self._lookups.values():
            for lookup in lookups.values():
                if not lookup.future.done():
                    lookup.future.set_exception(ClientClosedError("the client was closed"))

    async def _look_up_all(self, kind: CoordinatorType) -> None:
        """Look up until nobody waits for any key of this kind."""
        loop = asyncio.get_running_loop()
        backoff = self._new_backoff()
        lookups = self._lookups[kind]
        try:
            # Those who ask in the same turn of the loop are asked for together.
            await asyncio.sleep(0)
            while lookups:
                try:
                    await self._ask(kind, dict(lookups))
                except (ChannelError, ClientError) as error:
                    self._note_failure(lookups, error)
                if lookups:
                    backoff.failed(loop.time() * 1000)
                    await asyncio.sleep(backoff.wait_ms(loop.time() * 1000) / 1000)
        finally:
            del self._tasks[kind]

    def _note_failure(self, lookups: dict[str, _Lookup], error: Exception) -> None:
        for key, lookup in list(lookups.items()):
            lookup.last_cause = str(error)
            lookup.refusal = None
            if isinstance(error, RefusedError):
                self._settle(lookups, key, lookup, error)

    async def _ask(self, kind: CoordinatorType, lookups: dict[str, _Lookup]) -> None:
        keys = list(lookups)
        timeout_ms = self._network.request_timeout_ms
        while keys:
            asked: list[str] = []

            def build(version: int, keys: list[str] = keys, asked: list[str] = asked) -> FindCoordinatorRequest:
                asked[:] = keys if version >= _BATCHED_VERSION else keys[:1]
                if version >= _BATCHED_VERSION:
                    return FindCoordinatorRequest(key_type=kind, coordinator_keys=asked)
                return FindCoordinatorRequest(key=asked[0], key_type=kind)

            answer = await self._network.request_any(build, request_class=FindCoordinatorRequest, timeout_ms=timeout_ms)
            for each in _told(answer, asked):
                self._take(kind, each)
            keys = keys[len(asked) :]

    def _take(self, kind: CoordinatorType, told: Coordinator) -> None:
        lookups = self._lookups[kind]
        lookup = lookups.get(told.key)
        if lookup is None:
            return  # Nobody waits for it any more.
        if not told.error_code:
            number = self._add_node(Node(told.node_id, told.host, told.port))
            self._known[kind, told.key] = number
            self._settle(lookups, told.key, lookup, number)
            if lookup.tries:
                self._network.watch.look()
            return
        code = ErrorCode.of(told.error_code)
        error = BrokerError(code, f"{kind.noun} {told.key!r}: {told.error_message or code.text}")
        lookup.last_cause = str(error)
        lookup.refusal = code
        lookup.tries += 1
        if not code.retriable:
            self._settle(lookups, told.key, lookup, error)
        self._network.watch.look()

    def _settle(self, lookups: dict[str, _Lookup], key: str, lookup: _Lookup, outcome: int | Exception) -> None:
        del lookups[key]
        if lookup.future.done():
            return
        if isinstance(outcome, Exception):
            lookup.future.set_exception(outcome)
            # All who waited may have given up in this very turn.
            lookup.future.exception()
        else:
            lookup.future.set_result(outcome)


def _trouble_text(kind: CoordinatorType, key: str, refusal: ErrorCode) -> str:
    said = f"the coordinator of {kind.noun} {key!r} is not found: the brokers answer {refusal.name} ({refusal.text})"
    if refusal is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
        return f"{said}; they are asked again"
    topic, factor = _STATE_TOPICS[kind]
    return (
        f"{said}; they are asked again. Check that the topic {topic} has leaders, or can be created: {factor} of the "
        "brokers must not be more than there are brokers"
    )


def _told(answer: FindCoordinatorResponse, asked: list[str]) -> list[Coordinator]:
    """The answer in its newer shape. Older ones do not name the key."""
    if answer.coordinators or len(asked) != 1:
        return answer.coordinators
    return [
        Coordinator(
            key=asked[0],
            node_id=answer.node_id,
            host=answer.host,
            port=answer.port,
            error_code=answer.error_code,
            error_message=answer.error_message,
        )
    ]
