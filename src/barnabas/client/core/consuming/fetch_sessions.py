"""Our side of fetch sessions: what a broker remembers of us, so that only what changed is sent.

A session begins with a full fetch (epoch 0). If the answer names it, each further fetch carries the next epoch and only
partitions that were added, changed or left out; the answer only partitions with news. Whatever goes wrong, the next
fetch is a full one again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.wire.fetch_session_epoch import FINAL_EPOCH, INITIAL_EPOCH, FetchSessionEpoch
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

#: From this version on topics are named by id.
FIRST_WITH_IDS: Final = 13


class WantedFetch(NamedTuple):
    """What is asked of a partition."""

    topic_id: Uuid
    offset: int
    leader_epoch: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchRequestData:
    """One fetch, and what it asked for in all, also without saying it again."""

    version: int
    session_id: int
    session_epoch: int
    wanted: Mapping[TopicPartition, WantedFetch]
    to_send: Mapping[TopicPartition, WantedFetch]
    #: Of each the id under which the session knows it.
    to_forget: Mapping[TopicPartition, Uuid]

    @property
    def uses_ids(self) -> bool:
        return self.version >= FIRST_WITH_IDS

    @property
    def is_full(self) -> bool:
        return self.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)

    def topics(self) -> list[FetchTopic]:
        topics: dict[tuple[str, Uuid], FetchTopic] = {}
        for (name, number), wanted in self.to_send.items():
            topic = topics.get((name, wanted.topic_id))
            if topic is None:
                topic = topics[name, wanted.topic_id] = FetchTopic(topic=name, topic_id=wanted.topic_id, partitions=[])
            topic.partitions.append(
                FetchPartition(
                    partition=number,
                    current_leader_epoch=wanted.leader_epoch,
                    fetch_offset=wanted.offset,
                    partition_max_bytes=wanted.max_bytes,
                )
            )
        return list(topics.values())

    def forgotten_topics(self) -> list[ForgottenTopic]:
        topics: dict[tuple[str, Uuid], ForgottenTopic] = {}
        for (name, number), topic_id in self.to_forget.items():
            topic = topics.get((name, topic_id))
            if topic is None:
                topic = topics[name, topic_id] = ForgottenTopic(topic=name, topic_id=topic_id, partitions=[])
            topic.partitions.append(number)
        return list(topics.values())

    def request(
        self, *, max_wait_ms: int, min_bytes: int, max_bytes: int, read_committed: bool, rack: str = ""
    ) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(read_committed),
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=self.topics(),
            forgotten_topics_data=self.forgotten_topics(),
            rack_id=rack,
        )


class ClientFetchSession:
    """The session with one node. One fetch at a time: each `begin` is followed by `answered` or `failed`."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self._epoch = FetchSessionEpoch()
        self._uses_ids = False
        self._known: dict[TopicPartition, WantedFetch] = {}

    @property
    def is_open(self) -> bool:
        """Whether the broker keeps a session for us, as far as we know."""
        return self._epoch.is_open

    def begin(self, wanted: Mapping[TopicPartition, WantedFetch], version: int) -> FetchRequestData:
        """The next fetch, for all of `wanted` and nothing else, in at most this version.

        A topic whose id is not known can only be asked for by its name, and then so must be all.
        """
        if version >= FIRST_WITH_IDS and any(each.topic_id == Uuid.ZERO for each in wanted.values()):
            version = FIRST_WITH_IDS - 1
        uses_ids = version >= FIRST_WITH_IDS
        epoch = self._epoch
        if uses_ids != self._uses_ids:
            epoch.begin_anew()
        self._uses_ids = uses_ids
        if epoch.is_full:
            self._known = dict(wanted)
            return FetchRequestData(version, epoch.id, INITIAL_EPOCH, self._known, self._known, {})
        known = self._known
        to_forget = {partition: each.topic_id for partition, each in known.items() if partition not in wanted}
        to_send: dict[TopicPartition, WantedFetch] = {}
        for partition, each in wanted.items():
            before = known.get(partition)
            if before == each:
                continue
            if before is not None and before.topic_id != each.topic_id:
                # The topic was deleted and made again.
                to_forget[partition] = before.topic_id
            to_send[partition] = each
        self._known = dict(wanted)
        return FetchRequestData(version, epoch.id, epoch.epoch, self._known, to_send, to_forget)

    def begin_close(self, version: int) -> FetchRequestData | None:
        """The fetch that ends the session; None if there is none."""
        if not self._epoch.is_open:
            return None
        return FetchRequestData(version, self._epoch.close(), FINAL_EPOCH, {}, {}, {})

    def answered(self, fetch: FetchRequestData, response: FetchResponse) -> dict[TopicPartition, PartitionData] | None:
        """The partitions that an answer tells of; None if it is of no use as a whole, and all must be asked again."""
        if response.error_code:
            self._epoch.refused(response.error_code)
            return None
        found = self._partitions(fetch, response)
        if found is None or (fetch.is_full and found.keys() != fetch.wanted.keys()):
            self._epoch.confused(response, was_full=fetch.is_full)
            return None
        self._epoch.answered(response.session_id, was_full=fetch.is_full)
        return found

    def failed(self) -> None:
        """Whether the broker saw the fetch is not known, so neither is the epoch that it expects."""
        self._epoch.begin_anew()

    def _partitions(
        self, fetch: FetchRequestData, response: FetchResponse
    ) -> dict[TopicPartition, PartitionData] | None:
        """None if there is a partition among them that was not asked for."""
        names = {each.topic_id: partition.topic for partition, each in fetch.wanted.items()} if fetch.uses_ids else {}
        found: dict[TopicPartition, PartitionData] = {}
        for topic in response.responses:
            name = names.get(topic.topic_id) if fetch.uses_ids else topic.topic
            if name is None:
                return None
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                if partition not in fetch.wanted:
                    return None
                found[partition] = data
        return found
