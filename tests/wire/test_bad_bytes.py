"""Bytes that the protocol does not allow give one error, which says where; never another, never a large allocation."""

from __future__ import annotations

import contextlib
import tracemalloc
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.errors import LocalProtocolError, RemoteProtocolError
from barnabas.base.ids import Uuid
from barnabas.base.steps import at_once
from barnabas.wire.decoder_source import MAX_ELEMENTS, MAX_TAGS
from barnabas.wire.message import Request
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.messages.produce import ProduceRequest
from barnabas.wire.stored.cluster_metadata import MetadataRecord, TopicRecord
from barnabas.wire.stored.consumer_offsets import GroupKey, GroupValue, OffsetCommitKey
from tests.wire.catalogue import MESSAGE_VERSIONS, MESSAGES
from tests.wire.values import build


def sample(name: str, version: int, random: Random) -> bytes:
    cls = MESSAGES[name]
    return build(cls, version, version in cls.FLEXIBLE, random).encode(version)


def test_a_message_cut_anywhere_is_refused() -> None:
    random = Random(7)
    for name, version in MESSAGE_VERSIONS:
        data = sample(name, version, random)
        for end in sorted({0, *(random.randrange(len(data)) for _ in range(12))}) if data else []:
            with pytest.raises(RemoteProtocolError, match=f"^{name} v{version}: "):
                MESSAGES[name].decode(data[:end], version)


def test_what_is_left_over_is_refused() -> None:
    random = Random(8)
    for name, version in MESSAGE_VERSIONS:
        with pytest.raises(RemoteProtocolError, match=rf"^{name} v{version}: 3 bytes are left over .* at byte \d+$"):
            MESSAGES[name].decode(sample(name, version, random) + b"abc", version)


def test_changed_bytes_give_that_error_or_a_message() -> None:
    random = Random(9)
    for name, version in MESSAGE_VERSIONS:
        cls, data = MESSAGES[name], bytearray(sample(name, version, random))
        for _ in range(10 if data else 0):
            changed = bytearray(data)
            for _ in range(random.choice([1, 1, 3])):
                changed[random.randrange(len(changed))] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
            try:
                message = cls.decode(changed, version)
            except RemoteProtocolError as error:
                assert f"{name} v{version}: " in str(error)  # noqa: PT017
            else:
                assert cls.decode(message.encode(version), version) == message


@settings(max_examples=400, deadline=None)
@given(data=st.binary(max_size=200), which=st.sampled_from(MESSAGE_VERSIONS))
def test_noise_gives_that_error_or_a_message(data: bytes, which: tuple[str, int]) -> None:
    name, version = which
    try:
        message = MESSAGES[name].decode(data, version)
    except RemoteProtocolError:
        return
    assert MESSAGES[name].decode(message.encode(version), version) == message


@pytest.mark.parametrize(
    ("cls", "version", "data", "complaint"),
    [
        (MetadataRequest, 1, b"\x7f\xff\xff\xff", "field topics at byte 4: 2147483647 elements are announced, 0 bytes"),
        (MetadataRequest, 1, b"\xff\xff\xff\xfe", "field topics at byte 4: the length -2 is negative"),
        (MetadataRequest, 0, b"\xff\xff\xff\xff", "field topics at byte 4: it is null, which it must not be"),
        (MetadataRequest, 9, b"\xff\xff\xff\xff\xff\x01", "field topics at byte 1: a variable-length integer has more"),
        (
            MetadataRequest,
            9,
            b"\xff\xff\xff\xff\x7f",
            "field topics at byte 1: a variable-length integer has more than",
        ),
        (
            MetadataRequest,
            1,
            b"\0\0\0\x01\x7f\xff",
            r"field topics.name at byte 6: 32767 bytes are announced, 0 are left",
        ),
        (MetadataRequest, 1, b"\0\0\0\x01\x00\x02\xff\xff", "field topics.name at byte 6: the text is not UTF-8"),
        (MetadataRequest, 4, b"\0\0\0\0", "field allow_auto_topic_creation at byte 4: the bytes end too early"),
        (ApiVersionsRequest, 3, b"\x01\x01\x01\x63\x09a", r"field \(tagged fields\) at byte 5: 9 bytes are announced"),
        (MetadataResponse, 3, b"\0\0\0\0" + b"\x10\0\0\0", "field brokers at byte 8: 268435456 elements are announced"),
        (
            ProduceRequest,
            9,
            b"\0\0\0\0\0\0\0\x02\x02a\x02\0\0\0\0\xff\xff\xff\x7f",
            "topic_data.partition_data.records",
        ),
    ],
)
def test_the_error_names_message_field_and_position(cls: type, version: int, data: bytes, complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=rf"^{cls.__name__} v{version}: .*{complaint}"):
        cls.decode(data, version)  # type: ignore[attr-defined]


