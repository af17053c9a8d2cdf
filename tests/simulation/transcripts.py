"""Stories in Kafka's protocol: what a client asks a node, and every field of what it answers.

    > Metadata 12 {"topics": [{"name": "clicks"}]}     a request, its version, and the fields that differ from defaults
    < 0 ms {...}                                       after how long the answer came, and all of it
    produce clicks-0 one two                           records, a batch
    wait 5000                                          milliseconds that pass

Each runs in a world of its own. What is drawn at random is told by a name of its own: the ids of topics, of the cluster
and of sessions.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from barnabas.base.ids import Uuid
from barnabas.records import BatchBuilder
from barnabas.testing.scripted_client import ScriptedClient
from barnabas.testing.sim.world import World
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.json_form import camel_case, from_json, to_json
from barnabas.wire.message import Request
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.schema import Array, Struct, default_of

_NODE = "10.0.0.1"
_SEED = 7


def play(text: str) -> str:
    """The story as it happens now."""
    with World(seed=_SEED) as world:
        lines: list[str] = world.run(_play(world, text.splitlines()))
    return "".join(f"{line}\n" for line in lines)


async def _play(world: World, lines: list[str]) -> list[str]:
    node = await world.start_node(_NODE)
    client = await world.client(node.bootstrap)
    player = _Player(client)
    told: list[str] = []
    for line in lines:
        if line.startswith("<"):
            continue
        told.append(line)
        word, _, rest = line.partition(" ")
        if word == ">":
            told.append(await player.ask(rest))
        elif word == "produce":
            await player.produce(*rest.split())
        elif word == "wait":
            await asyncio.sleep(int(rest) / 1000)
        elif line and word != "#":
            raise ValueError(f"nobody knows what {word!r} means")
    await client.close()
    return told


class _Player:
    def __init__(self, client: ScriptedClient) -> None:
        self._client = client
        self._names: dict[str, str] = {}

    async def ask(self, text: str) -> str:
        name, number, fields = text.split(" ", 2)
        key = next(each for each in ApiKey if each.camel_name == name)
        version = int(number)
        request = _complete(api(key).request, json.loads(self._with_ids(fields)), version)
        started_s = asyncio.get_running_loop().time()
        response = await self._client.ask(request, version)
        waited_ms = (asyncio.get_running_loop().time() - started_s) * 1000
        answer = to_json(response, version)
        self._note_ids(answer)
        # What the network takes is of no interest; what the node waits is.
        return f"< {waited_ms // 100 * 100:.0f} ms {self._with_names(json.dumps(answer))}"

    async def produce(self, partition: str, *values: str) -> None:
        topic, _, number = partition.rpartition("-")
        builder = BatchBuilder(10_000)
        for value in values:
            builder.append(value.encode(), None, timestamp_ms=1_700_000_000_000)
        data = PartitionProduceData(index=int(number), records=builder.build())
        topic_data = [TopicProduceData(name=topic, partition_data=[data])]
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topic_data)
        response = await self._client.ask(request, 9)
        assert response.responses[0].partition_responses[0].error_code == 0

    def _note_ids(self, answer: Any) -> None:
        if isinstance(answer, list):
            for each in answer:
                self._note_ids(each)
        elif isinstance(answer, dict):
            topic_id, name = answer.get("topicId"), answer.get("name")
            if name and topic_id and topic_id != str(Uuid.ZERO):
                self._names[f'"{topic_id}"'] = f'"id-of-{name}"'
            if answer.get("clusterId"):
                self._names[f'"{answer["clusterId"]}"'] = '"the-cluster"'
            if answer.get("sessionId"):
                self._names[f'"sessionId": {answer["sessionId"]}'] = '"sessionId": "the-session"'
            for each in answer.values():
                self._note_ids(each)

    def _with_names(self, text: str) -> str:
        for value, name in self._names.items():
            text = text.replace(value, name)
        return text

    def _with_ids(self, text: str) -> str:
        for value, name in self._names.items():
            text = text.replace(name, value)
        return text


def _complete(cls: type[Request], given: dict[str, Any], version: int) -> Request:
    """A request with what was given, and defaults for the rest, also within its lists."""
    whole = to_json(default_of(cls), version)
    return from_json(cls, _filled(cls, whole | given, version), version)


def _filled(cls: type[Struct], values: dict[str, Any], version: int) -> dict[str, Any]:
    for each in cls.FIELDS:
        name = camel_case(each.name)
        element = each.type.element if isinstance(each.type, Array) else None
        if isinstance(element, type) and issubclass(element, Struct) and values.get(name):
            carried = [inner for inner in element.FIELDS if version in inner.versions and inner.tag is None]
            whole = {camel_case(inner.name): _plain(inner.make_default()) for inner in carried}
            values[name] = [_filled(element, whole | item, version) for item in values[name]]
    return values


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Uuid) else value
