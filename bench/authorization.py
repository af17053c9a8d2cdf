"""What a decision about who may do what costs with many rules, and a Metadata request of 500 topics beside Kafka's.

A decision's ratio is its bound to its time: 5 µs with 7,000 rules over 500 topics, 20 µs with as many on one topic and
with 200,000 prefixed ones. The ratio of Metadata is Kafka's processor time to ours, for the same request and rules.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from tests.compat.duel import Side
from tests.compat.samples import until
from tests.oracles import missing

from barnabas.metadata.access_images import StandardAcl
from barnabas.metadata.authorizer import AclOperation, AclPermissionType, PatternType, Resource
from barnabas.metadata.standard_authorizer import AclIndex, StandardAuthorizer
from barnabas.wire.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.metadata import MetadataRequest
from bench.measure import Result, best_seconds
from bench.node_brokers import Barnabas, Broker, Kafka, cpu_seconds

TOPICS = 500
RULES = 7_000
PREFIXED = 200_000
_ASKED = 500
_OPERATIONS = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_SETTINGS = {"authorizer.class.name": _AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
#: Everybody is User:ANONYMOUS: rules tell them apart by their addresses.
_NODE, _READER, _ADMIN = "127.0.0.1", "127.0.0.2", "127.0.0.3"
_SOMEBODY = "User:ANONYMOUS"

_Question = tuple[str, str, AclOperation, Resource, str]


def run() -> Iterator[Result]:
    yield from _decisions()
    if missing() is None:
        yield _metadata(requests=300)


def run_quickly() -> Iterator[Result]:
    yield from _decisions()
    if missing() is None:
        yield _metadata(requests=50)


def _acl(name: str, principal: str, operation: AclOperation, pattern: PatternType, host: str = "*") -> StandardAcl:
    return StandardAcl(Resource.TOPIC, name, pattern, principal, host, operation, AclPermissionType.ALLOW)


def _decisions() -> Iterator[Result]:
    random = Random(21)
    literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
    spread = [_acl(f"topic-{n % TOPICS}", f"User:u{n}", _OPERATIONS[n % 3], literal) for n in range(RULES)]
    yield _decision("7,000 rules over 500 topics", spread, [f"topic-{n}" for n in range(TOPICS)], 5)
    one = [_acl("t", f"User:u{n // 7}", _OPERATIONS[n % 3], literal, f"10.0.{n % 7}.1") for n in range(RULES)]
    yield _decision("7,000 rules on one topic", one, ["t"] * _ASKED, 20)
    names = ["".join(random.choices("abcdef", k=random.randrange(5, 200))) + f"-{n}." for n in range(PREFIXED)]
    many = [_acl(name, f"User:u{n % 1000}", _OPERATIONS[n % 3], prefixed) for n, name in enumerate(names)]
    asked = [random.choice(names) + "topic" if n % 2 else f"other-{n}" for n in range(_ASKED)]
    yield _decision("200,000 prefixed rules", many, asked, 20)


def _decision(name: str, acls: Sequence[StandardAcl], topics: Sequence[str], bound_us: float) -> Result:
    authorizer = StandardAuthorizer()
    authorizer._index = AclIndex(acls)
    random = Random(22)
    questions: list[_Question] = [
        (f"User:u{random.randrange(1000)}", "10.0.0.1", _OPERATIONS[n % 3], Resource.TOPIC, topic)
        for n, topic in enumerate(topics)
    ]

    def decide() -> None:
        for each in questions:
            authorizer.is_allowed(*each)

    [seconds] = best_seconds(decide, clock=time.process_time)
    decision_us = seconds / len(questions) * 1e6
    return Result(f"a decision, {name}", bound_us / decision_us, 1.0, f"{decision_us:.2f} µs, bound {bound_us:g} µs")


def _metadata(requests: int) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        ours = Barnabas(Path(folder) / "ours", *(f"{name}={value}" for name, value in _SETTINGS.items()))
        theirs = Kafka(Path(folder) / "kafka", _SETTINGS)
        spent = [_metadata_ms(broker, requests) for broker in (ours, theirs)]
    detail = f"ours {spent[0]:.2f} ms of a core a request, Kafka {spent[1]:.2f} ms"
    return Result(f"Metadata of {TOPICS} topics with {RULES:,} rules", spent[1] / spent[0], None, detail)


def _metadata_ms(broker: Broker, requests: int) -> float:
    """Processor time of a broker for one request."""
    broker.prepare()
    broker.start()
    try:
        admin, reader = Side(broker.bootstrap, _ADMIN), Side(broker.bootstrap, _READER)
        _fill(admin)
        request = MetadataRequest(topics=None)
        until(lambda: len(reader.call(request, 12).topics) == TOPICS)
        for _ in range(requests):  # a JVM takes a while to be as fast as it gets
            reader.call(request, 12)
        before = cpu_seconds(broker.pid)
        for _ in range(requests):
            reader.call(request, 12)
        return (cpu_seconds(broker.pid) - before) / requests * 1000
    finally:
        broker.stop()


def _fill(admin: Side) -> None:
    """500 topics, 14 rules for each, of which one lets the reader see it."""
    topics = [
        CreatableTopic(name=f"topic-{n}", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for n in range(TOPICS)
    ]
    admin.call(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
    all_of = [(Resource.CLUSTER, "kafka-cluster"), (Resource.TOPIC, "*"), (Resource.GROUP, "*")]
    rules = [
        _creation(kind, name, _SOMEBODY, host, AclOperation.ALL) for kind, name in all_of for host in (_NODE, _ADMIN)
    ]
    per_topic = RULES // TOPICS
    for n in range(TOPICS):
        rules.append(_creation(Resource.TOPIC, f"topic-{n}", _SOMEBODY, _READER, AclOperation.READ))
        rules += [
            _creation(Resource.TOPIC, f"topic-{n}", f"User:u{n}-{other}", "*", _OPERATIONS[other % 3])
            for other in range(per_topic - 1)
        ]
    for start in range(0, len(rules), 1000):
        answer = admin.call(CreateAclsRequest(creations=rules[start : start + 1000]), 3)
        assert not any(each.error_code for each in answer.results)


def _creation(kind: Resource, name: str, principal: str, host: str, operation: AclOperation) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=AclPermissionType.ALLOW,
    )