def test_unknown_tags_are_kept_and_sent_on() -> None:
    message = ApiVersionsRequest.decode(b"\x02a\x02b\x02\x63\x03xyz\x64\x00", 3)
    assert message.unknown_tags == {99: b"xyz", 100: b""}
    assert message.encode(3) == b"\x02a\x02b\x02\x63\x03xyz\x64\x00"


def test_a_known_tag_must_fill_its_size() -> None:
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchTopic(partitions=[])], cluster_id="abc")
    data = bytearray(request.encode(13))
    place = data.index(b"\x00\x04\x04abc")
    data[place + 1] = 3
    with pytest.raises(RemoteProtocolError, match=r"field .*cluster_id at byte .*: it ends 1 bytes after its tag"):
        FetchRequest.decode(data, 13)


def test_announced_sizes_do_not_become_allocations() -> None:
    random = Random(10)
    tracemalloc.start()
    for name, version in MESSAGE_VERSIONS:
        data = bytearray(sample(name, version, random)[:64])
        for place in range(max(0, len(data) - 4)):
            lying = bytes(data[:place]) + b"\x7f\xff\xff\xff" + bytes(data[place + 4 :])
            lying_compact = bytes(data[:place]) + b"\xff\xff\xff\xff\x07" + bytes(data[place + 5 :])
            for each in (lying, lying_compact):
                MESSAGES[name].codec(version)
                # Other threads allocate as well, but not each time.
                assert any(_decoding_bytes(name, version, each) < 64_000 for _ in range(3)), (name, version, place)
    tracemalloc.stop()


