"""The ways to where keys belong."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.client.admin.driver import AdminApiDriver, Call, Located, RequestSpec, broker_error
from barnabas.client.network_client import CoordinatorType
from barnabas.net.errors import ChannelError
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

K = TypeVar("K", bound=Hashable)

_COORDINATOR_MOVED = frozenset((ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE))


class ControllerStrategy(Generic[K]):
    """All keys to the controller. Newer brokers name any of themselves, and pass on what is for the controller."""

    def __init__(self) -> None:
        self._is_old = False

    async def locate(self, driver: AdminApiDriver, call: Call, keys: list[K]) -> Located[K]:
        view = await driver.known_nodes(call)
        if self._is_old:
            view = await driver.newest_view(call)
            self._is_old = False
        if view.controller is None:
            raise BrokerError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller at the moment")
        return Located({view.controller.node_id: keys}, {})

    def failed(self, driver: AdminApiDriver, key: K, error: Exception) -> None:
        self._is_old = True


class AnyNode(ControllerStrategy[K]):
    """All keys to one node: a connected one with little to do, and another one after a failure.

    Among controllers only the one at work answers everything.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last: int | None = None
        self._avoided: set[int] = set()

    async def locate(self, driver: AdminApiDriver, call: Call, keys: list[K]) -> Located[K]:
        if driver.settings.bootstrap_controllers:
            return await super().locate(driver, call, keys)
        nodes = (await driver.known_nodes(call)).nodes
        if all(node_id in self._avoided for node_id in nodes):
            # All of them failed. Perhaps the cluster has moved to others.
            self._avoided.clear()
            nodes = (await driver.newest_view(call)).nodes
        self._last = least_loaded(driver, (node_id for node_id in nodes if node_id not in self._avoided))
        return Located({self._last: keys}, {})

    def failed(self, driver: AdminApiDriver, key: K, error: Exception) -> None:
        super().failed(driver, key, error)
        if isinstance(error, ChannelError) and self._last is not None:
            self._avoided.add(self._last)


class TheseNodes(Generic[K]):
    """Each key to a node that is known beforehand."""

    def __init__(self, node_id_of: Callable[[K], int]) -> None:
        self._node_id_of = node_id_of
        self._is_old = False

    async def locate(self, driver: AdminApiDriver, call: Call, keys: list[K]) -> Located[K]:
        view = await driver.known_nodes(call)
        if self._is_old or any(self._node_id_of(key) not in view.nodes for key in keys):
            view = await driver.newest_view(call)
        located: Located[K] = Located({}, {})
        for key in keys:
            node_id = self._node_id_of(key)
            if node_id in view.nodes:
                located.by_node.setdefault(node_id, []).append(key)
            else:
                known = ", ".join(map(str, sorted(view.nodes)))
                located.errors[key] = BrokerError(
                    ErrorCode.BROKER_ID_NOT_REGISTERED,
                    f"there is no broker {node_id} in the cluster; there are {known}",
                )
        return located

    def failed(self, driver: AdminApiDriver, key: K, error: Exception) -> None:
        self._is_old = True


class AnyNodeOr(Generic[K]):
    """Some keys to the node that they are about, the rest to any."""

    def __init__(self, node_id_of: Callable[[K], int | None] | None = None) -> None:
        self._node_id_of: Callable[[K], int | None] = node_id_of or (lambda key: None)
        self._any: AnyNode[K] = AnyNode()
        self._these: TheseNodes[K] = TheseNodes(lambda key: self._node_id_of(key) or 0)

    async def locate(self, driver: AdminApiDriver, call: Call, keys: list[K]) -> Located[K]:
        # Controllers answer for brokers, to which there is no way here.
        is_free = bool(driver.settings.bootstrap_controllers)
        free = [key for key in keys if is_free or self._node_id_of(key) is None]
        bound = [key for key in keys if not is_free and self._node_id_of(key) is not None]
        located = await self._these.locate(driver, call, bound)
        if free:
            for node_id, more in (await self._any.locate(driver, call, free)).by_node.items():
                located.by_node.setdefault(node_id, []).extend(more)
        return located

    def failed(self, driver: AdminApiDriver, key: K, error: Exception) -> None:
        (self._any if self._node_id_of(key) is None else self._these).failed(driver, key, error)


