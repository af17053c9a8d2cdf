"""Clients that call themselves by another name in every request: little is kept of them, and nobody else pays."""

from __future__ import annotations

import pytest

from barnabas.base.metrics.exposition import Exposition, whole_text
from barnabas.base.quotas import QuotaWindow, SampledRate
from barnabas.base.recently_used import MOST_KEPT
from barnabas.broker.metrics import quotas as quota_metrics
from barnabas.broker.quotas.client_quota_manager import ClientQuotaManager
from barnabas.metadata.access_images import ClientQuotaEntity, ClientQuotasImage
from barnabas.metadata.quota_limits import Owner

KEY = "producer_byte_rate"
WINDOW = QuotaWindow(11, 1000)
RATE = 1000.0
#: Of 10,000 bytes in a window, so many are far too much.
DEBT = 60_000.0


def manager_of(*entities: ClientQuotaEntity) -> ClientQuotaManager:
    manager = ClientQuotaManager(KEY, WINDOW)
    manager.set_quotas(image_of(*entities))
    return manager


def image_of(*entities: ClientQuotaEntity) -> ClientQuotasImage:
    return ClientQuotasImage({each: {KEY: RATE} for each in entities})


def by_id(client_id: str | None) -> ClientQuotaEntity:
    return ClientQuotaEntity((("client-id", client_id),))


ANY_ID = by_id(None)


def told(manager: ClientQuotaManager, now_ms: int) -> dict[Owner, float]:
    return dict(filter(None, manager.rates(now_ms)))


def lines_of(manager: ClientQuotaManager, now_ms: int) -> tuple[list[str], int, int]:
    """What a scrape tells, in how many steps, and how many lines were written in one of them at most."""
    out, steps, before, most = Exposition(), 0, 0, 0
    for _ in quota_metrics._add(out, quota_metrics.PRODUCED, manager.rates(now_ms)):
        steps += 1
        most, before = max(most, out.sample_count - before), out.sample_count
    lines = [line for line in whole_text(out).splitlines() if not line.startswith("#")]
    return lines, steps, most


def test_of_endless_client_ids_few_are_kept_and_each_costs_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    is_forgotten = SampledRate.is_forgotten

    def counted(rate: SampledRate, now_ms: int) -> bool:
        nonlocal looks
        looks += 1
        return is_forgotten(rate, now_ms)

    monkeypatch.setattr(SampledRate, "is_forgotten", counted)
    manager, most_looks = manager_of(ANY_ID), 0
    for number in range(200_000):
        before = looks
        manager.record("ann", f"c{number}", 100, number // 20)
        most_looks = max(most_looks, looks - before)
    assert most_looks <= 2
    assert len(told(manager, 10_000)) <= MOST_KEPT
    assert not told(manager, 60_000), "they are silent"
    assert lines_of(manager, 60_000) == ([], MOST_KEPT // 100 + 1, 0), "nothing is told of them, in many steps"


def test_who_is_silent_is_forgotten_while_others_come() -> None:
    manager = manager_of(ANY_ID)
    for number in range(1000):
        manager.record("ann", f"once-{number}", 100, 0)
    for number in range(1000):
        manager.record("ann", f"later-{number}", 100, 11_000)
    assert len(list(manager.rates(11_000))) == 1000


def test_below_the_bound_a_client_in_debt_keeps_its_debt_whoever_comes() -> None:
    manager = manager_of(ANY_ID)
    assert manager.record("ann", "greedy", DEBT, 0) == 50_000
    for number in range(MOST_KEPT - 1):
        manager.record("ann", f"c{number}", 100, number % 10_000)
    assert manager.record("ann", "greedy", 0, 10_000) > 0


def test_at_the_bound_who_goes_on_keeps_its_debt() -> None:
    manager = manager_of(ANY_ID)
    for number in range(100_000):
        if number % 1000 == 0:
            waits_ms = manager.record("ann", "greedy", DEBT / 100, number // 20)
        manager.record("ann", f"c{number}", 100, number // 20)
    assert waits_ms > 40_000


def test_the_credit_of_one_that_is_forgotten_ends() -> None:
    manager = manager_of(ANY_ID)
    manager.record("ann", "shop", 100, 0)
    credit = manager.credit_of("ann", "shop", 0)
    assert credit is not None
    assert not credit.is_gone
    for number in range(2 * MOST_KEPT):
        manager.record("ann", f"c{number}", 100, 1)
    assert credit.is_gone, "whoever holds it asks for another"


def test_who_has_just_come_is_not_forgotten_before_it_has_used_anything() -> None:
    manager = manager_of(ANY_ID)
    credits_ = [manager.credit_of("ann", f"c{number}", number) for number in range(1000)]
    assert not any(credit is None or credit.is_gone for credit in credits_)


def test_of_those_who_have_no_such_quota_any_more_nothing_is_told() -> None:
    manager = manager_of(by_id("shop"), by_id("till"))
    for client_id in ("shop", "till"):
        manager.record("ann", client_id, 10_000, 0)
    assert told(manager, 0) == {("", "shop"): 1000.0, ("", "till"): 1000.0}
    manager.set_quotas(image_of(by_id("till")))
    assert told(manager, 0) == {("", "till"): 1000.0}
    manager.set_quotas(image_of(ClientQuotaEntity((("user", None),)), by_id("till")))
    manager.record("ann", "till", 5000, 0)
    assert ("ann", "") in told(manager, 0), "her quota is the closer one now"


def test_the_largest_are_told_and_others_have_turns_in_between() -> None:
    manager = manager_of(ANY_ID)
    for number in range(5000):
        manager.record("ann", f"c{number}", number + 1, 0)
    lines, steps, most = lines_of(manager, 0)
    values = sorted(float(line.rpartition(" ")[2]) for line in lines)
    assert values == [pytest.approx(number / 10) for number in range(4001, 5001)]
    assert steps >= 50 + 10
    assert most <= 100
