"""What one may ask of `storage format`: levels of features, first voters, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Uuid
from barnabas.broker.quorum.format_options import FormatOptions, format_options
from barnabas.broker.settings import BrokerSettings
from barnabas.raft.types import Address, ReplicaKey
from barnabas.raft.voters import Voter, VoterSet
from tests.broker.role_cases import BROKER, COMBINED, CONTROLLER, dynamic

ONE, TWO = "JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A"
BOTH = f"1@a:9093:{ONE}, 2@[::1]:9094:{TWO}"


def options(settings: Mapping[str, str], **asked: Any) -> FormatOptions:
    return format_options(BrokerSettings.load(settings), Random(1), **asked)


def refusal(settings: Mapping[str, str], **asked: Any) -> str:
    with pytest.raises(BarnabasError) as refused:
        options(settings, **asked)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_where_the_settings_name_the_voters() -> None:
    for settings in (COMBINED, BROKER, CONTROLLER):
        assert options(settings) == FormatOptions(25, 1, 0, None)
    # As Kafka has it: there are no first voters that the log would name.
    assert options(COMBINED, no_initial_controllers=True, features=["kraft.version=0"]) == FormatOptions(25, 1, 0, None)


def test_a_controller_alone() -> None:
    made = options(dynamic(COMBINED), standalone=True)
    assert made.kraft_version == 1
    assert made.voters is not None
    (voter,) = made.voters
    assert voter.key.node_id == 1
    assert not voter.key.directory_id.is_reserved
    assert voter.listeners == {"CONTROLLER": Address("a", 9093)}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"listeners": "PLAINTEXT://a:9092,CONTROLLER://:9093"}, Address("localhost", 9093)),
        ({"listeners": "PLAINTEXT://a:9092,CONTROLLER://0.0.0.0:9093"}, Address("localhost", 9093)),
        ({"advertised_listeners": "PLAINTEXT://a:9092,CONTROLLER://outside:1"}, Address("outside", 1)),
    ],
)
def test_a_controller_alone_is_found_where_it_advertises(changes: dict[str, str], expected: Address) -> None:
    voters = options(dynamic(COMBINED, **changes), standalone=True).voters
    assert voters is not None
    assert [each.address for each in voters] == [expected]


def test_first_voters() -> None:
    expected = VoterSet(
        [
            Voter(ReplicaKey(1, Uuid.parse(ONE)), {"CONTROLLER": Address("a", 9093)}),
            Voter(ReplicaKey(2, Uuid.parse(TWO)), {"CONTROLLER": Address("::1", 9094)}),
        ]
    )
    for settings in (COMBINED, CONTROLLER, BROKER):
        assert options(dynamic(settings), initial_controllers=BOTH) == FormatOptions(25, 1, 1, expected)


def test_nodes_that_hear_of_the_voters_from_others() -> None:
    assert options(dynamic(CONTROLLER), no_initial_controllers=True) == FormatOptions(25, 1, 1, None)
    assert options(dynamic(BROKER)) == FormatOptions(25, 1, 1, None)
    assert options(dynamic(BROKER), features=["kraft.version=1"]).kraft_version == 1


@pytest.mark.parametrize(
    ("settings", "asked", "said"),
    [
        (COMBINED, {"standalone": True}, "--standalone: controller.quorum.voters = 1@a:9093,2@b:9093,3@c:9093 names"),
        (COMBINED, {"initial_controllers": BOTH}, "leave out --initial-controllers, or write"),
        (
            dynamic(COMBINED),
            {},
            "so say who the first voters are: --standalone, --initial-controllers or --no-initial-",
        ),
        (dynamic(CONTROLLER), {}, "for a cluster of one controller it is --standalone"),
        (dynamic(BROKER), {"standalone": True}, "--standalone: process.roles = broker, and only a controller can be"),
        (
            dynamic(BROKER, node_id="2"),
            {"initial_controllers": BOTH},
            "node 2 is one of them, but process.roles = broker; give it another node.id, or use process.roles=broker,",
        ),
    ],
)
def test_voters_that_contradict_the_settings(settings: dict[str, str], asked: dict[str, Any], said: str) -> None:
    assert said in refusal(settings, **asked)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "write ID@HOST:PORT:DIRECTORY_ID"),
        ("1@a:9093", "write ID@HOST:PORT:DIRECTORY_ID"),
        (f"a:9093:{ONE}", "write ID@HOST:PORT:DIRECTORY_ID"),
        (f"-1@a:9093:{ONE}", "write ID@HOST:PORT:DIRECTORY_ID"),
        (f"1@::1:9093:{ONE}", "write ID@HOST:PORT:DIRECTORY_ID"),
        (f"1@a:9093:{ONE},", "write ID@HOST:PORT:DIRECTORY_ID"),
        (f"9999999999@a:9093:{ONE}", "9999999999 is too large"),
        (f"1@a:70000:{ONE}", "there is no port 70000"),
        ("1@a:9093:xx", "'xx' is not an id: 22 letters"),
        ("1@a:9093:AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAA is reserved; make another with"),
        (f"1@a:9093:{ONE},1@b:9093:{TWO}", f"--initial-controllers 1@b:9093:{TWO}: node 1 is there twice"),
        (f"1@a:9093:{ONE},2@b:9093:{ONE}", "node 1 has the same directory id; make one for each with"),
    ],
)
def test_first_voters_that_cannot_be_read(text: str, said: str) -> None:
    assert said in refusal(dynamic(COMBINED), initial_controllers=text)


@pytest.mark.parametrize(
    ("asked", "level"),
    [
        ({"release_version": "3.3"}, 7),
        ({"release_version": "3.7"}, 19),
        ({"release_version": "3.7-IV0"}, 15),
        ({"release_version": "3.9.1"}, 21),
        ({"release_version": "4.0"}, 25),
        ({"features": ["metadata.version=9"]}, 9),
        ({"features": ["group.version=0", "transaction.version=0"]}, 25),
        ({"features": ["metadata.version=25"], "release_version": "4.0-IV3"}, 25),
    ],
)
def test_levels_that_are_built(asked: dict[str, Any], level: int) -> None:
    assert options(COMBINED, **asked).metadata_version == level


@pytest.mark.parametrize(
    ("asked", "level"),
    [
        ({}, 1),
        ({"features": ["eligible.leader.replicas.version=0"]}, 0),
        ({"features": ["eligible.leader.replicas.version=1", "metadata.version=23"]}, 1),
        # A release is what Kafka's release is: before 4.1 without ELR.
        ({"release_version": "4.0"}, 0),
        ({"features": ["metadata.version=25"]}, 0),
        ({"release_version": "4.0", "features": ["eligible.leader.replicas.version=1"]}, 1),
    ],
)
def test_eligible_leader_replicas_are_kept_unless_told_otherwise(asked: dict[str, Any], level: int) -> None:
    assert options(COMBINED, **asked).elr_version == level


BUILT = (
    "built are metadata.version 7 (3.3-IV3) to 25 (4.0-IV3), kraft.version 0 and 1, eligible.leader.replicas.version 0 "
    "and 1, transaction.version 0 to 2, and no other feature"
)


@pytest.mark.parametrize(
    ("settings", "asked", "said"),
    [
        (COMBINED, {"release_version": "4.3"}, f"--release-version 4.3: metadata.version 30 is not built; {BUILT}"),
        (COMBINED, {"release_version": "3.2"}, f"--release-version 3.2: there is no such release; {BUILT}"),
        (COMBINED, {"release_version": "new"}, f"--release-version new: there is no such release; {BUILT}"),
        (COMBINED, {"features": ["metadata.version=30"]}, f"metadata.version=30: this level is not built; {BUILT}"),
        (COMBINED, {"features": ["metadata.version=6"]}, f"metadata.version=6: this level is not built; {BUILT}"),
        (COMBINED, {"features": ["group.version=1"]}, f"only level 0 of group.version is built; {BUILT}"),
        (
            COMBINED,
            {"features": ["eligible.leader.replicas.version=2"]},
            f"eligible.leader.replicas.version=2: this level is not built; {BUILT}",
        ),
        (
            COMBINED,
            {"features": ["eligible.leader.replicas.version=1"], "release_version": "4.0-IV0"},
            "eligible.leader.replicas.version could not be set to 1 because it depends on metadata.version level 23",
        ),
        (COMBINED, {"features": ["foo=1"]}, f"--feature foo=1: there is no such feature; {BUILT}"),
        (COMBINED, {"features": ["foo"]}, "write it as NAME=LEVEL, as in metadata.version=25"),
        (COMBINED, {"features": ["metadata.version=x"]}, "write it as NAME=LEVEL, as in metadata.version=25"),
        (COMBINED, {"features": ["kraft.version=2"]}, f"kraft.version=2: this level is not built; {BUILT}"),
        (COMBINED, {"features": ["kraft.version=1"]}, "controller.quorum.voters is set, so the settings name the vote"),
        (dynamic(BROKER), {"features": ["kraft.version=0"]}, "controller.quorum.voters is not set, so the log names"),
        (
            COMBINED,
            {"features": ["metadata.version=24", "metadata.version=25"]},
            "--feature metadata.version=25: metadata.version=24 is given too; give one of them",
        ),
        (
            COMBINED,
            {"features": ["metadata.version=24"], "release_version": "4.0"},
            "--release-version 4.0 means metadata.version=25, but --feature says 24; give one of them",
        ),
    ],
)
def test_levels_that_are_refused(settings: dict[str, str], asked: dict[str, Any], said: str) -> None:
    assert said in refusal(settings, **asked)
