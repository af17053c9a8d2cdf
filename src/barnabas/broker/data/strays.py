"""Partitions on disk that the metadata log does not speak of.

A topic's partitions are made after its record was committed, and a sole voter deletes what it is told to delete before
a snapshot forgets it. So each partition on disk is one that the log names: as there, or as deleted, which a crash may
have interrupted; then it is set aside. One that it never named means that the log has lost something, or that the
partition belongs to another cluster. Whoever starts then would hide records that somebody counts on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Uuid
from barnabas.metadata.batches import decode_values
from barnabas.metadata.image import ClusterImage
from barnabas.raft.types import CommittedBatch
from barnabas.storage.directories import FoundPartition
from barnabas.wire.stored.cluster_metadata import RemoveTopicRecord, TopicRecord

_SHOWN: Final = 5


class NamedTopics(NamedTuple):
    """What the log says beyond the image: which topics it created, with their names, and which it deleted."""

    created: dict[Uuid, str]
    deleted: set[Uuid]


def named_topics(log: Iterable[CommittedBatch]) -> NamedTopics:
    """What was created and deleted, as far back as log and snapshots reach: one that was deleted has its name there."""
    named = NamedTopics({}, set())
    for batch in log:
        for record in decode_values(batch.values, batch.base_offset):
            if isinstance(record, TopicRecord):
                named.created[record.topic_id] = record.name
            elif isinstance(record, RemoveTopicRecord):
                named.deleted.add(record.topic_id)
    return named


class UnknownPartitionsError(BarnabasError):
    """Partitions lie in the log directories that the metadata log never named."""


def refuse_unknown(
    found: Iterable[FoundPartition], image: ClusterImage, named_topics: Callable[[], NamedTopics]
) -> None:
    """Raise if a partition is there that was never named. `named_topics` is asked only if the image does not do."""
    suspects = [each for each in found if not _is_in(image, each)]
    if not suspects:
        return
    named = named_topics()
    unknown = [each for each in suspects if not _was_deleted(named, each)]
    if unknown:
        shown = ", ".join(_shown(each) for each in unknown[:_SHOWN])
        more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        raise UnknownPartitionsError(
            f"the metadata log never named {shown}{more}: it has lost something, or they belong to another cluster. "
            "None was touched; restore the metadata log from a backup, or move them out of the log directory"
        )


def _is_in(image: ClusterImage, found: FoundPartition) -> bool:
    """Whether there is such a partition, on whichever node; without an id the name has to do."""
    topic = image.topics.get(found.partition.topic)
    return (
        topic is not None and found.topic_id in (None, topic.topic_id) and image.partition(*found.partition) is not None
    )


def _was_deleted(named: NamedTopics, found: FoundPartition) -> bool:
    if found.topic_id is None:
        names = {named.created.get(each) for each in named.deleted}
        return found.partition.topic in names or not found.has_data
    return found.topic_id in named.deleted and named.created.get(found.topic_id, found.partition.topic) == (
        found.partition.topic
    )


def _shown(found: FoundPartition) -> str:
    return f"{found.path} (topic id {found.topic_id or 'none'})"
