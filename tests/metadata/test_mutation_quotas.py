"""Buckets of those who have partitions created: they are there as long as they say anything, and not longer."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from barnabas.base.errors import BrokerError
from barnabas.base.quotas import QuotaWindow
from barnabas.base.recently_used import MOST_KEPT
from barnabas.metadata.access_images import ClientQuotaEntity, ClientQuotasImage
from barnabas.metadata.mutation_quotas import ControllerMutationQuota, ControllerMutationQuotas
from barnabas.wire.messages.create_topics import CreateTopicsRequest

WINDOW = QuotaWindow(11, 1000)


@dataclass(frozen=True)
class Client:
    client_id: str
    principal: str = "User:ann"
    client_host: str = "127.0.0.1"
    is_own: bool = False
    is_token_authenticated: bool = False


def per_second(rate: float, client_id: str | None = None) -> ClientQuotasImage:
    return ClientQuotasImage({ClientQuotaEntity((("client-id", client_id),)): {"controller_mutation_rate": rate}})


ONE_PER_SECOND = per_second(1.0)


def quota_of(
    quotas: ControllerMutationQuotas, client_id: str, now_ms: int, image: ClientQuotasImage = ONE_PER_SECOND
) -> ControllerMutationQuota:
    quota = quotas.of(image, WINDOW, CreateTopicsRequest(topics=[]), 7, Client(client_id), now_ms)
    assert quota is not None
    return quota


def owners(quotas: ControllerMutationQuotas, now_ms: int) -> set[str]:
    return {client_id for (_, client_id), _ in filter(None, quotas.tokens(now_ms))}


def test_buckets_that_are_full_again_are_forgotten_although_somebody_looks_at_them_all_the_time() -> None:
    quotas = ControllerMutationQuotas()
    for number in range(64):
        quota_of(quotas, f"once-{number}", 0).take(12)
    quota_of(quotas, "often", 0).take(100)
    for now_ms in range(0, 12_000, 500):
        assert len(owners(quotas, now_ms)) == 65
    for number in range(64):
        quota_of(quotas, f"later-{number}", 12_000).take(1)
    assert owners(quotas, 12_000) == {"often"} | {f"later-{number}" for number in range(64)}
    with pytest.raises(BrokerError):
        quota_of(quotas, "often", 12_000).take(1)


def test_of_endless_client_ids_few_buckets_are_kept() -> None:
    quotas = ControllerMutationQuotas()
    for number in range(3 * MOST_KEPT):
        quota_of(quotas, f"c{number}", number // 20).take(12)
    assert len(owners(quotas, 1500)) <= MOST_KEPT
    assert not owners(quotas, 60_000), "they are full again"


def test_a_long_debt_is_kept_and_hides_nobody_who_has_none() -> None:
    quotas = ControllerMutationQuotas()
    quota_of(quotas, "greedy", 0).take(10_000)
    for number in range(3 * MOST_KEPT):
        quota_of(quotas, f"c{number}", number).take(1)
    assert len(list(quotas.tokens(3 * MOST_KEPT))) < MOST_KEPT / 2, "full ones are forgotten all the time"
    with pytest.raises(BrokerError):
        quota_of(quotas, "greedy", 3 * MOST_KEPT).take(1)


def test_buckets_of_those_who_have_no_quota_any_more_are_forgotten() -> None:
    quotas = ControllerMutationQuotas()
    for number in range(64):
        quota_of(quotas, f"once-{number}", 0).take(12)
    quota_of(quotas, "new", 0, per_second(1.0, "new")).take(12)
    assert owners(quotas, 0) == {"new"}
    assert len(list(quotas.tokens(0))) == 63, "whoever comes has two of them forgotten"


def test_what_came_back_until_somebody_was_refused_came_at_the_rate_of_then() -> None:
    quotas = ControllerMutationQuotas()
    quota_of(quotas, "shop", 0).take(21)
    with pytest.raises(BrokerError):
        quota_of(quotas, "shop", 9000).take(1)
    with pytest.raises(BrokerError):
        quota_of(quotas, "shop", 9000, per_second(10.0)).take(1)
    quota_of(quotas, "shop", 9100, per_second(10.0)).take(1)
