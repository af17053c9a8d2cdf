"""Kafka and our node with users that log in, and delegation tokens: who may create, see, renew and expire whose.

Tokens are for those who have shown who they are, so these people do, by PLAIN: an administrator, somebody who owns
tokens, and the person whose rights are tried. Whatever the person gets is expired again before the next question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from barnabas.metadata.authorizer import CLUSTER_NAME, OPERATIONS, AclOperation, AclPermissionType, Resource
from barnabas.wire.message import Request
from barnabas.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from barnabas.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from barnabas.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.compat.authorization_matrix import Rule, set_rules
from tests.compat.brokers import OVERRIDES, OurServer
from tests.compat.duel import OWN, Ask, Side, differences_in, served_versions
from tests.compat.mock_cluster import Connection
from tests.compat.samples import until
from tests.oracles.kafka_server import KafkaServer
from tests.ports import free_ports

_USERS: Final = {"admin": "admin-pw-7Qx~", "ann": "ann-pw-7Qx~", "person": "person-pw-7Qx~"}
_OWNER, _PERSON = "User:ann", "User:person"
#: What stands for the first token of the owner in rules: its id is another one at each broker.
_TOKEN: Final = "a token"
_HOUR_MS: Final = 3_600_000
#: Drawn, or told by a clock.
_COMPARED: Final = frozenset(OWN) | {
    *("tokenId", "hmac", "issueTimestampMs", "expiryTimestampMs", "maxTimestampMs"),
    *("issueTimestamp", "expiryTimestamp", "maxTimestamp"),
}


class TokenSide(Side):
    """Somebody who has logged in at a broker. `hmacs` has the owner's tokens, and `made` what this one was given."""

    def __init__(self, bootstrap: str, user: str) -> None:
        self._user = user
        self.hmacs: dict[str, bytes] = {}
        self.made: list[bytes] = []
        super().__init__(bootstrap)

    def _connect(self) -> Connection:
        connection = super()._connect()
        connection.call(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, 1)
        shown = SaslAuthenticateRequest(auth_bytes=f"\0{self._user}\0{_USERS[self._user]}".encode())
        assert connection.call(shown, SaslAuthenticateResponse, 2).error_code == 0
        return connection

    def call(self, request: Request, version: int) -> Any:
        answer = super().call(request, version)
        if isinstance(request, CreateDelegationTokenRequest) and not answer.error_code:
            self.made.append(answer.hmac)
        return answer

    def seen(self) -> list[Any]:
        found: list[Any] = self.call(DescribeDelegationTokenRequest(owners=None), 3).tokens
        return found


class Tokens(NamedTuple):
    """A broker as each of the three sees it."""

    admin: TokenSide
    owner: TokenSide
    person: TokenSide
    #: By what rules call it.
    ids: Mapping[str, str]

    def allow(self, rules: tuple[Rule, ...]) -> None:
        named = tuple(rule._replace(name=self.ids.get(rule.name, rule.name)) for rule in rules)
        set_rules(self.admin, named, "*", _PERSON)

    def clear(self) -> None:
        """Expire what the person was given, its own and what it asked for in others' names."""
        made = set(self.person.made)
        if not made:
            return
        # A broker hears of a token a moment after whoever asked for it.
        until(lambda: made <= {token.hmac for token in self.admin.seen()})
        for hmac in made:
            for side in (self.owner, self.person):
                side.call(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1), 2)
        until(lambda: not made & {token.hmac for token in self.admin.seen()})
        self.person.made.clear()


def _settings(port: int, controller: int) -> dict[str, str]:
    users = "".join(f' user_{name}="{password}"' for name, password in _USERS.items())
    return {
        **OVERRIDES,
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "controller.quorum.voters": f"0@127.0.0.1:{controller}",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="admin" password="{_USERS["admin"]}"{users};'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # On the controllers' listener nodes are nobody in particular.
        "super.users": "User:admin;User:ANONYMOUS",
        "delegation.token.secret.key": "token-key-7Qx~",
    }


@contextmanager
def both(folder: Path) -> Iterator[tuple[Tokens, Tokens]]:
    """Kafka and our node with the same users and tokens."""
    ours_folder = folder / "ours"
    ours_folder.mkdir()
    ports = free_ports(4)
    server = KafkaServer(folder / "kafka", _settings(*ports[:2]))
    server._port = ports[0]
    with server, OurServer(ours_folder, _settings(*ports[2:])):
        places = [_prepared(f"127.0.0.1:{port}") for port in (ports[0], ports[2])]
        yield places[0], places[1]
        for place in places:
            for side in (place.admin, place.owner, place.person):
                side.close()


