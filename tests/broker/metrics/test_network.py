"""Very many connections and clients are told of in slices, while they come and go."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from barnabas.base.metrics.exposition import Exposition, whole_text
from barnabas.broker.metrics import network
from barnabas.net.throttled import ThrottledClients


def connections(count: int, name: str) -> list[SimpleNamespace]:
    return [SimpleNamespace(listener="A", client_software=(name, "1"), is_closed=False) for _ in range(count)]


def test_connections_are_counted_in_slices_and_those_that_end_meanwhile_are_not() -> None:
    out, crowd = Exposition(), connections(1000, "one") + connections(1000, "two")
    server: Any = SimpleNamespace(connections=iter(list(crowd)))
    steps = 0
    for _ in network._add_software(server, out):
        steps += 1
        for each in crowd[-100:]:
            each.is_closed = True
    assert steps >= 10
    text = whole_text(out)
    assert 'clientSoftwareName="one",clientSoftwareVersion="1",listener="A"} 1000' in text
    assert 'clientSoftwareName="two",clientSoftwareVersion="1",listener="A"} 900' in text


def test_clients_that_wait_are_told_in_slices_while_they_come_and_go() -> None:
    async def story() -> None:
        throttled, out = ThrottledClients(), Exposition()
        server: Any = SimpleNamespace(throttled=throttled)
        now_s = asyncio.get_running_loop().time()
        waits = [throttled.begin("User:ann", f"c{number}", now_s, now_s + 3600) for number in range(1000)]
        throttled.end(waits.pop(), now_s)
        before = most = 0
        for _ in network._add_throttled(server, out):
            most, before = max(most, out.sample_count - before), out.sample_count
            throttled.end(waits.pop(), now_s)
            waits.insert(0, throttled.begin("User:bob", f"c{before}", now_s, now_s + 3600))
        assert 0 < most <= 2 * 10
        assert out.sample_count <= 2 * 1000

    asyncio.run(story())
