"""Stories of the controller as text: what is asked stands after `>`, what comes of it follows.

    at 3000                            time passes until then (ms); brokers that are silent for too long are fenced
    > a1 create t partitions=3 replicas=2
    + 7 TopicRecord name=t ...         a record that is written for it, with its offset
    < a1 t NONE partitions=3 ...       the answer, once the records are committed
    commits hold                       from now on records are not committed (or: commits go)
    commit                             what was held is committed
    another leads                      so what was not committed is forgotten, and whoever waits for it is told
    this one leads                     again, in the next epoch
    = t 0:1/1,2 isr=1,2 ...            the cluster as decided so far (`show`), a topic, a broker or a setting per line

Requests go to `ControllerApis` by message, through their bytes; `as=guest` is somebody who may do nothing. A file has
the whole dialogue. The test plays the lines that ask and compares everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeVar, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import Uuid
from barnabas.base.steps import at_once
from barnabas.metadata.authorizer import AclOperation, AllowEverything, AuthorizableRequestContext, Resource
from barnabas.metadata.controller import Controller, ControllerResult
from barnabas.metadata.controller_apis import ControllerApis
from barnabas.metadata.features import ELR_VERSION, METADATA_VERSION, METADATA_VERSION_BUILT, encode_record
from barnabas.metadata.image import ClusterImage, ConfigResourceType
from barnabas.metadata.options import ControllerOptions
from barnabas.metadata.replay import ImageBuilder
from barnabas.wire.message import Message, Request
from barnabas.wire.messages import alter_partition
from barnabas.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.wire.messages.alter_partition import AlterPartitionRequest
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.create_topics import CreateTopicsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.wire.schema import Struct
from barnabas.wire.stored.cluster_metadata import FeatureLevelRecord, MetadataRecord
from tests.metadata.clusters import CLUSTER_ID, new_topic, registration
from tests.stories import StoryPlayer, options

M = TypeVar("M", bound=Message)

_LIKE_ALL_OTHERS: Final = {"end_points", "features", "is_migrating_zk_broker"}
_GUEST: Final = "User:guest"
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_OPERATIONS: Final = {"": _SET, "-": _DELETE, "+": _APPEND, "~": _SUBTRACT}


def play(script: str) -> str:
    """The dialogue that the asking lines of a script lead to; comments and blank lines stay."""
    return Player().played(script)


@dataclass(frozen=True, slots=True)
class _Asker:
    principal: str
    client_host: str = "/127.0.0.1"
    client_id: str | None = "tests"
    is_own: bool = False
    is_token_authenticated: bool = False


class _NotForGuests(AllowEverything):
    def is_allowed(
        self,
        caller: AuthorizableRequestContext,
        operation: AclOperation,
        resource_type: Resource,
        resource_name: str,
        *,
        log_if_denied: bool = True,
        log_if_allowed: bool = True,
    ) -> bool:
        return caller.principal != _GUEST


class AnyBrokerSetting:
    """Brokers take every setting, and have no lists."""

    def is_list(self, name: str) -> bool:
        return False

    def default_value(self, name: str) -> str:
        return ""

    def check(self, *_: object) -> None: ...

    def check_other(self, *_: object) -> None: ...


class Player(StoryPlayer):
    """One controller with a log; another one may lead in between and write nothing."""

    OUTPUT = ("<", "=", "+")

    def __init__(self) -> None:
        self.now_ms = 0
        self.epoch = 0
        self.leads = False
        self.log: list[MetadataRecord] = []
        self.committed = 0
        self.holds = False
        #: Who waits until all below an offset is committed, and what they are told then.
        self.waiting: list[tuple[int, str, str]] = []
        self.ids: dict[Uuid, str] = {}
        self.controller = Controller(ClusterImage(), ControllerOptions(cluster_id=CLUSTER_ID), Random(1))
        rules: Any = AnyBrokerSetting()
        self.apis = ControllerApis(self.controller, cast(Any, None), _NotForGuests(), rules)
        list(self._lead())

    def step(self, words: list[str]) -> Iterator[str]:
        match words:
            case ["at", moment]:
                yield from self._pass_time(int(moment))
            case ["commits", how]:
                self.holds = how == "hold"
            case ["commit"]:
                yield from self._commit()
            case ["another", "leads"]:
                self.leads = False
                self.controller.roll_back()
                del self.log[self.committed :]
                for _, token, _ in self.waiting:
                    yield f"< {token} NOT_CONTROLLER"
                self.waiting.clear()
            case ["this", "one", "leads"]:
                yield from self._lead()
            case ["eligible", "leader", "replicas", "are", "kept"]:
                yield from self._write([FeatureLevelRecord(name=ELR_VERSION, feature_level=1)])
                yield from self._commit()
            case ["show"]:
                yield from (f"= {line}" for line in self._shown())
            case [">", token, api, *rest]:
                yield from self._ask(token, getattr(self, f"_{api}"), rest)
            case _:
                raise ValueError(f"not understood: {' '.join(words)}")

    # The log

    def _lead(self) -> Iterator[str]:
        self.leads = True
        self.epoch += 1
        version = FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_BUILT)
        outcome = self.controller.activate(self.epoch, len(self.log), self.now_ms, [version])
        yield from self._write(outcome.records)
        yield from self._commit()

    def _pass_time(self, moment_ms: int) -> Iterator[str]:
        self.now_ms = moment_ms
        while self.leads and (fenced := self.controller.fence_expired_brokers(self.now_ms)).response is not None:
            yield from self._write(fenced.records)
        if not self.holds:
            yield from self._commit()

    def _ask(self, token: str, request_of: Callable[[str, dict[str, str]], Request], words: list[str]) -> Iterator[str]:
        names = ",".join(word for word in words if "=" not in word)
        given = options(word for word in words if "=" in word)
        request = request_of(names, given)
        version = int(given.get("version", max(request.VERSIONS)))
        caller = _Asker(_GUEST if given.get("as") == "guest" else "User:admin")
        try:
            if not self.leads:
                raise BrokerError(ErrorCode.NOT_CONTROLLER, "another node is the active controller")
            outcome: ControllerResult[Any] = self.apis.handle(
                _over_the_wire(request, version), version, caller, self.now_ms
            )
        except BrokerError as refused:
            yield f"< {token} {refused.code.name} {refused.message}"
            return
        yield from self._write(outcome.records)
        self.waiting.append((len(self.log), token, self._told(_over_the_wire(outcome.response, version))))
        if not self.holds:
            yield from self._commit()

    def _write(self, records: list[MetadataRecord]) -> Iterator[str]:
        """As one batch; each record travels through its bytes."""
        for record in records:
            decoded, _ = MetadataRecord.decode_framed(encode_record(record))
            assert decoded == record
            yield f"+ {len(self.log)} {type(record).__name__} {self._fields(record, _LIKE_ALL_OTHERS)}"
            self.controller.replay(decoded, len(self.log))
            self.log.append(decoded)
        if records:
            self.controller.mark()

    def _commit(self) -> Iterator[str]:
        self.committed = len(self.log)
        self.controller.commit(self.committed - 1)
        for _, token, answer in self.waiting:
            yield f"< {token} {answer}"
        self.waiting.clear()

    def replayed(self) -> ClusterImage:
        """What a node makes of the log that starts now."""
        builder = ImageBuilder(ClusterImage())
        for record in self.log:
            builder.replay(record)
        image = self.controller.image
        return builder.build(image.offset, image.epoch)

    # Requests

    def _register(self, name: str, given: dict[str, str]) -> Request:
        request = registration(int(name), rack=given.get("rack"), life=int(given.get("life", 1)))
        request.cluster_id = given.get("cluster", CLUSTER_ID)
        request.previous_broker_epoch = int(given.get("previous", -1))
        return request

    def _heartbeat(self, name: str, given: dict[str, str]) -> Request:
        broker = self.controller.image.brokers.get(int(name))
        return BrokerHeartbeatRequest(
            broker_id=int(name),
            broker_epoch=int(given.get("epoch", -1 if broker is None else broker.epoch)),
            current_metadata_offset=int(given.get("offset", len(self.log) - 1)),
            want_fence=given.get("wants") == "fence",
            want_shut_down=given.get("wants") == "shutdown",
        )

    def _unregister(self, name: str, given: dict[str, str]) -> Request:
        return UnregisterBrokerRequest(broker_id=int(name))

    def _producer_ids(self, name: str, given: dict[str, str]) -> Request:
        broker = self.controller.image.brokers.get(int(name))
        epoch = int(given.get("epoch", -1 if broker is None else broker.epoch))
        return AllocateProducerIdsRequest(broker_id=int(name), broker_epoch=epoch)

    def _create(self, names: str, given: dict[str, str]) -> Request:
        assignment = [tuple(map(int, each.split(","))) for each in given.get("assign", "").split(";") if each]
        topics = [
            new_topic(
                name,
                int(given.get("partitions", -1)),
                int(given.get("replicas", -1)),
                assignment=list(enumerate(assignment)),
                configs=_settings(given),
            )
            for name in names.split(",")
        ]
        return CreateTopicsRequest(topics=topics, validate_only="validate" in given)

    def _alter(self, name: str, given: dict[str, str]) -> Request:
        """A leader proposes who is in sync, by what it knows; `by` another one, or with other epochs."""
        topic, _, number = name.rpartition("-")
        image = self.controller.image
        state = image.topics[topic].partitions[int(number)]
        by = int(given.get("by", state.leader))
        data = alter_partition.PartitionData(
            partition_index=int(number),
            leader_epoch=int(given.get("leader_epoch", state.leader_epoch)),
            partition_epoch=int(given.get("partition_epoch", state.partition_epoch)),
            new_isr_with_epochs=[
                alter_partition.BrokerState(broker_id=int(each), broker_epoch=image.brokers[int(each)].epoch)
                for each in given["isr"].split(",")
            ],
        )
        asked = alter_partition.TopicData(topic_id=image.topics[topic].topic_id, partitions=[data])
        epoch = int(given.get("epoch", image.brokers[by].epoch))
        return AlterPartitionRequest(broker_id=by, broker_epoch=epoch, topics=[asked])

    def _elect(self, names: str, given: dict[str, str]) -> Request:
        wanted = [each.rpartition("-") for each in names.split(",") if each]
        asked = [TopicPartitions(topic=topic, partitions=[int(number)]) for topic, _, number in wanted]
        kind = 1 if given.get("kind") == "unclean" else 0
        return ElectLeadersRequest(election_type=kind, topic_partitions=asked or None)

    def _partitions(self, name: str, given: dict[str, str]) -> Request:
        topic = CreatePartitionsTopic(name=name, count=int(given["count"]), assignments=None)
        return CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only="validate" in given)

    def _delete(self, names: str, given: dict[str, str]) -> Request:
        states = [DeleteTopicState(name=name, topic_id=Uuid.ZERO) for name in names.split(",")]
        return DeleteTopicsRequest(topics=states, timeout_ms=1000)

    def _configs(self, resource: str, given: dict[str, str]) -> Request:
        kind, _, name = resource.partition(":")
        changes = [
            AlterableConfig(
                name=key.lstrip("+-~"),
                config_operation=_OPERATIONS[key[: len(key) - len(key.lstrip("+-~"))]],
                value=value or None,
            )
            for key, value in given.items()
            if "." in key
        ]
        wanted = AlterConfigsResource(
            resource_type=ConfigResourceType[kind.upper()], resource_name=name, configs=changes
        )
        return IncrementalAlterConfigsRequest(resources=[wanted], validate_only="validate" in given)

    # What is told

    def _told(self, response: Struct) -> str:
        """A response in one line: its results one after the other, or its own fields."""
        lists = [value for each in response.FIELDS if isinstance(value := getattr(response, each.name), list)]
        if not lists:
            return self._result(response)
        return "; ".join(self._result(each) for each in lists[0])

    def _result(self, result: Struct) -> str:
        name = getattr(result, "name", getattr(result, "resource_name", None))
        error = ErrorCode.of(getattr(result, "error_code", 0)).name
        fields = self._fields(result, without={"name", "error_code", "error_message", "configs", "resource_name"})
        message = getattr(result, "error_message", None)
        return " ".join(each for each in (name, error, fields, f"({message})" if message else "") if each)

    def _fields(self, struct: Struct, without: frozenset[str] | set[str] = frozenset()) -> str:
        """What is not as usual; ids have short names in the order in which they were seen."""
        shown = []
        for each in struct.FIELDS:
            value = getattr(struct, each.name)
            is_usual = value in ([], None) or (not each.is_required and value == each.make_default())
            is_usual = is_usual and not isinstance(value, bool)
            if each.name not in without and not is_usual:
                shown.append(f"{each.name}={self._value(value)}")
        return " ".join(shown)

    def _value(self, value: object) -> str:
        match value:
            case Uuid.ZERO:
                return "no id"
            case Uuid():
                return self.ids.setdefault(value, f"id{len(self.ids) + 1}")
            case list():
                return "[" + ",".join(map(self._value, value)) + "]"
            case Struct():
                return "{" + self._fields(value) + "}"
        return str(value)

    def _shown(self) -> Iterator[str]:
        image = self.controller.image
        for number, broker in sorted(image.brokers.items()):
            state = "fenced" if broker.is_fenced else "shuts down" if broker.in_controlled_shutdown else "active"
            yield f"broker {number} {state} epoch={broker.epoch} rack={broker.rack}"
        for name, topic in sorted(image.topics.items()):
            partitions = " ".join(
                f"{number}:{each.leader}/{_numbers(each.replicas)} isr={_numbers(each.isr)} epoch={each.leader_epoch}"
                + (f" elr={_numbers(elr)}" if (elr := each.eligible_leader_replicas) else "")
                for number, each in enumerate(topic.partitions)
            )
            yield f"{name} {partitions}"
        for resource, settings in sorted(image.configs.items()):
            changed = " ".join(f"{key}={value}" for key, value in sorted(settings.items()))
            yield f"{ConfigResourceType(resource.type).name.lower()}:{resource.name} {changed}"
        yield f"next producer id {image.next_producer_id}"


def _numbers(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))


def _settings(given: dict[str, str]) -> dict[str, str | None]:
    """Settings have dots in their names, options of requests have none."""
    return {name: value for name, value in given.items() if "." in name}


def _over_the_wire(message: M, version: int) -> M:
    return type(message).decode(b"".join(at_once(message.encode_in_slices(version))), version)
