"""What a consumer reads, and where in it the program is.

A consumer is in one of three modes, and must be unsubscribed to change it: topics by name, topics by pattern (their
partitions then come from a group), or partitions by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.client.core.cluster_view import ClusterView
from barnabas.client.core.consuming.offsets import (
    NO_EPOCH,
    OffsetAndMetadata,
    ResetKind,
    ResetStrategy,
)
from barnabas.client.core.consuming.partition_state import FetchState, HandedChunk, PartitionState, Position
from barnabas.client.errors import WrongUseError


class Mode(Enum):
    NONE = "nothing"
    TOPICS = "topics by name"
    PATTERN = "topics by pattern"
    PARTITIONS = "partitions by hand"


class Subscription:
    """Topics and partitions of one consumer. Not for several threads, except `begin_poll` and what chunks do."""

    def __init__(self, default_reset: ResetStrategy) -> None:
        self.default_reset = default_reset
        self.mode = Mode.NONE
        self.pattern: re.Pattern[str] | None = None
        #: Called at rebalances; kept here because it comes and goes with the subscription.
        self.listener: Any = None
        #: Changes with every change of topics.
        self.topics_version = 0
        #: Changes with every change of the assigned partitions.
        self.assignment_version = 0
        self._topics: frozenset[str] = frozenset()
        self._group_topics: frozenset[str] = frozenset()
        self._states: dict[TopicPartition, PartitionState] = {}
        self._touched: dict[TopicPartition, PartitionState] = {}
        self._watchers: list[Callable[[], None]] = []

    def on_change(self, callback: Callable[[], None]) -> None:
        """Have `callback` called whenever there may be something new to fetch or to look up."""
        self._watchers.append(callback)

    # What to read

    def subscribe(self, topics: Iterable[str], listener: Any = None) -> bool:
        """Read topics by name. Returns whether that changes anything."""
        if isinstance(topics, str):
            raise TypeError(f"subscribe takes a list of topics: [{topics!r}]")
        wanted = frozenset(topics)
        if not all(isinstance(topic, str) and topic for topic in wanted):
            raise ValueError("the names of topics must be text, and not empty")
        pattern = next((topic for topic in sorted(wanted) if topic.startswith("^")), None)
        if pattern is not None:
            raise ValueError(f"{pattern!r} is no topic's name; a pattern is given as subscribe(pattern={pattern!r})")
        self._enter(Mode.TOPICS)
        self.listener = listener
        return self._set_topics(wanted)

    def subscribe_pattern(self, pattern: str | re.Pattern[str], listener: Any = None) -> None:
        """Read all topics whose whole name matches. Which those are, `set_matched` is told with every new metadata."""
        compiled = re.compile(pattern)
        self._enter(Mode.PATTERN)
        self.pattern = compiled
        self.listener = listener

    def set_matched(self, topics: Iterable[str]) -> bool:
        """The topics that match the pattern at present. Returns whether they are others than before."""
        if self.mode is not Mode.PATTERN:
            raise WrongUseError(f"the consumer reads {self.mode.value}, not topics by pattern")
        return self._set_topics(frozenset(topics))

    def match(self, view: ClusterView, *, exclude_internal: bool) -> None:
        """Bring the topics of the pattern up to date with those that there are."""
        self.set_matched(
            topic
            for topic in view.topics()
            if self.matches(topic) and not (exclude_internal and view.is_internal(topic))
        )

    def matches(self, topic: str) -> bool:
        return self.pattern is not None and self.pattern.fullmatch(topic) is not None

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read partitions by hand. Those that were assigned before keep their position; none at all unsubscribes."""
        wanted = [_checked(partition) for partition in partitions]
        if not wanted and self.mode in (Mode.NONE, Mode.PARTITIONS):
            self.unsubscribe()
            return
        self._enter(Mode.PARTITIONS)
        self._replace(wanted)

    def unsubscribe(self) -> None:
        """Read nothing; any mode may follow."""
        self.mode = Mode.NONE
        self.pattern = None
        self.listener = None
        self._set_topics(frozenset())
        self._group_topics = frozenset()
        self._replace([])

    @property
    def topics(self) -> frozenset[str]:
        """The topics subscribed to, by name or by pattern; of partitions by hand, theirs."""
        if self.mode is Mode.PARTITIONS:
            return frozenset(partition.topic for partition in self._states)
        return self._topics

    @property
    def uses_group(self) -> bool:
        """Whether a group hands out the partitions."""
        return self.mode in (Mode.TOPICS, Mode.PATTERN)

    @property
    def group_subscription(self) -> frozenset[str]:
        """The topics whose metadata is needed: those of all members, for the member that assigns."""
        return self.topics | self._group_topics

    def set_group_topics(self, topics: Iterable[str]) -> bool:
        """The topics of all members, as the leader of a group learns them. Returns whether some were not known."""
        self._group_topics = frozenset(topics)
        return not self._group_topics <= self.topics

    def reset_group_topics(self) -> None:
        """This member leads no more."""
        self._group_topics = frozenset()

    def _enter(self, mode: Mode) -> None:
        if self.mode not in (Mode.NONE, mode):
            raise WrongUseError(
                f"the consumer reads {self.mode.value}; call unsubscribe() before it can read {mode.value}"
            )
        self.mode = mode

    def _set_topics(self, topics: frozenset[str]) -> bool:
        if topics == self._topics:
            return False
        self._topics = topics
        self.topics_version += 1
        return True

    # What is assigned

    def assigned_from_group(self, partitions: Iterable[TopicPartition]) -> None:
        """Take over an assignment as a whole: what is there already keeps its position, what is not in it goes.

        A member of a cooperative group that keeps partitions while it gives others away calls this too.
        """
        if not self.uses_group:
            raise WrongUseError(f"the consumer reads {self.mode.value}: no group assigns partitions to it")
        self._replace(partitions)

    def fits(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether all partitions of an assignment are of topics that are subscribed to now."""
        return all(
            self.matches(partition.topic) if self.mode is Mode.PATTERN else partition.topic in self._topics
            for partition in partitions
        )

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Read no more of what is about to be revoked, while it can still be committed."""
        for partition in partitions:
            state = self._states.get(partition)
            if state is not None:
                state.is_pending_revocation = True
                if state.chunk is not None:
                    state.chunk.halt()

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Give single partitions away, and keep the rest."""
        gone = frozenset(partitions)
        self._replace([partition for partition in self._states if partition not in gone])

    def _replace(self, partitions: Iterable[TopicPartition]) -> None:
        before = self._states
        states = {partition: before.get(partition) or PartitionState() for partition in partitions}
        if states.keys() == before.keys():
            for state in states.values():
                state.is_pending_revocation = False
            return
        for partition, state in before.items():
            if partition not in states:
                state.drop_fetched()
                self._touched.pop(partition, None)
        self._states = states
        for state in states.values():
            state.is_pending_revocation = False
        self.assignment_version += 1
        self._changed()

    def assigned(self) -> list[TopicPartition]:
        """In the order in which they were assigned."""
        return list(self._states)

    def is_assigned(self, partition: TopicPartition) -> bool:
        return partition in self._states

    def states(self) -> Mapping[TopicPartition, PartitionState]:
        return self._states

    def state(self, partition: TopicPartition) -> PartitionState:
        state = self._states.get(partition)
        if state is None:
            raise WrongUseError(f"{TopicPartition(*partition)} is not assigned to this consumer")
        return state

    def get(self, partition: TopicPartition) -> PartitionState | None:
        return self._states.get(partition)

    # Where the program is

    def seek(self, partition: TopicPartition, to: int | OffsetAndMetadata) -> None:
        """Let the program read on from there. An offset with a leader epoch is validated before."""
        target = to if isinstance(to, OffsetAndMetadata) else OffsetAndMetadata(to)
        state = self.state(partition)
        epoch = NO_EPOCH if target.leader_epoch is None else target.leader_epoch
        state.move_to(Position(target.offset, epoch))
        # The leader is not known to hold this position: it is looked at before the next fetch.
        state.leader_id, state.leader_epoch = -1, NO_EPOCH
        self._changed()

    def request_reset(self, partition: TopicPartition, strategy: ResetStrategy | None = None) -> None:
        """Find the beginning, end or time that the strategy names, and go on there; by default as auto.offset.reset."""
        state = self.state(partition)
        chosen = strategy or self.default_reset
        if chosen.kind is ResetKind.NONE:
            raise ValueError("with auto.offset.reset none there is nowhere to go")
        state.begin_reset(chosen)
        self._changed()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out no records of these. What was fetched of them is kept."""
        states = [self.state(partition) for partition in partitions]
        for state in states:
            state.is_paused = True
            if state.chunk is not None:
                state.chunk.halt()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        states = [self.state(partition) for partition in partitions]
        for state in states:
            state.is_paused = False
        self._changed()

    def paused(self) -> list[TopicPartition]:
        return [partition for partition, state in self._states.items() if state.is_paused]

    def position(self, partition: TopicPartition) -> Position | None:
        """What the program gets next; None while that is being found out."""
        state = self.state(partition)
        return state.position if state.has_position else None

    def handed_out(self, partition: TopicPartition, chunk: HandedChunk) -> None:
        """The chunk is with the program from now on."""
        state = self._states[partition]
        state.hand_out(chunk)
        self._touched[partition] = state

    def advance(self, partition: TopicPartition, position: Position) -> None:
        """Records up to there were handed out as columns, or none was for the program."""
        state = self._states[partition]
        state.advance(position)
        self._touched[partition] = state

    def begin_poll(self) -> None:
        """The program has come back for more: it is done with all that it was given."""
        touched = self._touched
        if touched:
            self._touched = {}
            for partition, state in touched.items():
                state.confirm()
                if state.chunk is not None:
                    self._touched[partition] = state

    def done_up_to(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The program commits these itself: what is committed by itself must not fall behind them."""
        for partition, each in offsets.items():
            state = self._states.get(partition)
            if state is not None:
                state.done_up_to(Position(each.offset, NO_EPOCH if each.leader_epoch is None else each.leader_epoch))

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What may be committed at any moment: what the program is done with, since it came back for more.

        A record that it still has from an iteration, or a list that it still has from a poll, is not in it.
        """
        return self._offsets(lambda state: state.consumed)

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Everything that was handed out: what a commit means that the program itself asks for."""
        return self._offsets(lambda state: state.position)

    def _offsets(self, which: Callable[[PartitionState], Position | None]) -> dict[TopicPartition, OffsetAndMetadata]:
        found = {}
        for partition, state in self._states.items():
            if not state.has_position:
                continue
            position = which(state)
            if position is not None:
                epoch = None if position.epoch == NO_EPOCH else position.epoch
                found[partition] = OffsetAndMetadata(position.offset, "", epoch)
        return found

    def lag(self, partition: TopicPartition, *, read_committed: bool) -> int | None:
        """How many offsets lie between the position and the end that the reader can see; None if not known yet."""
        state = self.state(partition)
        end = state.last_stable_offset if read_committed else state.high_watermark
        position = state.position
        if end is None or position is None or not state.has_position:
            return None
        return max(0, end - position.offset)

    def without_position(self) -> list[TopicPartition]:
        """Those for which a committed offset has yet to be looked up."""
        return [partition for partition, state in self._states.items() if state.fetch_state is FetchState.INITIALIZING]

    def has_all_positions(self) -> bool:
        return all(state.has_position for state in self._states.values())

    def _changed(self) -> None:
        for callback in self._watchers:
            callback()


def _checked(partition: object) -> TopicPartition:
    match partition:
        case (str() as topic, int() as number):
            return TopicPartition(topic, number)
    raise TypeError(f"partitions are to be assigned, as [TopicPartition('clicks', 0)], and {partition!r} is none")