def _prepared(bootstrap: str) -> Tokens:
    """With two tokens of the owner, the second of which the person may renew."""
    admin, owner, person = (TokenSide(bootstrap, each) for each in _USERS)
    ids = {}
    for called, renewers in ((_TOKEN, ()), ("renewable", ("person",))):
        request = CreateDelegationTokenRequest(
            renewers=[CreatableRenewers(principal_type="User", principal_name=each) for each in renewers],
            max_lifetime_ms=24 * _HOUR_MS,
        )
        until(lambda request=request: not owner.call(request, 3).error_code)  # type: ignore[misc]
        ids[called], person.hmacs[called] = _newest(owner)
    return Tokens(admin, owner, person, ids)


def _newest(owner: TokenSide) -> tuple[str, bytes]:
    hmac = owner.made[-1]
    found = until(lambda: [each for each in owner.seen() if each.hmac == hmac])
    return found[0].token_id, hmac


# What is asked


def _create(owner: str | None = None, *renewers: str) -> CreateDelegationTokenRequest:
    return CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else "User",
        owner_principal_name=owner,
        renewers=[CreatableRenewers(principal_type="User", principal_name=each) for each in renewers],
        max_lifetime_ms=_HOUR_MS,
    )


def _described(*owners: str) -> DescribeDelegationTokenRequest:
    named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=each) for each in owners]
    return DescribeDelegationTokenRequest(owners=named or None)


def requests(person: TokenSide) -> dict[str, Request]:
    hmacs = {"the owner's": person.hmacs[_TOKEN], "a renewable": person.hmacs["renewable"], "an unknown": b"unknown"}
    found: dict[str, Request] = {
        "create": _create(None, "bob"),
        "create in the owner's name": _create("ann", "bob"),
        "create in an unknown name": _create("nobody", "person"),
        "describe all": _described(),
        "describe the owner's": _described("ann"),
        "describe its own": _described("person"),
        "describe several's": _described("person", "ann", "nobody"),
        "describe none": DescribeDelegationTokenRequest(owners=[]),
    }
    for called, hmac in hmacs.items():
        found[f"renew {called}"] = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=_HOUR_MS)
        found[f"expire {called}"] = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=_HOUR_MS)
    return found


# What the person may do

_NAMES: Final = {Resource.USER: _OWNER, Resource.DELEGATION_TOKEN: _TOKEN}


def _all_but(left_out: tuple[Resource, AclOperation] | None = None) -> tuple[Rule, ...]:
    return tuple(
        Rule(kind, "*", operation) for kind in _NAMES for operation in OPERATIONS[kind] if (kind, operation) != left_out
    )


def states() -> dict[str, tuple[Rule, ...]]:
    """What the person may do, by what a test of it is called."""
    found: dict[str, tuple[Rule, ...]] = {
        "nothing": (),
        "everything": _all_but(),
        "only ALL CLUSTER": (Rule(Resource.CLUSTER, CLUSTER_NAME, AclOperation.ALL),),
        "only ALL of itself": (Rule(Resource.USER, _PERSON, AclOperation.ALL),),
    }
    for kind, name in _NAMES.items():
        found[f"all {kind.name}s"] = (Rule(kind, "*", AclOperation.ALL),)
        for operation in (AclOperation.ALL, *OPERATIONS[kind]):
            called = f"{operation.name} {kind.name}"
            found[f"only {called}"] = (Rule(kind, name, operation),)
            found[f"denied {called}"] = (*_all_but(), Rule(kind, name, operation, AclPermissionType.DENY))
            if operation is not AclOperation.ALL:
                found[f"without {called}"] = _all_but((kind, operation))
    return found


def _asking(name: str) -> Ask:
    return lambda side: [requests(cast(TokenSide, side))[name]]


def differences_for(kafka: Tokens, ours: Tokens, rules: tuple[Rule, ...]) -> tuple[list[str], int]:
    """What our node answers the person otherwise than Kafka does; and how many answers were compared."""
    found, compared = [], 0
    for place in (kafka, ours):
        place.allow(rules)
    for name, request in requests(kafka.person).items():
        for version in served_versions(request):
            told = differences_in(kafka.person, ours.person, _asking(name), version, _COMPARED)
            if told is not None:
                compared += 1
                found += [f"{name}: {each}" for each in told]
            for place in (kafka, ours):
                place.clear()
    return found, compared
