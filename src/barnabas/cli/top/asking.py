"""What `barnabas top` asks a cluster: by calls that every Kafka answers, and of nodes of ours what they measure.

A call that fails, because it is not allowed, or because a broker is away, leaves its part of the screen empty and is
told; the rest is shown all the same.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.cli.admin_options import reason
from barnabas.cli.top.figures import NodeFigures
from barnabas.cli.top.history import EndHistory
from barnabas.cli.top.model import BrokerSeen, GroupFacts, PartitionSeen, Sample
from barnabas.net.errors import UnsupportedRequestError, address_text

if TYPE_CHECKING:
    from barnabas.cli.top.scraping import Scraper
    from barnabas.client.admin import Admin, ClusterDescription
    from barnabas.client.admin.groups import GroupListing

T = TypeVar("T")

_ANSWER_S: Final = 10.0
#: A single broker is not waited for that long: who has lost it still sees what the others said.
_BROKER_S: Final = 4.0
_QUORUM: Final = "the quorum"
_NOBODY: Final = -1
#: Sizes change slowly, and asking for them is dear: every so many looks.
_LOOKS_PER_SIZES: Final = 15
#: Groups beyond these are told by their states alone.
_MOST_GROUPS: Final = 500
#: How old records are is looked up for so many partitions at a time, in so many steps: within some 6 %.
_MOST_LOOKED_UP: Final = 200
_STEPS: Final = 8
_YOUNGEST_MS: Final = 500
_OLDEST_MS: Final = 30 * 86_400_000


class Looker:
    """Looks at a cluster again and again. If `is_once`, two looks are all: what did not answer in time is not asked
    again."""

    def __init__(
        self, admin: Admin, now_ms: Callable[[], int], scraper: Scraper | None = None, *, is_once: bool = False
    ) -> None:
        self._admin = admin
        self._now_ms = now_ms
        self._scraper = scraper
        self._looks = 0
        self._sizes: Mapping[int, Mapping[str, int]] = {}
        self._problems: list[str] = []
        self._is_once = is_once
        #: What came too late, at least of some brokers: what there was of it, and what was told.
        self._late: dict[str, tuple[Any, str | None]] = {}
        #: Brokers that did not answer in time, and those that did.
        self._silent: set[int] = set()
        self._heard: set[int] = set()
        self.history = EndHistory()

    async def look(self) -> Sample:
        """What the cluster says now. Raises `BarnabasError` only if not even its brokers can be asked for."""
        admin, self._problems = self._admin, []
        self._heard.clear()
        if not self._is_once:
            self._late.clear()
            self._silent.clear()
        cluster = await self._cluster()
        partitions = await self._tried("topics", self._partitions(), {})
        ends, groups, leader = await asyncio.gather(
            self._tried("offsets", self._ends(partitions), {}),
            self._tried("groups", self._groups(), ()),
            self._tried(_QUORUM, self._controller(cluster), None),
        )
        if self._silent and "groups" not in self._late:
            self._late["groups"] = groups, None
        at_ms = self._now_ms()
        committed = await self._tried("offsets of groups", self._committed(groups), {})
        if self._looks % _LOOKS_PER_SIZES == 0:
            self._sizes = await self._tried("sizes", self._ask_sizes(cluster), self._sizes)
        self._looks += 1
        for partition, end in ends.items():
            self.history.note(partition, end, at_ms)
        self.history.forget_others(frozenset(partitions))
        await self._tried("ages of records", self._look_up_ages(committed, ends, at_ms), None)
        nodes: dict[int, NodeFigures] = {}
        if self._scraper is not None:
            nodes, problems = await self._scraper.scrape(admin, cluster)
            self._problems += problems
            self._heard |= nodes.keys()
        self._silent -= self._heard
        # Brokers that answer while nobody tells who leads: they have no controller to ask.
        has_controller = leader != _NOBODY and (leader is not None or _QUORUM not in self._late or not self._heard)
        return Sample(
            at_ms,
            cluster.cluster_id or "",
            None if leader == _NOBODY else leader,
            tuple(
                BrokerSeen(
                    each.node_id,
                    address_text(each.host, each.port),
                    each.node_id in cluster.fenced,
                    each.node_id in self._silent,
                )
                for each in cluster.nodes
            ),
            partitions,
            ends,
            groups,
            committed,
            self._sizes,
            nodes,
            tuple(self._problems),
            has_controller,
        )

    async def _tried(self, what: str, asking: Coroutine[Any, Any, T], otherwise: T) -> T:
        from barnabas.client.errors import KeyedError

        if self._is_once and what in self._late:
            asking.close()
            known, problem_text = self._late[what]
            self._problems += [] if problem_text is None else [problem_text]
            return cast(T, known)
        is_late, found, told = False, otherwise, None
        try:
            async with asyncio.timeout(_ANSWER_S):
                found = await asking
        except KeyedError as problem:
            # What some said is kept by those who asked; what is left is that nobody did.
            told = f"{what}: {next(map(reason, problem.errors.values()))}"
            is_late = any(map(_is_silence, problem.errors.values()))
        except BarnabasError as problem:
            told, is_late = f"{what}: {reason(problem)}", _is_silence(problem)
        except TimeoutError:
            told, is_late = f"{what}: no answer within {_ANSWER_S:.0f} s", True
        if told is not None:
            self._problems.append(told)
        if is_late:
            self._late[what] = found, told
        return found

    async def _cluster(self) -> ClusterDescription:
        try:
            return await self._admin.describe_cluster(include_fenced_brokers=True, timeout=_ANSWER_S)
        except UnsupportedRequestError:
            return await self._admin.describe_cluster(timeout=_ANSWER_S)

    async def _controller(self, cluster: ClusterDescription) -> int | None:
        """Who leads the controllers, if anybody does. What brokers call the controller is any one of them."""
        try:
            leader = (await self._admin.describe_metadata_quorum(timeout=_BROKER_S)).leader_id
        except UnsupportedRequestError:
            return _NOBODY if cluster.controller is None else cluster.controller.node_id
        return max(leader, _NOBODY)

    async def _partitions(self) -> dict[TopicPartition, PartitionSeen]:
        names = list(await self._admin.list_topics(include_internal=True))
        described = await kept(self._admin.describe_topics(names)) if names else {}
        return {
            TopicPartition(name, each.partition): PartitionSeen(
                None if each.leader is None else each.leader.node_id,
                tuple(node.node_id for node in each.replicas),
                tuple(node.node_id for node in each.isr),
            )
            for name, topic in described.items()
            for each in topic.partitions
        }

    async def _ends(self, partitions: Mapping[TopicPartition, PartitionSeen]) -> dict[TopicPartition, int]:
        from barnabas.client.admin import OffsetSpec

        led = {
            partition: each.leader
            for partition, each in partitions.items()
            if each.leader is not None and each.leader not in self._silent
        }
        if not led:
            return {}
        found = await kept(self._admin.list_offsets(dict.fromkeys(led, OffsetSpec.latest()), timeout=_BROKER_S))
        self._heard |= {led[partition] for partition in found}
        return {partition: each.offset for partition, each in found.items()}

    async def _groups(self) -> tuple[GroupFacts, ...]:
        listed = [each for each in await self._listed() if str(each.type) in _LISTED_TYPES]
        named = [each.group_id for each in listed[:_MOST_GROUPS]]
        described = await kept(self._admin.describe_groups(named)) if named else {}
        members = {name: len(each.members) for name, each in described.items()}
        return tuple(GroupFacts(each.group_id, str(each.state), members.get(each.group_id, 0)) for each in listed)

    async def _listed(self) -> list[GroupListing]:
        """The groups of all brokers that answer."""
        from barnabas.client.errors import KeyedError

        try:
            return await self._admin.list_groups(timeout=_BROKER_S)
        except KeyedError as problem:
            self._note(problem.errors, problem.results)
            if not problem.results:
                raise
            # Who is silent is told once, as a reason.
            refused = [(each, error) for each, error in sorted(problem.errors.items()) if not _is_silence(error)]
            self._problems += [f"groups of broker {each}: {reason(error)}" for each, error in refused]
            groups = {each.group_id: each for listed in problem.results.values() for each in listed}
            return [groups[name] for name in sorted(groups)]

    def _note(self, errors: Mapping[int, BaseException], results: Collection[int]) -> None:
        """Who did not answer, and who did, if only to refuse."""
        silent = {number for number, error in errors.items() if _is_silence(error)}
        self._silent |= silent
        self._heard |= (errors.keys() - silent) | set(results)

    async def _committed(self, groups: Collection[GroupFacts]) -> dict[str, dict[TopicPartition, int]]:
        names = [each.group_id for each in groups][:_MOST_GROUPS]
        found = await kept(self._admin.list_group_offsets(dict.fromkeys(names))) if names else {}
        return {
            group: {partition: each.offset for partition, each in offsets.items()} for group, offsets in found.items()
        }

    async def _ask_sizes(self, cluster: ClusterDescription) -> dict[int, dict[str, int]]:
        at_work = [each.node_id for each in cluster.nodes if each.node_id not in cluster.fenced]
        sizes: dict[int, dict[str, int]] = {}
        asked = [number for number in at_work if number not in self._silent]
        if at_work and not asked:
            return sizes
        for number, directories in (await kept(self._admin.describe_log_dirs(asked, timeout=_BROKER_S))).items():
            self._heard.add(number)
            topics = sizes.setdefault(number, {})
            for directory in directories.values():
                for partition, replica in directory.replicas.items():
                    topics[partition.topic] = topics.get(partition.topic, 0) + replica.size_bytes
        return sizes

    # How old what was not read is

    async def _look_up_ages(
        self,
        committed: Mapping[str, Mapping[TopicPartition, int]],
        ends: Mapping[TopicPartition, int],
        now_ms: int,
    ) -> None:
        """Of records that were there before the first look. The first of several offsets of a partition is looked up:
        the others lie between it and the first look."""
        wanted: dict[TopicPartition, int] = {}
        for offsets in committed.values():
            for partition, offset in offsets.items():
                has_lag = 0 <= offset < ends.get(partition, 0)
                if has_lag and self.history.age(partition, offset, now_ms).is_at_least:
                    wanted[partition] = min(offset, wanted.get(partition, offset))
        chosen = dict(list(wanted.items())[:_MOST_LOOKED_UP])
        if not chosen:
            return
        bounds = {each: (math.log(_YOUNGEST_MS), math.log(_OLDEST_MS)) for each in chosen}
        for _ in range(_STEPS):
            bounds = await self._halved(chosen, bounds, now_ms)
        for partition, (youngest, oldest) in bounds.items():
            age_ms = int(math.exp((youngest + oldest) / 2))
            self.history.note_written(partition, chosen[partition], now_ms - age_ms)

    async def _halved(
        self, offsets: Mapping[TopicPartition, int], bounds: Mapping[TopicPartition, tuple[float, float]], now_ms: int
    ) -> dict[TopicPartition, tuple[float, float]]:
        """Is the record at the offset older or younger than the middle? By the first one that is not older than it."""
        from barnabas.client.admin import OffsetSpec

        middles = {partition: (young + old) / 2 for partition, (young, old) in bounds.items()}
        specs = {each: OffsetSpec.at(max(0, now_ms - int(math.exp(middle)))) for each, middle in middles.items()}
        found = await kept(self._admin.list_offsets(specs, timeout=_BROKER_S))
        halved = {}
        for partition, listed in found.items():
            young, old = bounds[partition]
            is_older = listed.offset < 0 or listed.offset > offsets[partition]
            halved[partition] = (middles[partition], old) if is_older else (young, middles[partition])
        return halved


#: Groups that commit offsets as consumers do.
_LISTED_TYPES: Final = frozenset({"Classic", "Consumer", "Unknown", "Streams"})


def _is_silence(error: BaseException) -> bool:
    return isinstance(error, TimeoutError | ConnectionError)


async def kept(asking: Awaitable[Mapping[Any, Any]]) -> dict[Any, Any]:
    """What some of those who were asked said, if others failed; the failure, if all did."""
    from barnabas.client.errors import KeyedError

    try:
        return dict(await asking)
    except KeyedError as problem:
        if not problem.results:
            raise
        return problem.results
