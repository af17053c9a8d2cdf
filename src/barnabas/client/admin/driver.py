"""How a call of an admin becomes requests: where each key goes, what is tried again, when it ends.

A call has keys (topics, partitions, groups …). Each round finds out where the keys belong, sends one request to each
place, and reads what the answers say about each key. Keys whose error may pass go into the next round, until the time
of the call is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.client.core.cluster_view import ClusterView, Node
from barnabas.client.core.troubles import Trouble, listed
from barnabas.client.errors import ClientClosedError, ClientTimeoutError, KeyedError, WrongUseError
from barnabas.client.network_client import CoordinatorType
from barnabas.client.settings import AdminSettings
from barnabas.client.watch import Watch
from barnabas.net.backoff import grown
from barnabas.net.errors import (
    ChannelError,
    ConnectError,
    DisconnectedError,
    RefusedError,
    UnsupportedRequestError,
    address_text,
)
from barnabas.wire.apis import ApiKey
from barnabas.wire.message import Request

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")

#: What a broker may not have heard of yet, as a topic that was created a moment ago. Waiting for it as long as for a
#: controller would make every misspelt name a minute's silence.
MAYBE_NOT_YET: Final = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID))
_MAYBE_NOT_YET_TRIES: Final = 4

#: A change that was not made, for certain, and may be asked for again. Every other error of a change is for the caller:
#: one that timed out may have been made.
NOT_DONE: Final = frozenset(
    (
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
)
#: Everything that may pass.
MAY_PASS: Final = frozenset(code for code in ErrorCode if code.retriable)
MAX_VERSION: Final = 32767
_GRACE_MS: Final = 250
_NO_TIME: Final = ClientTimeoutError("no time was left")
_NONE_KNOWN: Final = "no broker is known yet"


class AdminNetwork(Protocol):
    """What calls need of the network; brokers and controllers are reached in different ways."""

    @property
    def view(self) -> ClusterView: ...

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def update_metadata(self, timeout_ms: float, *, is_asked_for: bool = False) -> ClusterView: ...

    def node(self, node_id: int) -> Node | None: ...

    def is_connected(self, node_id: int) -> bool: ...

    def in_flight(self, node_id: int) -> int: ...

    async def connect(self, node_id: int, timeout_ms: float | None = None) -> None: ...

    def version_of(self, node_id: int, request: type[Request]) -> int | None: ...

    def request(
        self, node_id: int, message: Request, *, version: int | None = None, timeout_ms: float | None = None
    ) -> Awaitable[Any]: ...

    async def coordinator(self, kind: CoordinatorType, key: str, timeout_ms: float) -> int: ...

    async def coordinators(self, kind: CoordinatorType, keys: Iterable[str], timeout_ms: float) -> dict[str, int]: ...

    def forget_coordinator(self, kind: CoordinatorType, key: str, why: str = "") -> None: ...


def several(keys: Iterable[K]) -> Iterable[K]:
    """The keys, unless one stands alone: a text is a series of texts, a partition one of its parts."""
    if isinstance(keys, (str, bytes)) or hasattr(keys, "_fields") or not isinstance(keys, Iterable):
        raise TypeError(f"a list is expected, such as [{keys!r}], not {keys!r} alone")
    return keys


class Call:
    """One call of a program: what it is, and how long it may still take."""

    __slots__ = ("_deadline_s", "_loop", "name", "timeout_ms", "trouble")

    def __init__(self, name: str, timeout_ms: float) -> None:
        self.name = name
        self.timeout_ms = timeout_ms
        #: Why it takes long; None if it does not.
        self.trouble: Trouble | None = None
        self._loop = asyncio.get_running_loop()
        self._deadline_s = self._loop.time() + timeout_ms / 1000

    @property
    def remaining_ms(self) -> float:
        return max(0.0, (self._deadline_s - self._loop.time()) * 1000)

    def timed_out(self, about: object, last: Exception | None) -> ClientTimeoutError:
        why = f"; the last failure: {last}" if last is not None else ""
        where = f" for {about}" if about != () else ""
        error = ClientTimeoutError(f"{self.name}{where} was not done within {self.timeout_ms:.0f} ms{why}")
        error.__cause__ = last
        return error


class RequestSpec(NamedTuple, Generic[KeyT]):
    """One request of a round: to whom, in which version, about which keys, and how long the broker may take.

    `node_id` names the connection: to a coordinator it is another one than to the same broker otherwise.
    """

    node_id: int
    node: Node
    version: int
    keys: list[KeyT]
    timeout_ms: int

    def unsupported(self, request: type[Request], what: str) -> UnsupportedRequestError:
        """The error for a wish that this broker's version of the request cannot express."""
        return unsupported(self.node, f"it offers {ApiKey(request.API_KEY).camel_name} {self.version}, and {what}")


