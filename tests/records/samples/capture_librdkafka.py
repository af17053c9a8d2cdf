"""Makes librdkafka.jsonl: what librdkafka's producer writes, fetched byte by byte from the mock cluster inside it.

Run it by hand when a new librdkafka should be looked at: `python tests/records/samples/capture_librdkafka.py`.
"""

from __future__ import annotations

import json
import socket
import struct
from pathlib import Path

from confluent_kafka import Producer

TIMESTAMP_MS = 1_700_000_000_000
MESSAGES: list[tuple[str | None, str | None, list[tuple[str, str | None]]]] = [
    ("key", "value", [("plain", "text"), ("null", None), ("", ""), ("größe", "ü")]),
    (None, "no key", []),
    ("tombstone", None, []),
    ("", "", []),
    ("long", "Gehilfe " * 60, []),
]


def fetch(address: tuple[str, int], topic: str) -> bytes:
    """The records of partition 0, by a Fetch request of version 4."""
    name = topic.encode()
    body = struct.pack(">iiiibi", -1, 1000, 1, 1 << 20, 0, 1) + struct.pack(f">h{len(name)}s", len(name), name)
    body += struct.pack(">iiqi", 1, 0, 0, 1 << 20)
    request = struct.pack(">hhih", 1, 4, 1, -1) + body
    with socket.create_connection(address) as connection, connection.makefile("rb") as answer:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size_bytes,) = struct.unpack(">i", answer.read(4))
        response = answer.read(size_bytes)
    # correlation id, throttle time, topic count, topic, partition count, partition, error, high watermark, last stable
    # offset, aborted transactions, length of the records
    position = 4 + 4 + 4 + 2 + len(name) + 4
    _, error, _, _, aborted, length = struct.unpack_from(">ihqqii", response, position)
    if error or aborted > 0:
        raise RuntimeError(f"the mock cluster answered with error {error}, {aborted} aborted transactions")
    return response[position + 30 :][:length]


def capture(codec: str, *, idempotent: bool) -> str:
    producer = Producer(
        {
            "test.mock.num.brokers": 1,
            "bootstrap.servers": "mock",
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "linger.ms": 200,
        }
    )
    for key, value, headers in MESSAGES:
        producer.produce("letters", value, key, partition=0, timestamp=TIMESTAMP_MS, headers=headers)
    producer.flush()
    broker = next(iter(producer.list_topics().brokers.values()))
    return fetch((broker.host, broker.port), "letters").hex()


def main() -> None:
    lines = [
        json.dumps({"codec": codec, "idempotent": idempotent, "hex": capture(codec, idempotent=idempotent)})
        for codec in ("none", "gzip", "snappy", "lz4", "zstd")
        for idempotent in (False, True)
    ]
    Path(__file__).with_name("librdkafka.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
