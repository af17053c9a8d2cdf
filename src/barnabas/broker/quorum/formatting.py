"""Formatting the directories of a node, and reading back whose they are.

`meta.properties` in every directory says to which cluster and node it belongs, and which directory it is. That of the
metadata log also gets `bootstrap.checkpoint`: the first records of the cluster, which its first active controller puts
into the log. Where the log names the voters, the first of them stand in the header of a snapshot of nothing, before the
log's first record. A directory counts as formatted by its `meta.properties`, which is therefore written last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from barnabas.base.errors import BarnabasError, known
from barnabas.base.ids import Uuid
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.batches import decode_values
from barnabas.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS,
    ELR_BUILT,
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_BUILT,
    SUPPORTED,
    TRANSACTION_VERSION,
    TRANSACTION_VERSION_BUILT,
    TRANSACTIONS_V2_DEFAULT,
    encode_record,
)
from barnabas.raft.batches import ControlRecord
from barnabas.raft.snapshots import read_header, read_snapshot_file, write_snapshot_file
from barnabas.raft.types import SnapshotId
from barnabas.raft.voters import VOTERS_IN_LOG, VoterSet
from barnabas.records.control import ControlType
from barnabas.storage.directories import METADATA_PARTITION
from barnabas.storage.files import FileSystem, directory_of, join
from barnabas.storage.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    meta_entries,
    read_meta_properties,
    write_meta_properties,
)
from barnabas.wire.stored.cluster_metadata import FeatureLevelRecord, MetadataRecord, UserScramCredentialRecord
from barnabas.wire.stored.control_records import KRaftVersionRecord, VotersRecord

BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"

#: Names of the levels of metadata.version that Kafka 4.3 knows.
RELEASES: Final[Mapping[int, str]] = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
}


#: From here on Kafka refuses to lower metadata.version below it: 4.3-IV0 changed what records may say.
_LOWEST_WITHOUT_RETURN: Final = 30


class NotFormattedError(BarnabasError):
    """A directory has never been formatted: the one failure that `up` mends by itself."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Whose directories these are. `directory_ids` has every directory of the node, that of the metadata log too."""

    cluster_id: str
    node_id: int
    directory_ids: Mapping[str, Uuid]


def node_directories(settings: BrokerSettings) -> list[str]:
    """All directories of a node, each once, in the order of the settings; that of the metadata log may be one more."""
    return list(dict.fromkeys([*settings.data_dirs, settings.metadata_dir]))


def format_directories(
    files: FileSystem,
    settings: BrokerSettings,
    cluster_id: str,
    randomness: Random,
    *,
    ignore_formatted: bool = False,
    now_ms: int = 0,
    metadata_version: int = METADATA_VERSION_BUILT,
    elr_version: int | None = None,
    transaction_version: int | None = None,
    voters: VoterSet | None = None,
    users: Sequence[UserScramCredentialRecord] = (),
) -> list[str]:
    """Format the directories of a node for a cluster; returns lines that tell a person what was done.

    Directories that are formatted already must be so for the same cluster and node, and only `ignore_formatted` passes
    over them. `voters` are the first of a quorum whose log names them, `users` the first that can log in.
    """
    if not cluster_id or any(char.isspace() for char in cluster_id):
        raise BarnabasError(f"{cluster_id!r} is not a cluster id; make one with 'barnabas storage random-uuid'")
    directories = node_directories(settings)
    found = {path: read_meta_properties(files, path) for path in directories}
    formatted = {path: properties for path, properties in found.items() if properties is not None}
    for path, properties in formatted.items():
        _check_same_node(path, properties, cluster_id, settings.node_id)
        if not ignore_formatted:
            raise BarnabasError(
                f"log directory {path} is already formatted; use --ignore-formatted to leave it as it is and format "
                "the others"
            )
    own = None if voters is None else voters.get(settings.node_id)
    taken = {each.directory_id for each in formatted.values()} | {each.key.directory_id for each in voters or ()}
    lines = []
    for path in directories:
        if path in formatted:
            continue
        is_metadata = path == settings.metadata_dir
        directory_id = own.key.directory_id if is_metadata and own else _fresh_id(randomness, taken)
        properties = MetaProperties(cluster_id, settings.node_id, directory_id)
        try:
            _make_directory(files, path)
            if is_metadata:
                records = bootstrap_records(metadata_version, elr_version, transaction_version)
                write_bootstrap(files, path, [*records, *users], now_ms=now_ms)
                _write_first_voters(files, path, voters, now_ms=now_ms)
            write_meta_properties(files, path, properties)
        except OSError as failure:
            raise BarnabasError(f"cannot format {path}: {_reason(failure)}") from None
        kind = _kind(voters, is_metadata=is_metadata, is_voter=own is not None)
        lines.append(f"Formatting {kind} directory {path} with metadata.version {RELEASES[metadata_version]}.")
    return lines or ["All of the log directories are already formatted."]