@dataclass(slots=True)
class Located(Generic[K]):
    """Where keys belong; those that nobody is known for come with an error instead."""

    by_node: dict[int, list[K]]
    errors: dict[K, Exception]


class LookupStrategy(Protocol[K]):
    """A way to find out where keys belong."""

    async def locate(self, driver: AdminApiDriver, call: Call, keys: list[K]) -> Located[K]: ...

    def failed(self, driver: AdminApiDriver, key: K, error: Exception) -> None:
        """Forget what led to this failure."""
        ...


@dataclass(frozen=True, slots=True)
class AdminApiHandler(Generic[K, V]):
    """What is asked about keys, and how; see `AdminApiDriver.ask_each`."""

    route: LookupStrategy[K]
    request: type[Request]
    build: Callable[[RequestSpec[K]], Request]
    read: Callable[[RequestSpec[K], Any], Iterable[tuple[K, V | Exception]]]
    may_pass: frozenset[ErrorCode] = MAY_PASS
    max_version: int = MAX_VERSION
    one_by_one_below: int = 0


class Outcomes(NamedTuple, Generic[KeyT, ValueT]):
    """What became of each key."""

    results: dict[KeyT, ValueT]
    errors: dict[KeyT, Exception]


class AdminApiDriver:
    """Runs the calls of one admin. Guarantees: a call ends within its time, and says about each key how it ended."""

    def __init__(
        self, settings: AdminSettings, nodes: AdminNetwork, randomness: Random, watch: Watch | None = None
    ) -> None:
        self._watch = watch
        self._late_calls: dict[Call, None] = {}
        self.settings = settings
        self.nodes = nodes
        self.randomness = randomness
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = asyncio.Lock()
        self._is_started = False
        self._is_closed = False

    async def start(self) -> None:
        """Begin to keep up with the cluster, if that has not begun. Nobody is waited for."""
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise ClientClosedError("the admin was closed")
        if self._loop is not None and self._loop is not loop:
            raise WrongUseError("this admin belongs to another event loop: make one in each loop")
        self._loop = loop
        async with self._starting:
            if not self._is_started:
                await self.nodes.start()
                self._is_started = True

    @property
    def is_open(self) -> bool:
        """Whether it has begun and not ended."""
        return self._loop is not None and not self._is_closed

    async def close(self) -> None:
        """Calls that are under way end with `ClientClosedError`."""
        if not self._is_closed:
            self._is_closed = True
            await self.nodes.close()

    async def begin(self, name: str, timeout: float | None) -> Call:
        """Start the clock of a call, which may take so many seconds, or else `default.api.timeout.ms`."""
        await self.start()
        return Call(name, self.settings.default_api_timeout_ms if timeout is None else timeout * 1000)

    # -- rounds --------------------------------------------------------------------------------------------------

    async def ask_each(
        self,
        call: Call,
        keys: Iterable[K],
        route: LookupStrategy[K],
        request: type[Request],
        build: Callable[[RequestSpec[K]], Request],
        read: Callable[[RequestSpec[K], Any], Iterable[tuple[K, V | Exception]]],
        *,
        may_pass: frozenset[ErrorCode] = MAY_PASS,
        max_version: int = MAX_VERSION,
        one_by_one_below: int = 0,
    ) -> dict[K, V]:
        """What the answers say about each key, in the order of the keys. Raises as `settled` does.

        - `build` makes a request of a spec, `read` yields what the answer says about each of its keys; either may raise
          for all keys of the spec.
        - `may_pass`: after which errors a key is asked for again.
        - `max_version`: above it the request has a form that is not used here.
        - `one_by_one_below`: before this version a request holds one key.
        """
        asked = list(dict.fromkeys(several(keys)))
        question = AdminApiHandler(route, request, build, read, may_pass, max_version, one_by_one_below)
        return settled(asked, *await self.outcomes(call, asked, question))

    async def ask_one(
        self,
        call: Call,
        route: LookupStrategy[tuple[()]],
        request: type[Request],
        build: Callable[[RequestSpec[tuple[()]]], Request],
        read: Callable[[Any], V],
        *,
        may_pass: frozenset[ErrorCode] = MAY_PASS,
    ) -> V:
        """For a request about one thing: `read` returns what it says or raises `BrokerError`."""

        def read_it(spec: RequestSpec[tuple[()]], response: Any) -> Iterable[tuple[tuple[()], V | Exception]]:
            return [((), read(response))]

        return (await self.ask_each(call, [()], route, request, build, read_it, may_pass=may_pass))[()]

    async def outcomes(self, call: Call, asked: list[K], question: AdminApiHandler[K, V]) -> Outcomes[K, V]:
        """Results and errors by key; together they have all keys."""
        try:
            with self._expecting_error(call):
                return await self._outcomes(call, asked, question)
        finally:
            self._late_calls.pop(call, None)

    async def _outcomes(self, call: Call, asked: list[K], question: AdminApiHandler[K, V]) -> Outcomes[K, V]:
        results: dict[K, V] = {}
        errors: dict[K, Exception] = {}
        last: dict[K, Exception] = {}
        doubtful: set[K] = set()
        waiting, tries = asked, 0
        while waiting:
            outcome = await self._round(call, waiting, question)
            tries += 1
            again: list[K] = []
            for key in waiting:
                said = outcome.get(key, _NO_TIME)
                if not isinstance(said, Exception):
                    results[key] = said
                elif said is _NO_TIME:
                    again.append(key)
                elif is_worth_another_try(said, question.may_pass, tries):
                    question.route.failed(self, key, said)
                    again.append(key)
                    last[key] = said
                    if isinstance(said, DisconnectedError):
                        doubtful.add(key)
                else:
                    errors[key] = self._explained(said, key in doubtful)
            waiting = again
            self._note_trouble(call, tries, {key: last[key] for key in waiting if key in last}, not errors)
            if waiting and not await self._pause(call, tries, waiting, last, errors):
                break
        return Outcomes(results, errors)

    def _expecting_error(self, call: Call) -> AbstractContextManager[None]:
        return nullcontext() if self._watch is None else self._watch.expecting_error(call.remaining_ms)

    def _note_trouble(self, call: Call, tries: int, last: dict[K, Exception], is_well: bool) -> None:
        """Keep in mind why a call takes long. Of nodes that cannot be reached the network tells."""
        refused = {key: error for key, error in last.items() if isinstance(error, BrokerError)}
        if refused:
            about = listed([str(key) for key in refused if key != ()])
            what = f"{call.name}{f' for {about}' if about else ''}"
            call.trouble = Trouble(f"{what} is tried again: {next(iter(refused.values()))}", tries)
            self._late_calls[call] = None
        elif is_well:
            call.trouble = None
        if self._watch is not None and call in self._late_calls:
            self._watch.look()

    def troubles(self) -> dict[Hashable, Trouble]:
        """Of calls that are under way."""
        return {("call", call): call.trouble for call in self._late_calls if call.trouble is not None}

    def trouble_ended(self, kind: str, name: object) -> str | None:
        return f"{name.name} goes on" if isinstance(name, Call) and name.trouble is None else None

    def _explained(self, error: Exception, is_doubtful: bool) -> Exception:
        """An error for the caller, with what the broker cannot know about it."""
        if is_doubtful and isinstance(error, BrokerError):
            text = error.message or error.code.text
            return BrokerError(error.code, f"{text} (an earlier try broke off unanswered, and may have done this)")
        if isinstance(error, UnsupportedRequestError) and self.settings.bootstrap_controllers:
            return UnsupportedRequestError(
                error.address, f"{error.reason}: it is a controller, and this call may need brokers (bootstrap.servers)"
            )
        return error

    async def _round(self, call: Call, keys: list[K], question: AdminApiHandler[K, V]) -> dict[K, V | Exception]:
        """Locate all keys and ask for them once. Keys for which time ran out are not in the result."""
        outcome: dict[K, V | Exception] = {}
        try:
            # All parts have timeouts of their own, and tell more than that time is over; this one is for the rest.
            async with asyncio.timeout((call.remaining_ms + _GRACE_MS) / 1000):
                located = await question.route.locate(self, call, keys)
                outcome.update(located.errors)
                specs = (self._send_all(call, *place, question, outcome) for place in located.by_node.items())
                await asyncio.gather(*specs)
        except TimeoutError:
            pass
        except BarnabasError as failure:
            outcome.update((key, failure) for key in keys if key not in outcome)
        return outcome

    async def _pause(
        self,
        call: Call,
        tries: int,
        waiting: list[K],
        last: dict[K, Exception],
        errors: dict[K, Exception],
    ) -> bool:
        """Wait before the next round; false, with an error for each key, if there is none."""
        if await self.pause(call, tries):
            return True
        if self._is_closed:
            errors.update((key, ClientClosedError("the admin was closed")) for key in waiting)
        elif tries > self.settings.retries:
            errors.update((key, last.get(key) or call.timed_out(key, None)) for key in waiting)
        else:
            errors.update((key, call.timed_out(key, last.get(key))) for key in waiting)
        return False

    async def pause(self, call: Call, tries: int) -> bool:
        """Wait before another try; false if there shall be none."""
        if self._is_closed or tries > self.settings.retries:
            return False
        wait_ms = grown(self.settings.retry_backoff_ms, self.settings.retry_backoff_max_ms, tries - 1, self.randomness)
        if call.remaining_ms <= wait_ms:
            return False
        await asyncio.sleep(wait_ms / 1000)
        return True

    async def _send_all(
        self, call: Call, node_id: int, keys: list[K], question: AdminApiHandler[K, V], outcome: dict[K, V | Exception]
    ) -> None:
        """Ask one node about some keys; what it says, or what went wrong, goes into `outcome`."""
        try:
            version = min(await self.version(call, node_id, question.request), question.max_version)
        except BarnabasError as failure:
            outcome.update((key, failure) for key in keys)
            return
        if version >= question.one_by_one_below:
            await self._send_one(call, node_id, version, keys, question, outcome)
            return
        for key in keys:
            await self._send_one(call, node_id, version, [key], question, outcome)

    async def _send_one(
        self,
        call: Call,
        node_id: int,
        version: int,
        keys: list[K],
        question: AdminApiHandler[K, V],
        outcome: dict[K, V | Exception],
    ) -> None:
        spec = RequestSpec(node_id, self.node(node_id), version, keys, self.attempt_ms(call))
        try:
            said = dict(question.read(spec, await self.send(spec, question.build(spec))))
        except BarnabasError as failure:
            outcome.update((key, failure) for key in keys)
            return
        for key in keys:
            if key in said:
                outcome[key] = said[key]
            else:
                unsaid = f"{node_text(spec.node)} did not mention {key} in its answer"
                outcome[key] = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, unsaid)

    async def send(self, spec: RequestSpec[K], message: Request) -> Any:
        return await self.nodes.request(spec.node_id, message, version=spec.version, timeout_ms=spec.timeout_ms)

    def attempt_ms(self, call: Call) -> int:
        """How long one request may take."""
        return max(1, int(min(call.remaining_ms, self.settings.request_timeout_ms)))

    async def version(self, call: Call, node_id: int, request: type[Request]) -> int:
        """The version to use with a node; connects to learn it. Raises `UnsupportedRequestError` if there is none."""
        version = self.nodes.version_of(node_id, request)
        if version is None:
            await self.nodes.connect(node_id, self.attempt_ms(call))
            version = self.nodes.version_of(node_id, request)
        if version is None:
            raise ConnectError(node_text(self.node(node_id)), "the connection ended at once")
        return version

    # -- nodes ---------------------------------------------------------------------------------------------------

    @property
    def view(self) -> ClusterView:
        return self.nodes.view

    async def known_nodes(self, call: Call) -> ClusterView:
        """The cluster as it was last seen."""
        if not self.nodes.view.nodes:
            await self.nodes.update_metadata(call.remaining_ms)
        if not self.nodes.view.nodes:
            raise ConnectError(", ".join(self.settings.bootstrap_servers), _NONE_KNOWN)
        return self.nodes.view

    def node(self, node_id: int) -> Node:
        """The node, or one without an address for an id that is not (or not any more) in the cluster."""
        return self.nodes.node(node_id) or Node(node_id, "", -1)

    async def newest_view(self, call: Call, *, is_first: bool = False) -> ClusterView:
        """The cluster as it is now. What is the first question of a call need not wait, however often it is asked."""
        await self.nodes.update_metadata(call.remaining_ms, is_asked_for=is_first)
        return await self.known_nodes(call)


