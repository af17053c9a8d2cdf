"""A follower's side of the fetch session with one leader: what the leader knows of us, and what it must be told.

What is wanted is told by changes, so a fetch costs what has changed since the last one, however many partitions there
are. Topics are known by their ids: one that was deleted and made again is another.
"""

from __future__ import annotations

from barnabas.base.ids import Uuid
from barnabas.wire.fetch_session_epoch import FetchSessionEpoch
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

#: A topic and a partition's number.
ReplicaKey = tuple[Uuid, int]
#: From this version on the replica is named in a tag, together with its epoch.
_FIRST_WITH_REPLICA_STATE = 15


class FollowerFetchSession:
    """One fetch at a time: each `begin` is followed by `answered` or `failed`."""

    __slots__ = ("_changed", "_epoch", "_known", "_wanted", "_was_full")

    def __init__(self) -> None:
        self._epoch = FetchSessionEpoch()
        self._wanted: dict[ReplicaKey, FetchPartition] = {}
        # What the leader was asked for last, and still is if it was not said again.
        self._known: dict[ReplicaKey, FetchPartition] = {}
        # An ordered set: the same run sends the same bytes.
        self._changed: dict[ReplicaKey, None] = {}
        self._was_full = True

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, key: ReplicaKey, asked: FetchPartition) -> None:
        # Whoever got records goes to the end: the first one in an answer gets a whole batch, however large.
        self._wanted.pop(key, None)
        self._wanted[key] = asked
        self._changed[key] = None

    def forget(self, key: ReplicaKey) -> None:
        if self._wanted.pop(key, None) is not None:
            self._changed[key] = None

    def begin(
        self, version: int, replica: ReplicaState, *, max_wait_ms: int, min_bytes: int, max_bytes: int
    ) -> FetchRequest:
        """The next fetch, for all that is wanted and nothing else."""
        self._was_full = self._epoch.is_full
        forgotten: list[ReplicaKey] = []
        if self._was_full:
            self._known = dict(self._wanted)
            to_send = self._known
        else:
            to_send = {}
            for key in self._changed:
                asked = self._wanted.get(key)
                if asked is not None:
                    self._known[key] = to_send[key] = asked
                elif self._known.pop(key, None) is not None:
                    forgotten.append(key)
        self._changed = {}
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            session_id=self._epoch.id,
            session_epoch=self._epoch.epoch,
            topics=_topics(to_send),
            forgotten_topics_data=_forgotten(forgotten),
        )
        if version >= _FIRST_WITH_REPLICA_STATE:
            request.replica_state = replica
        else:
            request.replica_id = replica.replica_id
        return request

    def answered(self, response: FetchResponse) -> list[tuple[ReplicaKey, FetchPartition, PartitionData]] | None:
        """What an answer says, each with what was asked; None if it is of no use, and all must be asked again."""
        if response.error_code:
            self._epoch.refused(response.error_code)
            return None
        known = self._known
        found = []
        for topic in response.responses:
            topic_id = topic.topic_id
            for data in topic.partitions:
                key = topic_id, data.partition_index
                asked = known.get(key)
                if asked is None:
                    self._epoch.confused(response, was_full=self._was_full)
                    return None
                found.append((key, asked, data))
        if self._was_full and len(found) != len(known):
            self._epoch.confused(response, was_full=True)
            return None
        self._epoch.answered(response.session_id, was_full=self._was_full)
        return found

    def failed(self) -> None:
        """Whether the leader saw the fetch is not known, so neither is the epoch that it expects."""
        self._epoch.begin_anew()


def _topics(partitions: dict[ReplicaKey, FetchPartition]) -> list[FetchTopic]:
    topics: dict[Uuid, FetchTopic] = {}
    for (topic_id, _), asked in partitions.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchTopic(topic_id=topic_id, partitions=[])
        topic.partitions.append(asked)
    return list(topics.values())


def _forgotten(keys: list[ReplicaKey]) -> list[ForgottenTopic]:
    topics: dict[Uuid, ForgottenTopic] = {}
    for topic_id, number in keys:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ForgottenTopic(topic_id=topic_id, partitions=[])
        topic.partitions.append(number)
    return list(topics.values())