def _kind(voters: VoterSet | None, *, is_metadata: bool, is_voter: bool) -> str:
    """Kafka's words for what a directory is."""
    if not is_metadata:
        return "data"
    if voters is None:
        return "metadata"
    return "dynamic metadata voter" if is_voter else "dynamic metadata"


def _fresh_id(randomness: Random, taken: set[Uuid | None]) -> Uuid:
    while (directory_id := Uuid.random(randomness)) in taken:
        pass
    taken.add(directory_id)
    return directory_id


def _make_directory(files: FileSystem, path: str) -> None:
    if not files.exists(path):
        files.make_directory(path)
        files.sync_directory(directory_of(path))
    elif not files.is_directory(path):
        raise BarnabasError(f"cannot format {path}: it is a file, not a directory")


# The first voters of a quorum whose log names them


def first_voters_path(metadata_dir: str) -> str:
    """The snapshot that comes before all records. It holds none; its header says who the voters are."""
    return join(metadata_dir, str(METADATA_PARTITION), SnapshotId(0, 0).file_name)


def _write_first_voters(files: FileSystem, metadata_dir: str, voters: VoterSet | None, *, now_ms: int) -> None:
    path = first_voters_path(metadata_dir)
    if voters is None:
        if files.exists(path):
            # Formatting was broken off, and begins anew without them.
            files.remove(path)
        return
    _make_directory(files, directory_of(path))
    version = ControlRecord(ControlType.KRAFT_VERSION, KRaftVersionRecord(version=0, k_raft_version=VOTERS_IN_LOG))
    write_snapshot_file(
        files,
        path,
        (),
        epoch=0,
        timestamp_ms=now_ms,
        last_contained_ms=now_ms,
        voters=[version, voters.to_record()],
    )


def read_first_voters(files: FileSystem, metadata_dir: str) -> VoterSet | None:
    """The voters that a directory was formatted with; None where its settings name them, or others do."""
    path = first_voters_path(metadata_dir)
    if not files.exists(path):
        return None
    for record in read_header(files, path).controls:
        if isinstance(record.message, VotersRecord):
            return VoterSet.from_record(record.message)
    return None


# The first records of a cluster


def bootstrap_records(
    metadata_version: int = METADATA_VERSION_BUILT,
    elr_version: int | None = None,
    transaction_version: int | None = None,
) -> list[MetadataRecord]:
    """What a new cluster begins with: the levels of what is built. Unless told otherwise eligible leader replicas are
    kept, as far as the metadata.version has them: without them a power loss can cost what was acknowledged."""
    if elr_version is None:
        elr_version = ELR_BUILT if metadata_version >= ELIGIBLE_LEADER_REPLICAS else 0
    records: list[MetadataRecord] = [FeatureLevelRecord(name=METADATA_VERSION, feature_level=metadata_version)]
    if elr_version:
        records.append(FeatureLevelRecord(name=ELR_VERSION, feature_level=elr_version))
    if transaction_version is None:
        transaction_version = TRANSACTION_VERSION_BUILT if metadata_version >= TRANSACTIONS_V2_DEFAULT else 0
    if transaction_version:
        records.append(FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=transaction_version))
    return records


def write_bootstrap(files: FileSystem, directory: str, records: list[MetadataRecord], *, now_ms: int) -> None:
    path = join(directory, BOOTSTRAP_FILE)
    values = [encode_record(each) for each in records]
    write_snapshot_file(
        files, path, values, epoch=0, timestamp_ms=now_ms, last_contained_ms=0, part_name=f"{BOOTSTRAP_FILE}.tmp",
        read_only=False,
    )  # fmt: skip


def read_bootstrap(files: FileSystem, directory: str) -> list[MetadataRecord]:
    """The first records of the cluster. A directory without the file begins with what is built, as Kafka does it."""
    path = join(directory, BOOTSTRAP_FILE)
    return list(decode_values(read_snapshot_file(files, path).values)) if files.exists(path) else bootstrap_records()


def check_features(levels: Mapping[str, int], where: str) -> None:
    """Refuse to work on a cluster that was finalised at levels which are not built: its records mean other things."""
    too_high = {}
    for name, level in sorted(levels.items(), key=lambda each: (each[0] != METADATA_VERSION, each[0])):
        lowest, highest = SUPPORTED.get(name, (0, 0))
        if level and not lowest <= level <= highest:
            too_high[name] = level
    if not too_high:
        return
    found = ", ".join(
        f"{name} {level} ({RELEASES[level]})" if name == METADATA_VERSION and level in RELEASES else f"{name} {level}"
        for name, level in too_high.items()
    )
    built = (
        f"metadata.version up to {METADATA_VERSION_BUILT} ({RELEASES[METADATA_VERSION_BUILT]}), {ELR_VERSION} up to "
        f"{ELR_BUILT}, {TRANSACTION_VERSION} up to {TRANSACTION_VERSION_BUILT}, and no other feature"
    )
    raise BarnabasError(f"{where}: the cluster was finalised with {found}; built is {built}.\n{_way_out(too_high)}")


