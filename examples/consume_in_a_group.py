"""Two members of a consumer group share the partitions of a topic.

    python examples/consume_in_a_group.py [HOST:PORT]

Here they are threads. In production they are processes, on as many machines as you like: the group id makes the group.
"""

import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from threading import Event

from barnabas import Admin, Consumer, NewTopic, Producer, RebalanceListener, TopicPartition
from barnabas.testing import EmbeddedBroker

TOPIC, PARTITIONS, ORDERS = "kitchen-orders", 4, 12


class Cook(RebalanceListener):
    def __init__(self, name: str) -> None:
        self.name = name
        self.has_partitions = Event()

    def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Called whenever somebody has joined or left, and the partitions are shared out anew."""
        if partitions:
            self.has_partitions.set()

    def work(self, bootstrap_servers: str, closing_time: Event, cooked: Queue[str]) -> None:
        with Consumer(
            bootstrap_servers=bootstrap_servers,
            group_id="kitchen",
            auto_offset_reset="earliest",  # where the group begins that has committed nothing yet; else: what is new
            heartbeat_interval_ms=200,  # so soon do members hear of a newcomer; else: within three seconds
        ) as consumer:
            consumer.subscribe([TOPIC], listener=self)
            while not closing_time.is_set():
                # A poll commits what the one before returned: no order is lost when a cook drops dead over it.
                for record in consumer.poll(timeout=0.2):
                    cooked.put(f"{self.name} cooked {record.value.decode()} of partition {record.partition}")


def main(bootstrap_servers: str) -> None:
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        if TOPIC not in admin.list_topics():
            admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)])

    cooks, closing_time, cooked = [Cook("Anna"), Cook("Bert")], Event(), Queue[str]()
    with ThreadPoolExecutor() as threads, Producer(bootstrap_servers=bootstrap_servers) as producer:
        try:
            for cook in cooks:
                threads.submit(cook.work, bootstrap_servers, closing_time, cooked)
            for cook in cooks:
                cook.has_partitions.wait(timeout=60)
            for number in range(ORDERS):
                # Usually a key chooses the partition, and records with the same key stay in order.
                producer.send(TOPIC, f"order {number}".encode(), partition=number % PARTITIONS)
            for _ in range(ORDERS):
                print(cooked.get(timeout=60))
        finally:
            closing_time.set()  # each leaves its loop and closes its consumer, which commits and leaves the group


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with EmbeddedBroker() as broker:
            main(broker.bootstrap_servers)
