"""Kafka and our node with an authorizer, and what somebody may do there: set in both, rule by rule.

Without authentication everybody is User:ANONYMOUS. So people are told apart by where they come from: rules name hosts,
and loopback has many addresses. One is the node itself, one an administrator, one the person whose rights are tried.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from barnabas.base.errors import LocalProtocolError
from barnabas.broker.handlers import controller_handlers
from barnabas.metadata.authorizer import CLUSTER_NAME, OPERATIONS, AclOperation, AclPermissionType, Resource
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.message import Request
from barnabas.wire.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.wire.messages.describe_acls import DescribeAclsRequest
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.schema import default_of
from tests.compat.authorization_cases import CASES, GROUP, OTHER_GROUP, TXN_ID, VICTIM
from tests.compat.brokers import OVERRIDES, OurServer
from tests.compat.duel import OWN, TOPIC, Ask, Side, differences, served_versions
from tests.compat.duel_data_cases import batch_of, commit_of, coordinator_of, produced
from tests.compat.samples import until
from tests.oracles.kafka_server import KafkaServer

_NODE, _PERSON, _ADMIN = "127.0.0.1", "127.0.0.2", "127.0.0.3"
_SOMEBODY = "User:ANONYMOUS"
_LITERAL, _ANY = 3, 1

SETTINGS = {
    **OVERRIDES,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Only until the first rules are there; from then on each kind of resource has some.
    "allow.everyone.if.no.acl.found": "true",
    # Nothing is created because somebody asks for it: there is one broker.
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "1",
}
#: What is compared although elsewhere it is each broker's own.
_COMPARED = frozenset(OWN) - {"authorizedOperations"}

#: What strangers may know: the versions. Kafka's controllers fail where they are asked for tokens and users.
_TOLD_TO_ALL = {ApiKey.API_VERSIONS, ApiKey.DESCRIBE_DELEGATION_TOKEN, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS}

#: By kind of resource, what the rules of the person are about.
_NAMES = {
    Resource.TOPIC: TOPIC,
    Resource.GROUP: GROUP,
    Resource.CLUSTER: CLUSTER_NAME,
    Resource.TRANSACTIONAL_ID: TXN_ID,
}


class Rule(NamedTuple):
    """What the person is allowed or denied."""

    resource: Resource
    name: str
    operation: AclOperation
    permission: AclPermissionType = AclPermissionType.ALLOW


def _all_but(left_out: tuple[Resource, AclOperation] | None = None) -> tuple[Rule, ...]:
    """Everything, operation by operation, but one."""
    return tuple(
        Rule(kind, CLUSTER_NAME if kind is Resource.CLUSTER else "*", operation)
        for kind in _NAMES
        for operation in OPERATIONS[kind]
        if (kind, operation) != left_out
    )


def states() -> dict[str, tuple[Rule, ...]]:
    """What the person may do, by what a test of it is called."""
    found: dict[str, tuple[Rule, ...]] = {"nothing": (), "everything": _all_but()}
    for kind, name in _NAMES.items():
        for operation in (AclOperation.ALL, *OPERATIONS[kind]):
            called = f"{operation.name} {kind.name}"
            found[f"only {called}"] = (Rule(kind, name, operation),)
            found[f"without {called}"] = _all_but((kind, operation))
            denied = Rule(kind, name, operation, AclPermissionType.DENY)
            found[f"denied {called}"] = (*_all_but(), denied)
        if kind is not Resource.CLUSTER:
            found[f"all {kind.name}s"] = (Rule(kind, "*", AclOperation.ALL),)
    del found["without ALL TOPIC"], found["without ALL GROUP"]
    del found["without ALL CLUSTER"], found["without ALL TRANSACTIONAL_ID"]
    return found


class Pair(NamedTuple):
    """A broker as the person sees it and as the administrator does."""

    person: Side
    admin: Side
    #: Where the controller listens.
    controller: str

    def close(self) -> None:
        self.person.close()
        self.admin.close()

    def on_controllers_listener(self) -> Side:
        """The person where only nodes should be."""
        return Side(self.controller, _PERSON)


@contextmanager
def both(folder: Path) -> Iterator[tuple[Pair, Pair]]:
    """Kafka and our node with the same topics, groups, transactional ids and rules."""
    ours_folder = folder / "ours"
    ours_folder.mkdir()
    with KafkaServer(folder / "kafka", SETTINGS) as kafka, _on_disk(ours_folder) as ours:
        places = ((kafka.bootstrap, kafka.controller), (ours.bootstrap, _other_listener(ours)))
        pairs = [Pair(Side(broker, _PERSON), Side(broker, _ADMIN), controller) for broker, controller in places]
        for pair in pairs:
            _prepare(pair)
        yield pairs[0], pairs[1]
        for pair in pairs:
            pair.close()


def _other_listener(ours: OurServer) -> str:
    """Where our node listens beside its bootstrap address: the system chose the port, and nobody tells it."""
    sockets = {os.readlink(each) for each in Path(f"/proc/{ours.pid}/fd").iterdir() if each.is_symlink()}
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    own = [each for each in listening if each[3] == "0A" and f"socket:[{each[9]}]" in sockets]
    ports = {int(each[1].partition(":")[2], 16) for each in own}
    (port,) = ports - {int(ours.bootstrap.rpartition(":")[2])}
    return f"{_NODE}:{port}"


def _on_disk(folder: Path) -> OurServer:
    return OurServer(folder, SETTINGS, ("--data-dir", str(folder / "data")))


def _prepare(pair: Pair) -> None:
    admin = pair.admin
    admin.create_topics()
    for ask, version in (
        (produced(batch_of()), 9),
        (coordinator_of(GROUP), 3),
        (coordinator_of(TXN_ID, 1), 3),
        (commit_of(GROUP), 9),
        (commit_of(OTHER_GROUP), 9),
        (CASES["init producer id"], 4),
        (CASES["init producer id: transactional"], 4),
    ):
        until(partial(_is_done, admin, ask, version))
    # All at once: the first rule about the cluster would lock out whoever has none.
    rules = [Rule(kind, CLUSTER_NAME if kind is Resource.CLUSTER else "*", AclOperation.ALL) for kind in _NAMES]
    answer = admin.call(
        CreateAclsRequest(creations=[_creation(rule, host) for rule in rules for host in (_NODE, _ADMIN)]), 3
    )
    assert not any(each.error_code for each in answer.results)
    pair.person.topic_ids = admin.topic_ids
    _allow(pair, ())


def _is_done(side: Side, ask: Ask, version: int) -> bool:
    answer = side.call(ask(side)[0], version)
    return "error_code=0" in repr(answer).replace("<ErrorCode.NONE: 0>", "0")


def _creation(rule: Rule, host: str, principal: str = _SOMEBODY) -> AclCreation:
    return AclCreation(
        resource_type=rule.resource,
        resource_name=rule.name,
        resource_pattern_type=_LITERAL,
        principal=principal,
        host=host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


def _allow(pair: Pair, rules: tuple[Rule, ...]) -> None:
    """Let the person have these rules and no others."""
    set_rules(pair.admin, rules, _PERSON)


def set_rules(admin: Side, rules: tuple[Rule, ...], host: str, principal: str = _SOMEBODY) -> None:
    """Let a principal have these rules from a host, and no others, and wait until the broker goes by them."""
    deletion = DeleteAclsFilter(**_all_of(host, principal))
    admin.call(DeleteAclsRequest(filters=[deletion]), 3)
    admin.call(CreateAclsRequest(creations=[_creation(rule, host, principal) for rule in rules]), 3)
    wait_for_rules(admin, rules, host, principal)


def wait_for_rules(admin: Side, rules: tuple[Rule, ...], host: str, principal: str = _SOMEBODY) -> None:
    """Wait until the broker goes by them; who is asked for changes may know of them before others do."""
    description = DescribeAclsRequest(**_all_of(host, principal))

    def is_in_force() -> bool:
        answer = admin.call(description, 3)
        found = {
            (resource.resource_type, resource.resource_name, each.operation, each.permission_type)
            for resource in answer.resources
            for each in resource.acls
        }
        return found == {tuple(map(_number, rule)) for rule in rules}

    until(is_in_force)


def _all_of(host: str, principal: str) -> dict[str, Any]:
    kinds = dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), _ANY)
    return {**kinds, "resource_name_filter": None, "principal_filter": principal, "host_filter": host}


def _number(value: object) -> object:
    return int(value) if isinstance(value, int) else value


def _restore(pair: Pair) -> None:
    """The topic that whoever may has deleted."""
    topic = CreatableTopic(name=VICTIM, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    pair.admin.call(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)

    def is_there() -> bool:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=VICTIM)], allow_auto_topic_creation=False)
        (found,) = pair.admin.call(request, 12).topics
        pair.person.topic_ids[VICTIM] = found.topic_id
        return not found.error_code and all(each.leader_id >= 0 for each in found.partitions)

    until(is_there)


def differences_for(kafka: Pair, ours: Pair, rules: tuple[Rule, ...]) -> list[str]:
    """What our node answers a person with these rules otherwise than Kafka does, over all cases and versions."""
    found = []
    for pair in (kafka, ours):
        _restore(pair)
        _allow(pair, rules)
    for name, ask in CASES.items():
        found += [f"{name}: {each}" for each in differences(kafka.person, ours.person, ask, _COMPARED)]
        if name.startswith("delete topics"):
            for pair in (kafka, ours):
                _restore(pair)
    return found


#: Enough of a side to be asked for a request.
_NOWHERE = cast(Side, SimpleNamespace(topic_ids={}))


def request_of(ask: Ask) -> Request:
    return ask(_NOWHERE)[0]


def answers_of_a_state() -> int:
    """How many answers are compared for each set of rules: requests by versions that can carry them."""
    found = 0
    for ask in CASES.values():
        forms = ask(_NOWHERE)
        for version in served_versions(forms[0]):
            found += any(_can_carry(form, version) for form in forms)
    return found


def _can_carry(request: Request, version: int) -> bool:
    try:
        request.encode(version)
    except LocalProtocolError:
        return False
    return True


def differences_for_strangers(kafka: Pair, ours: Pair) -> list[str]:
    """The same on the controllers' listener, for somebody who may do nothing: every API in every version."""
    for pair in (kafka, ours):
        _allow(pair, ())
    sides = [pair.on_controllers_listener() for pair in (kafka, ours)]
    found = []
    for handler in controller_handlers():
        if handler.API_KEY in _TOLD_TO_ALL:
            continue
        request = default_of(api(handler.API_KEY).request)
        if isinstance(request, DescribeAclsRequest):
            request.resource_type_filter = request.operation = request.permission_type = _ANY
        told = differences(sides[0], sides[1], lambda _, request=request: [request], _COMPARED)  # type: ignore[misc]
        found += [f"{handler.API_KEY.camel_name}: {each}" for each in told]
    for side in sides:
        side.close()
    return found
