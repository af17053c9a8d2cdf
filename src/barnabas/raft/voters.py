"""The voters of a quorum, and how they changed over the log.

Whether a replica votes is said by the newest voter set in its log, committed or not; a truncation brings back the set
before. Sets follow each other one voter at a time, so that majorities of neighbouring ones have a voter in common.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from barnabas.base.errors import RemoteProtocolError, check
from barnabas.base.ids import Uuid
from barnabas.raft.batches import ControlRecord
from barnabas.raft.types import Address, ReplicaKey
from barnabas.records.control import ControlType
from barnabas.wire.stored.control_records import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    QuorumVoter,
    VotersRecord,
)

#: Voters stand in the settings of every node, and are known by their ids.
STATIC_VOTERS: Final = 0
#: Voters stand in the log, and are known by id and directory.
VOTERS_IN_LOG: Final = 1

DEFAULT_LISTENER: Final = "CONTROLLER"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Voter:
    """A replica that votes, and where it listens, by the names of its listeners. Others use the one by which they know
    listeners of controllers, and the first if there is none of that name."""

    key: ReplicaKey
    listeners: Mapping[str, Address]
    min_kraft_version: int = STATIC_VOTERS
    max_kraft_version: int = VOTERS_IN_LOG

    @property
    def address(self) -> Address:
        """That of the first."""
        return next(iter(self.listeners.values()))

    def address_at(self, listener: str | None) -> Address:
        return self.listeners.get(listener or "") or self.address


class VoterSet:
    """Who votes at some offset. It never changes: a change is another set."""

    __slots__ = ("_voters", "ids")

    def __init__(self, voters: Iterable[Voter]) -> None:
        self._voters: dict[int, Voter] = {}
        for voter in sorted(voters, key=lambda each: each.key):
            check(voter.key.node_id not in self._voters, f"voter {voter.key.node_id} is there twice")
            self._voters[voter.key.node_id] = voter
        #: Sorted.
        self.ids: tuple[int, ...] = tuple(self._voters)

    @classmethod
    def of(cls, addresses: Mapping[int, Address]) -> VoterSet:
        """Voters as they stand in settings: ids and addresses."""
        return cls(Voter(ReplicaKey(each), {DEFAULT_LISTENER: address}) for each, address in addresses.items())

    def __len__(self) -> int:
        return len(self._voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._voters.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(str(each.key) for each in self)})"

    @property
    def majority(self) -> int:
        return len(self._voters) // 2 + 1

    def is_voter(self, key: ReplicaKey) -> bool:
        """Directories count where the set knows them."""
        voter = self._voters.get(key.node_id)
        return voter is not None and voter.key.directory_id in (Uuid.ZERO, key.directory_id)

    def get(self, node_id: int) -> Voter | None:
        return self._voters.get(node_id)

    def with_voter(self, voter: Voter) -> VoterSet:
        """With one more, or with another in the place of the one with its id."""
        return VoterSet([*(each for each in self if each.key.node_id != voter.key.node_id), voter])

    def without(self, node_id: int) -> VoterSet:
        return VoterSet(each for each in self if each.key.node_id != node_id)

    def to_record(self) -> ControlRecord:
        voters = [
            QuorumVoter(
                voter_id=each.key.node_id,
                voter_directory_id=each.key.directory_id,
                endpoints=[
                    Endpoint(name=name, host=address.host, port=address.port)
                    for name, address in each.listeners.items()
                ],
                k_raft_version_feature=KRaftVersionFeature(
                    min_supported_version=each.min_kraft_version, max_supported_version=each.max_kraft_version
                ),
            )
            for each in self
        ]
        return ControlRecord(ControlType.KRAFT_VOTERS, VotersRecord(version=0, voters=voters))

    @classmethod
    def from_record(cls, record: VotersRecord) -> VoterSet:
        for each in record.voters:
            if not each.endpoints:
                raise RemoteProtocolError(f"a record of the voters names no address of voter {each.voter_id}")
        return cls(
            Voter(
                ReplicaKey(each.voter_id, each.voter_directory_id),
                {point.name: Address(point.host, point.port) for point in each.endpoints},
                each.k_raft_version_feature.min_supported_version,
                each.k_raft_version_feature.max_supported_version,
            )
            for each in record.voters
        )


class OffsetHistory(Generic[T]):
    """Values by the offset of the record that brought them; what holds before all of them is `initial`."""

    def __init__(self, initial: T) -> None:
        self.initial = initial
        self._entries: list[tuple[int, T]] = []

    @property
    def newest(self) -> T:
        return self._entries[-1][1] if self._entries else self.initial

    @property
    def newest_offset(self) -> int:
        """-1 if no record brought it."""
        return self._entries[-1][0] if self._entries else -1

    def before(self, end_offset: int) -> T:
        """What held at the end of a log of that length."""
        place = bisect_left(self._entries, end_offset, key=lambda entry: entry[0])
        return self._entries[place - 1][1] if place else self.initial

    def add(self, offset: int, value: T) -> None:
        check(offset > self.newest_offset, f"a change at offset {offset} comes after one at {self.newest_offset}")
        self._entries.append((offset, value))

    def truncate(self, end_offset: int) -> None:
        """Forget what came with records from `end_offset` on."""
        del self._entries[bisect_left(self._entries, end_offset, key=lambda entry: entry[0]) :]

    def forget_before(self, start_offset: int) -> None:
        """Keep what holds from `start_offset` on, and no more."""
        place = bisect_left(self._entries, start_offset, key=lambda entry: entry[0])
        del self._entries[: max(0, place - 1)]

    def clear(self) -> None:
        self._entries.clear()


class QuorumHistory:
    """The voter sets and kraft versions of a log (Kafka's KRaftControlRecordStateMachine)."""

    def __init__(self, static_voters: VoterSet | None) -> None:
        self.voter_sets: OffsetHistory[VoterSet] = OffsetHistory(static_voters or VoterSet([]))
        self.kraft_versions: OffsetHistory[int] = OffsetHistory(STATIC_VOTERS)

    def replay(self, offset: int, record: ControlRecord) -> None:
        """Take in a control record. What a quorum was formatted with lies before the log, at offset -1."""
        message = record.message
        if isinstance(message, VotersRecord):
            self._take(self.voter_sets, offset, VoterSet.from_record(message))
        elif isinstance(message, KRaftVersionRecord):
            self._take(self.kraft_versions, offset, message.k_raft_version)

    @staticmethod
    def _take(history: OffsetHistory[T], offset: int, value: T) -> None:
        if offset < 0:
            history.initial = value
        elif offset > history.newest_offset:
            history.add(offset, value)

    def truncate(self, end_offset: int) -> None:
        self.voter_sets.truncate(end_offset)
        self.kraft_versions.truncate(end_offset)

    def forget_before(self, start_offset: int) -> None:
        self.voter_sets.forget_before(start_offset)
        self.kraft_versions.forget_before(start_offset)

    def restart(self, offset: int, records: Sequence[ControlRecord]) -> None:
        """Begin anew with what the header of a snapshot says, as of its last offset."""
        self.voter_sets.clear()
        self.kraft_versions.clear()
        for record in records:
            self.replay(offset, record)

    def records_before(self, end_offset: int) -> list[ControlRecord]:
        """What the header of a snapshot up to there says of the voters: nothing where they are static."""
        version = self.kraft_versions.before(end_offset)
        if version == STATIC_VOTERS:
            return []
        message = KRaftVersionRecord(version=0, k_raft_version=version)
        return [ControlRecord(ControlType.KRAFT_VERSION, message), self.voter_sets.before(end_offset).to_record()]
