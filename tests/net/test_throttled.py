"""How long clients have waited for their quotas, and how long they wait yet: it grows with time, and ends with them."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from barnabas.net import Connection
from barnabas.net.throttled import ThrottledClients, ThrottledWait
from tests.net.worlds import Desk, Peer, run_simulated, started

ANN = ("User:ann", "till")


def told(throttled: ThrottledClients, now_s: float, client: tuple[str, str] = ANN) -> tuple[int, float]:
    found = throttled.told(client, now_s)
    assert found is not None
    return found.total_ms, found.left_ms


def test_what_was_waited_grows_with_time() -> None:
    throttled = ThrottledClients()
    wait = throttled.begin(*ANN, 100.0, 3700.0)
    assert told(throttled, 100.0) == (0, 3_600_000)
    assert told(throttled, 160.0) == (60_000, 3_540_000)
    throttled.end(wait, 3700.0)
    assert told(throttled, 9000.0) == (3_600_000, 0)


def test_a_client_waits_as_long_as_the_last_of_its_connections() -> None:
    throttled = ThrottledClients()
    first, second = throttled.begin(*ANN, 0.0, 10.0), throttled.begin(*ANN, 0.0, 50.0)
    assert told(throttled, 5.0) == (10_000, 45_000)
    throttled.end(second, 5.0)
    assert told(throttled, 5.0) == (10_000, 5_000), "the other one has ended"
    throttled.end(first, 6.0)
    assert told(throttled, 8.0) == (11_000, 0)


def test_of_too_many_those_are_dropped_first_that_do_not_wait() -> None:
    throttled = ThrottledClients()
    waits = [throttled.begin("User:ann", f"waits-{number}", 0.0, 100.0) for number in range(900)]
    for number in range(500):
        throttled.end(throttled.begin("User:ann", f"over-{number}", 1.0, 2.0), 2.0)
    kept = throttled.clients()
    assert len(kept) == 1000
    assert [client_id for _, client_id in kept[:900]] == [f"waits-{number}" for number in range(900)]
    assert kept[-1] == ("User:ann", "over-499")
    more = [throttled.begin("User:ann", f"more-{number}", 3.0, 100.0) for number in range(500)]
    assert len(throttled.clients()) == 1000
    assert throttled.told(("User:ann", "waits-0"), 3.0) is None
    for wait in waits + more:
        throttled.end(wait, 50.0)
    again = throttled.begin("User:ann", "waits-0", 60.0, 70.0)
    assert told(throttled, 61.0, ("User:ann", "waits-0")) == (1000, 9000), "it begins anew"
    throttled.end(again, 61.0)
    assert len(throttled.clients()) == 1000


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 3), st.floats(0, 9)), max_size=40))
def test_what_was_waited_never_becomes_less(steps: list[tuple[float, int, float]]) -> None:
    throttled, now_s, before = ThrottledClients(), 1e6 / 3, 0
    live: list[ThrottledWait] = []
    for passes_s, what, lasts_s in steps:
        now_s += passes_s
        if what and live:
            throttled.end(live.pop(what % len(live)), now_s)
        else:
            live.append(throttled.begin(*ANN, now_s, now_s + lasts_s))
        total_ms = told(throttled, now_s)[0]
        assert total_ms >= before
        before = total_ms


def test_a_client_that_has_left_waits_no_more() -> None:
    async def story() -> None:
        desk = Desk()

        def answer(connection: Connection, frame: bytes) -> None:
            connection.mute_for(1000)
            connection.mute_for(int(frame))
            connection.mute_for(2000)
            connection.respond([frame])

        desk.answer = answer
        server = await started(desk)
        loop, throttled = asyncio.get_running_loop(), server.throttled

        def found() -> tuple[float, float]:
            (client,) = throttled.clients()
            total_ms, left_ms = told(throttled, loop.time(), client)
            return round(total_ms / 1000, 1), round(left_ms / 1000, 1)

        leaves, stays = await Peer.connect(server), await Peer.connect(server)
        await leaves.ask(b"3600000")
        await stays.ask(b"30000")
        await asyncio.sleep(10)
        assert found() == (20, 3590)
        leaves.transport.close()
        await asyncio.sleep(1)
        assert found() == (21, 19)
        await asyncio.sleep(60)
        assert found() == (40, 0), "it is served again"
        await server.stop(100)

    run_simulated(story)
