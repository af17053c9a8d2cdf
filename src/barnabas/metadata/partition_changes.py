"""What becomes of one partition when its replicas change: the one place where leaders and in-sync sets are decided.

Kafka's PartitionChangeBuilder. It is told the partition as it stands, who could lead, and what is wanted; from that
come the leader, the in-sync set, the eligible leader replicas (ELR) and whether a new leader epoch begins. ELR: who
left an in-sync set of `min.insync.replicas` members has everything that was acknowledged since, because nothing could
be acknowledged without it. So it may lead when the in-sync set is empty, unless it lost what was not on its disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Final, NamedTuple

from barnabas.base.ids import Uuid
from barnabas.metadata.features import DIRECTORY_ASSIGNMENT, ISR_SHRINK_KEEPS_LEADER_EPOCH
from barnabas.metadata.image import MIGRATING_DIRECTORY, NO_LEADER, PlacedPartition
from barnabas.wire.stored.cluster_metadata import PartitionChangeRecord

#: In a record: the leader stays, and with it the leader epoch.
NO_LEADER_CHANGE: Final = -2
#: The leader has taken over after an unclean election; until it says so, it may lack what was acknowledged.
RECOVERED: Final = 0
RECOVERING: Final = 1

_NO_RECOVERY_CHANGE: Final = -1


class Election(Enum):
    """Whom a partition may get as leader. The present one stays while it can lead."""

    #: Whoever is in sync, or eligible.
    ONLINE = "online"
    #: The same, but the first replica rather than the present leader.
    PREFERRED = "preferred"
    #: The same, or else any replica: it keeps the partition online and loses data.
    UNCLEAN = "unclean"


class PartitionRules(NamedTuple):
    """What holds for the topic of a partition, and in the cluster."""

    metadata_version: int
    is_elr_enabled: bool = False
    #: Of the topic, at most its replication factor.
    min_isr: int = 1
    election: Election = Election.ONLINE


class _Elected(NamedTuple):
    leader: int
    is_unclean: bool = False


class PartitionChangeBuilder:
    """`may_lead` tells whether a broker is at work, and its replica too. Set what is wanted, then `build`."""

    def __init__(self, placed: PlacedPartition, may_lead: Callable[[int], bool], rules: PartitionRules) -> None:
        partition = placed.state
        self._partition = partition
        self._may_lead = may_lead
        self._rules = rules
        self._record = PartitionChangeRecord(partition_id=placed.number, topic_id=placed.topic.topic_id)
        self._replicas = list(partition.replicas)
        self._removing = list(partition.removing_replicas)
        self._adding = list(partition.adding_replicas)
        self._elr = list(partition.eligible_leader_replicas)
        self._is_reassigned = False
        self.isr = list(partition.isr)
        self.leader_recovery_state = partition.leader_recovery_state
        #: Replicas that may have lost what they had.
        self.unclean_shutdown_replicas: Collection[int] = ()
        #: Where replicas lie from now on, by broker.
        self.directories: Mapping[int, Uuid] = {}

    def build(self) -> PartitionChangeRecord | None:
        """The change, or None if everything stays as it is. Must be called once only."""
        record, partition = self._record, self._partition
        self._complete_reassignment()
        self._set_target_elr()
        self._elect()
        if record.leader == NO_LEADER_CHANGE and len(self._replicas) < len(partition.replicas):
            record.leader = partition.leader  # replicas that go must be fenced by a new leader epoch
        self._record_elr()
        may_be_empty = self._rules.is_elr_enabled
        if record.isr is None and (self.isr or may_be_empty) and tuple(self.isr) != partition.isr:
            record.isr = self.isr
        self._begin_leader_epoch_for_shrink()
        self._record_last_known_leader()
        self._record_assignment()
        if self.leader_recovery_state != partition.leader_recovery_state:
            record.leader_recovery_state = self.leader_recovery_state
        return record if _says_anything(record) else None

    # Reassignments

    def _complete_reassignment(self) -> None:
        """Drop the replicas that were to go, once those that were to come are in sync."""
        if not self._removing and not self._adding:
            return
        isr = [each for each in self.isr if each not in self._removing]
        replicas = [each for each in self._replicas if each not in self._removing]
        if self._removing and (not isr or not replicas):
            return
        if not set(self._adding) <= set(isr):
            return
        if len(self._adding) < len(self._removing) and not set(replicas) <= set(isr):
            return
        self.isr, self._replicas, self._removing, self._adding = isr, replicas, [], []
        self._is_reassigned = True

    # Eligible leader replicas

    def _set_target_elr(self) -> None:
        """Below the minimum, members of the in-sync set that leave it become eligible."""
        if not self._rules.is_elr_enabled:
            return
        if len(self.isr) >= self._rules.min_isr:
            self._elr = []
            return
        candidates = {*self._elr, *self._partition.isr}
        self._elr = sorted(candidates.difference(self.isr, self.unclean_shutdown_replicas))

    def _record_elr(self) -> None:
        is_clean = self._record.isr is None
        if not is_clean or not self._rules.is_elr_enabled:
            self._elr = []
        if tuple(self._elr) != self._partition.eligible_leader_replicas:
            self._record.eligible_leader_replicas = self._elr

    def _record_last_known_leader(self) -> None:
        """Who led last is remembered while nobody leads: it may lead again when nobody else is left to hope for."""
        if not self._rules.is_elr_enabled:
            return
        record, known = self._record, self._partition.last_known_elr
        if record.leader == NO_LEADER and not known:
            record.last_known_elr = [self._partition.leader]
        elif record.leader >= 0 and known:
            record.last_known_elr = []

    # Leaders

    def _elect(self) -> None:
        record, elected = self._record, self._elected()
        if elected.leader == self._partition.leader:
            return
        if elected.leader in self._elr:
            self.isr = [elected.leader]
            self._elr = [each for each in self._elr if each != elected.leader]
        record.leader = elected.leader
        if elected.is_unclean:
            # The others may have what the new leader lacks, so they are not in sync with it.
            record.isr = [elected.leader]
            if self._partition.leader_recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING

    def _elected(self) -> _Elected:
        present = self._partition.leader
        is_preferred = self._rules.election is Election.PREFERRED
        for each in (self._replicas[0], present) if is_preferred else (present,):
            if self._is_valid_leader(each):
                return _Elected(each)
        for each in self._replicas:
            if self._is_valid_leader(each):
                return _Elected(each)
        if self._may_elect_last_known_leader():
            return _Elected(self._partition.last_known_elr[0], is_unclean=True)
        if self._rules.election is Election.UNCLEAN:
            for each in self._replicas:
                if self._may_lead(each):
                    return _Elected(each, is_unclean=True)
        return _Elected(NO_LEADER)

    def _is_valid_leader(self, broker_id: int) -> bool:
        return broker_id in (self.isr or self._elr) and self._may_lead(broker_id)

    def _may_elect_last_known_leader(self) -> bool:
        if not self._rules.is_elr_enabled or self._elr or self.isr:
            return False
        known = self._partition.last_known_elr
        return len(known) == 1 and self._may_lead(known[0])

    # The rest

    def _begin_leader_epoch_for_shrink(self) -> None:
        """Brokers of old could not do without a new leader epoch when a replica leaves the in-sync set."""
        record, partition = self._record, self._partition
        if self._rules.metadata_version >= ISR_SHRINK_KEEPS_LEADER_EPOCH or record.leader != NO_LEADER_CHANGE:
            return
        if record.isr is not None and not set(partition.isr) <= set(record.isr):
            record.leader = partition.leader

    def _record_assignment(self) -> None:
        record, partition = self._record, self._partition
        if not self.directories and not self._is_reassigned:
            return  # which is so nearly always, and there may be very many partitions
        if self._replicas and self._rules.metadata_version >= DIRECTORY_ASSIGNMENT:
            directories = [self.directories.get(each) or partition.directory_of(each) for each in self._replicas]
            known = partition.directories or (MIGRATING_DIRECTORY,) * len(partition.replicas)
            if tuple(directories) != known:
                record.directories = directories
        if self._replicas and tuple(self._replicas) != partition.replicas:
            record.replicas = self._replicas
        if tuple(self._removing) != partition.removing_replicas:
            record.removing_replicas = self._removing
        if tuple(self._adding) != partition.adding_replicas:
            record.adding_replicas = self._adding


def _says_anything(record: PartitionChangeRecord) -> bool:
    lists = (
        record.isr,
        record.eligible_leader_replicas,
        record.last_known_elr,
        record.replicas,
        record.removing_replicas,
        record.adding_replicas,
        record.directories,
    )
    return (
        record.leader != NO_LEADER_CHANGE
        or record.leader_recovery_state != _NO_RECOVERY_CHANGE
        or any(each is not None for each in lists)
    )
