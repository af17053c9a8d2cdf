"""Whatever lies in `__consumer_offsets`: loading comes to its end, and good groups beside it are served."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition
from barnabas.coordinator.offsets.records import offset_record
from barnabas.coordinator.results import Record
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.stored.consumer_offsets import (
    GroupKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tests.coordinator.driver import Bench, batch_of

GOOD = TopicPartition("t", 0)
TEN_MINUTES_MS = 600_000

_int16 = st.integers(-(2**15), 2**15 - 1)
_int32 = st.integers(-(2**31), 2**31 - 1)
_int64 = st.integers(-(2**63), 2**63 - 1)
_types = st.sampled_from([0, 1, 2, 3, 9, 16, 99]) | _int16
_names = st.sampled_from(["", "a", "b", "good"])

_keys = (
    st.none()
    | st.binary(max_size=12)
    | st.builds(lambda kind, rest: kind.to_bytes(2, "big", signed=True) + rest, _types, st.binary(max_size=12))
    | st.builds(lambda group: OffsetCommitKey(group=group, topic="t", partition=1).encode_key(), _names)
    | st.builds(lambda group: GroupMetadataKey(group=group).encode_key(), _names)
)
_members = st.builds(
    MemberMetadata,
    member_id=_names,
    group_instance_id=st.none() | _names,
    client_id=_names,
    client_host=_names,
    rebalance_timeout=_int32,
    session_timeout=_int32,
    subscription=st.binary(max_size=16),
    assignment=st.binary(max_size=4),
)
_groups = st.builds(
    GroupMetadataValue,
    protocol_type=st.sampled_from(["", "consumer", "x"]),
    generation=_int32,
    protocol=st.none() | _names,
    leader=st.none() | _names,
    current_state_timestamp=_int64,
    members=st.lists(_members, max_size=3),
).map(lambda value: value.encode_value(3))
_values = (
    st.none()
    | st.binary(max_size=24)
    | st.builds(lambda version, rest: version.to_bytes(2, "big", signed=True) + rest, _int16, st.binary(max_size=24))
    | st.builds(lambda version, rest: version.to_bytes(2, "big") + rest, st.integers(0, 5), st.binary(max_size=24))
)
_records = st.builds(Record, _keys, _values) | st.builds(
    Record, st.builds(lambda group: GroupMetadataKey(group=group).encode_key(), _names), _groups
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_records, max_size=8))
def test_no_record_stops_loading_or_the_groups_after_it(records: list[Record]) -> None:
    bench = Bench(max_size=2)
    commit = offset_record(
        "served", GOOD, OffsetCommitValue(offset=7, leader_epoch=-1, metadata="", commit_timestamp=bench.now.wall_ms)
    )
    bench.log += batch_of([*records, commit], 0)
    bench.next_offset = len(records) + 1
    bench.reload()
    assert bench.shard.offsets.committed("served")[GOOD].offset == 7
    for number, group in enumerate(list(bench.groups)):
        bench.asked[number] = None
        join = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        bench.join(join, 3, bench.client(), number)
    # Sessions end, members are thrown out, offsets expire: none of that may fail for what the records said.
    bench.advance(TEN_MINUTES_MS)
    assert bench.shard.offsets.committed("served")[GOOD].offset == 7


@given(st.binary(max_size=64), st.none() | st.binary(max_size=64))
def test_types_that_are_known_are_read_or_counted(key: bytes, value: bytes | None) -> None:
    bench = Bench()
    bench.log += batch_of([Record(kind.to_bytes(2, "big") + key, value) for kind in GroupKey.family()], 0)
    bench.reload()
    assert len(bench.runtime.skipped) >= len(GroupKey.family()) - len({0, 1, 2})
    assert set(GroupValue.family()) == set(GroupKey.family())