class PartitionLeaderStrategy(Generic[K]):
    """Each key to the leader of its partition. Leaders are asked for in each round: a call lasts one, as a rule."""

    def __init__(self, partition_of: Callable[[K], TopicPartition]) -> None:
        self._partition_of = partition_of
        #: What each leader's epoch was, for requests that carry it.
        self.epochs: dict[TopicPartition, int] = {}

    async def locate(self, driver: AdminApiDriver, call: Call, keys: list[K]) -> Located[K]:
        wanted = dict.fromkeys(self._partition_of(key).topic for key in keys)
        metadata = await topic_metadata(driver, call, wanted)
        nodes = {broker.node_id for broker in metadata.brokers}
        if not nodes <= driver.view.nodes.keys():
            await driver.newest_view(call)
        topics = {topic.name: topic for topic in metadata.topics}
        located: Located[K] = Located({}, {})
        for key in keys:
            name, number = partition = self._partition_of(key)
            topic = topics.get(name)
            if topic is None or topic.error_code:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
                located.errors[key] = broker_error(code, unknown_topic_text(code, name))
                continue
            found = next((each for each in topic.partitions if each.partition_index == number), None)
            if found is None:
                located.errors[key] = BrokerError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"the topic {name} has {len(topic.partitions)} partitions, and {number} is not one of them",
                )
            elif found.leader_id < 0 or found.leader_id not in driver.view.nodes:
                located.errors[key] = BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader now")
            else:
                self.epochs[partition] = found.leader_epoch
                located.by_node.setdefault(found.leader_id, []).append(key)
        return located

    def failed(self, driver: AdminApiDriver, key: K, error: Exception) -> None:
        """Nothing is remembered that could be wrong."""


class CoordinatorStrategy(Generic[K]):
    """Each key to the coordinator of its group or transactional id."""

    def __init__(self, kind: CoordinatorType, id_of: Callable[[K], str]) -> None:
        self._kind = kind
        self._id_of = id_of

    async def locate(self, driver: AdminApiDriver, call: Call, keys: list[K]) -> Located[K]:
        located: Located[K] = Located({}, {})
        ids = [self._id_of(key) for key in keys]
        try:
            # All in one question; a single refusal hides the other answers.
            await driver.nodes.coordinators(self._kind, ids, call.remaining_ms)
        except BrokerError as failure:
            if len(keys) == 1:
                return Located({}, {keys[0]: failure})
        for key, each in zip(keys, ids, strict=True):
            try:
                node_id = await driver.nodes.coordinator(self._kind, each, call.remaining_ms)
            except BrokerError as failure:
                located.errors[key] = failure
            else:
                located.by_node.setdefault(node_id, []).append(key)
        return located

    def failed(self, driver: AdminApiDriver, key: K, error: Exception) -> None:
        if isinstance(error, ChannelError) or (isinstance(error, BrokerError) and error.code in _COORDINATOR_MOVED):
            driver.nodes.forget_coordinator(self._kind, self._id_of(key), str(error))


def each_broker() -> TheseNodes[int]:
    """Where the keys are ids of brokers."""
    return TheseNodes(lambda broker_id: broker_id)


def each_leader() -> PartitionLeaderStrategy[TopicPartition]:
    """Where the keys are partitions."""
    return PartitionLeaderStrategy(lambda partition: partition)


def group_coordinators() -> CoordinatorStrategy[str]:
    """Where the keys are groups."""
    return CoordinatorStrategy(CoordinatorType.GROUP, lambda group_id: group_id)


def group_coordinator(group_id: str) -> CoordinatorStrategy[Any]:
    """Where the keys are things of one group."""
    return CoordinatorStrategy(CoordinatorType.GROUP, lambda key: group_id)


def transaction_coordinators() -> CoordinatorStrategy[str]:
    """Where the keys are transactional ids."""
    return CoordinatorStrategy(CoordinatorType.TRANSACTION, lambda transactional_id: transactional_id)


def least_loaded(driver: AdminApiDriver, node_ids: Iterable[int]) -> int:
    """Connected ones first, then by what they have to answer; chance decides between equals."""
    nodes = driver.nodes
    shuffled = sorted(node_ids)
    driver.randomness.shuffle(shuffled)
    return min(shuffled, key=lambda node_id: (not nodes.is_connected(node_id), nodes.in_flight(node_id)))


async def topic_metadata(driver: AdminApiDriver, call: Call, topics: Iterable[str]) -> MetadataResponse:
    """What one broker knows of some topics. Asks once, and creates none."""
    view = await driver.known_nodes(call)
    node_id = least_loaded(driver, view.nodes)
    version = await driver.version(call, node_id, MetadataRequest)
    spec: RequestSpec[str] = RequestSpec(node_id, driver.node(node_id), version, list(topics), driver.attempt_ms(call))
    response: MetadataResponse = await driver.send(spec, metadata_request(spec, spec.keys))
    return response


def metadata_request(
    spec: RequestSpec[Any], topics: Iterable[str | Uuid], with_operations: bool = False
) -> MetadataRequest:
    """A question for topics that does not create them. Operations are left out where the broker cannot tell them."""
    return MetadataRequest(
        topics=[_wanted(spec, topic) for topic in topics],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=with_operations and spec.version >= 8,
    )


def _wanted(spec: RequestSpec[Any], topic: str | Uuid) -> MetadataRequestTopic:
    if not isinstance(topic, Uuid):
        return MetadataRequestTopic(name=topic)
    if spec.version < 12:
        raise spec.unsupported(MetadataRequest, "topics can be asked for by id from 12 on; give their names")
    return MetadataRequestTopic(topic_id=topic, name=None)


def unknown_topic_text(code: int, name: str) -> str:
    error = ErrorCode.of(code)
    return f"there is no topic {name}" if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else f"{name}: {error.text}"
