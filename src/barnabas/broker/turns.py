"""Work on requests, cut into slices: whatever somebody asks for, the others get their turn every few milliseconds.

A handler whose work grows with its request, or with what the node holds, is a generator. It yields after each item, and
returns its answer. What it yields is None, or what it must have before it goes on:

- a future: what others do for it.
- `Room(size_bytes)`: memory for an answer that may be much larger than its question; once, before it is built.
- a `Crowd`: the request holds so many elements that only a few like it are worked on at a time. A few bytes of a
  request become hundreds in memory; so the node holds that many such heaps, whoever sends how many of them. The more
  elements, the fewer at a time, each crowd with a line of its own: the many do not wait for the huge.

The number of items in a slice is fixed, and no clock is asked: a simulated node does the same in every run.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar, cast, overload

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.metadata.options import MAX_RECORDS_PER_REQUEST
from barnabas.net import AnswerTooLargeError, Connection

T = TypeVar("T")
U = TypeVar("U")
H = TypeVar("H", bound=Hashable)

#: What the controller decides without a break: items, and settings or partitions of them.
_ITEMS_PER_PART: Final = 64
_COST_OF_PART: Final = 512
#: An item takes a handler up to some 50 µs, and 16 elements as long to be decoded. So a slice takes a few milliseconds,
#: and a turn, which may begin one request and go on with another, less than 10.
STEPS_PER_TURN: Final = 64


class Room(NamedTuple):
    """Yielded to have memory for an answer set aside: about as many bytes as it will take while it is built."""

    size_bytes: int


class Crowd(NamedTuple):
    """Yielded to be one of the requests with more than so many elements that are worked on."""

    more_than: int
    places: int


#: The smaller ones hold some hundred thousand elements together, the last a million.
CROWDS: Final = (Crowd(128, 32), Crowd(1000, 8), Crowd(10_000, 1))

Steps = Generator[Room | Crowd | asyncio.Future[Any] | None, None, T]


def crowd_of(elements: int) -> Crowd | None:
    """Which crowd a request belongs to; None if it is small."""
    return next((crowd for crowd in reversed(CROWDS) if elements > crowd.more_than), None)


class Turns:
    """Drives the work on requests. `then` gets what came out, and whether it took more than one turn."""

    def __init__(self) -> None:
        #: Who has a place in a crowd, and how the end of its connection is forgotten.
        self.placed: dict[Connection, tuple[Crowd, Callable[[], None]]] = {}
        self._taken: Counter[Crowd] = Counter()
        self._lines: dict[Crowd, deque[_Work]] = {crowd: deque() for crowd in CROWDS}

    def start(
        self,
        connection: Connection,
        steps: Steps[T],
        then: Callable[[T, bool], None],
        failed: Callable[[Exception], None],
        *,
        is_next: bool = False,
    ) -> None:
        """Do the first slice now, and the others in turns to come. If the peer is gone before, the rest is left undone.

        `is_next`: the first one in the next turn, since a slice was done in this. Neither of the callbacks may raise.
        """
        work = _Work(self, connection, steps, then, failed)
        if is_next:
            work.go_on_later()
        else:
            work.go_on()

    def future(self, connection: Connection, steps: Steps[T]) -> asyncio.Future[T]:
        """The same for those who wait, and whoever goes on then ends the waiting of the connection."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def then(outcome: T, was_long: bool) -> None:
            connection.wait_begins()
            if not done.done():
                done.set_result(outcome)

        def failed(failure: Exception) -> None:
            connection.wait_begins()
            if not done.done():
                done.set_exception(failure)

        self.start(connection, steps, then, failed)
        return done

    def finished(self, connection: Connection) -> None:
        """The request in process was answered, is given up, or waits for others: its place is for the next in line."""
        placed = self.placed.pop(connection, None)
        if placed is not None:
            crowd, forget = placed
            forget()
            self._taken[crowd] -= 1
            line = self._lines[crowd]
            while line and self.has_place(crowd):
                line.popleft().go_on_if_placed(crowd)

    def has_place(self, crowd: Crowd) -> bool:
        return self._taken[crowd] < crowd.places

    def take_place(self, work: _Work, crowd: Crowd) -> bool:
        """Have a place in this crowd, in place of one in a smaller one; if there is none, wait for it without any."""
        connection = work.connection
        placed = self.placed.get(connection)
        if placed is not None and placed[0] >= crowd:
            return True
        self.finished(connection)
        if not self.has_place(crowd):
            self._lines[crowd].append(work)
            return False
        self._taken[crowd] += 1
        self.placed[connection] = crowd, connection.on_close(lambda: self.finished(connection))
        return True


