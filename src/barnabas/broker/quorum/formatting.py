"""Formatting the directories of a node, and reading back whose they are.

`meta.properties` in every directory says to which cluster and node it belongs, and which directory it is. That of the
metadata log also gets `bootstrap.checkpoint`: the first records of the cluster, which its first active controller puts
into the log. A directory counts as formatted by its `meta.properties`, which is therefore written last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from barnabas.base.errors import BarnabasError, SettingsError, known
from barnabas.base.ids import Uuid
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.batches import decode_values
from barnabas.metadata.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_BUILT,
    SUPPORTED,
    encode_record,
)
from barnabas.raft.snapshots import read_snapshot_file, write_snapshot_file
from barnabas.storage.files import FileSystem, directory_of, join
from barnabas.storage.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    meta_entries,
    read_meta_properties,
    write_meta_properties,
)
from barnabas.wire.stored.cluster_metadata import FeatureLevelRecord, MetadataRecord

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


STATIC_VOTERS_ONLY: Final = "a quorum whose voters may change is not built yet"
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


def refuse_larger_quorums(settings: BrokerSettings) -> None:
    """One node that is broker and controller is what is built."""
    missing = [role for role in ("broker", "controller") if role not in settings.process_roles]
    if missing:
        raise SettingsError(
            f"process.roles = {','.join(settings.process_roles)}: a quorum of more than one node is not built yet, so "
            "this node must be both; use process.roles=broker,controller"
        )
    if not settings.voter_ids:
        raise SettingsError(
            f"controller.quorum.voters is not set: {STATIC_VOTERS_ONLY}. Write into the file of settings\n"
            f"{static_voter_lines(settings)}"
        )
    if len(settings.voter_ids) > 1:
        raise SettingsError(
            f"controller.quorum.voters = {','.join(settings.controller_quorum_voters)}: a quorum of more than one node "
            "is not built yet; name this node alone"
        )


def static_voter_lines(settings: BrokerSettings) -> str:
    """What to write, and in the place of what, so that this node is a quorum by itself."""
    controllers = settings.controller_quorum_bootstrap_servers
    if controllers:
        address = controllers[0]
    else:
        own = [each for each in settings.endpoints if each.listener in settings.controller_listeners]
        address = f"{own[0].host or 'localhost'}:{own[0].port}" if own else "localhost:9093"
    lines = f"    controller.quorum.voters={settings.node_id}@{address}"
    if controllers:
        lines += f"\nin the place of\n    controller.quorum.bootstrap.servers={','.join(controllers)}"
    return lines


# Formatting


def format_directories(
    files: FileSystem,
    settings: BrokerSettings,
    cluster_id: str,
    randomness: Random,
    *,
    ignore_formatted: bool = False,
    now_ms: int = 0,
) -> list[str]:
    """Format the directories of a node for a cluster; returns lines that tell a person what was done.

    Directories that are formatted already must be so for the same cluster and node, and only `ignore_formatted` passes
    over them.
    """
    refuse_larger_quorums(settings)
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
    taken = {each.directory_id for each in formatted.values()}
    lines = []
    for path in directories:
        if path in formatted:
            continue
        directory_id = _fresh_id(randomness, taken)
        is_metadata = path == settings.metadata_dir
        properties = MetaProperties(cluster_id, settings.node_id, directory_id)
        try:
            _format_directory(files, path, properties, is_metadata=is_metadata, now_ms=now_ms)
        except OSError as failure:
            raise BarnabasError(f"cannot format {path}: {_reason(failure)}") from None
        kind = "metadata" if is_metadata else "data"
        lines.append(f"Formatting {kind} directory {path} with metadata.version {RELEASES[METADATA_VERSION_BUILT]}.")
    return lines or ["All of the log directories are already formatted."]


def _fresh_id(randomness: Random, taken: set[Uuid | None]) -> Uuid:
    while (directory_id := Uuid.random(randomness)) in taken:
        pass
    taken.add(directory_id)
    return directory_id


def _format_directory(
    files: FileSystem, path: str, properties: MetaProperties, *, is_metadata: bool, now_ms: int
) -> None:
    if not files.exists(path):
        files.make_directory(path)
        files.sync_directory(directory_of(path))
    elif not files.is_directory(path):
        raise BarnabasError(f"cannot format {path}: it is a file, not a directory")
    if is_metadata:
        write_bootstrap(files, path, bootstrap_records(), now_ms=now_ms)
    write_meta_properties(files, path, properties)


# The first records of a cluster


def bootstrap_records() -> list[MetadataRecord]:
    """What a new cluster begins with: the level of what is built, and no other feature."""
    return [FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_BUILT)]


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
    built = f"metadata.version up to {METADATA_VERSION_BUILT} ({RELEASES[METADATA_VERSION_BUILT]}) and no other feature"
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
