"""Assignors: small cases by hand, properties of all, and what members tell each other."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.errors import RemoteProtocolError, SettingsError
from barnabas.base.ids import TopicPartition
from barnabas.base.settings.values import Plugin
from barnabas.client.core.consuming.assignors import (
    ASSIGNORS,
    Assignment,
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
    StickyAssignor,
    TopicsView,
    common_protocol,
    load_assignors,
)
from barnabas.client.core.consuming.assignors.protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas.client.core.consuming.assignors.sticky import claim_of
from barnabas.client.core.consuming.assignors.user_data import PreviousTopic, StickyUserData
from barnabas.client.core.consuming.leading import check_nothing_is_taken
from barnabas.client.errors import ClientError
from barnabas.client.settings import ConsumerSettings
from tests.client.core.consuming.assignors.topics import view_of

Group = dict[str, MemberSubscription]


def shares(assignor: Assignor, view: TopicsView, group: Group) -> dict[str, str]:
    found = assignor.assign(view, group)
    return {
        member_id: " ".join(f"{topic}{number}" for topic, number in each.partitions)
        for member_id, each in found.items()
    }


def wants(*topics: str, **more: object) -> MemberSubscription:
    return MemberSubscription(topics, **more)  # type: ignore[arg-type]


def owning(*partitions: str, topics: str = "t", generation: int = 1) -> MemberSubscription:
    owned = tuple(TopicPartition(each[0], int(each[1:])) for each in partitions)
    return MemberSubscription(tuple(topics), owned=owned, generation=generation)


class TestRange:
    def test_the_first_members_get_one_more(self) -> None:
        view = view_of({"t": 3, "u": 3})
        group = {"b": wants("t", "u"), "a": wants("t", "u")}
        assert shares(RangeAssignor(), view, group) == {"a": "t0 t1 u0 u1", "b": "t2 u2"}

    def test_static_members_come_first_by_the_name_they_keep(self) -> None:
        group = {"a": wants("t"), "z": wants("t", instance_id="1"), "y": wants("t", instance_id="2")}
        assert shares(RangeAssignor(), view_of({"t": 3}), group) == {"z": "t0", "y": "t1", "a": "t2"}

    def test_members_get_what_is_near(self) -> None:
        view = view_of({"t": [["x"], ["y"], ["x"], ["y"]]})
        group = {"a": wants("t", rack="y"), "b": wants("t", rack="x")}
        assert shares(RangeAssignor(), view, group) == {"a": "t1 t3", "b": "t0 t2"}

    def test_topics_of_one_size_are_read_by_the_same_members(self) -> None:
        view = view_of({"t": [["x"], ["y"]], "u": [["x", "y"], ["x", "y"]]})
        group = {"a": wants("t", "u", rack="y"), "b": wants("t", "u", rack="x")}
        assert shares(RangeAssignor(), view, group) == {"a": "t1 u1", "b": "t0 u0"}

    def test_topics_that_nobody_knows_are_left_out(self) -> None:
        assert shares(RangeAssignor(), view_of({"t": 1}), {"a": wants("t", "u")}) == {"a": "t0"}


def test_round_robin_deals_partitions_out_to_those_who_want_them() -> None:
    view = view_of({"t": 1, "u": 2, "v": 3})
    group = {"a": wants("t"), "b": wants("t", "u"), "c": wants("t", "u", "v")}
    assert shares(RoundRobinAssignor(), view, group) == {"a": "t0", "b": "u0", "c": "u1 v0 v1 v2"}


class TestCooperative:
    def test_what_moves_goes_to_nobody_at_first(self) -> None:
        view = view_of({"t": 4})
        first = {"a": owning("t0", "t1", "t2", "t3"), "b": wants("t")}
        assert shares(CooperativeStickyAssignor(), view, first) == {"a": "t0 t1", "b": ""}
        then = {"a": owning("t0", "t1", generation=2), "b": owning(generation=2)}
        assert shares(CooperativeStickyAssignor(), view, then) == {"a": "t0 t1", "b": "t2 t3"}

    def test_a_newer_generation_is_believed(self) -> None:
        group = {"a": owning("t0", generation=3), "b": owning("t0", "t1", generation=5)}
        assert shares(CooperativeStickyAssignor(), view_of({"t": 2}), group) == {"a": "", "b": "t0"}

    def test_what_two_claim_in_one_generation_is_given_up_by_both(self) -> None:
        group = {"a": owning("t0"), "b": owning("t0")}
        assert shares(CooperativeStickyAssignor(), view_of({"t": 2}), group) == {"a": "", "b": "t1"}

    def test_a_member_that_says_its_generation_in_user_data_is_believed(self) -> None:
        assignor = CooperativeStickyAssignor()
        assignor.on_assignment(Assignment(), 7)
        old = MemberSubscription(
            ("t",), user_data=assignor.subscription_user_data(["t"]), owned=(TopicPartition("t", 0),)
        )
        group = {"a": owning("t0", "t1", generation=6), "b": old}
        assert shares(assignor, view_of({"t": 2}), group) == {"a": "t1", "b": "t0"}


class TestSticky:
    def test_what_a_member_had_travels_in_user_data(self) -> None:
        assignor = StickyAssignor()
        assert assignor.subscription_user_data(["t"]) is None
        had = (TopicPartition("t", 2), TopicPartition("u", 0), TopicPartition("t", 5))
        assignor.on_assignment(Assignment(had), 9)
        claim = claim_of(assignor.subscription_user_data(["t", "u"]))
        assert (sorted(claim.partitions), claim.generation) == (sorted(had), 9)

    def test_older_user_data_has_no_generation(self) -> None:
        data = StickyUserData(previous_assignment=[PreviousTopic(topic="t", partitions=[1, 2])]).encode(0)
        claim = claim_of(data)
        assert claim.partitions == (TopicPartition("t", 1), TopicPartition("t", 2))
        assert claim.generation is None

    @pytest.mark.parametrize("data", [b"\x00", b"\x7f" * 9, b"\x00\x00\x00\x01\x00"])
    def test_what_cannot_be_read_counts_as_nothing(self, data: bytes) -> None:
        assert claim_of(data).partitions == ()


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, int], Group]:
    topics = draw(st.dictionaries(st.sampled_from("tuvw"), st.integers(1, 7), min_size=1))
    ids = draw(st.lists(st.sampled_from([f"consumer-{number}" for number in range(9)]), min_size=1, unique=True))
    everything = [TopicPartition(topic, number) for topic, size in topics.items() for number in range(size + 1)]
    owners = {each: draw(st.sampled_from([*ids, ""])) for each in everything}
    is_even = draw(st.booleans())
    group = {}
    for member_id in ids:
        wanted = [*topics] if is_even else draw(st.lists(st.sampled_from([*topics]), min_size=1, unique=True))
        owned = tuple(each for each in everything if owners[each] == member_id)
        had = StickyAssignor()
        had.on_assignment(Assignment(owned), 4)
        group[member_id] = MemberSubscription(tuple(wanted), had.subscription_user_data(wanted), owned, 4)
    return topics, group


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky"])
@given(case=groups())
@settings(max_examples=60, deadline=None)
def test_everything_that_is_wanted_is_given_once_to_who_wants_it(name: str, case: tuple[dict[str, int], Group]) -> None:
    topics, group = case
    given_away = ASSIGNORS[name]().assign(view_of(topics), group)
    assert given_away.keys() == group.keys()
    assert all(
        each.topic in group[member_id].topics for member_id, got in given_away.items() for each in got.partitions
    )
    found = [each for got in given_away.values() for each in got.partitions]
    wanted = {topic for each in group.values() for topic in each.topics}
    assert sorted(found) == sorted(TopicPartition(topic, n) for topic in wanted for n in range(topics[topic]))


@given(case=groups())
@settings(max_examples=60, deadline=None)
def test_sticky_shares_are_even_and_move_only_what_must(case: tuple[dict[str, int], Group]) -> None:
    topics, group = case
    got = StickyAssignor().assign(view_of(topics), group)
    owner = {each: member_id for member_id, share in got.items() for each in share.partitions}
    for partition, member_id in owner.items():
        for other, wish in group.items():
            may_have = partition.topic in wish.topics
            assert not may_have or len(got[member_id].partitions) <= len(got[other].partitions) + 1
    # Once more with what they got: nothing moves.
    again = {}
    for member_id, wish in group.items():
        had = StickyAssignor()
        had.on_assignment(got[member_id], 5)
        again[member_id] = MemberSubscription(wish.topics, had.subscription_user_data(wish.topics))
    assert same(StickyAssignor().assign(view_of(topics), again)) == same(got)


@given(case=groups())
@settings(max_examples=60, deadline=None)
def test_a_cooperative_group_comes_to_rest_without_taking_anything_from_anybody(
    case: tuple[dict[str, int], Group],
) -> None:
    topics, group = case
    for generation in range(5, 9):
        got = CooperativeStickyAssignor().assign(view_of(topics), group)
        owner = {each: member_id for member_id, wish in group.items() for each in wish.owned}
        for member_id, share in got.items():
            assert all(owner.get(each, member_id) == member_id for each in share.partitions)
        next_group = {
            member_id: MemberSubscription(wish.topics, owned=got[member_id].partitions, generation=generation)
            for member_id, wish in group.items()
        }
        if next_group == group:
            break
        group = next_group
    found = [each for share in got.values() for each in share.partitions]
    wanted = {topic for wish in group.values() for topic in wish.topics}
    assert sorted(found) == sorted(TopicPartition(topic, n) for topic in wanted for n in range(topics[topic]))


def same(shares: Mapping[str, Assignment]) -> dict[str, list[TopicPartition]]:
    return {member_id: sorted(each.partitions) for member_id, each in shares.items()}


class TestTravelling:
    SUBSCRIPTION = MemberSubscription(
        ("t", "u"), b"data", (TopicPartition("t", 1), TopicPartition("t", 3), TopicPartition("u", 0)), 6, "rack"
    )

    @pytest.mark.parametrize("version", range(4))
    def test_every_version_of_a_subscription_is_read(self, version: int) -> None:
        found = decode_subscription(encode_subscription(self.SUBSCRIPTION, version), "instance")
        assert (found.topics, found.user_data, found.instance_id) == (("t", "u"), b"data", "instance")
        assert found.owned == (self.SUBSCRIPTION.owned if version >= 1 else ())
        assert found.generation == (6 if version >= 2 else -1)
        assert found.rack == ("rack" if version >= 3 else None)

    def test_of_a_newer_version_what_is_known_is_read(self) -> None:
        data = b"\x00\x09" + encode_subscription(self.SUBSCRIPTION)[2:] + b"news"
        assert decode_subscription(data) == self.SUBSCRIPTION

    def test_the_same_subscription_is_the_same_bytes(self) -> None:
        turned = MemberSubscription(("u", "t"), b"data", self.SUBSCRIPTION.owned[::-1], 6, "rack")
        assert encode_subscription(turned) == encode_subscription(self.SUBSCRIPTION)

    @pytest.mark.parametrize("version", range(4))
    def test_assignments_are_read(self, version: int) -> None:
        assignment = Assignment(self.SUBSCRIPTION.owned, b"x")
        assert decode_assignment(encode_assignment(assignment, version)) == assignment
        assert decode_assignment(b"") == Assignment()

    @pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\x09"])
    def test_nonsense_is_refused(self, data: bytes) -> None:
        with pytest.raises(RemoteProtocolError):
            decode_subscription(data)


class Custom(Assignor):
    """Gives everything to the first."""

    name = "first"
    protocols = (RebalanceProtocol.COOPERATIVE,)

    def assign(self, view: TopicsView, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, Assignment]:
        first = min(subscriptions)
        everything = tuple(TopicPartition("t", n) for n in range(view.partition_count("t") or 0))
        return {each: Assignment(everything if each == first else ()) for each in subscriptions}


class TestLoading:
    def test_names_classes_and_paths(self) -> None:
        settings = ConsumerSettings.load(
            bootstrap_servers="h:1",
            partition_assignment_strategy=["org.apache.kafka.clients.consumer.StickyAssignor", Custom],
        )
        loaded = load_assignors(settings.partition_assignment_strategy)
        assert [each.name for each in loaded] == ["sticky", "first"]
        with pytest.raises(SettingsError, match="two assignors are named 'first'"):
            load_assignors([Plugin("x", Custom), Plugin(f"{__name__}.Custom")])
        with pytest.raises(SettingsError, match="is not an assignor: it has no name"):
            load_assignors([Plugin("builtins.dict")])
        with pytest.raises(SettingsError, match="at least one"):
            load_assignors([])

    def test_the_protocol_is_the_best_that_all_support(self) -> None:
        cooperative, eager = CooperativeStickyAssignor(), RangeAssignor()
        assert common_protocol([cooperative]) is RebalanceProtocol.COOPERATIVE
        assert common_protocol([eager, cooperative]) is RebalanceProtocol.EAGER
        with pytest.raises(SettingsError, match="range, first have no rebalance protocol in common"):
            common_protocol([eager, Custom()])

    def test_a_cooperative_assignor_must_not_take_from_those_who_have(self) -> None:
        group = {"a": wants("t"), "b": owning("t0")}
        got = Custom().assign(view_of({"t": 1}), group)
        with pytest.raises(ClientError, match="gave t-0 to new owners while the old ones still have them"):
            check_nothing_is_taken(Custom(), group, got)
