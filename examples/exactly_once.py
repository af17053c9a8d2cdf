"""Orders in, totals out, each order counted exactly once, although the worker is killed again and again.

    python examples/exactly_once.py [HOST:PORT]

The worker reads orders, and writes new totals together with its offsets in one transaction: both are there, or neither.
It is a process of its own, which this program kills at random, as kill -9 does, and starts again. Where one dies
in the midst of a transaction, the next ends that in `init_transactions`, and goes on after the last whole one.
"""

import json
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator

from barnabas import Admin, Consumer, ConsumerRecord, NewTopic, Producer, TopicPartition
from barnabas.testing import EmbeddedBroker

CUSTOMERS, ORDERS, PARTITIONS = ("Anna", "Bert", "Carla"), 400, 3


def committed(bootstrap_servers: str, topic: str) -> Iterator[ConsumerRecord[bytes, bytes]]:
    """What is in a topic now. Nothing of transactions that are open or were aborted."""
    with Consumer(bootstrap_servers=bootstrap_servers, isolation_level="read_committed") as consumer:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < end for each, end in ends.items()):
            yield from consumer.poll(timeout=0.2)


def totals_in(bootstrap_servers: str, topic: str) -> dict[str, tuple[int, int]]:
    """The last total of each customer: of how many orders, and how much."""
    return {record.key.decode(): tuple(json.loads(record.value)) for record in committed(bootstrap_servers, topic)}


def work(bootstrap_servers: str, name: str) -> None:
    """The worker. It knows nothing but the two topics, and can be killed at any time."""
    orders, totals = f"orders-{name}", f"totals-{name}"
    with (
        Producer(bootstrap_servers=bootstrap_servers, transactional_id=f"teller-{name}") as producer,
        Consumer(
            bootstrap_servers=bootstrap_servers,
            group_id=f"tellers-{name}",
            enable_auto_commit=False,  # offsets go with the transaction
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        producer.init_transactions()  # locks out a worker that still runs, and ends what a dead one left open
        known = totals_in(bootstrap_servers, totals)
        consumer.assign([TopicPartition(orders, number) for number in range(PARTITIONS)])
        print("ready", flush=True)
        while True:
            records = consumer.poll(timeout=0.5, max_records=5)
            if not records:
                continue
            with producer.transaction():  # commits at the end; an exception aborts
                for record in records:
                    customer = record.key.decode()
                    count, total = known.get(customer, (0, 0))
                    known[customer] = (count + 1, total + int(record.value))
                    producer.send(totals, json.dumps(known[customer]).encode(), key=record.key)
                positions = {each: consumer.position(each) for each in consumer.assignment()}
                producer.send_offsets_to_transaction(positions, consumer.group_metadata())


def main(bootstrap_servers: str) -> None:
    name = uuid.uuid4().hex[:8]  # so that it can run again on the same cluster
    orders, totals, due = f"orders-{name}", f"totals-{name}", Counter[str]()
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_topics([NewTopic(each, num_partitions=PARTITIONS) for each in (orders, totals)])
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for _ in range(ORDERS):
            customer, amount = random.choice(CUSTOMERS), random.randrange(1, 100)
            due[customer] += amount
            producer.send(orders, str(amount).encode(), key=customer.encode())

    counted = kills = 0
    while counted < ORDERS:
        command = [sys.executable, __file__, "--work", bootstrap_servers, name]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as worker:
            try:
                assert worker.stdout is not None
                worker.stdout.readline()  # it is ready
                time.sleep(random.uniform(0, 0.5))
            finally:
                worker.kill()
        kills += 1
        found = totals_in(bootstrap_servers, totals)
        counted = sum(count for count, _ in found.values())
        print(f"killed the worker for the {kills}. time: {counted} of {ORDERS} orders are counted", flush=True)

    for customer in CUSTOMERS:
        count, total = found[customer]
        right = "right" if total == due[customer] else f"WRONG: {due[customer]} was ordered"
        print(f"{customer}: {count} orders, {total} in all, which is {right}")
    print(f"{counted} of {ORDERS} orders are counted, in spite of everything")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:])
    elif len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with EmbeddedBroker() as broker:
            main(broker.bootstrap_servers)