class _Work:
    """The work on one request."""

    __slots__ = ("_failed", "_is_long", "_steps", "_then", "_turns", "connection")

    def __init__(
        self,
        turns: Turns,
        connection: Connection,
        steps: Steps[T],
        then: Callable[[T, bool], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.connection = connection
        self._turns = turns
        self._steps = steps
        self._then = then
        self._failed = failed
        self._is_long = False

    def go_on(self) -> None:
        """One slice."""
        if self._is_long and self.connection.is_closed:
            self._give_up()
            return
        self.connection.wait_ends()
        steps = self._steps
        try:
            for _ in range(STEPS_PER_TURN):
                asked = next(steps)
                if asked is not None and not self._gets(asked):
                    self._is_long = True
                    return
        except StopIteration as end:
            self._then(end.value, self._is_long)
        except Exception as failure:
            self._failed(failure)
        else:
            self.go_on_later()

    def go_on_if_placed(self, crowd: Crowd) -> None:
        """There is a place for it, if its peer is still there."""
        if self.connection.is_closed:
            self._give_up()
        elif self._turns.take_place(self, crowd):
            self.go_on_later()

    def go_on_later(self, _: object = None) -> None:
        """One slice, when others had their turn: what they take is not its own time."""
        self._is_long = True
        self.connection.wait_begins()
        self.connection.go_on_later(self.go_on)

    def _gets(self, asked: Room | Crowd | asyncio.Future[Any]) -> bool:
        """Whether what it asks for is there. If not, the work goes on when it is."""
        if isinstance(asked, asyncio.Future):
            gets = asked.done()
            if not gets:
                asked.add_done_callback(self.go_on_later)
        elif isinstance(asked, Crowd):
            gets = self._turns.take_place(self, asked)
        else:
            gets = self._gets_room(asked)
        if not gets:
            self.connection.wait_begins()
        return gets

    def _gets_room(self, room: Room) -> bool:
        try:
            return self.connection.ask_room(room.size_bytes, self.go_on_later)
        except AnswerTooLargeError as refusal:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"{refusal}: ask for less at a time") from None

    def _give_up(self) -> None:
        self._steps.close()
        self._turns.finished(self.connection)
        self.connection.finish_without_response()


def each_of(items: Iterable[T], one: Callable[[T], U]) -> Steps[list[U]]:
    """What `one` makes of each item, an item a step."""
    made = []
    for item in items:
        made.append(one(item))
        yield None
    return made


def chunks(items: list[T], size: int) -> Iterator[list[T]]:
    """The items in lists of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def parts_for_the_controller(
    items: list[T], key: Callable[[T], Hashable], cost: Callable[[T], int]
) -> Steps[list[list[T]]]:
    """What the controller is asked to decide, in parts that it decides without a break.

    Those with equal keys are in one part, so that it sees what is named twice; more than two of them say no more.
    """
    by_key: dict[Hashable, list[T]] = {}
    total = 0
    for item in items:
        equal = by_key.setdefault(key(item), [])
        if len(equal) < 2:
            equal.append(item)
            total += cost(item)
        yield None
    if len(items) <= _ITEMS_PER_PART and (total <= _COST_OF_PART or total > MAX_RECORDS_PER_REQUEST):
        # As one, also if that is too much for one request: then it is refused as one.
        return [items]
    parts: list[list[T]] = []
    room = 0
    for equal in by_key.values():
        yield None
        room -= sum(map(cost, equal))
        if not parts or room < 0 or len(parts[-1]) >= _ITEMS_PER_PART:
            parts.append([])
            room = _COST_OF_PART - sum(map(cost, equal))
        parts[-1] += equal
    return parts


def once_each(items: Iterable[H]) -> Steps[list[H]]:
    """The items without those that are named again."""
    found: dict[H, None] = {}
    for item in items:
        found[item] = None
        yield None
    return list(found)


@overload
def settled(answer: asyncio.Future[T]) -> Steps[T]: ...
@overload
def settled(answer: T | asyncio.Future[T]) -> Steps[T]: ...
def settled(answer: Any) -> Steps[Any]:
    """An answer, once it is there."""
    return (yield from awaited(answer)) if isinstance(answer, asyncio.Future) else answer


def awaited(answer: Awaitable[T]) -> Steps[T]:
    """What others do, once it is done."""
    deciding = asyncio.ensure_future(answer)
    # If whoever asked is gone by then, nobody else hears of a failure, and nobody need.
    deciding.add_done_callback(_heard)
    yield deciding
    if deciding.cancelled():
        raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, "what the request waited for was given up")
    return deciding.result()


async def driven(steps: Steps[T]) -> T:
    """What comes of steps that no connection asked for: the node's own are few and small, so they get what they ask."""
    taken = 0
    while True:
        try:
            asked = next(steps)
        except StopIteration as end:
            return cast(T, end.value)
        taken += 1
        if isinstance(asked, asyncio.Future):
            if not asked.done():
                await asyncio.wait([asked])
        elif taken % STEPS_PER_TURN == 0:
            await asyncio.sleep(0)


def room_for(size_bytes: int) -> Steps[None]:
    """Nothing but the room."""
    yield Room(size_bytes)


def in_crowd(crowd: Crowd, steps: Steps[T]) -> Steps[T]:
    """The steps, once there is a place for them."""
    yield crowd
    return (yield from steps)


def _heard(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()


def spent(items: int) -> Steps[None]:
    """Several items were handled at once."""
    for _ in range(items):
        yield None
