"""Quotas of users, client ids and addresses: changed, told, found."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.metadata.access_images import ClientQuotaEntity, ClientQuotasImage
from barnabas.metadata.client_quotas import CLIENT_ID, IP, USER, ClientQuotaFilter, alter_client_quotas
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.quota_limits import QuotaLimit, QuotaLimits
from barnabas.metadata.replay import ImageBuilder
from barnabas.metadata.snapshot import image_records
from barnabas.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

Entry = tuple[ClientQuotaEntity, list[tuple[str, float | None]]]


def entity(**names: str | None) -> ClientQuotaEntity:
    return ClientQuotaEntity(tuple((kind.replace("_", "-"), name) for kind, name in names.items()))


def request(*entries: Entry, validate_only: bool = False) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in whose.names],
                ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
            )
            for whose, ops in entries
        ],
        validate_only=validate_only,
    )


def altered(image: ClusterImage, asked: AlterClientQuotasRequest) -> tuple[ClusterImage, list[tuple[int, str | None]]]:
    outcome = alter_client_quotas(image.client_quotas, asked)
    builder = ImageBuilder(image)
    for record in outcome.records:
        builder.replay(record)
    return builder.build(0, 0), [(each.error_code, each.error_message) for each in outcome.response.entries]


DONE = (ErrorCode.NONE, None)


def test_quotas_come_change_and_go() -> None:
    ann = entity(user="ann", client_id="shop")
    image, answer = altered(
        ClusterImage(),
        request(
            (ann, [("producer_byte_rate", 1000.0), ("request_percentage", 12.5)]),
            (entity(user=None), [("consumer_byte_rate", 5.0)]),
            (entity(ip="10.0.0.1"), [("connection_creation_rate", 3.0)]),
        ),
    )
    assert answer == [DONE] * 3
    assert dict(image.client_quotas) == {
        ann: {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
        entity(user=None): {"consumer_byte_rate": 5.0},
        entity(ip="10.0.0.1"): {"connection_creation_rate": 3.0},
    }
    image, answer = altered(
        image,
        request(
            (entity(client_id="shop", user="ann"), [("producer_byte_rate", 2000.0), ("request_percentage", None)]),
            (entity(user=None), [("consumer_byte_rate", None), ("producer_byte_rate", None)]),
        ),
    )
    assert answer == [DONE] * 2
    assert dict(image.client_quotas) == {
        ann: {"producer_byte_rate": 2000.0},
        entity(ip="10.0.0.1"): {"connection_creation_rate": 3.0},
    }
    assert image.client_quotas.has_any("producer_byte_rate")
    assert not image.client_quotas.has_any("consumer_byte_rate")
    again = ImageBuilder(ClusterImage())
    for record in image_records(image):
        again.replay(record)
    assert again.build(0, 0).client_quotas == image.client_quotas


def test_what_stays_the_same_or_is_only_checked_makes_no_record() -> None:
    image, _ = altered(ClusterImage(), request((entity(user="ann"), [("producer_byte_rate", 1000.0)])))
    same = request((entity(user="ann"), [("producer_byte_rate", 1000.0), ("consumer_byte_rate", None)]))
    assert alter_client_quotas(image.client_quotas, same).records == []
    checked = request((entity(user="ann"), [("producer_byte_rate", 1.0)]), validate_only=True)
    outcome = alter_client_quotas(image.client_quotas, checked)
    assert (outcome.records, outcome.response.entries[0].error_code) == ([], ErrorCode.NONE)


@pytest.mark.parametrize(
    ("whose", "key", "value", "message"),
    [
        (entity(), "producer_byte_rate", 1.0, "Invalid empty client quota entity"),
        (entity(group="g"), "producer_byte_rate", 1.0, "Unhandled client quota entity type: group"),
        (entity(user=""), "producer_byte_rate", 1.0, "Empty user not supported"),
        (
            entity(user="ann", ip="1.2.3.4"),
            "producer_byte_rate",
            1.0,
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        (
            entity(ip="nobody.here"),
            "connection_creation_rate",
            1.0,
            "nobody.here is not a valid IP or resolvable host.",
        ),
        (entity(ip="1.2.3.4"), "producer_byte_rate", 1.0, "Invalid configuration key producer_byte_rate"),
        (entity(user="ann"), "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        (entity(user="ann"), "speed", 1.0, "Invalid configuration key speed"),
        (entity(user="ann"), "producer_byte_rate", 0.5, "producer_byte_rate cannot be a fractional value."),
        (
            entity(user="ann"),
            "producer_byte_rate",
            1e19,
            "Proposed value for producer_byte_rate is too large for a LONG.",
        ),
        (entity(user="ann"), "request_percentage", -1.0, "Quota request_percentage must be greater than 0"),
        (entity(user="ann"), "request_percentage", float("nan"), "Quota request_percentage must be greater than 0"),
        (
            entity(ip=None),
            "connection_creation_rate",
            2.0**31,
            "Proposed value for connection_creation_rate is too large for an INT.",
        ),
    ],
)
def test_nonsense_is_refused_in_kafkas_words(whose: ClientQuotaEntity, key: str, value: float, message: str) -> None:
    good = entity(client_id="good")
    image, answer = altered(
        ClusterImage(),
        request((whose, [("controller_mutation_rate", None), (key, value)]), (good, [("request_percentage", 1.0)])),
    )
    assert answer == [(ErrorCode.INVALID_REQUEST, message), DONE]
    assert list(image.client_quotas) == [good], "others are changed all the same"


def test_who_is_named_twice_is_changed_once() -> None:
    ann = entity(user="ann", client_id=None)
    asked = request((ann, [("request_percentage", 1.0)]), (ann, [("request_percentage", 2.0)]))
    image, answer = altered(ClusterImage(), asked)
    told = "Ignoring duplicate entity ClientQuotaEntity(entries={user=ann, client-id=null})"
    assert answer == [(ErrorCode.INVALID_REQUEST, told)]
    assert image.client_quotas[ann] == {"request_percentage": 1.0}
    asked = request((ann, [("request_percentage", 3.0), ("request_percentage", None)]))
    image, answer = altered(image, asked)
    assert answer == [(ErrorCode.INVALID_REQUEST, told)]
    assert image.client_quotas[ann] == {"request_percentage": 1.0}


# Telling

ALL = [
    dict(zip(kinds, names, strict=True))
    for kinds in ((USER,), (CLIENT_ID,), (USER, CLIENT_ID), (IP,))
    for names in itertools.product(("a", "b", None), repeat=len(kinds))
]


def wanted(*components: tuple[str, int, str | None], strict: bool = False) -> list[dict[str, str | None]]:
    chosen = ClientQuotaFilter(
        DescribeClientQuotasRequest(
            components=[
                ComponentData(entity_type=kind, match_type=how, match=match) for kind, how, match in components
            ],
            strict=strict,
        )
    )
    return [each for each in ALL if chosen.matches(ClientQuotaEntity(tuple(each.items())))]


def test_a_filter_finds_names_defaults_and_kinds() -> None:
    assert wanted() == ALL
    assert wanted(strict=True) == []
    assert wanted((USER, 0, "a"), strict=True) == [{USER: "a"}]
    assert wanted((USER, 0, "a")) == [each for each in ALL if each.get(USER) == "a"]
    assert wanted((USER, 1, None), (CLIENT_ID, 0, "b")) == [{USER: None, CLIENT_ID: "b"}]
    assert wanted((USER, 2, None), strict=True) == [{USER: "a"}, {USER: "b"}, {USER: None}]
    assert wanted((IP, 2, None)) == [each for each in ALL if IP in each]
    assert wanted((USER, 0, "nobody")) == []


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", 0, "a")], ErrorCode.INVALID_REQUEST),
        ([("group", 0, "a")], ErrorCode.UNSUPPORTED_VERSION),
        ([(USER, 0, "a"), (USER, 2, None)], ErrorCode.INVALID_REQUEST),
        ([(USER, 0, None)], ErrorCode.INVALID_REQUEST),
        ([(USER, 1, "a")], ErrorCode.INVALID_REQUEST),
        ([(USER, 2, "a")], ErrorCode.INVALID_REQUEST),
        ([(USER, 3, None)], ErrorCode.INVALID_REQUEST),
        ([(USER, 0, "a"), (IP, 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_filter_of_nonsense_is_refused(components: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    with pytest.raises(BrokerError) as refusal:
        wanted(*components)
    assert refusal.value.code is code


# Finding

KEY = "producer_byte_rate"
#: Kafka's order, from its documentation: whose quota holds, and who is measured together.
ORDER = (
    ("ann", "shop", ("ann", "shop")),
    ("ann", None, ("ann", "shop")),
    ("ann", "", ("ann", "")),
    (None, "shop", ("ann", "shop")),
    (None, None, ("ann", "shop")),
    (None, "", ("ann", "")),
    ("", "shop", ("", "shop")),
    ("", None, ("", "shop")),
)


def holder(user: str | None, client_id: str | None) -> ClientQuotaEntity:
    """Empty names are left out."""
    return ClientQuotaEntity(tuple((kind, name) for kind, name in ((USER, user), (CLIENT_ID, client_id)) if name != ""))


@given(st.sets(st.integers(0, len(ORDER) - 1)), st.sets(st.integers(0, len(ORDER) - 1)))
def test_the_closest_quota_holds(set_ones: set[int], of_others: set[int]) -> None:
    quotas = ClientQuotasImage()
    for place, (user, client_id, _) in enumerate(ORDER):
        values = {KEY: 10.0 + place} if place in set_ones else {}
        if place in of_others:
            values["consumer_byte_rate"] = 1.0
        if values:
            quotas = quotas.set(holder(user, client_id), values)
    found = QuotaLimits(quotas, KEY).of("ann", "shop")
    first = min(set_ones, default=None)
    assert found == (None if first is None else QuotaLimit(ORDER[first][2], 10.0 + first))


def test_of_endless_names_little_is_kept_and_they_are_told_apart() -> None:
    known, stranger, another = (f"{'x' * 30_000}{each}" for each in "012")
    limits = QuotaLimits(
        ClientQuotasImage({entity(client_id=known): {KEY: 1.0}, entity(client_id=None): {KEY: 2.0}}), KEY
    )
    found = [limits.of("ann", each) for each in (known, stranger, another, known)]
    assert [each and each.bound for each in found] == [1.0, 2.0, 2.0, 1.0]
    owners = {each.owner for each in found if each is not None}
    assert len(owners) == 3
    assert max(len(client_id) for _, client_id in owners) <= 256


def test_who_has_no_client_id_has_no_quota_by_client_id() -> None:
    quotas = ClientQuotasImage({entity(client_id=None): {KEY: 1.0}, entity(user="ann", client_id=None): {KEY: 2.0}})
    limits = QuotaLimits(quotas, KEY)
    assert (limits.of("ann", ""), limits.of("bob", "")) == (None, None)
    assert limits.of("bob", "shop") == QuotaLimit(("", "shop"), 1.0)