class Part:
    """One concern of the admin: the calls that belong together."""

    _driver: AdminApiDriver


def settled(asked: Sequence[K], results: dict[K, V], errors: dict[K, Exception]) -> dict[K, V]:
    """The results if all went well; else `KeyedError` with results and errors.

    Where one key was asked for, or all failed together as when nobody can be reached, the error itself is raised; so is
    that of the first node if what is asked for is unknown to all of them.
    """
    if not errors:
        return {key: results[key] for key in asked}
    first = next(iter(errors.values()))
    if not results and (
        all(each is first for each in errors.values())
        or all(isinstance(each, UnsupportedRequestError) for each in errors.values())
    ):
        raise first
    ordered = {key: errors[key] for key in asked if key in errors}
    raise KeyedError(ordered, {key: results[key] for key in asked if key in results})


def broker_error(code: int, message: str | None = None) -> BrokerError:
    return BrokerError(ErrorCode.of(code), message or None)


def raise_if_error(code: int, message: str | None = None) -> None:
    if code:
        raise broker_error(code, message)


def unsupported(node: Node, what: str) -> UnsupportedRequestError:
    return UnsupportedRequestError(node_text(node), what)


def node_text(node: Node) -> str:
    return address_text(node.host, node.port) if node.port >= 0 else f"broker {node.node_id}"


def is_worth_another_try(error: Exception, may_pass: frozenset[ErrorCode], tries: int) -> bool:
    if isinstance(error, BrokerError):
        return error.code in may_pass and (error.code not in MAYBE_NOT_YET or tries < _MAYBE_NOT_YET_TRIES)
    return isinstance(error, ChannelError) and not isinstance(error, RefusedError)
