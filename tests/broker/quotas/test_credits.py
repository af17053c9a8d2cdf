"""Credits against a naive twin that looks at all samples for each request: the same waits, the same rates."""

from __future__ import annotations

import random
import struct

import pytest

from barnabas.base.quotas import QuotaWindow
from barnabas.base.runtime import ManualClock
from barnabas.broker.quotas.broker_quotas import BrokerQuotas
from barnabas.broker.quotas.client_quota_manager import ClientQuotaManager
from barnabas.metadata.access_images import ClientQuotaEntity, ClientQuotasImage
from barnabas.net._kernel.metering import RequestFields, RequestMeter

WINDOW = QuotaWindow(11, 1000)
PRODUCE, FETCH = 0, 1
KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
PERCENT_PER_MS = 0.1


class Sender(RequestFields):
    """As much of a connection as quotas look at."""

    principal = "User:ann"


class Desk:
    """Somebody who answers in frames, and the twins of its managers."""

    def __init__(self, **quotas: float) -> None:
        self.clock = ManualClock()
        self.clock.advance(5_000_000)
        self.meter = RequestMeter(lambda: self.clock.monotonic_ms() / 1000)
        self.quotas = BrokerQuotas(WINDOW, self.clock)
        self.twins = {key: ClientQuotaManager(key, WINDOW, 1000 if key == KEYS[2] else 2**31 - 1) for key in KEYS}
        self.covered = 0
        self.set(quotas)

    def set(self, quotas: dict[str, float]) -> None:
        image = ClientQuotasImage({ClientQuotaEntity((("user", "ann"),)): quotas})
        self.quotas.set_quotas(image)
        for twin in self.twins.values():
            twin.set_quotas(image)

    def begins(
        self, sender: Sender, api_key: int, size_bytes: int, took_ms: int = 0, client_id: bytes = b"shop"
    ) -> None:
        head = struct.pack(">hhih", api_key, 9, 1, len(client_id)) + client_id
        self.meter.turn_begins(0)
        self.meter.arrived(sender)
        self.meter.begins(sender, bytearray(head + bytes(size_bytes - len(head))))
        self.clock.advance(took_ms)

    def answers(self, sender: Sender, answer_bytes: int) -> int:
        allowance = self.quotas.allowance(sender)  # type: ignore[arg-type]
        if allowance.covers(sender, bytes(answer_bytes)):
            self.covered += 1
            return 0
        return self.quotas.frame_throttle_ms(sender, answer_bytes)  # type: ignore[arg-type]

    def twin_answers(self, api_key: int, size_bytes: int, answer_bytes: int, took_ms: int) -> int:
        key, value = (KEYS[0], size_bytes) if api_key == PRODUCE else (KEYS[1], answer_bytes)
        now_ms = self.clock.monotonic_ms()
        bandwidth_ms = self.twins[key].record("ann", "shop", value, now_ms)
        if not answer_bytes:
            return bandwidth_ms
        return max(bandwidth_ms, self.twins[KEYS[2]].record("ann", "shop", took_ms * PERCENT_PER_MS, now_ms))

    def rates(self) -> dict[str, float]:
        return {key: sum(rate for _, rate in filter(None, self.quotas.rates(key))) for key in KEYS}

    def twin_rates(self) -> dict[str, float]:
        now_ms = self.clock.monotonic_ms()
        return {key: sum(rate for _, rate in filter(None, twin.rates(now_ms))) for key, twin in self.twins.items()}


@pytest.mark.parametrize("seed", range(40))
def test_who_is_covered_would_not_have_had_to_wait_and_nothing_is_lost(seed: int) -> None:
    chance = random.Random(seed)
    desk = Desk(**{key: chance.choice((3_000.0, 100_000.0)) for key in KEYS[:2]}, request_percentage=30.0)
    senders = [Sender(), Sender()]
    for _ in range(400):
        desk.clock.advance(chance.choice((0, 0, 1, 5, 90, 400, 1000, chance.randint(0, 15_000))))
        api_key, took_ms = chance.choice((PRODUCE, FETCH)), chance.choice((0, 0, 1, 40))
        size_bytes = chance.randint(20, 5_000)
        answer_bytes = chance.choice((0, 50)) if api_key == PRODUCE else chance.randint(50, 5_000)
        if not answer_bytes:
            took_ms = 0  # of which nobody looks at the clock
        sender = chance.choice(senders)
        desk.begins(sender, api_key, size_bytes, took_ms)
        throttle_ms = desk.answers(sender, answer_bytes)
        assert throttle_ms == desk.twin_answers(api_key, size_bytes, answer_bytes, took_ms)
        if chance.random() < 0.1:
            assert desk.rates() == pytest.approx(desk.twin_rates())
        if chance.random() < 0.02:
            desk.set({key: float(chance.randint(1_000, 200_000)) for key in KEYS})
    assert desk.rates() == pytest.approx(desk.twin_rates())
    assert desk.covered > 40, "else nothing is shown"


def test_a_fetch_has_room_in_its_frame_only_if_all_that_it_may_bring_is_covered() -> None:
    desk, sender = Desk(consumer_byte_rate=25_000.0), Sender()
    desk.begins(sender, FETCH, 100)
    assert not desk.quotas.allowance(sender).has_room(sender), "nobody has looked yet"  # type: ignore[arg-type]
    assert desk.answers(sender, 1000) == 0
    assert desk.quotas.allowance(sender).has_room(sender)  # type: ignore[arg-type]
    assert desk.answers(sender, 60_000) == 0
    assert not desk.quotas.allowance(sender).has_room(sender), "189,000 bytes are left"  # type: ignore[arg-type]


def test_other_quotas_make_an_allowance_stale() -> None:
    desk, sender = Desk(producer_byte_rate=1000.0), Sender()
    desk.begins(sender, PRODUCE, 100)
    before = desk.quotas.allowance(sender)  # type: ignore[arg-type]
    assert desk.quotas.allowance(sender) is before is sender.allowance  # type: ignore[arg-type]
    desk.set({})
    assert before.is_stale
    assert desk.quotas.allowance(sender).covers(sender, bytes(10))  # type: ignore[arg-type]


def test_an_allowance_that_another_connection_had_replaced_ends_with_its_quotas_too() -> None:
    everybody = ClientQuotaEntity((("client-id", None),))
    desk, first, second = Desk(), Sender(), Sender()
    desk.quotas.set_quotas(ClientQuotasImage({everybody: {"producer_byte_rate": 1000.0}}))
    desk.begins(first, FETCH, 100)
    assert desk.answers(first, 1_000_000) == 0
    held = first.allowance
    desk.clock.advance(11_000)
    for number in range(70):  # whoever comes has those looked at who have been silent
        other = Sender()
        desk.begins(other, PRODUCE, 100, client_id=f"{number}".encode())
        desk.quotas.allowance(other)  # type: ignore[arg-type]
    desk.begins(second, PRODUCE, 100)
    assert desk.quotas.allowance(second) is not held  # type: ignore[arg-type]
    desk.quotas.set_quotas(ClientQuotasImage({everybody: {"producer_byte_rate": 1000.0, "consumer_byte_rate": 1000.0}}))
    desk.begins(first, FETCH, 100)
    assert first.allowance is held, "nobody told it"
    assert not held.has_room(first)
    assert not held.covers(first, bytes(1_000_000))
    assert desk.answers(first, 1_000_000) > 0
