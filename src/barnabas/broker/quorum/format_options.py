"""What one may ask of `storage format`: the levels of features, and who are the first voters of a quorum. Pure.

Where the settings name the voters (`controller.quorum.voters`), kraft.version is 0. Where they do not, it is 1: the
log names them, and a controller must be told at formatting who they are, or that it hears of them later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Uuid
from barnabas.broker.quorum.formatting import RELEASES
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.features import (
    ELR_BUILT,
    ELR_VERSION,
    KRAFT_VERSION,
    LOWEST_METADATA_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_BUILT,
    TRANSACTION_VERSION,
    TRANSACTION_VERSION_BUILT,
    TRANSACTIONS_V2_DEFAULT,
    unmet_dependency,
)
from barnabas.raft.types import Address, ReplicaKey
from barnabas.raft.voters import STATIC_VOTERS, VOTERS_IN_LOG, Voter, VoterSet

_VOTER: Final = re.compile(r"([0-9]{1,10})@(?:\[([^\]@]+)\]|([^:\[\]@]+)):([0-9]{1,5}):([^:@]*)")
_HIGHEST_ID: Final = 2**31 - 1
_HIGHEST_PORT: Final = 65535
#: Features that Kafka has and that are not built here: their level is 0.
_NOT_BUILT: Final = (
    "group.version",
    "share.version",
    "streams.version",
)
_ONE_OF: Final = "--standalone, --initial-controllers or --no-initial-controllers"


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """How a node shall be formatted: as asked, and checked against its settings."""

    metadata_version: int = METADATA_VERSION_BUILT
    #: Of eligible.leader.replicas.version.
    elr_version: int = ELR_BUILT
    kraft_version: int = STATIC_VOTERS
    #: The first voters of a quorum whose log names them; None where the settings do, or where others have the log.
    voters: VoterSet | None = None
    transaction_version: int = TRANSACTION_VERSION_BUILT


def format_options(
    settings: BrokerSettings,
    randomness: Random,
    *,
    release_version: str | None = None,
    features: Sequence[str] = (),
    standalone: bool = False,
    no_initial_controllers: bool = False,
    initial_controllers: str | None = None,
) -> FormatOptions:
    """Check what was asked for. `randomness` makes the directory id of a quorum of one."""
    levels = _levels(features)
    kraft_version = VOTERS_IN_LOG if not settings.static_voters else STATIC_VOTERS
    voters = None
    if standalone:
        _refuse_static_voters(settings, "--standalone")
        voters = _standalone_voters(settings, Uuid.random(randomness))
    elif initial_controllers is not None:
        _refuse_static_voters(settings, "--initial-controllers")
        voters = parse_initial_controllers(initial_controllers, settings.controller_listeners[0])
        if not settings.is_controller and settings.node_id in voters.ids:
            raise BarnabasError(
                f"--initial-controllers: node {settings.node_id} is one of them, but process.roles = broker; give it "
                "another node.id, or use process.roles=broker,controller"
            )
    elif settings.is_controller and not settings.static_voters and not no_initial_controllers:
        raise BarnabasError(
            f"controller.quorum.voters is not set on this controller, so say who the first voters are: {_ONE_OF}; for "
            "a cluster of one controller it is --standalone"
        )
    _check_kraft_version(levels.get(KRAFT_VERSION), kraft_version)
    metadata_version = _metadata_version(release_version, levels.get(METADATA_VERSION))
    is_release = release_version is not None or METADATA_VERSION in levels
    elr_version = _elr_version(levels.get(ELR_VERSION), metadata_version, is_release=is_release)
    transaction_version = _transaction_version(levels.get(TRANSACTION_VERSION), metadata_version)
    return FormatOptions(metadata_version, elr_version, kraft_version, voters, transaction_version)


# The first voters


def parse_initial_controllers(text: str, listener: str) -> VoterSet:
    """Read `ID@HOST:PORT:DIRECTORY_ID,…`. They are reached under the listener of that name."""
    voters: dict[int, Voter] = {}
    directories: dict[Uuid, int] = {}
    for each in text.split(","):
        voter = _parse_voter(each.strip(), listener)
        node_id, directory_id = voter.key
        if node_id in voters:
            raise _unusable(each, f"node {node_id} is there twice")
        if directory_id in directories:
            raise _unusable(
                each,
                f"node {directories[directory_id]} has the same directory id; make one for each with 'barnabas storage "
                "random-uuid'",
            )
        voters[node_id] = voter
        directories[directory_id] = node_id
    return VoterSet(voters.values())


def _parse_voter(text: str, listener: str) -> Voter:
    match = _VOTER.fullmatch(text)
    if match is None:
        raise _unusable(text, "write ID@HOST:PORT:DIRECTORY_ID, as in 1@localhost:9093:JEXY6aqzQY-32P5TStzaFg")
    node_id, port = int(match[1]), int(match[4])
    if node_id > _HIGHEST_ID or port > _HIGHEST_PORT:
        raise _unusable(text, f"{match[1]} is too large" if node_id > _HIGHEST_ID else f"there is no port {port}")
    try:
        directory_id = Uuid.parse(match[5])
    except ValueError as problem:
        raise _unusable(text, f"{problem}; make one with 'barnabas storage random-uuid'") from None
    if directory_id.is_reserved:
        raise _unusable(text, f"{directory_id} is reserved; make another with 'barnabas storage random-uuid'")
    return Voter(ReplicaKey(node_id, directory_id), {listener: Address(match[2] or match[3], port)})


def _unusable(voter: str, why: str) -> BarnabasError:
    return BarnabasError(f"--initial-controllers {voter.strip()}: {why}")


def _standalone_voters(settings: BrokerSettings, directory_id: Uuid) -> VoterSet:
    if not settings.is_controller:
        raise BarnabasError(
            "--standalone: process.roles = broker, and only a controller can be a quorum by itself; leave it out for a "
            "broker"
        )
    own = settings.advertised_controller_endpoints[0]
    address = Address(own.host or "localhost", own.port)
    return VoterSet([Voter(ReplicaKey(settings.node_id, directory_id), {own.listener: address})])


def _refuse_static_voters(settings: BrokerSettings, option: str) -> None:
    if settings.static_voters:
        raise BarnabasError(
            f"{option}: controller.quorum.voters = {','.join(settings.controller_quorum_voters)} names the voters "
            f"already; leave out {option}, or write controller.quorum.bootstrap.servers in the place of "
            "controller.quorum.voters for voters that may change"
        )


# Levels


def _levels(features: Sequence[str]) -> Mapping[str, int]:
    levels: dict[str, int] = {}
    for feature in features:
        name, equals, level = feature.partition("=")
        if not equals or not level.isdecimal():
            raise BarnabasError(f"--feature {feature}: write it as NAME=LEVEL, as in metadata.version=25")
        if name not in (METADATA_VERSION, KRAFT_VERSION, ELR_VERSION, TRANSACTION_VERSION, *_NOT_BUILT):
            raise BarnabasError(f"--feature {feature}: there is no such feature; built are {_built()}")
        if name in _NOT_BUILT and int(level):
            raise BarnabasError(f"--feature {feature}: only level 0 of {name} is built; built are {_built()}")
        if levels.setdefault(name, int(level)) != int(level):
            raise BarnabasError(f"--feature {feature}: {name}={levels[name]} is given too; give one of them")
    return levels


def _metadata_version(release: str | None, level: int | None) -> int:
    if level is not None and not LOWEST_METADATA_VERSION <= level <= METADATA_VERSION_BUILT:
        raise BarnabasError(f"--feature {METADATA_VERSION}={level}: this level is not built; built are {_built()}")
    if release is None:
        return METADATA_VERSION_BUILT if level is None else level
    of_release = _level_of(release)
    if level not in (None, of_release):
        raise BarnabasError(
            f"--release-version {release} means {METADATA_VERSION}={of_release}, but --feature says {level}; give one "
            "of them"
        )
    return of_release


def _elr_version(asked: int | None, metadata_version: int, *, is_release: bool) -> int:
    """Who names a release gets what a cluster of that release has: none that is built here keeps ELR by itself."""
    if asked is None:
        return 0 if is_release else ELR_BUILT
    if asked > ELR_BUILT:
        raise BarnabasError(f"--feature {ELR_VERSION}={asked}: this level is not built; built are {_built()}")
    unmet = unmet_dependency(ELR_VERSION, asked, {METADATA_VERSION: metadata_version})
    if unmet is not None:
        raise BarnabasError(f"--feature {ELR_VERSION}={asked}: {unmet}")
    return asked


def _transaction_version(asked: int | None, metadata_version: int) -> int:
    """As in Kafka, a cluster of an older release begins without version 2 of transactions, but can be asked for it."""
    if asked is None:
        return TRANSACTION_VERSION_BUILT if metadata_version >= TRANSACTIONS_V2_DEFAULT else 0
    if asked > TRANSACTION_VERSION_BUILT:
        raise BarnabasError(f"--feature {TRANSACTION_VERSION}={asked}: this level is not built; built are {_built()}")
    return asked


def _level_of(release: str) -> int:
    """The level of `4.0-IV3`; `4.0` and `4.0.1` mean the last of their release."""
    found = [level for level, name in RELEASES.items() if name == release]
    if not found and re.fullmatch(r"[0-9]+\.[0-9]+(\.[0-9]+)*", release):
        line = ".".join(release.split(".")[:2])
        found = [level for level, name in RELEASES.items() if name.partition("-")[0] == line]
    if not found:
        raise BarnabasError(f"--release-version {release}: there is no such release; built are {_built()}")
    if found[-1] > METADATA_VERSION_BUILT:
        raise BarnabasError(
            f"--release-version {release}: {METADATA_VERSION} {found[-1]} is not built; built are {_built()}"
        )
    return found[-1]


def _check_kraft_version(asked: int | None, effective: int) -> None:
    if asked is None or asked == effective:
        return
    if asked > VOTERS_IN_LOG:
        raise BarnabasError(f"--feature {KRAFT_VERSION}={asked}: this level is not built; built are {_built()}")
    if asked == STATIC_VOTERS:
        raise BarnabasError(
            f"--feature {KRAFT_VERSION}=0: controller.quorum.voters is not set, so the log names the voters; leave "
            "out the option, or write controller.quorum.voters into the file"
        )
    raise BarnabasError(
        f"--feature {KRAFT_VERSION}=1: controller.quorum.voters is set, so the settings name the voters; leave out the "
        f"option, or write controller.quorum.bootstrap.servers in its place and use {_ONE_OF}"
    )


def _built() -> str:
    lowest, highest = LOWEST_METADATA_VERSION, METADATA_VERSION_BUILT
    return (
        f"{METADATA_VERSION} {lowest} ({RELEASES[lowest]}) to {highest} ({RELEASES[highest]}), {KRAFT_VERSION} 0 and "
        f"1, {ELR_VERSION} 0 and {ELR_BUILT}, {TRANSACTION_VERSION} 0 to {TRANSACTION_VERSION_BUILT}, and no other "
        "feature"
    )