def _way_out(too_high: Mapping[str, int]) -> str:
    """The commands that help. They were tried with Kafka 4.3."""
    built = RELEASES[METADATA_VERSION_BUILT]
    if KRAFT_VERSION in too_high or too_high.get(METADATA_VERSION, 0) >= _LOWEST_WITHOUT_RETURN:
        return (
            "Kafka has no way back from that. Use a directory that Barnabas formatted ('barnabas storage format'), on "
            "which Kafka works too, or one that Kafka formatted, with controller.quorum.voters in its settings, by\n"
            f"    kafka-storage.sh format -t CLUSTER_ID -c FILE --release-version {built} --feature group.version=0 "
            "--feature transaction.version=0\n"
            "and copy the topics: consume them from the running Kafka and produce them to the new node."
        )
    levels = {name: METADATA_VERSION_BUILT if name == METADATA_VERSION else 0 for name in too_high}
    flags = " ".join(f"--feature {name}={level}" for name, level in levels.items())
    return (
        "Start Kafka on it once more, lower the levels, and stop Kafka:\n"
        f"    kafka-features.sh --bootstrap-server HOST:PORT downgrade {flags}"
    )


# Reading


def read_identity(files: FileSystem, settings: BrokerSettings) -> NodeIdentity:
    """Whose directories these are; raises with one clear line if they are not this node's, or not formatted."""
    directory_ids: dict[str, Uuid] = {}
    first: tuple[str, MetaProperties] | None = None
    directories = node_directories(settings)
    found = {path: read_meta_properties(files, path) for path in directories}
    unformatted = [path for path, properties in found.items() if properties is None]
    if unformatted:
        raise NotFormattedError(_not_formatted(unformatted, is_all=len(unformatted) == len(directories)))
    for path, properties in found.items():
        if properties is None:
            continue
        first = first or (path, properties)
        if properties.cluster_id != first[1].cluster_id:
            raise BarnabasError(
                f"log directory {path} belongs to cluster {properties.cluster_id}, but {first[0]} to cluster "
                f"{first[1].cluster_id}; take one of them out of log.dirs"
            )
        if properties.node_id != settings.node_id:
            raise BarnabasError(
                f"log directory {path} belongs to node {properties.node_id}, but node.id is {settings.node_id}; "
                "correct node.id, or use another directory"
            )
        if properties.directory_id is None or properties.directory_id.is_reserved:
            raise BarnabasError(
                f"{join(path, META_PROPERTIES_FILE)} has no valid directory.id; start the Kafka that wrote it once at "
                "release 3.7 or later, which adds one"
            )
        for other, directory_id in directory_ids.items():
            if directory_id == properties.directory_id:
                raise BarnabasError(
                    f"log directories {other} and {path} have the same directory.id {directory_id}, as if one were a "
                    "copy of the other; take one of them out of log.dirs"
                )
        directory_ids[path] = properties.directory_id
    _, of_first = known(first, "there is at least one log directory")
    return NodeIdentity(of_first.cluster_id, settings.node_id, directory_ids)


def is_formatted(files: FileSystem, settings: BrokerSettings) -> bool:
    """Whether any directory of the node was formatted. Damaged ones count: they must not be formatted over."""
    return any(meta_entries(files, path) is not None for path in node_directories(settings))


def _not_formatted(paths: list[str], *, is_all: bool) -> str:
    hint = "" if is_all else " --ignore-formatted"
    return (
        f"log directory {', '.join(paths)} is not formatted: there is no {META_PROPERTIES_FILE}; run 'barnabas storage "
        f"format -t CLUSTER_ID -c FILE{hint}'"
    )


def _check_same_node(path: str, properties: MetaProperties, cluster_id: str, node_id: int) -> None:
    if properties.cluster_id != cluster_id:
        raise BarnabasError(
            f"log directory {path} belongs to cluster {properties.cluster_id}, not to {cluster_id}; use that id, or "
            "another directory"
        )
    if properties.node_id != node_id:
        raise BarnabasError(
            f"log directory {path} belongs to node {properties.node_id}, but node.id is {node_id}; correct node.id, or "
            "use another directory"
        )


def _reason(failure: OSError) -> str:
    return failure.strerror or str(failure)
