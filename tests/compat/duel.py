"""Two brokers that are asked the same: Apache Kafka and our node. What they answer is compared field by field.

Left out of the comparison is what may differ: names that are drawn at random, ports, times, and the wording of messages
for people (whether there is one is compared).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from barnabas.base.errors import LocalProtocolError
from barnabas.base.ids import Uuid
from barnabas.wire.apis import api
from barnabas.wire.json_form import to_json
from barnabas.wire.message import Request
from barnabas.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.compat.brokers import OVERRIDES, OurServer
from tests.compat.mock_cluster import Connection
from tests.oracles.kafka_server import KafkaServer

CLOSED = "the connection was closed"
TOPIC, COMPACTED = "duel", "duel-compacted"
ZERO, UNKNOWN_ID = Uuid(bytes(16)), Uuid(bytes(range(1, 17)))

#: Whose values are the broker's own; only whether they are there is compared.
OWN = {
    "authorizedOperations",
    "clientHost",
    "clusterId",
    "documentation",
    "host",
    "lastCaughtUpTimestamp",
    "lastFetchTimestamp",
    "logDir",
    "logEndOffset",
    "memberId",
    "partitionSize",
    "port",
    "producerId",
    "replicaDirectoryId",
    "sessionId",
    "topicId",
    "totalBytes",
    "usableBytes",
}

#: For people. Ours may say more than Kafka, never less.
TOLD = {"errorMessage", "batchIndexErrorMessage"}

#: A request to one of the brokers, in as many forms as its versions have.
Ask = Callable[["Side"], Sequence[Request]]


class Side:
    """One of the two brokers, with the ids that it gave to the topics. `source` is the address that it sees."""

    def __init__(self, bootstrap: str, source: str | None = None) -> None:
        self._host, _, port = bootstrap.rpartition(":")
        self._port = int(port)
        self._source = source
        self.topic_ids: dict[str, Uuid] = {}
        self._connection = self._connect()

    def _connect(self) -> Connection:
        return Connection(self._host, self._port, self._source)

    def create_topics(self) -> None:
        topics = [
            CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1, assignments=[], configs=[]),
            CreatableTopic(
                name=COMPACTED,
                num_partitions=1,
                replication_factor=1,
                assignments=[],
                configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")],
            ),
        ]
        for each in self.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7).topics:
            self.topic_ids[each.name] = each.topic_id

    def call(self, request: Request, version: int) -> Any:
        """The answer, or that the broker closed the connection."""
        try:
            return self._connection.call(request, api(request.API_KEY).response, version)
        except (AssertionError, OSError):
            self._connection.close()
            self._connection = self._connect()
            return CLOSED

    def close(self) -> None:
        self._connection.close()


@contextmanager
def both(folder: Path, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[tuple[Side, Side]]:
    """Kafka and our node, each with the same two topics; `more` settings for both."""
    ours_folder = folder / "ours"
    ours_folder.mkdir()
    settings = {**OVERRIDES, **more}
    with KafkaServer(folder / "kafka", settings) as kafka, OurServer(ours_folder, settings) as ours:
        sides = Side(kafka.bootstrap), Side(ours.bootstrap)
        for side in sides:
            side.create_topics()
        yield sides
        for side in sides:
            side.close()


def differences(kafka: Side, ours: Side, ask: Ask, own: frozenset[str] = frozenset(OWN)) -> list[str]:
    """What our node answers otherwise than Kafka does, over all versions that nodes serve and that can say it."""
    found: list[str] = []
    asked = 0
    for version in served_versions(ask(kafka)[0]):
        told = differences_in(kafka, ours, ask, version, own)
        asked += told is not None
        found += told or []
    assert asked, "no version can say this"
    return found


def differences_in(
    kafka: Side, ours: Side, ask: Ask, version: int, own: frozenset[str] = frozenset(OWN)
) -> list[str] | None:
    """The same for one version; None if that cannot say it."""
    expected, answered = (_first_answer(side, ask(side), version) for side in (kafka, ours))
    if expected is None:
        return None
    their_names, our_names = ({str(each): name for name, each in side.topic_ids.items()} for side in (kafka, ours))
    return [
        f"v{version} {path or 'answer'}: Kafka {theirs!r}, ours {our!r}"
        for path, theirs, our in _compare(
            "", _named(_plain(expected, version), their_names), _named(_plain(answered, version), our_names), own
        )
    ]


def served_versions(request: Request) -> list[int]:
    served = api(request.API_KEY).served
    return list(range(served.low, served.high + 1))


def _first_answer(side: Side, forms: Sequence[Request], version: int) -> Any:
    """To the first form of a request that a version can carry: older and newer ones name things in other fields."""
    for form in forms:
        with suppress(LocalProtocolError):
            return side.call(form, version)
    return None


def _plain(answer: Any, version: int) -> Any:
    return answer if answer == CLOSED else to_json(answer, version)


def _named(answer: Any, names: Mapping[str, str]) -> Any:
    """The same with the names of topics that have only an id in it: so both sides put them in the same order."""
    if isinstance(answer, list):
        return [_named(each, names) for each in answer]
    if not isinstance(answer, dict):
        return answer
    named = {key: _named(value, names) for key, value in answer.items()}
    topic_id = answer.get("topicId")
    if topic_id is not None and answer.get("name") is None and answer.get("topicName") is None:
        named["topicName"] = names.get(topic_id, topic_id)
    return named


def _compare(path: str, theirs: Any, ours: Any, own: frozenset[str]) -> Iterator[tuple[str, Any, Any]]:
    name = re.sub(r"\[\d+\]$", "", path.rpartition(".")[2])
    if name in own:
        if _is_blank(theirs) != _is_blank(ours):
            yield path, theirs, ours
    elif name in TOLD:
        # Without a message, null and empty text are not the same to every client.
        if _is_blank(ours) and theirs != ours:
            yield path, theirs, ours
    elif isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted({**theirs, **ours}):
            yield from _compare(f"{path}.{key}", theirs.get(key, "absent"), ours.get(key, "absent"), own)
    elif isinstance(theirs, list) and isinstance(ours, list):
        theirs, ours = sorted(theirs, key=_order), sorted(ours, key=_order)
        if len(theirs) != len(ours):
            yield f"{path} (length)", theirs, ours
        for number, (their, our) in enumerate(zip(theirs, ours, strict=False)):
            yield from _compare(f"{path}[{number}]", their, our, own)
    elif theirs != ours:
        yield path, theirs, ours


def _is_blank(value: Any) -> bool:
    return value in (None, "", -1, 0, str(ZERO), "absent", -2147483648)


def _order(value: Any) -> str:
    """Answers list topics and the like in any order."""
    if not isinstance(value, dict):
        return str(value)
    if "entity" in value:  # of a quota, which has no name of its own
        return str(sorted(str(sorted(each.items())) for each in value["entity"]))
    keys: tuple[str, ...] = ("name", "topicName", "topic", "principal", "groupId", "resourceName")
    keys += ("partitionIndex", "partition", "index", "apiKey", "key", "entityType", "principalName", "renewers")
    return str([f"{value[key]!s:>12}" for key in keys if key in value])
