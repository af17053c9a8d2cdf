"""What both brokers are asked about quotas: sense and nonsense, set and told."""

from __future__ import annotations

from barnabas.wire.messages import alter_client_quotas as alter
from barnabas.wire.messages import describe_client_quotas as describe
from tests.compat.duel import Ask

_EXACT, _DEFAULT, _ANY = 0, 1, 2

Parts = tuple[tuple[str, str | None], ...]
ANN: Parts = (("user", "ann"),)
SHOP: Parts = (("client-id", "shop"),)
HERE: Parts = (("ip", "127.0.0.1"),)


def _alter(*entries: tuple[Parts, dict[str, float | None]], validate_only: bool = False) -> Ask:
    wanted = [
        alter.EntryData(
            entity=[alter.EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
            ops=[alter.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()],
        )
        for parts, ops in entries
    ]
    return lambda _side: [alter.AlterClientQuotasRequest(entries=wanted, validate_only=validate_only)]


def _twice(parts: Parts, key: str) -> Ask:
    """A key twice in one entry."""
    operations = [alter.OpData(key=key, value=value, remove=False) for value in (1.0, 2.0)]
    entity = [alter.EntityData(entity_type=kind, entity_name=name) for kind, name in parts]
    entries = [alter.EntryData(entity=entity, ops=operations)]
    return lambda _side: [alter.AlterClientQuotasRequest(entries=entries, validate_only=False)]


def _describe(*components: tuple[str, int, str | None], strict: bool = False) -> Ask:
    wanted = [describe.ComponentData(entity_type=kind, match_type=how, match=match) for kind, how, match in components]
    return lambda _side: [describe.DescribeClientQuotasRequest(components=wanted, strict=strict)]


#: In this order: what is set is told by those that follow.
QUOTAS: dict[str, Ask] = {
    "none yet": _describe(),
    "set: user": _alter((ANN, {"producer_byte_rate": 1e6, "request_percentage": 250.5})),
    "set: the same again": _alter((ANN, {"producer_byte_rate": 1e6})),
    "set: several": _alter(
        (SHOP, {"consumer_byte_rate": 5e6}),
        (ANN + SHOP, {"controller_mutation_rate": 0.5}),
        ((("user", None),), {"consumer_byte_rate": 7e6}),
        ((("user", "ann"), ("client-id", None)), {"consumer_byte_rate": 8e6}),
        ((("user", "dot.ted/sl%ash"),), {"request_percentage": 1e12}),
    ),
    "set: address": _alter((HERE, {"connection_creation_rate": 1000.0})),
    "set: host name": _alter(((("ip", "localhost"),), {"connection_creation_rate": 1000.0})),
    "set: any address": _alter(((("ip", None),), {"connection_creation_rate": 2147483647.0})),
    "check alone": _alter((ANN, {"producer_byte_rate": 5.0}), validate_only=True),
    "check alone: nonsense": _alter((ANN, {"producer_byte_rate": -5.0}), validate_only=True),
    "remove": _alter((ANN, {"request_percentage": None})),
    "remove: not there": _alter(((("user", "nobody"),), {"request_percentage": None})),
    "remove: unknown key": _alter((ANN, {"speed": None})),
    "nobody asked": _alter(),
    "no keys": _alter((ANN, {})),
    "bad: no entity": _alter(((), {"producer_byte_rate": 1.0})),
    "bad: entity type": _alter(((("group", "g"),), {"producer_byte_rate": 1.0})),
    "bad: empty name": _alter(((("user", ""),), {"producer_byte_rate": 1.0})),
    "bad: empty client": _alter(((("client-id", ""),), {"producer_byte_rate": 1.0})),
    "bad: address and user": _alter((ANN + HERE, {"producer_byte_rate": 1.0})),
    "bad: address and client": _alter((HERE + SHOP, {"connection_creation_rate": 1.0})),
    "bad: no such host": _alter(((("ip", "no.such.host.invalid"),), {"connection_creation_rate": 1.0})),
    "bad: address": _alter(((("ip", "1.2.3.4.5"),), {"connection_creation_rate": 1.0})),
    "bad: key": _alter((ANN, {"speed": 1.0})),
    "bad: key of addresses": _alter((ANN, {"connection_creation_rate": 1.0})),
    "bad: key of users": _alter((HERE, {"producer_byte_rate": 1.0})),
    "bad: zero": _alter((ANN, {"producer_byte_rate": 0.0})),
    "bad: negative": _alter((ANN, {"request_percentage": -1.0})),
    "bad: negative mutations": _alter((ANN, {"controller_mutation_rate": -1.0})),
    "bad: fraction": _alter((ANN, {"consumer_byte_rate": 1.5})),
    "nearly whole": _alter((ANN, {"consumer_byte_rate": 5e6 + 1e-7})),
    "bad: too large": _alter((ANN, {"producer_byte_rate": 1e19})),
    "the largest": _alter((ANN, {"producer_byte_rate": float(2**63 - 1)})),
    "bad: too large for addresses": _alter((HERE, {"connection_creation_rate": 2147483648.0})),
    "bad: infinite": _alter((ANN, {"producer_byte_rate": float("inf")})),
    "bad: connections by halves": _alter((HERE, {"connection_creation_rate": 0.5})),
    "bad: key twice": _twice(ANN, "request_percentage"),
    "bad: entity twice": _alter((ANN, {"request_percentage": 100.0}), (ANN, {"request_percentage": 200.0})),
    "bad: one of two": _alter((ANN, {"speed": 1.0}), (SHOP, {"consumer_byte_rate": 6e6})),
    "bad: one key of two": _alter((ANN, {"controller_mutation_rate": 10.0, "producer_byte_rate": 0.0})),
    "told: all": _describe(),
    "told: all, strict": _describe(strict=True),
    "told: user": _describe(("user", _EXACT, "ann")),
    "told: user, strict": _describe(("user", _EXACT, "ann"), strict=True),
    "told: default user": _describe(("user", _DEFAULT, None), strict=True),
    "told: any user": _describe(("user", _ANY, None)),
    "told: any user, strict": _describe(("user", _ANY, None), strict=True),
    "told: any user and client": _describe(("user", _ANY, None), ("client-id", _ANY, None), strict=True),
    "told: user and default client": _describe(("user", _EXACT, "ann"), ("client-id", _DEFAULT, None)),
    "told: addresses": _describe(("ip", _ANY, None)),
    "told: an address": _describe(("ip", _EXACT, "127.0.0.1"), strict=True),
    "told: nobody": _describe(("user", _EXACT, "nobody")),
    "told: the empty name": _describe(("user", _EXACT, "")),
    "told, bad: no type": _describe(("", _EXACT, "ann")),
    "told, bad: type": _describe(("group", _EXACT, "ann")),
    "told, bad: twice": _describe(("user", _EXACT, "ann"), ("user", _ANY, None)),
    "told, bad: exactly nothing": _describe(("user", _EXACT, None)),
    "told, bad: a default with a name": _describe(("user", _DEFAULT, "ann")),
    "told, bad: any with a name": _describe(("user", _ANY, "ann")),
    "told, bad: match": _describe(("user", 3, None)),
    "told, bad: match below": _describe(("user", -1, None)),
    "told, bad: address and user": _describe(("ip", _ANY, None), ("user", _ANY, None)),
}
