"""When metadata is asked for, for which topics, and what is believed of the answers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.client.core.metadata import ClusterView, Metadata, MetadataPolicy, Node
from barnabas.client.settings import AdminSettings, ConsumerSettings, ProducerSettings
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID, OTHER_ID = Uuid(bytes(15) + b"\xa1"), Uuid(bytes(15) + b"\xa2")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def metadata(**policy: Any) -> Metadata:
    return Metadata(MetadataPolicy(**policy), randomness=Random(3))


def topic(
    name: str = "t", *leaders: tuple[int, int], error: ErrorCode = ErrorCode.NONE, topic_id: Uuid = ID
) -> MetadataResponseTopic:
    partitions = [
        MetadataResponsePartition(
            partition_index=number, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2], isr_nodes=[leader]
        )
        for number, (leader, epoch) in enumerate(leaders)
    ]
    # Brokers do not promise an order.
    return MetadataResponseTopic(name=name, error_code=error, topic_id=topic_id, partitions=partitions[::-1])


def response(*topics: MetadataResponseTopic, brokers: Iterable[int] = (1, 2), **others: Any) -> MetadataResponse:
    nodes = [MetadataResponseBroker(node_id=each, host=f"h{each}", port=9092, rack=f"r{each}") for each in brokers]
    return MetadataResponse(brokers=nodes, topics=list(topics), cluster_id="c", controller_id=2, **others)


def names(request: MetadataRequest) -> list[str | None] | None:
    return None if request.topics is None else [each.name for each in request.topics]


def known(*topics: MetadataResponseTopic, now_ms: int = 0, **policy: Any) -> Metadata:
    """One that wants the given topics and was told of them."""
    made = metadata(**policy)
    for each in topics:
        made.want(str(each.name), now_ms)
    made.request(now_ms)
    made.answered(response(*topics), now_ms)
    return made


def test_the_view_tells_what_was_answered() -> None:
    view = known(topic("t", (1, 5), (-1, 6), (2, 0))).view
    assert view.version == 1
    assert (view.cluster_id, view.controller) == ("c", Node(2, "h2", 9092, "r2"))
    assert list(view.nodes) == [1, 2]
    assert view.topics() == ["t"]
    assert (view.partition_count("t"), view.partition_count("u")) == (3, None)
    assert [each.partition for each in view.partitions("t")] == [0, 1, 2]
    assert view.available_partitions("t") == (0, 2)
    assert view.leader_of(T0) == Node(1, "h1", 9092, "r1")
    assert view.leader_of(T1) is None
    assert (view.leader_epoch(T1), view.leader_epoch(TopicPartition("u", 0))) == (6, -1)
    assert (view.topic_id("t"), view.topic_id("u"), view.topic_name(ID)) == (ID, Uuid.ZERO, "t")
    assert view.topic_error("t") is None
    assert view.partition(TopicPartition("t", 3)) is None
    assert not view.is_internal("t")
    with pytest.raises(TypeError):
        view.nodes[3] = Node(3, "h", 1)  # type: ignore[index]


def test_everything_is_asked_for_at_first_and_again_when_it_is_old() -> None:
    made = metadata(max_age_ms=1000)
    assert made.next_update_in_ms(7) == 0
    assert names(made.request(7)) == [], "no topics, only brokers"
    assert made.next_update_in_ms(7) == math.inf, "one request at a time"
    made.answered(response(), 10)
    assert made.next_update_in_ms(10) == 1000
    assert made.next_update_in_ms(1010) == 0
    made.request(1010)
    made.answered(response(), 1010)
    assert made.next_update_in_ms(1010) == 1000


def test_a_new_topic_is_asked_for_alone_and_at_once() -> None:
    made = known(topic("t", (1, 0)))
    needed = []
    made.on_needed = lambda: needed.append(1)
    assert made.want("u", 5)
    assert not made.want("u", 6)
    assert needed == [1]
    assert made.next_update_in_ms(6) == 0, "backoff does not count for a topic that is new"
    assert names(made.request(6)) == ["u"]
    made.answered(response(topic("u", (2, 0), topic_id=OTHER_ID)), 7)
    assert made.view.topics() == ["t", "u"]
    assert made.next_update_in_ms(7) > 200_000, "age counts from the last full answer"


def test_a_topic_that_becomes_wanted_while_a_request_is_under_way_is_asked_for_next() -> None:
    made = metadata()
    made.want("a", 0)
    assert names(made.request(0)) == ["a"]
    made.want("b", 1)
    made.answered(response(topic("a", (1, 0))), 2)
    assert made.view.topics() == ["a"]
    assert made.next_update_in_ms(2) == 0
    assert names(made.request(2)) == ["b"]


def test_an_update_that_is_requested_while_one_is_under_way_comes_after_it() -> None:
    made = known(topic("t", (1, 0)))
    assert made.request_update() == 1
    made.request(1000)
    number = made.full_request_count
    made.request_update()
    made.answered(response(topic("t", (1, 0))), 1001)
    assert made.answered_full_request == number
    assert 0 < made.next_update_in_ms(1001) <= 240
    assert names(made.request(2000)) == ["t"]


def test_a_topic_that_nobody_used_for_long_is_forgotten() -> None:
    made = known(topic("t", (1, 0)), topic("u", (1, 0), topic_id=OTHER_ID), max_idle_ms=1000)
    made.want("u", 800)
    made.request_update()
    assert names(made.request(1000)) == ["u"]
    made.answered(response(topic("u", (1, 0), topic_id=OTHER_ID), topic("t", (1, 0))), 1001)
    assert made.view.topics() == ["u"], "not even if it is told of"
    assert made.want("t", 1002), "it is new again"
    assert names(made.request(1002)) == ["t"]


def test_a_topic_that_was_never_answered_for_is_not_forgotten() -> None:
    made = metadata(max_idle_ms=1000)
    made.want("t", 0)
    assert names(made.request(5000)) == ["t"]


def test_a_new_topic_does_not_end_the_wait_after_a_failure() -> None:
    made = metadata()
    made.request(0)
    made.failed(0, OSError())
    made.want("t", 1)
    assert made.next_update_in_ms(1) >= 79


def test_topics_of_a_subscription_do_not_expire_and_go_with_it() -> None:
    made = metadata(max_idle_ms=10)
    made.set_topics({"b", "a"})
    assert names(made.request(0)) == ["a", "b"]
    made.answered(response(topic("a", (1, 0)), topic("b", (1, 0), topic_id=OTHER_ID)), 0)
    made.request_update()
    assert names(made.request(10_000)) == ["a", "b"]
    made.answered(response(topic("a", (1, 0)), topic("b", (1, 0), topic_id=OTHER_ID)), 10_000)
    made.set_topics({"b", "c"})
    assert names(made.request(10_000)) == ["c"], "only what is new"
    made.answered(response(topic("c", (1, 0), topic_id=Uuid(bytes(15) + b"\xa3"))), 10_000)
    assert made.view.topics() == ["b", "c"]


def test_a_topic_that_is_not_wanted_any_more_is_not_asked_for() -> None:
    made = known(topic("t", (1, 0)))
    made.set_topics({"a", "b"})
    made.set_topics({"b"})
    assert names(made.request(1)) == ["b"]
    made.answered(response(topic("b", (1, 0), topic_id=OTHER_ID)), 1)
    assert made.next_update_in_ms(1) > 1000


def test_all_topics_may_be_wanted() -> None:
    made = known(topic("t", (1, 0)))
    made.set_topics(None)
    assert names(made.request(1000)) is None
    made.answered(response(topic("x", (1, 0)), topic("__consumer_offsets", (1, 0), topic_id=OTHER_ID)), 1000)
    assert made.view.topics() == ["x", "__consumer_offsets"]
    assert made.topics() is None


def test_failures_are_followed_by_longer_and_longer_waits() -> None:
    made = metadata()
    now_ms, waits = 0, []
    for _ in range(6):
        made.request(now_ms)
        made.failed(now_ms, OSError("no"))
        waits.append(made.next_update_in_ms(now_ms))
        now_ms += math.ceil(waits[-1])
    for wait, exact in zip(waits, [100, 200, 400, 800, 1000, 1000], strict=True):
        assert exact * 0.8 <= wait <= min(1000, exact * 1.2)
    assert str(made.last_error) == "no"
    made.request(now_ms)
    made.answered(response(), now_ms)
    assert made.last_error is None
    made.request_update()
    assert 80 <= made.next_update_in_ms(now_ms) <= 120, "a success makes the next wait the first again"


def test_a_node_that_cannot_be_reached_does_not_hold_up_the_next() -> None:
    made = metadata()
    made.unreachable(5, OSError("no"))
    assert made.next_update_in_ms(5) == 0


def test_who_learns_nothing_asks_less_often() -> None:
    made = metadata()
    made.want("t", 0)
    now_ms, waits = 0, []
    for _ in range(6):
        assert names(made.request(now_ms)) == ["t"]
        made.answered(response(topic("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)), now_ms)
        waits.append(made.next_update_in_ms(now_ms))
        now_ms += math.ceil(waits[-1])
    for wait, exact in zip(waits, [100, 200, 400, 800, 1000, 1000], strict=True):
        assert exact * 0.8 <= wait <= min(1000, exact * 1.2)
    assert made.view.topic_error("t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert made.view.partition_count("t") is None
    assert made.view.topics() == []


def test_who_is_asked_does_not_wait_but_for_failures() -> None:
    made = metadata()
    told: list[int] = []
    made.on_needed = lambda: told.append(1)
    for now_ms in range(4):
        made.request(now_ms)
        made.answered(response(), now_ms)
        made.request_update()
        assert made.next_update_in_ms(now_ms) > 50
        made.request_update(is_asked_for=True)
        assert made.next_update_in_ms(now_ms) == 0
        assert len(told) == 2 * (now_ms + 1), "who waits until it is due must hear that it is now"
    made.request(5)
    made.failed(5, OSError("no"))
    made.request_update(is_asked_for=True)
    assert made.next_update_in_ms(5) > 50


@pytest.mark.parametrize(
    ("error", "is_asked_again"),
    [
        (ErrorCode.LEADER_NOT_AVAILABLE, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, False),
    ],
)
def test_only_errors_that_may_pass_are_asked_about_again(error: ErrorCode, is_asked_again: bool) -> None:
    made = known(topic("t", error=error))
    assert made.view.topic_error("t") is error
    assert (made.next_update_in_ms(0) < 1000) is is_asked_again


def test_a_partition_without_a_leader_is_asked_about_again() -> None:
    told = topic("t", (1, 0), (-1, 3))
    told.partitions[0].error_code = ErrorCode.LEADER_NOT_AVAILABLE
    made = known(told)
    assert made.view.partition(T1).error_code is ErrorCode.LEADER_NOT_AVAILABLE  # type: ignore[union-attr]
    assert made.next_update_in_ms(0) < 200


def test_an_answer_with_older_epochs_is_not_believed() -> None:
    made = known(topic("t", (1, 5), (1, 5)))
    made.request_update()
    made.request(1000)
    made.answered(response(topic("t", (2, 4), (2, 6))), 1000)
    assert [(each.leader_id, each.leader_epoch) for each in made.view.partitions("t")] == [(1, 5), (2, 6)]


def test_a_topic_that_was_made_anew_begins_its_epochs_again() -> None:
    made = known(topic("t", (1, 5)))
    made.request_update()
    made.request(1000)
    made.answered(response(topic("t", (2, 0), topic_id=OTHER_ID)), 1000)
    assert made.view.leader_epoch(T0) == 0
    assert (made.view.topic_name(ID), made.view.topic_name(OTHER_ID)) == (None, "t")


def test_without_ids_a_topic_that_was_gone_begins_its_epochs_again() -> None:
    made = known(topic("t", (1, 5), topic_id=Uuid.ZERO))
    for told in (topic("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic_id=Uuid.ZERO), topic("t", (2, 0))):
        told.topic_id = Uuid.ZERO
        made.request_update()
        made.request(1000)
        made.answered(response(told), 1000, version=9)
    assert (made.view.partition(T0).leader_id, made.view.leader_epoch(T0)) == (2, 0)  # type: ignore[union-attr]


def test_with_ids_a_topic_that_a_broker_did_not_know_for_a_moment_keeps_its_epochs() -> None:
    made = known(topic("t", (1, 5)))
    for told in (topic("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic_id=Uuid.ZERO), topic("t", (2, 4))):
        made.request_update()
        made.request(1000)
        made.answered(response(told), 1000)
    assert made.view.leader_of(T0) is None, "what a lagging broker says is not believed, and nothing else is known"


def test_epochs_of_brokers_before_2_4_are_not_used() -> None:
    made = known(topic("t", (1, 5)))
    made.request_update()
    made.request(1000)
    made.answered(response(topic("t", (2, 3))), 1000, version=8)
    assert (made.view.partition(T0).leader_id, made.view.leader_epoch(T0)) == (2, -1)  # type: ignore[union-attr]


def test_a_newer_epoch_in_another_answer_makes_metadata_old() -> None:
    made = known(topic("t", (1, 5)))
    assert not made.epoch_seen(T0, 5)
    assert not made.epoch_seen(TopicPartition("u", 0), 9), "nothing is known of it that could be old"
    assert made.next_update_in_ms(500) > 1000
    assert made.epoch_seen(T0, 6)
    assert made.next_update_in_ms(500) == 0
    made.request(500)
    made.answered(response(topic("t", (2, 5))), 500)
    assert made.view.leader_of(T0) is None, "the answer is older than what we have heard of"
    made.request_update()
    made.request(1000)
    made.answered(response(topic("t", (2, 6))), 1000)
    assert made.view.leader_of(T0) == Node(2, "h2", 9092, "r2")


def test_a_broker_may_name_its_successor() -> None:
    made = known(topic("t", (1, 5), (1, 5)))
    assert made.leader_hints([(T0, 3, 6)], [Node(3, "h3", 9092)])
    assert made.view.leader_of(T0) == Node(3, "h3", 9092)
    assert made.view.leader_epoch(T0) == 6
    assert made.view.leader_of(T1) == Node(1, "h1", 9092, "r1")
    version = made.view.version
    for tp, leader, epoch in [
        (T0, 1, 6),  # no newer than what we know
        (T0, -1, -1),  # what a broker sends that knows nothing
        (T1, 9, 7),  # where is 9?
        (TopicPartition("u", 0), 1, 7),
        (TopicPartition("t", 9), 1, 7),
    ]:
        assert not made.leader_hints([(tp, leader, epoch)])
    assert made.view.version == version == 2
    assert made.leader_hints([(T0, 1, 7), (T1, 2, 7)]) == 2
    assert made.view.version == 3, "many hints, one view"
    made.request_update()
    made.request(1000)
    made.answered(response(topic("t", (2, 6), (1, 6))), 1000)
    assert made.view.leader_epoch(T0) == 7, "an answer that is older than the hint is not believed"


def test_an_answer_without_brokers_is_a_failure() -> None:
    made = metadata()
    made.want("t", 0)
    made.request(0)
    made.answered(response(brokers=()), 0)
    assert made.view.version == 0
    assert "no brokers" in str(made.last_error)
    assert made.next_update_in_ms(0) >= 80
    assert names(made.request(200)) == ["t"]


def test_a_failed_question_is_asked_again_whole() -> None:
    made = known(topic("t", (1, 0)))
    made.want("u", 0)
    made.request_update()
    assert names(made.request(500)) == ["t", "u"]
    made.failed(500, OSError())
    assert names(made.request(700)) == ["t", "u"]
    made.answered(response(topic("t", (1, 0)), topic("u", (1, 0), topic_id=OTHER_ID)), 700)
    assert made.next_update_in_ms(700) > 1000


def test_starting_again_is_due_when_no_update_succeeded_for_long() -> None:
    made = known(topic("t", (1, 5)), rebootstrap_trigger_ms=10_000)
    made.request_update()
    assert not made.should_rebootstrap(99_000), "nobody tried"
    made.unreachable(1000, OSError())
    made.request(5000)
    made.failed(9000, OSError())
    assert not made.should_rebootstrap(10_999)
    assert made.should_rebootstrap(11_000)
    made.rebootstrap(11_000)
    assert not made.should_rebootstrap(99_000), "it has begun already"
    assert made.view.topics() == ["t"], "what was known is of use until there is something better"
    assert made.next_update_in_ms(11_000) == 0
    made.request(11_000)
    made.answered(response(topic("t", (2, 6))), 11_000)
    assert not made.is_bootstrapping
    assert made.view.leader_epoch(T0) == 6
    assert not made.should_rebootstrap(21_000)


@pytest.mark.parametrize("cluster_id", ["c", "another"])
def test_who_starts_again_forgets_epochs_only_in_another_cluster(cluster_id: str) -> None:
    made = known(topic("t", (1, 5)), rebootstrap_trigger_ms=10_000)
    made.rebootstrap(11_000)
    made.request(11_000)
    answer = response(topic("t", (2, 1)))
    answer.cluster_id = cluster_id
    made.answered(answer, 11_000)
    # A bootstrap server that was cut off names the leader of old, with which a reader of epoch 5 would find itself
    # ahead of the log, and begin again.
    assert made.view.leader_epoch(T0) == (5 if cluster_id == "c" else 1)


def test_a_broker_may_ask_for_a_new_start() -> None:
    made = known(topic("t", (1, 5)))
    made.request_update()
    made.request(1000)
    made.answered(response(error_code=ErrorCode.REBOOTSTRAP_REQUIRED), 1000)
    assert made.should_rebootstrap(1000)
    assert isinstance(made.last_error, BrokerError)
    made.rebootstrap(1000)
    assert not made.should_rebootstrap(1000)


def test_without_recovery_nothing_starts_again() -> None:
    made = known(topic("t", (1, 5)), rebootstrap_trigger_ms=None)
    made.unreachable(0, OSError())
    assert not made.should_rebootstrap(10**9)
    assert not made.can_rebootstrap


def test_the_policy_follows_the_settings() -> None:
    servers = {"bootstrap.servers": "h:1"}
    producer = MetadataPolicy.of(ProducerSettings.load(servers, metadata_max_idle_ms=7000, metadata_max_age_ms=5))
    assert (producer.max_idle_ms, producer.max_age_ms, producer.allow_auto_topic_creation) == (7000, 5, True)
    consumer = ConsumerSettings.load(servers, allow_auto_create_topics=False, metadata_recovery_strategy="NONE")
    assert not MetadataPolicy.of(consumer).allow_auto_topic_creation
    assert MetadataPolicy.of(consumer).rebootstrap_trigger_ms is None
    assert MetadataPolicy.of(ConsumerSettings.load(servers)).allow_auto_topic_creation
    admin = Metadata.of(AdminSettings.load(servers), randomness=Random(1))
    assert admin.request(0).allow_auto_topic_creation is False
    assert admin.policy.rebootstrap_trigger_ms == 300_000


@given(st.integers(7, MetadataRequest.VERSIONS.high), st.lists(st.sampled_from("abc"), unique=True), st.booleans())
def test_requests_go_into_every_version_of_brokers_since_2_1(version: int, topics: list[str], creates: bool) -> None:
    made = metadata(allow_auto_topic_creation=creates)
    made.set_topics(topics)
    sent = MetadataRequest.decode(made.request(0).encode(version), version)
    assert names(sent) == sorted(topics)
    assert sent.allow_auto_topic_creation is creates
    everything = metadata()
    everything.set_topics(None)
    assert names(MetadataRequest.decode(everything.request(0).encode(version), version)) is None


class Updates(RuleBasedStateMachine):
    """Against a cluster whose topics are led, deleted and made anew, with answers that are as old as they like.

    The model: of each topic life (id) and partition, the newest epoch that was told; the view never goes below it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.lives = 0
        #: By name: the id, and the leader and epoch of each partition; all states that ever were, for old answers.
        self.history: dict[str, list[tuple[Uuid, tuple[tuple[int, int], ...]]]] = {}
        self.made = metadata(max_idle_ms=500, max_age_ms=300)
        self.asked: MetadataRequest | None = None
        self.newest: dict[tuple[Uuid, str, int], int] = {}
        self.last_version = 0

    @rule(name=st.sampled_from("abc"), leaders=st.lists(st.integers(-1, 3), min_size=1, max_size=3))
    def make_topic(self, name: str, leaders: list[int]) -> None:
        self.lives += 1
        topic_id = Uuid(bytes(14) + (0x100 + self.lives).to_bytes(2, "big"))
        self.history.setdefault(name, []).append((topic_id, tuple((leader, 0) for leader in leaders)))

    @precondition(lambda self: self.history)
    @rule(data=st.data(), leader=st.integers(-1, 3))
    def elect(self, data: st.DataObject, leader: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.history)))
        topic_id, states = self.history[name][-1]
        number = data.draw(st.integers(0, len(states) - 1))
        changed = [*states]
        changed[number] = (leader, states[number][1] + 1)
        self.history[name].append((topic_id, tuple(changed)))

    @rule(by_ms=st.integers(0, 400))
    def pass_time(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @rule(name=st.sampled_from("abcd"))
    def want(self, name: str) -> None:
        self.made.want(name, self.now_ms)

    @rule(topics=st.one_of(st.none(), st.sets(st.sampled_from("abcd"))))
    def subscribe(self, topics: set[str] | None) -> None:
        self.made.set_topics(topics)

    @rule()
    def request_update(self) -> None:
        self.made.request_update()
        assert self.asked is not None or self.made.next_update_in_ms(self.now_ms) <= 1000

    @precondition(lambda self: self.asked is None and self.made.next_update_in_ms(self.now_ms) == 0)
    @rule()
    def ask(self) -> None:
        self.asked = self.made.request(self.now_ms)

    @precondition(lambda self: self.asked is not None)
    @rule()
    def fail(self) -> None:
        self.asked = None
        self.made.failed(self.now_ms, OSError())
        assert 0 < self.made.next_update_in_ms(self.now_ms) <= 1000

    @precondition(lambda self: self.asked is not None)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        asked, self.asked = self.asked, None
        assert asked is not None
        wanted = sorted(self.history) if asked.topics is None else [str(each.name) for each in asked.topics]
        told = []
        for name in wanted:
            states = self.history.get(name)
            if not states or data.draw(st.integers(0, 9)) == 0:
                told.append(topic(name, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic_id=Uuid.ZERO))
                continue
            topic_id, leaders = data.draw(st.sampled_from(states[-3:]))
            told.append(topic(name, *leaders, topic_id=topic_id))
        self.made.answered(response(*told, brokers=(1, 2, 3)), self.now_ms)
        for each in told:
            entry = self.made.view.entry(str(each.name))
            assert entry is None or entry.error_code or entry.topic_id == each.topic_id
            assert entry is None or len(entry.partitions) == len(each.partitions)
        if asked.topics is not None:
            for name in self.made.view.topics():
                assert name in (self.made.topics() or [name])

    @precondition(lambda self: self.made.view.topics())
    @rule(data=st.data(), leader=st.integers(0, 4), epoch=st.integers(0, 6))
    def hint(self, data: st.DataObject, leader: int, epoch: int) -> None:
        view = self.made.view
        info = data.draw(st.sampled_from([each for name in view.topics() for each in view.partitions(name)]))
        tp = TopicPartition(info.topic, info.partition)
        was_news = self.made.leader_hints([(tp, leader, epoch)]) > 0
        if was_news:
            assert (self.made.view.partition(tp).leader_id, self.made.view.leader_epoch(tp)) == (leader, epoch)  # type: ignore[union-attr]
            assert epoch > info.leader_epoch
        else:
            assert self.made.view is view

    @invariant()
    def leaders_never_go_back(self) -> None:
        view = self.made.view
        assert view.version >= self.last_version
        self.last_version = view.version
        current = {view.topic_id(name): name for name in view.topics()}
        self.newest = {key: epoch for key, epoch in self.newest.items() if key[0] in current}
        for name in view.topics():
            for each in view.partitions(name):
                key = (view.topic_id(name), name, each.partition)
                if each.leader_epoch >= 0:
                    assert each.leader_epoch >= self.newest.get(key, -1)
                    self.newest[key] = each.leader_epoch

    @invariant()
    def an_update_is_never_far_when_one_is_needed(self) -> None:
        wait_ms = self.made.next_update_in_ms(self.now_ms)
        assert (wait_ms == math.inf) is (self.asked is not None)
        assert wait_ms == math.inf or wait_ms <= 1000


TestUpdates = Updates.TestCase
TestUpdates.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_view_that_knows_nothing_says_so() -> None:
    view = ClusterView()
    assert (view.version, view.cluster_id, view.controller, dict(view.nodes), view.topics()) == (0, None, None, {}, [])
    assert view.partitions("t") == ()
    assert view.available_partitions("t") == ()
    assert view.leader_of(T0) is None
