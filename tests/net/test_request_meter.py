"""Requests are counted once, with the parts of their times."""

from __future__ import annotations

from struct import pack

from barnabas.net import RequestFields, RequestMeter

_PRODUCE = 0
_QUEUE, _LOCAL, _REMOTE, _THROTTLE, _RESPONSE_QUEUE, _RESPONSE_SEND, _TOTAL = range(7)


class World:
    def __init__(self) -> None:
        self.now_s = 1.0
        self.meter = RequestMeter(lambda: self.now_s)

    def passes(self, ms: float) -> None:
        self.now_s += ms / 1000


def frame(key: int = _PRODUCE, version: int = 9, client_id: bytes | None = b"me") -> bytearray:
    size_bytes = -1 if client_id is None else len(client_id)
    return bytearray(pack(">hhih", key, version, 77, size_bytes) + (client_id or b"") + b"body")


def ms(ns: int) -> float:
    return round(ns / 1e6, 3)


def test_each_part_of_a_request_has_its_time() -> None:
    world, request = World(), RequestFields()
    told: list[tuple[float, ...]] = []
    world.meter.observe(
        lambda each: told.append((ms(each.queue_time_ns), ms(each.local_time_ns), ms(each.total_time_ns)))
    )
    world.meter.arrived(request)
    world.passes(1)
    end_ns = world.meter.turn_begins(2_000_000)
    world.meter.begins(request, frame())
    world.passes(2)
    request.wait_begins()
    world.passes(4)
    request.wait_ends()
    world.passes(8)
    assert ms(request.charge_ns()) == 10
    assert request.is_charged
    assert request.charge_ns() == 0, "nothing is charged twice"
    request.throttle_time_ms = 5
    request.response_is_ready(100)
    assert not world.meter.has_time(end_ns)
    world.passes(16)
    world.meter.arrived(RequestFields())  # somebody else's, which does not read the clock again
    request.response_is_leaving()
    world.passes(32)
    request.response_has_left()
    request.response_has_left()
    counts = world.meter.counts_of(_PRODUCE)
    assert counts is not None
    count, request_bytes, largest_bytes, response_bytes, versions, parts = counts
    assert (count, request_bytes, largest_bytes, response_bytes) == (1, 16, 16, 100)
    assert versions == {9: 1}
    assert ms(parts[_QUEUE][0]) == 1
    assert ms(parts[_LOCAL][0]) == 10
    assert ms(parts[_REMOTE][0]) == 4
    assert ms(parts[_THROTTLE][0]) == 5
    assert ms(parts[_TOTAL][0]) == ms(parts[_TOTAL][1]) == 63
    assert told == [(1, 10, 63)]
    assert [request.api_key, request.api_version, request.correlation_id, request.client_id] == [0, 9, 77, "me"]
    assert world.meter.keys == [_PRODUCE]


def test_a_request_that_comes_after_a_silence_was_not_in_the_queue_before() -> None:
    world, waiting, later = World(), RequestFields(), RequestFields()
    world.meter.arrived(waiting)
    world.meter.turn_begins(0)
    world.meter.begins(waiting, frame())
    waiting.wait_begins()
    world.meter.turn_ends()
    world.passes(1)
    waiting.wait_ends()  # between turns, as a timer does it
    waiting.response_is_ready(10)
    waiting.response_has_left()
    world.passes(5000)
    world.meter.arrived(later)
    world.passes(2)
    world.meter.turn_begins(0)
    world.meter.begins(later, frame())
    later.response_is_ready(10)
    later.response_has_left()
    assert ms(later.queue_time_ns) == 2


def test_times_fall_into_buckets_that_double() -> None:
    world = World()
    for wait_us in (0.0, 1.0, 1.5, 3.0, 5.0, 1e12):
        request = RequestFields()
        world.meter.arrived(request)
        world.meter.turn_begins(0)
        world.meter.begins(request, frame())
        world.passes(wait_us / 1000)
        request.response_is_ready(0)
        request.response_has_left()
    counts = world.meter.counts_of(_PRODUCE)
    assert counts is not None
    buckets = counts[5][_LOCAL][2]
    assert buckets[:4] == [2, 1, 1, 1]
    assert buckets[-1] == 1
    assert sum(buckets) == counts[0] == 6


def test_what_was_not_answered_is_not_counted_and_nonsense_harms_nobody() -> None:
    world, request = World(), RequestFields()
    world.meter.begins(request, frame())
    request.response_has_left()
    for nonsense in (
        b"",
        b"\0",
        pack(">hhih", 5, 1, 1, 30000),
        pack(">hhih", -7, 99, 1, -1),
        pack(">hhih", 3000, -1, 1, 0),
    ):
        world.meter.arrived(request)
        world.meter.begins(request, bytearray(nonsense))
        request.response_is_ready(1)
        request.response_has_left()
    assert world.meter.keys == [5]
    assert world.meter.counts_of(-1) is None
    world.meter.begins(request, frame(client_id=None))
    assert request.client_id is None
    world.meter.begins(request, frame(client_id=b"\xff"))
    assert request.client_id == "�"


def test_another_name_slow_ones_and_observers_that_fail() -> None:
    world = World()
    slow: list[int] = []

    def fail(request: RequestFields) -> None:
        raise ZeroDivisionError

    world.meter.observe(fail)
    stop = world.meter.observe(lambda each: slow.append(each.total_time_ns), slower_than_ns=1_000_000)
    for wait_ms in (0, 2):
        request = RequestFields()
        world.meter.arrived(request)
        world.meter.begins(request, frame(1))
        request.count_also_as(120)
        world.passes(wait_ms)
        request.response_is_ready(3)
        request.response_has_left()
    assert [ms(each) for each in slow] == [2]
    assert world.meter.keys == [1, 120]
    stop()
    world.meter.is_recording = False
    world.meter.begins(request, frame(1))
    request.response_is_ready(3)
    request.response_has_left()
    assert (world.meter.counts_of(1) or (0,))[0] == 2
    assert len(slow) == 1
