"""Feature levels, and the version in which each metadata record is written under a metadata.version.

A log may hold records of other versions than those written today: reading goes by the version beside each record. The
table is that of Kafka 4.3, for the levels that a 4.x cluster can have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.wire.stored.cluster_metadata import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"
TRANSACTION_VERSION: Final = "transaction.version"

#: 3.3-IV3, the lowest that a 4.x node reads.
LOWEST_METADATA_VERSION: Final = 7
#: 4.0-IV3, what is built here; new clusters begin with it.
METADATA_VERSION_BUILT: Final = 25
#: Of eligible.leader.replicas.version.
ELR_BUILT: Final = 1
#: Of transaction.version.
TRANSACTION_VERSION_BUILT: Final = 2
#: 4.0-IV2: a new cluster gets transactions of version 2 from here on.
TRANSACTIONS_V2_DEFAULT: Final = 24

#: From here on the ELR can be kept, if the feature is on, too.
ELIGIBLE_LEADER_REPLICAS: Final = 23
_CORDONED_DIRECTORIES: Final = 30

#: From here on brokers can do without a new leader epoch when the in-sync set shrinks.
ISR_SHRINK_KEEPS_LEADER_EPOCH: Final = 12
#: From here on controllers register.
CONTROLLER_REGISTRATION: Final = 15
#: From here on the controller knows in which directory each replica lies.
DIRECTORY_ASSIGNMENT: Final = 17

#: What a node supports, lowest and highest level, as it says when it registers. That of kraft.version is in force by
#: a record of Raft's own, and never by a FeatureLevelRecord.
SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (LOWEST_METADATA_VERSION, METADATA_VERSION_BUILT),
    KRAFT_VERSION: (0, 1),
    ELR_VERSION: (0, ELR_BUILT),
    TRANSACTION_VERSION: (0, TRANSACTION_VERSION_BUILT),
}
#: The features that Kafka 4.3 has besides metadata.version, in its order.
FEATURES: Final = (
    KRAFT_VERSION,
    TRANSACTION_VERSION,
    "group.version",
    ELR_VERSION,
    "share.version",
    "streams.version",
)

#: What a level of a feature needs of others.
DEPENDENCIES: Final[Mapping[tuple[str, int], Mapping[str, int]]] = {
    (ELR_VERSION, 1): {METADATA_VERSION: ELIGIBLE_LEADER_REPLICAS}
}


def unmet_dependency(name: str, level: int, levels: Mapping[str, int]) -> str | None:
    """Why a feature cannot have a level beside these of others, in Kafka's words; None if it can."""
    for needed, lowest in DEPENDENCIES.get((name, level), {}).items():
        if levels.get(needed, 0) < lowest:
            return f"{name} could not be set to {level} because it depends on {needed} level {lowest}"
    return None


#: The first metadata.version of each version of a record, newest first. What is not listed has only version 0.
_RECORD_VERSIONS: Final[Mapping[type[MetadataRecord], tuple[tuple[int, int], ...]]] = {
    RegisterBrokerRecord: ((_CORDONED_DIRECTORIES, 4), (DIRECTORY_ASSIGNMENT, 3), (8, 2), (LOWEST_METADATA_VERSION, 1)),
    PartitionRecord: ((ELIGIBLE_LEADER_REPLICAS, 2), (DIRECTORY_ASSIGNMENT, 1)),
    PartitionChangeRecord: ((ELIGIBLE_LEADER_REPLICAS, 2), (DIRECTORY_ASSIGNMENT, 1)),
}


def record_version(record: MetadataRecord, metadata_version: int = METADATA_VERSION_BUILT) -> int:
    """In which version this record is written while the cluster is at this metadata.version."""
    if isinstance(record, BrokerRegistrationChangeRecord):
        return _change_version(record)
    for first, version in _RECORD_VERSIONS.get(type(record), ()):
        if metadata_version >= first:
            return version
    return 0


def _change_version(record: BrokerRegistrationChangeRecord) -> int:
    """The first version that can say it, whatever the metadata.version: so Kafka writes these."""
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0


def encode_record(record: MetadataRecord, metadata_version: int = METADATA_VERSION_BUILT) -> bytes:
    """The record as the value of a log entry."""
    return record.encode_framed(record_version(record, metadata_version))
