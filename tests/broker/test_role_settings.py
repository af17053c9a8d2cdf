"""Roles, listeners and quorum in one file of settings: what is taken, what is refused and how, here and by Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from barnabas.base.errors import SettingsError
from barnabas.broker.quorum.quorum_addresses import bootstrap_addresses, quorum_voters
from barnabas.broker.settings import BrokerSettings
from barnabas.raft.types import Address, ReplicaKey
from barnabas.raft.voters import Voter, VoterSet
from tests.broker.role_cases import BROKER, COMBINED, REFUSED, REFUSED_HERE_ALONE, TAKEN, changed, dynamic, voters
from tests.oracles import needs_kafka, run_java


@pytest.mark.parametrize("settings", TAKEN.values(), ids=TAKEN)
def test_what_is_taken(settings: Mapping[str, str]) -> None:
    BrokerSettings.load(settings)


CASES = {**REFUSED, **REFUSED_HERE_ALONE}


@pytest.mark.parametrize(("settings", "said"), CASES.values(), ids=CASES)
def test_what_is_refused_in_one_line(settings: Mapping[str, str], said: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        BrokerSettings.load(settings)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


@needs_kafka()
def test_kafka_takes_and_refuses_the_same() -> None:
    cases = {
        **dict.fromkeys(map(json.dumps, TAKEN.values()), True),
        **dict.fromkeys((json.dumps(settings) for settings, _ in REFUSED.values()), False),
        **dict.fromkeys((json.dumps(settings) for settings, _ in REFUSED_HERE_ALONE.values()), True),
    }
    problems = run_java("NodeSettings.java", "".join(f"{each}\n" for each in cases)).splitlines()
    found = {case: not problem for case, problem in zip(cases, problems, strict=True)}
    assert found == cases


def test_the_voters_of_the_settings() -> None:
    settings = BrokerSettings.load(
        changed(BROKER, controller_quorum_voters="2@b:9093,1@[::1]:9094", controller_listener_names="private")
    )
    expected = [
        Voter(ReplicaKey(1), {"PRIVATE": Address("::1", 9094)}),
        Voter(ReplicaKey(2), {"PRIVATE": Address("b", 9093)}),
    ]
    assert quorum_voters(settings) == VoterSet(expected)
    assert bootstrap_addresses(settings) == [Address("b", 9093), Address("::1", 9094)]


def test_bootstrap_servers_say_where_and_not_who() -> None:
    both = changed(COMBINED, controller_quorum_bootstrap_servers="x:1,[::1]:2")
    assert quorum_voters(BrokerSettings.load(both)) is not None
    assert bootstrap_addresses(BrokerSettings.load(both)) == [Address("x", 1), Address("::1", 2)]
    assert quorum_voters(BrokerSettings.load(dynamic(COMBINED))) is None


def test_a_voter_that_stands_there_twice_counts_once() -> None:
    found = quorum_voters(BrokerSettings.load(voters("1@a:9093,1@a:9093")))
    assert found is not None
    assert found.ids == (1,)


@pytest.mark.parametrize(
    ("advertised", "expected"),
    [
        (None, ["CONTROLLER://:9093", "OTHER://h:9094"]),
        ("PLAINTEXT://p:1,OTHER://o:2", ["CONTROLLER://:9093", "OTHER://o:2"]),
        ("PLAINTEXT://p:1,OTHER://o:2,CONTROLLER://c:3", ["CONTROLLER://c:3", "OTHER://o:2"]),
    ],
)
def test_what_other_nodes_are_told_of_a_controller(advertised: str | None, expected: list[str]) -> None:
    settings = BrokerSettings.load(
        changed(
            COMBINED,
            listeners="PLAINTEXT://h:9092,OTHER://h:9094,CONTROLLER://0.0.0.0:9093",
            controller_listener_names="CONTROLLER,OTHER",
            **({} if advertised is None else {"advertised_listeners": advertised}),
        )
    )
    assert [str(each) for each in settings.advertised_controller_endpoints] == expected
