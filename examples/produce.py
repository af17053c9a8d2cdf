"""Send records, in the two ways that there are: wait for each, or be told later.

    python examples/produce.py [HOST:PORT]

Without an address it starts a broker of its own, in memory.
"""

import sys

from barnabas import Producer, RecordMetadata
from barnabas.testing import EmbeddedBroker


def main(bootstrap_servers: str) -> None:
    # `with` waits at its end until every record is written or has failed. No topic was created before: as Kafka's
    # brokers do by default, this one creates a topic when it is first used.
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        one_by_one(producer)
        with_callbacks(producer)


def one_by_one(producer: Producer) -> None:
    """Simple, and slow: each record is a round trip to the broker."""
    for word in ("hello", "world"):
        # `send` returns a future. `result` waits for the broker, and raises what went wrong.
        metadata = producer.send("greetings", word.encode(), key=b"sync").result(timeout=30)
        print(f"{word} is at offset {metadata.offset} of partition {metadata.partition}")


def with_callbacks(producer: Producer) -> None:
    """Fast: `send` only puts the record into a batch, and the callback hears what became of it."""
    written: list[RecordMetadata] = []
    failed: list[Exception] = []

    def on_delivery(metadata: RecordMetadata, error: Exception | None) -> None:
        # Runs on the producer's own thread, so keep it short.
        if error is None:
            written.append(metadata)
        else:
            failed.append(error)

    for number in range(1000):
        producer.send("greetings", f"greeting {number}".encode(), on_delivery=on_delivery)
    producer.flush()  # waits until the fate of all records is known
    print(f"{len(written)} written, {len(failed)} failed")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with EmbeddedBroker() as broker:
            main(broker.bootstrap_servers)
