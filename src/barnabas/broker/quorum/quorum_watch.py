"""A node that finds no place in its quorum says for whom it waits, or why it will wait in vain.

Raft itself passes over a voter that is of another cluster, or that counts others as voters: it answers with an error,
and there may be others. A person wants to know. So a node that has not caught up asks the voters which cluster they are
of, and one that has asks its leader once whom it counts as voters.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, cast

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Uuid
from barnabas.base.log_context import logger
from barnabas.broker.quorum.raft_quorum import RaftQuorum
from barnabas.metadata.topic_names import CLUSTER_METADATA
from barnabas.net.channel import Channel, ChannelLimits
from barnabas.net.errors import ChannelError
from barnabas.net.security import PLAINTEXT, ChannelSecurity
from barnabas.raft.types import Address
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)

_log = logger("barnabas.broker")

_FIRST_LOOK_S: Final = 3.0
_LOOK_S: Final = 0.005
#: How many looks lie between two times that the same is told.
_TELL_EVERY: Final = 10
_CONTROLLERS: Final = 2


class QuorumWatch:
    """Watches until the node has caught up with a leader that has the same voters. `on_failure` is told of what cannot
    become better by waiting."""

    def __init__(
        self,
        quorum: RaftQuorum,
        cluster_id: str,
        randomness: Random,
        limits: ChannelLimits,
        on_failure: Callable[[BaseException], None],
        security: ChannelSecurity = PLAINTEXT,
    ) -> None:
        self._security = security
        self._quorum = quorum
        self._cluster_id = cluster_id
        self._randomness = randomness
        self._limits = limits
        self._on_failure = on_failure
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch(), name="watch the quorum")

    async def done(self) -> None:
        """Wait until the node has caught up, and its voters were compared, or `on_failure` was told."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        try:
            looks = 0
            while not await self._caught_up_within(_FIRST_LOOK_S):
                await self._compare_clusters()
                if looks % _TELL_EVERY == 0:
                    _log.warning("Node %d waits: %s", self._quorum.node_id, self._quorum.waits_for())
                looks += 1
            await self._compare_voters()
        except BarnabasError as problem:
            self._on_failure(problem)

    async def _caught_up_within(self, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        while not self._quorum.is_caught_up:
            if loop.time() >= end_s:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    async def _compare_clusters(self) -> None:
        """Where most of those who answer are of another cluster, this node is in the wrong one."""
        quorum, machine = self._quorum, self._quorum.driver.machine
        others = [each for each in machine.voters if each.key.node_id != quorum.node_id]
        request = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=_CONTROLLERS)
        answers = await asyncio.gather(*(self._ask(machine.address_of(each), request) for each in others))
        found = Counter[str]()
        where: dict[str, str] = {}
        for voter, answer in zip(others, answers, strict=True):
            if answer is not None and (theirs := cast(DescribeClusterResponse, answer).cluster_id):
                found[theirs] += 1
                where[theirs] = f"{voter.key.node_id} at {machine.address_of(voter)}"
        own = found.pop(self._cluster_id, 0) + int(machine.is_voter)
        for theirs, count in found.items():
            line = (
                f"node {quorum.node_id} belongs to the cluster {self._cluster_id} by {quorum.log.directory}, but the "
                f"voter {where[theirs]} to the cluster {theirs}; correct controller.quorum.voters, or format the "
                "directory of the one that is wrong for the cluster of the others"
            )
            if count > own:
                raise BarnabasError(line)
            _log.warning("%s", line)

    async def _compare_voters(self) -> None:
        """Two sets of voters may have two majorities."""
        quorum, machine = self._quorum, self._quorum.driver.machine
        leader_id, address = quorum.leader.leader_id, quorum.leader_address
        if leader_id in (-1, quorum.node_id) or address is None:
            return
        topic = TopicData(topic_name=CLUSTER_METADATA, partitions=[PartitionData(partition_index=0)])
        answer = cast(DescribeQuorumResponse | None, await self._ask(address, DescribeQuorumRequest(topics=[topic])))
        if answer is None or answer.error_code or not answer.topics or answer.topics[0].partitions[0].error_code:
            return
        voters = list(machine.voters)
        if any(each.key.directory_id != Uuid.ZERO for each in voters):
            return  # those of the log are the leader's
        theirs = sorted(each.replica_id for each in answer.topics[0].partitions[0].current_voters)
        own = sorted(each.key.node_id for each in voters)
        of_whom = f"the active controller, {leader_id} at {address}; all nodes must have the same voters"
        if own != theirs:
            raise BarnabasError(
                f"controller.quorum.voters names {_listed(own)} for node {quorum.node_id}, but {_listed(theirs)} for "
                f"{of_whom}"
            )
        self._compare_addresses({each.key.node_id: machine.address_of(each) for each in voters}, answer, of_whom)

    def _compare_addresses(self, own: Mapping[int, Address], answer: DescribeQuorumResponse, of_whom: str) -> None:
        """One node may have several addresses, so others than the leader's need not be wrong; those of another voter
        are. While the controllers move to another listener, the leader may know the voters by the old one."""
        ours = self._quorum.driver.machine.listener_name
        theirs = {
            each.node_id: Address(point.host, point.port)
            for each in answer.nodes
            for point in each.listeners
            if point.name.upper() == ours
        }
        for node_id, address in own.items():
            if address == theirs.get(node_id, address):
                continue
            line = (
                f"controller.quorum.voters has voter {node_id} at {address} for node {self._quorum.node_id}, but at "
                f"{theirs[node_id]} for {of_whom}"
            )
            if address in theirs.values():
                raise BarnabasError(line)
            _log.warning("%s, at the same addresses unless these are two names of one", line)

    async def _ask(self, address: Address, request: Request) -> Response | None:
        channel = Channel(
            address.host,
            address.port,
            client_id=f"raft-client-{self._quorum.node_id}",
            randomness=self._randomness,
            limits=self._limits,
            security=self._security,
        )
        try:
            return cast(Response, await channel.request(request))
        except ChannelError:
            return None
        finally:
            await channel.close()


def _listed(node_ids: list[int]) -> str:
    return ", ".join(map(str, node_ids))
