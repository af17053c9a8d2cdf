"""Answers that end in the middle, and answers that are none: the connection is given up, and nothing else is."""

from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas import Consumer, Producer
from tests.client.faults.bad_line import broker_behind_a_bad_line
from tests.client.faults.reading import LIMIT_S, values_of

RETRIES: dict[str, Any] = {
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
}
#: Neither a size nor a correlation id that fits; a frame of a mad size; an answer to somebody else.
NOISE = [
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"\xff" * 64,
    b"\x00\x00\x00\x08\x7f\xff\xff\xff\x00\x00\x00\x00",
    b"\x00",
]


def test_cut_lines_leave_every_record_once() -> None:
    """Cut anywhere: in versions, in metadata, in the answer to a batch that is written already."""
    chance = random.Random(11)
    with broker_behind_a_bad_line() as (broker, line, address):
        broker.create_topic("t")
        with Producer(bootstrap_servers=address, linger_ms=0, **RETRIES) as producer:
            futures = []
            for number in range(300):
                if number % 10 == 0:
                    line.cut_after_bytes = chance.randrange(600)
                futures.append(producer.send("t", b"%d" % number))
                if number % 3 == 0:
                    producer.flush(LIMIT_S)
            assert [future.result(LIMIT_S).offset for future in futures] == list(range(300))
        assert line.trouble_count > 10
        line.cut_after_bytes = None
        assert values_of(address, "t") == [b"%d" % number for number in range(300)]


def test_cut_lines_do_not_cost_a_reader_anything() -> None:
    chance = random.Random(12)
    with broker_behind_a_bad_line(group_initial_rebalance_delay_ms=0) as (broker, line, address):
        broker.create_topic("t")
        with Producer(bootstrap_servers=address, batch_size=500) as producer:
            for number in range(2000):
                producer.send("t", b"%d" % number)
        seen: list[bytes] = []
        settings: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", "fetch_max_bytes": 1000}
        settings |= {"max_partition_fetch_bytes": 1000, "fetch_max_wait_ms": 20}
        line.cut_after_bytes = 100
        with Consumer("t", bootstrap_servers=address, **settings, **RETRIES) as consumer:
            while len(seen) < 2000:
                if line.is_whole:
                    line.cut_after_bytes = chance.randrange(5000)
                seen += [record.value for record in consumer.poll(LIMIT_S, max_records=100)]
        assert seen == [b"%d" % number for number in range(2000)]
        assert line.trouble_count > 5


@pytest.mark.parametrize("noise", NOISE, ids=["text", "ones", "another's", "one byte"])
def test_noise_instead_of_an_answer_costs_the_connection_only(noise: bytes) -> None:
    with broker_behind_a_bad_line() as (broker, line, address):
        broker.create_topic("t")
        line.noise = noise
        settings: dict[str, Any] = {"linger_ms": 0, "request_timeout_ms": 300, "delivery_timeout_ms": 10_000, **RETRIES}
        settings["socket_connection_setup_timeout_ms"] = 300
        with Producer(bootstrap_servers=address, **settings) as producer:
            for number in range(3):
                assert producer.send("t", b"%d" % number).result(LIMIT_S).offset == number
                line.noise = noise
        assert line.trouble_count >= 3
        line.noise = None
        assert values_of(address, "t") == [b"0", b"1", b"2"]
