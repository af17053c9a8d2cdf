"""What tests of transactions share: whether a broker has them, and transactions that nobody ends."""

from __future__ import annotations

from typing import Final

import pytest

from barnabas.records import BatchBuilder
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.compat.mock_cluster import Connection

_END_TXN: Final = 26


def require_transactions(bootstrap: str) -> str:
    """The address, if the broker behind it has transactions; without them a test has nothing to look at."""
    connection = _connected(bootstrap)
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    served = {each.api_key for each in connection.call(request, ApiVersionsResponse, 3).api_keys}
    connection.close()
    if _END_TXN not in served:
        pytest.skip(f"the broker at {bootstrap} has no transactions: EndTxn is not among its requests")
    return bootstrap


def write_hanging(bootstrap: str, topic: str, partition: int, producer_id: int, timestamp_ms: int) -> int:
    """Write a record of a transaction of which no coordinator knows, as bugs of old did; the partition must not ask
    one (`transaction.partition.verification.enable=false`). Returns its offset."""
    builder = BatchBuilder(1000, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    builder.append(b"nobody ends this", None, timestamp_ms)
    data = PartitionProduceData(index=partition, records=bytes(builder.build()))
    request = ProduceRequest(
        transactional_id="forgotten",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    connection = _connected(bootstrap)
    (told,) = connection.call(request, ProduceResponse, 11).responses[0].partition_responses
    connection.close()
    assert told.error_code == 0, told
    return int(told.base_offset)


def _connected(bootstrap: str) -> Connection:
    host, _, port = bootstrap.rpartition(":")
    return Connection(host, int(port))
