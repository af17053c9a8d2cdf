"""The authorization matrix through each of three nodes: what a person may not is refused at all of them as it is at a
node that is alone, whether the broker itself decides or the controller, for a request that was forwarded to it.

Which of the nodes leads a partition, or coordinates a group, differs; who may not, is not told. So of each answer is
compared what says that somebody may not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import LocalProtocolError
from barnabas.metadata.authorizer import CLUSTER_NAME, AclOperation, Resource
from barnabas.testing import EmbeddedBroker, EmbeddedCluster
from barnabas.wire.apis import api
from barnabas.wire.json_form import to_json
from barnabas.wire.messages.create_acls import CreateAclsRequest
from tests.cluster.secured import jaas
from tests.compat import authorization_matrix as matrix
from tests.compat.authorization_cases import CASES
from tests.compat.authorization_matrix import Pair, Rule, states
from tests.compat.duel import CLOSED, Ask, Side

_NODE, _PERSON, _ADMIN = "127.0.0.1", "127.0.0.2", "127.0.0.3"
_STATES = states()
_SAMPLE = ("nothing", "only READ TOPIC", "only DESCRIBE CLUSTER", "denied DESCRIBE TOPIC")
_DENIALS = {each.value for each in ErrorCode if each.name.endswith("AUTHORIZATION_FAILED")}
_ELSEWHERE = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER}
_KINDS = (Resource.TOPIC, Resource.GROUP, Resource.CLUSTER, Resource.TRANSACTIONAL_ID)
_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "auto.create.topics.enable": "false",
}
#: Controllers serve nobody else before they know the rules.
_CONTROLLERS = {
    "super.users": "User:node",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": jaas("PLAIN", "node", "node-pw", {"node": "node-pw"}),
}


@pytest.fixture(scope="module")
def pairs() -> Iterator[list[Pair]]:
    """Of a node that is alone, and of each of three."""
    with (
        EmbeddedBroker(overrides=_SETTINGS) as alone,
        EmbeddedCluster(3, overrides=_SETTINGS | _CONTROLLERS) as cluster,
        ExitStack() as closing,
    ):
        places = [alone.bootstrap_servers, *map(cluster.bootstrap_of, cluster.nodes)]
        found = [Pair(Side(each, _PERSON), Side(each, _ADMIN), "") for each in places]
        for pair in found:
            closing.callback(pair.close)
        for pair in found[:2]:
            _prepare(pair)
        for pair in found[2:]:
            pair.person.topic_ids = pair.admin.topic_ids = found[1].admin.topic_ids
        yield found


def _prepare(pair: Pair) -> None:
    pair.admin.create_topics()
    pair.person.topic_ids = pair.admin.topic_ids
    rules = [Rule(kind, CLUSTER_NAME if kind is Resource.CLUSTER else "*", AclOperation.ALL) for kind in _KINDS]
    creations = [matrix._creation(rule, host) for rule in rules for host in (_NODE, _ADMIN)]
    answer = pair.admin.call(CreateAclsRequest(creations=creations), 3)
    assert not any(each.error_code for each in answer.results)


class Told(NamedTuple):
    """Where an answer says that somebody may not, and whether it says that another node has to be asked."""

    denials: frozenset[str]
    is_elsewhere: bool


def _told(side: Side, ask: Ask) -> Told:
    """Of the answer in the newest version that can say it."""
    forms = ask(side)
    served = api(forms[0].API_KEY).served
    for version in range(served.high, served.low - 1, -1):
        for form in forms:
            try:
                answer = side.call(form, version)
            except LocalProtocolError:
                continue
            if answer == CLOSED:
                return Told(frozenset([CLOSED]), is_elsewhere=False)
            found = to_json(answer, version)
            return Told(frozenset(_denials("", found)), is_elsewhere=not _ELSEWHERE.isdisjoint(_codes(found)))
    raise AssertionError("no version can say this")


def _codes(answer: Any) -> Iterator[int]:
    for key, value in answer.items():
        if "rrorCode" in key:
            yield value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                yield from _codes(each)


def _denials(path: str, answer: Any) -> Iterator[str]:
    if isinstance(answer, list):
        for each in answer:
            yield from _denials(path, each)
    elif isinstance(answer, dict):
        named = next((answer[key] for key in ("name", "topicName", "groupId", "resourceName") if answer.get(key)), "")
        for key, value in answer.items():
            if "rrorCode" in key and value in _DENIALS:
                yield f"{path}[{named}].{key}={ErrorCode.of(value).name}"
            yield from _denials(f"{path}[{named}].{key}", value)


@pytest.mark.parametrize(
    "name", [each if each in _SAMPLE else pytest.param(each, marks=pytest.mark.slow) for each in _STATES]
)
def test_who_may_not_is_refused_at_every_node_alike(pairs: list[Pair], name: str) -> None:
    alone, *nodes = pairs
    for pair in pairs[:2]:
        matrix.set_rules(pair.admin, _STATES[name], _PERSON)
    for pair in nodes:
        matrix.wait_for_rules(pair.admin, _STATES[name], _PERSON)
    found = []
    for called, ask in CASES.items():
        changes = called.startswith(("delete topics", "create", "elect", "alter"))
        if changes:
            matrix._restore(alone)
        expected = _told(alone.person, ask)
        for number, pair in enumerate(nodes, 1):
            if changes:
                matrix._restore(pair)
            told = _told(pair.person, ask)
            # Whose group is elsewhere is told that, and no more.
            is_same = told.denials < expected.denials if told.is_elsewhere else False
            if told.denials != expected.denials and not is_same:
                found.append(f"{called}: node {number} {sorted(told.denials)}, alone {sorted(expected.denials)}")
    assert found == []
