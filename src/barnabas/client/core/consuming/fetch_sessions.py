"""Our side of fetch sessions: what a broker remembers of us, so that only what changed is sent.

A session begins with a full fetch (epoch 0). If the answer names it, each further fetch carries the next epoch and only
partitions that were added, changed or left out; the answer only partitions with news. Whatever goes wrong, the next
fetch is a full one again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1
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
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._uses_ids = False
        self._known: dict[TopicPartition, WantedFetch] = {}

    @property
    def is_open(self) -> bool:
        """Whether the broker keeps a session for us, as far as we know."""
        return self._id != NO_SESSION

    def begin(self, wanted: Mapping[TopicPartition, WantedFetch], version: int) -> FetchRequestData:
        """The next fetch, for all of `wanted` and nothing else, in at most this version.

        A topic whose id is not known can only be asked for by its name, and then so must be all.
        """
        if version >= FIRST_WITH_IDS and any(each.topic_id == Uuid.ZERO for each in wanted.values()):
            version = FIRST_WITH_IDS - 1
        uses_ids = version >= FIRST_WITH_IDS
        if self._epoch != INITIAL_EPOCH and uses_ids != self._uses_ids:
            self._epoch = INITIAL_EPOCH  # the broker ends the old session when it sees its id with this epoch
        self._uses_ids = uses_ids
        if self._epoch == INITIAL_EPOCH:
            self._known = dict(wanted)
            return FetchRequestData(version, self._id, INITIAL_EPOCH, self._known, self._known, {})
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
        return FetchRequestData(version, self._id, self._epoch, self._known, to_send, to_forget)

    def begin_close(self, version: int) -> FetchRequestData | None:
        """The fetch that ends the session; None if there is none."""
        if self._id == NO_SESSION:
            return None
        session_id, self._id, self._epoch = self._id, NO_SESSION, INITIAL_EPOCH
        return FetchRequestData(version, session_id, FINAL_EPOCH, {}, {}, {})

    def answered(self, fetch: FetchRequestData, response: FetchResponse) -> dict[TopicPartition, PartitionData] | None:
        """The partitions that an answer tells of; None if it is of no use as a whole, and all must be asked again."""
        error = response.error_code
        if error:
            if error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            self._epoch = INITIAL_EPOCH
            return None
        found = self._partitions(fetch, response)
        if found is None or (fetch.is_full and found.keys() != fetch.wanted.keys()):
            # A throttled full fetch is answered with nothing; other mismatches mean that one side is confused.
            if fetch.is_full and not response.responses and response.throttle_time_ms > 0:
                self._id = NO_SESSION
            self._epoch = INITIAL_EPOCH
            return None
        if response.session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, INITIAL_EPOCH
        elif fetch.is_full:
            self._id, self._epoch = response.session_id, 1
        else:
            self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1
        return found

    def failed(self) -> None:
        """Whether the broker saw the fetch is not known, so neither is the epoch that it expects."""
        self._epoch = INITIAL_EPOCH

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
