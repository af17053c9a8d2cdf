"""Headers with their traps, the registry behind them, and the life of records without a copy."""

from __future__ import annotations

import pytest
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS

from barnabas.base.errors import RemoteProtocolError
from barnabas.wire import (
    ZOOKEEPER_ERA,
    ApiKey,
    Listeners,
    RequestHeader,
    ResponseHeader,
    all_apis,
    api,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.controlled_shutdown import ControlledShutdownRequest
from barnabas.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def test_the_client_id_keeps_its_old_form_in_the_header_with_tags() -> None:
    parts = encode_request(MetadataRequest(topics=None), 9, correlation_id=7, client_id="me")
    assert bytes(parts[0]) == b"\x00\x03\x00\x09\x00\x00\x00\x07\x00\x02me\x00"


def test_the_first_controlled_shutdown_has_no_client_id() -> None:
    request = ControlledShutdownRequest(broker_id=1)
    assert b"".join(encode_request(request, 0, 7, "me")) == b"\0\x07\0\0\0\0\0\x07" + b"\0\0\0\x01"
    assert bytes(encode_request(request, 1, 7, "me")[0]) == b"\0\x07\0\x01\0\0\0\x07\0\x02me"


def test_api_versions_is_answered_without_tags_in_the_header() -> None:
    parts = encode_response(ApiVersionsResponse(api_keys=[]), 3, correlation_id=7)
    assert bytes(parts[0]) == b"\0\0\0\x07"
    assert decode_response(ApiVersionsResponse, 3, b"".join(parts)) == (7, ApiVersionsResponse(api_keys=[]))


def test_a_header_of_a_version_from_the_future_can_be_read() -> None:
    frame = b"".join(encode_request(ApiVersionsRequest(client_software_name="x"), 3, 7, "me"))
    future = frame[:2] + b"\x00\x63" + frame[4:]
    header, body_start = decode_request_header(future)
    assert (header.request_api_version, header.correlation_id, header.client_id) == (99, 7, "me")
    assert future[body_start:] == ApiVersionsRequest(client_software_name="x").encode(3)


@pytest.mark.parametrize("frame", [b"", b"\x00", b"\x7f\xff\x00\x00\x00\x00\x00\x00\xff\xff", b"\0\x03\0\x09\0"])
def test_a_bad_header_is_refused(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_request_header(frame)


def test_each_header_version_round_trips() -> None:
    header = RequestHeader(request_api_key=1, request_api_version=2, correlation_id=3, client_id=None)
    assert RequestHeader.decode(header.encode(1), 1) == header
    assert RequestHeader.decode(header.encode(2), 2) == header
    assert ResponseHeader(correlation_id=9).encode(1) == b"\0\0\0\x09\0"


def test_the_registry_is_complete_and_consistent() -> None:
    for each in all_apis():
        assert each.request.API_KEY == each.response.API_KEY == each.key
        assert each.request.VERSIONS == each.response.VERSIONS
        assert each.request.FLEXIBLE == each.response.FLEXIBLE
        assert all(version in each.versions for version in each.served)
        assert (each.listeners is Listeners.NOWHERE) == (each.key in ZOOKEEPER_ERA)
        assert api(each.key) is each
    assert [key.value for key in ApiKey] == list(range(93))
    with pytest.raises(ValueError, match="93"):
        api(93)


def test_what_is_served_is_what_a_real_broker_advertises() -> None:
    """The table was captured from a running 4.3 broker by the authors of kafka-python."""
    advertised = BROKER_API_VERSIONS[4, 3]
    for key, (low, high) in advertised.items():
        served = api(int(key)).served
        if key == ApiKey.PRODUCE:
            # Advertised from 0, since librdkafka looks there before it compresses; refused below 3.
            assert (low, high, served.low, served.high) == (0, 13, 3, 13)
        else:
            assert (served.low, served.high) == (low, high), ApiKey(key).name
    assert len(advertised) > 55


def test_records_are_views_into_the_frame() -> None:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"r" * 50)])],
    )
    frame = bytearray(request.encode(9))
    records = ProduceRequest.decode(frame, 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[0] = ord("X")
    assert b"Xrrr" in frame


def test_records_are_sent_as_parts_of_their_own() -> None:
    records = memoryview(b"r" * 50)
    partitions = [PartitionData(partition_index=index, high_watermark=1, records=records) for index in range(2)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    parts = response.encode_parts(11)
    assert sum(part is records for part in parts) == 2
    assert b"".join(parts) == response.encode(11)
    assert FetchResponse.decode(response.encode(11), 11) == response
