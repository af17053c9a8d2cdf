"""Admins who change topics and settings through any node, and remember what they asked for and were told.

An admin has topics of its own, so that it knows what must be there; what it was not answered may still come into
force, so the name is uncertain from then on. Other names and one setting all admins want at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.metadata.image import ClusterImage, ConfigResource, ConfigResourceType
from barnabas.testing.scripted_client import ScriptedClient
from barnabas.testing.sim.quorum_checker import ClusterChecker, SettingHistory, TopicHistory
from barnabas.testing.sim.world import CLIENT_ADDRESS
from barnabas.wire.message import Request
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

__all__ = ["AdminPlan", "Histories", "SimulatedAdmin", "create_request"]

TIMEOUT_MS: Final = 1500
PATIENCE_S: Final = 3.0
_RETENTION: Final = "retention.ms"
_SHARED_SETTING: Final = "log.retention.ms"
_SHARED_NAMES: Final = 4
_ALL_BROKERS: Final = ConfigResource(ConfigResourceType.BROKER, "")


class AdminPlan(NamedTuple):
    """What an admin is like."""

    bootstraps: Sequence[str]
    mean_pause_s: float
    tell: Callable[[str], None]
    replication_factor: int = 1


class Histories:
    """Of all names and settings. `shared` are those that all admins want."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicHistory] = {}
        self.settings: dict[str, SettingHistory] = {}
        self.shared = SettingHistory(_ALL_BROKERS, _SHARED_SETTING)
        self.acknowledged_count = 0
        self.unanswered_count = 0

    def topic(self, name: str) -> TopicHistory:
        return self.topics.setdefault(name, TopicHistory(name))

    def retention(self, topic: str) -> SettingHistory:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        return self.settings.setdefault(topic, SettingHistory(resource, _RETENTION))

    def check(self, checker: ClusterChecker, images: dict[int, ClusterImage]) -> None:
        """At the end, with the images of all nodes."""
        for topic in self.topics.values():
            checker.check_topic(topic, images)
        for setting in self.settings.values():
            if self.topics[setting.resource.name].is_certain:
                checker.check_setting(setting, images, is_shared=False)
        checker.check_setting(self.shared, images, is_shared=True)


class SimulatedAdmin:
    """One of them; `use` goes on until it is cancelled or `is_over`."""

    def __init__(self, number: int, plan: AdminPlan, histories: Histories, random: Random) -> None:
        self._number = number
        self._plan = plan
        self._histories = histories
        self._random = random
        self._clients: dict[str, ScriptedClient] = {}
        self._own: list[TopicHistory] = []
        self._value = 1_000_000 * number
        self.is_over = False

    async def use(self) -> None:
        while not self.is_over:
            await self._do_something()
            await asyncio.sleep(self._random.expovariate(1 / self._plan.mean_pause_s))
        for client in self._clients.values():
            client.abort()

    async def _do_something(self) -> None:
        there = [each for each in self._own if each.exists and each.is_certain]
        what = self._random.choices(("create", "set", "delete", "shared name", "shared setting"), (5, 4, 2, 1, 3))[0]
        if what == "shared setting":
            # All who ask in the same second want the same, so that some change nothing.
            slot = int(asyncio.get_running_loop().time())
            await self._set(self._histories.shared, str(10_000_000 + slot))
        elif what == "shared name":
            await self._create(self._histories.topic(f"shared-{self._random.randrange(_SHARED_NAMES)}"))
        elif what == "create" or not there:
            await self._create(self._topic_to_create())
        elif what == "delete":
            await self._delete(self._random.choice(there))
        else:
            self._value += 1
            topic = self._random.choice(there)
            await self._set(self._histories.retention(topic.name), str(self._value))

    def _topic_to_create(self) -> TopicHistory:
        """A new name, or one whose topic was deleted, or one of which is not known whether it exists."""
        again = [each for each in self._own if not each.exists and (each.is_certain or not each.deletes_sent)]
        if again and self._random.random() < 0.5:
            return self._random.choice(again)
        history = self._histories.topic(f"topic-{self._number}-{len(self._own)}")
        self._own.append(history)
        return history

    async def _create(self, topic: TopicHistory) -> None:
        topic.creates_sent += 1
        answer = await self._ask(
            create_request(topic.name, self._random.choice((1, 1, 2)), self._plan.replication_factor)
        )
        result = None if answer is None else answer.topics[0]
        code = None if result is None else result.error_code
        self._tell(f"create {topic.name}", code)
        if result is not None and code == ErrorCode.NONE:
            topic.acknowledged_ids.append(result.topic_id)
            topic.exists = True
        else:
            # One that exists may be ours: the node that was asked asks again where it got no answer.
            topic.is_told_to_exist |= code == ErrorCode.TOPIC_ALREADY_EXISTS
            topic.is_certain = False

    async def _delete(self, topic: TopicHistory) -> None:
        topic.deletes_sent += 1
        wanted = DeleteTopicState(name=topic.name, topic_id=Uuid.ZERO)
        answer = await self._ask(DeleteTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS))
        code = None if answer is None else answer.responses[0].error_code
        self._tell(f"delete {topic.name}", code)
        topic.exists = False
        topic.is_certain = code == ErrorCode.NONE
        # The settings of a topic go with it.
        self._histories.settings.pop(topic.name, None)

    async def _set(self, setting: SettingHistory, value: str) -> None:
        change = AlterableConfig(name=setting.name, config_operation=0, value=value)
        resource = AlterConfigsResource(
            resource_type=setting.resource.type, resource_name=setting.resource.name, configs=[change]
        )
        answer = await self._ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        code = None if answer is None else answer.responses[0].error_code
        self._tell(f"set {setting.name}={value} of {setting.resource.name!r}", code)
        if code == ErrorCode.NONE:
            setting.acknowledged.append(value)
        else:
            setting.unanswered.add(value)

    async def _ask(self, request: Request) -> Any:
        """The answer, or None if there is none."""
        bootstrap = self._random.choice(self._plan.bootstraps)
        try:
            client = self._clients.get(bootstrap)
            if client is None or not client.is_connected:
                client = await ScriptedClient.connect(
                    bootstrap, f"admin-{self._number}", address=CLIENT_ADDRESS, timeout_s=PATIENCE_S
                )
                self._clients[bootstrap] = client
            return await client.ask(request)
        except (OSError, TimeoutError):
            lost = self._clients.pop(bootstrap, None)
            if lost is not None:
                lost.abort()
            return None

    def _tell(self, what: str, code: int | None) -> None:
        if code == ErrorCode.NONE:
            self._histories.acknowledged_count += 1
        elif code is None:
            self._histories.unanswered_count += 1
        told = "no answer" if code is None else "done" if not code else ErrorCode.of(code).name
        self._plan.tell(f"admin {self._number}: {what}: {told}")


def create_request(name: str, partitions: int, replication_factor: int = 1) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