def _decoding_bytes(name: str, version: int, data: bytes) -> int:
    """How much memory is taken at most while this is decoded."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    with contextlib.suppress(RemoteProtocolError):
        MESSAGES[name].decode(data, version)
    return tracemalloc.get_traced_memory()[1] - before


# Our own mistakes are the other kind of error.


def test_a_value_that_a_version_cannot_carry_is_not_dropped_in_silence() -> None:
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    with pytest.raises(LocalProtocolError, match="version 3 cannot carry allow_auto_topic_creation=False"):
        request.encode(3)
    assert MetadataRequest.decode(request.encode(4), 4) == request


def test_an_ignorable_value_is_dropped() -> None:
    partition = FetchPartition(partition=0, fetch_offset=5, partition_max_bytes=1, log_start_offset=3)
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[partition])])
    assert FetchRequest.decode(request.encode(4), 4).topics[0].partitions[0].log_start_offset == -1


@pytest.mark.parametrize(
    ("topic", "complaint"),
    [
        (MetadataRequestTopic(name="a", topic_id=Uuid(b"short")), "topics.*topic_id: an id has 16 bytes, this one 5"),
        (MetadataRequestTopic(name="\ud800"), "field topics.name: .*surrogates not allowed"),
        (MetadataRequestTopic(name=5), "field topics.name: 'int' object has no attribute 'encode'"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_value_is_named(topic: MetadataRequestTopic, complaint: str) -> None:
    with pytest.raises(LocalProtocolError, match=f"^MetadataRequest v12: .*{complaint}"):
        MetadataRequest(topics=[topic]).encode(12)


def test_a_number_that_does_not_fit_is_named() -> None:
    with pytest.raises(LocalProtocolError, match=r"^FetchRequest v4: field isolation_level"):
        FetchRequest(max_wait_ms=1, min_bytes=1, isolation_level=1000, topics=[]).encode(4)


def test_a_string_has_no_more_bytes_than_kafka_takes() -> None:
    longest = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 32767)])
    for version in (4, 9):
        assert MetadataRequest.decode(longest.encode(version), version) == longest
    too_long = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 32768)])
    for version in (4, 9):
        with pytest.raises(LocalProtocolError, match=f"MetadataRequest v{version}: field topics.name"):
            too_long.encode(version)
    data = longest.encode(9).replace(b"\x80\x80\x02", b"\x81\x80\x02")
    with pytest.raises(RemoteProtocolError, match=r"topics\.name at byte 4: 32768 bytes are more than the 32767"):
        MetadataRequest.decode(data + b"x", 9)


def test_a_version_that_does_not_exist() -> None:
    with pytest.raises(LocalProtocolError, match="MetadataRequest has versions 0-13, and 14 is not one of them"):
        MetadataRequest(topics=[]).encode(14)


def test_stored_messages_of_unknown_type_or_version() -> None:
    data = TopicRecord(name="t", topic_id=Uuid.ZERO).encode_framed(0)
    assert MetadataRecord.decode_framed(data) == (TopicRecord(name="t", topic_id=Uuid.ZERO), 0)
    for bad, complaint in [
        (b"\x00" + data[1:], "frame version 0 is not known"),
        (b"\x01\x06\x00", "type 6 is not known"),
        (b"\x01\x02\x09", "TopicRecord: version 9 was stored, versions 0 are known"),
        (b"\x01", "cut short"),
    ]:
        with pytest.raises(RemoteProtocolError, match=complaint):
            MetadataRecord.decode_framed(bad)
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    assert key.encode_key() == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x03"
    assert GroupKey.decode_key(key.encode_key()) == key
    assert GroupKey.decode_key(b"\x00\x63abc") is None
    with pytest.raises(RemoteProtocolError, match="cut short"):
        GroupKey.decode_key(b"\x00")
    with pytest.raises(RemoteProtocolError, match="OffsetCommitValue: version 77 was stored"):
        GroupValue.decode_value(1, b"\x00\x4d")


# Caps of requests


def _uvarint(value: int) -> bytes:
    data = b""
    while value > 127:
        data += bytes([value & 127 | 128])
        value >>= 7
    return data + bytes([value])


def _with_keys(count: int) -> bytes:
    return b"\0" + _uvarint(count + 1) + b"\x01" * count + b"\0"


def _with_tags(count: int) -> bytes:
    return b"\x01\x01" + _uvarint(count) + b"".join(_uvarint(99 + number) + b"\0" for number in range(count))


@pytest.mark.parametrize(
    ("cls", "version", "data", "complaint"),
    [
        (FindCoordinatorRequest, 4, _with_keys(MAX_ELEMENTS + 1), f"more than {MAX_ELEMENTS} elements"),
        (ApiVersionsRequest, 3, _with_tags(MAX_TAGS + 1), f"more than {MAX_TAGS} tags"),
    ],
)
def test_a_request_has_so_many_elements_and_tags_and_no_more(
    cls: type[Request], version: int, data: bytes, complaint: str
) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        at_once(cls.decode_in_slices(memoryview(data), version, 0, MAX_ELEMENTS))


def test_as_many_as_are_allowed_are_read() -> None:
    request, _ = at_once(ApiVersionsRequest.decode_in_slices(memoryview(_with_tags(MAX_TAGS)), 3, 0, MAX_ELEMENTS))
    assert isinstance(request, ApiVersionsRequest)
    found, _ = at_once(FindCoordinatorRequest.decode_in_slices(memoryview(_with_keys(2000)), 4, 0, 2000))
    assert isinstance(found, FindCoordinatorRequest)
    assert len(found.coordinator_keys) == 2000
    with pytest.raises(RemoteProtocolError, match="more than 1999 elements"):
        at_once(FindCoordinatorRequest.decode_in_slices(memoryview(_with_keys(2000)), 4, 0, 1999))
