"""Our side of fetch sessions, against the broker's own side."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.client.core.consuming.fetch_sessions import (
    ClientFetchSession,
    FetchRequestData,
    WantedFetch,
)
from barnabas.replication.fetch_sessions import FetchSessionCache
from barnabas.wire.fetch_session_epoch import FINAL_EPOCH, INITIAL_EPOCH
from barnabas.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
IDS = {"t": Uuid(bytes(15) + b"t"), "u": Uuid(bytes(15) + b"u")}
NAMES = {topic_id: name for name, topic_id in IDS.items()}


def want(partition: TopicPartition, offset: int = 0, topic_id: Uuid | None = None) -> WantedFetch:
    return WantedFetch(IDS[partition.topic] if topic_id is None else topic_id, offset, 0, 100)


def wants(*partitions: TopicPartition, offset: int = 0) -> dict[TopicPartition, WantedFetch]:
    return {partition: want(partition, offset) for partition in partitions}


def request(fetch: FetchRequestData) -> FetchRequest:
    return fetch.request(max_wait_ms=1, min_bytes=1, max_bytes=1, read_committed=False)


def answer(
    fetch: FetchRequestData, *partitions: TopicPartition, session_id: int = 0, error: int = 0, throttle_ms: int = 0
) -> FetchResponse:
    topics: dict[str, FetchableTopicResponse] = {}
    for partition in partitions:
        named = FetchableTopicResponse(
            topic="" if fetch.uses_ids else partition.topic,
            topic_id=IDS[partition.topic] if fetch.uses_ids else Uuid.ZERO,
            partitions=[],
        )
        data = PartitionData(partition_index=partition.partition, high_watermark=0, records=None)
        topics.setdefault(partition.topic, named).partitions.append(data)
    return FetchResponse(
        error_code=error, session_id=session_id, responses=list(topics.values()), throttle_time_ms=throttle_ms
    )


def opened(*partitions: TopicPartition, version: int = 17) -> ClientFetchSession:
    session = ClientFetchSession(1)
    fetch = session.begin(wants(*partitions), version)
    assert session.answered(fetch, answer(fetch, *partitions, session_id=7)) is not None
    return session


def test_the_first_fetch_asks_for_all_and_opens_a_session() -> None:
    session = ClientFetchSession(1)
    fetch = session.begin(wants(T0, U0), 17)
    assert (fetch.session_id, fetch.session_epoch, fetch.is_full) == (0, INITIAL_EPOCH, True)
    assert list(fetch.to_send) == [T0, U0]
    assert not fetch.to_forget
    assert set(session.answered(fetch, answer(fetch, T0, U0, session_id=7)) or ()) == {T0, U0}
    again = session.begin(wants(T0, U0), 17)
    assert (again.session_id, again.session_epoch) == (7, 1)
    assert not again.to_send
    assert not again.to_forget
    assert session.answered(again, answer(again, session_id=7)) == {}
    assert session.begin(wants(T0, U0), 17).session_epoch == 2


def test_only_what_changed_is_sent() -> None:
    session = opened(T0, T1)
    fetch = session.begin({T0: want(T0), T1: want(T1, 9), U0: want(U0)}, 17)
    assert fetch.to_send == {T1: want(T1, 9), U0: want(U0)}
    session.answered(fetch, answer(fetch, T1, session_id=7))
    fetch = session.begin(wants(U0), 17)
    assert fetch.to_send == {}
    assert list(fetch.to_forget) == [T0, T1]
    sent = request(fetch)
    assert [(each.topic_id, each.partitions) for each in sent.forgotten_topics_data] == [(IDS["t"], [0, 1])]
    assert sent.topics == []


def test_a_topic_that_was_made_anew_is_forgotten_under_its_old_id() -> None:
    session = opened(T0)
    new_id = Uuid(bytes(15) + b"n")
    fetch = session.begin({T0: want(T0, topic_id=new_id)}, 17)
    assert fetch.to_forget == {T0: IDS["t"]}
    assert fetch.to_send[T0].topic_id == new_id


def test_a_broker_without_room_is_asked_in_full_each_time() -> None:
    session = ClientFetchSession(1)
    for _ in range(3):
        fetch = session.begin(wants(T0), 17)
        assert fetch.is_full
        assert fetch.session_id == 0
        assert session.answered(fetch, answer(fetch, T0, session_id=0)) is not None


def test_a_session_that_the_broker_has_lost_starts_from_nothing() -> None:
    session = opened(T0)
    fetch = session.begin(wants(T0), 17)
    assert session.answered(fetch, answer(fetch, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)) is None
    fetch = session.begin(wants(T0), 17)
    assert (fetch.session_id, fetch.session_epoch) == (0, INITIAL_EPOCH)
    assert list(fetch.to_send) == [T0]


def test_a_session_out_of_step_is_replaced_and_named_so_that_the_broker_drops_it() -> None:
    for error in (ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR):
        session = opened(T0)
        fetch = session.begin(wants(T0), 17)
        assert session.answered(fetch, answer(fetch, error=error)) is None
        fetch = session.begin(wants(T0), 17)
        assert (fetch.session_id, fetch.session_epoch) == (7, INITIAL_EPOCH)


def test_after_a_lost_connection_the_session_is_replaced() -> None:
    session = opened(T0)
    session.begin(wants(T0), 17)
    session.failed()
    fetch = session.begin(wants(T0), 17)
    assert (fetch.session_id, fetch.session_epoch) == (7, INITIAL_EPOCH)


def test_topics_without_an_id_are_asked_for_by_name_and_so_are_all() -> None:
    session = opened(T0)
    fetch = session.begin({T0: want(T0), U0: want(U0, topic_id=Uuid.ZERO)}, 17)
    assert (fetch.version, fetch.uses_ids) == (12, False)
    # Names and ids do not mix within a session.
    assert (fetch.session_id, fetch.session_epoch, list(fetch.to_send)) == (7, INITIAL_EPOCH, [T0, U0])
    assert session.answered(fetch, answer(fetch, T0, U0, session_id=8)) is not None
    fetch = session.begin(wants(T0, U0), 17)
    assert (fetch.version, fetch.session_id, fetch.session_epoch) == (17, 8, INITIAL_EPOCH)


def test_answers_about_partitions_that_were_not_asked_for_are_not_believed() -> None:
    session = opened(T0)
    fetch = session.begin(wants(T0), 17)
    assert session.answered(fetch, answer(fetch, T1, session_id=7)) is None
    assert session.begin(wants(T0), 17).is_full
    session = ClientFetchSession(1)
    fetch = session.begin(wants(T0, T1), 12)
    assert session.answered(fetch, answer(fetch, T0, session_id=7)) is None  # a full answer leaves nothing out


def test_a_throttled_full_fetch_is_repeated() -> None:
    session = ClientFetchSession(1)
    fetch = session.begin(wants(T0), 17)
    assert session.answered(fetch, answer(fetch, throttle_ms=50)) is None
    fetch = session.begin(wants(T0), 17)
    assert (fetch.session_id, fetch.session_epoch) == (0, INITIAL_EPOCH)


def test_closing_names_the_session_once() -> None:
    session = opened(T0)
    fetch = session.begin_close(17)
    assert fetch is not None
    assert (fetch.session_id, fetch.session_epoch) == (7, FINAL_EPOCH)
    assert session.begin_close(17) is None
    assert ClientFetchSession(1).begin_close(17) is None


# Against the broker's side


Step = tuple[str, frozenset[int]]
ALL = [TopicPartition(topic, number) for topic in ("t", "u") for number in range(3)]
steps = st.lists(
    st.tuples(
        st.sampled_from(["fetch", "fetch", "fetch", "by name", "lose answer", "lose request", "evict"]),
        st.dictionaries(st.sampled_from(ALL), st.integers(0, 5), max_size=6),
    ),
    max_size=25,
)


@settings(max_examples=200, deadline=None)
@given(steps, st.integers(0, 2), st.integers(0, 1000))
def test_broker_and_client_agree_on_what_is_read(
    done: list[tuple[str, dict[TopicPartition, int]]], slots: int, seed: int
) -> None:
    randomness = Random(seed)
    cache = FetchSessionCache(slots, randomness)
    session = ClientFetchSession(1)
    for now_ms, (what, offsets) in enumerate(done):
        if what == "evict":
            cache = FetchSessionCache(slots, randomness)
            continue
        wanted = {partition: want(partition, offset) for partition, offset in offsets.items()}
        if not wanted:
            continue
        fetch = session.begin(wanted, 12 if what == "by name" else 17)
        if what == "lose request":
            session.failed()
            continue
        begun = cache.begin(request(fetch), uses_ids=fetch.uses_ids, now_ms=now_ms)
        asked = {
            TopicPartition(NAMES[each.key[0]] if isinstance(each.key[0], Uuid) else each.key[0], each.key[1]): each
            for each in begun.wanted
        }
        if begun.error is ErrorCode.NONE:
            assert {partition: each.fetch_offset for partition, each in asked.items()} == offsets
        news = [
            partition
            for partition, each in asked.items()
            if begun.is_news(each, PartitionData(partition_index=0, high_watermark=1, log_start_offset=0, records=None))
        ]
        error, session_id = (begun.error, 0) if begun.error else begun.finish([], now_ms)
        if what == "lose answer":
            session.failed()
            continue
        found = session.answered(fetch, answer(fetch, *news, session_id=session_id, error=error))
        if error is ErrorCode.NONE:
            assert found is not None
            assert set(found) == set(news)
            # The next fetch would be answered without an error: both sides expect the same epoch.
            assert session.is_open == (cache.get(session_id) is not None)
