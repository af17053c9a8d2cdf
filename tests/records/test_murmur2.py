"""Keys land on the partition where Java's client puts them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from barnabas.records import murmur2


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        # from org.apache.kafka.common.utils.Utils.murmur2
        (b"", 275646681),
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_as_java(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


@given(st.binary(max_size=40))
def test_as_kafka_python(key: bytes) -> None:
    assert murmur2(key) & 0xFFFFFFFF == murmur2_of_kafka_python(key) & 0xFFFFFFFF
    assert murmur2(bytearray(key)) == murmur2(memoryview(key)) == murmur2(key)
