"""Clients of three libraries that do as much as they may, and tell how much that was in each second.

What is written and read at once is small beside what a quota brings in a second. Of large pieces clients get less, or
unequal shares, at Kafka as with us: of a piece that takes seven tenths of a window, no second one fits.
"""

from __future__ import annotations

import itertools
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
import confluent_kafka.admin

import barnabas
from barnabas.client.admin import NewTopic
from tests.oracles import java_program

VALUE = bytes(5_000)
#: With its batch, and with the request or the answer around that, since quotas count those.
PIECE_BYTES = 5_120
#: One batch, and not the beginning of another: that would count, and be thrown away by the client.
FETCH_BYTES = 5_100
#: Of each topic that is created and deleted.
PARTITIONS = 2
PATIENCE_S = 60
_ADDRESS = dict[str, Any]


@dataclass
class Deeds:
    """What was done, by second: bytes, requests, partitions or connections. `demand` is how much of it is wanted per
    second, None for as much as there is."""

    seconds: int
    demand: float | None = None
    done: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.done = [0] * self.seconds

    @property
    def goes_on(self) -> bool:
        return time.monotonic() - self.began_s < self.seconds

    def pace(self, wanted: float) -> None:
        """Wait after so much was wanted. Who was made to wait longer by others does not make up for it: that would be a
        burst."""
        if self.demand is not None:
            time.sleep(wanted / self.demand)

    def add(self, value: int) -> None:
        second = int(time.monotonic() - self.began_s)
        if second < self.seconds:
            self.done[second] += value

    def told(self, failure: object) -> None:
        """Of a record that was sent."""
        if failure is not None:
            self.errors.append(str(failure))
        else:
            self.add(PIECE_BYTES)

    def per_second(self, last: int) -> float:
        """Over the last seconds; at first everybody gets what a whole window allows."""
        return sum(self.done[-last:]) / last


Player = Callable[[str, str, Deeds], None]


def _ours_produce(bootstrap: str, client_id: str, deeds: Deeds) -> None:
    settings: _ADDRESS = {"bootstrap_servers": bootstrap, "client_id": client_id, "buffer_memory": 65_536}
    with barnabas.Producer(**settings, batch_size=1, linger_ms=0) as producer:
        while deeds.goes_on:
            producer.send("quotas", VALUE).add_done_callback(lambda outcome: deeds.told(outcome.exception()))
            deeds.pace(PIECE_BYTES)


def _ours_fetch(bootstrap: str, client_id: str, deeds: Deeds) -> None:
    settings: _ADDRESS = {"bootstrap_servers": bootstrap, "client_id": client_id, "auto_offset_reset": "earliest"}
    with barnabas.Consumer(**settings, max_partition_fetch_bytes=FETCH_BYTES) as consumer:
        consumer.assign([barnabas.TopicPartition("filled", 0)])
        while deeds.goes_on:
            for _ in consumer.poll(0.2):
                deeds.add(PIECE_BYTES)
                deeds.pace(PIECE_BYTES)


def _ours_request(bootstrap: str, client_id: str, deeds: Deeds) -> None:
    with barnabas.Producer(bootstrap_servers=bootstrap, client_id=client_id, linger_ms=0) as producer:
        while deeds.goes_on:
            producer.send("quotas", b"x").result(PATIENCE_S)
            deeds.add(1)


def _ours_mutations(bootstrap: str, client_id: str, deeds: Deeds) -> None:
    with barnabas.Admin(bootstrap_servers=bootstrap, client_id=client_id) as admin:
        for number in itertools.count():
            if not deeds.goes_on:
                break
            name = f"{client_id}-{number}"
            admin.create_topics([NewTopic(name, PARTITIONS)], timeout=PATIENCE_S)
            deeds.add(PARTITIONS)
            admin.delete_topics([name], timeout=PATIENCE_S)
            deeds.add(PARTITIONS)


def _ours_connections(bootstrap: str, client_id: str, deeds: Deeds) -> None:
    while deeds.goes_on:
        with barnabas.Admin(bootstrap_servers=bootstrap, client_id=client_id) as admin:
            admin.describe_cluster(timeout=PATIENCE_S)
        deeds.add(1)


def _confluent(bootstrap: str, client_id: str) -> _ADDRESS:
    # What it writes to standard error of connections that are closed is no error that a program sees.
    return {"bootstrap.servers": bootstrap, "client.id": client_id, "log_level": 0}


def _confluent_produce(bootstrap: str, client_id: str, deeds: Deeds) -> None:
    settings = {"queue.buffering.max.kbytes": 64, "batch.num.messages": 1, "linger.ms": 0}
    producer = confluent_kafka.Producer(_confluent(bootstrap, client_id) | settings)
    while deeds.goes_on:
        try:
            producer.produce("quotas", VALUE, on_delivery=lambda failure, _: deeds.told(failure))
            producer.poll(0)
            deeds.pace(PIECE_BYTES)
        except BufferError:
            producer.poll(0.02)
    producer.purge()


def _confluent_fetch(bootstrap: str, client_id: str, deeds: Deeds) -> None:
    # As little ahead as it can: what it keeps is not what it was given.
    settings = {"queued.max.messages.kbytes": 64, "fetch.queue.backoff.ms": 10, "group.id": client_id}
    settings |= {"max.partition.fetch.bytes": FETCH_BYTES}
    consumer = confluent_kafka.Consumer(_confluent(bootstrap, client_id) | settings)
    consumer.assign([confluent_kafka.TopicPartition("filled", 0, 0)])
    while deeds.goes_on:
        message = consumer.poll(0.2)
        if message is not None and message.error() is not None:
            deeds.errors.append(str(message.error()))
        elif message is not None:
            deeds.add(PIECE_BYTES)
            deeds.pace(PIECE_BYTES)
    consumer.close()


def _confluent_request(bootstrap: str, client_id: str, deeds: Deeds) -> None:
    producer = confluent_kafka.Producer(_confluent(bootstrap, client_id) | {"linger.ms": 0})

    def told(failure: Any, _: Any) -> None:
        if failure is not None:
            deeds.errors.append(str(failure))
        else:
            deeds.add(1)

    while deeds.goes_on:
        producer.produce("quotas", b"x", on_delivery=told)
        assert producer.flush(PATIENCE_S) == 0


def _confluent_mutations(bootstrap: str, client_id: str, deeds: Deeds) -> None:
    admin = confluent_kafka.admin.AdminClient(_confluent(bootstrap, client_id))
    for number in itertools.count():
        if not deeds.goes_on:
            break
        name = f"{client_id}-{number}"
        created = admin.create_topics([confluent_kafka.admin.NewTopic(name, PARTITIONS, 1)], request_timeout=PATIENCE_S)
        created[name].result(PATIENCE_S)
        deeds.add(PARTITIONS)
        admin.delete_topics([name], request_timeout=PATIENCE_S)[name].result(PATIENCE_S)
        deeds.add(PARTITIONS)


def _confluent_connections(bootstrap: str, client_id: str, deeds: Deeds) -> None:
    while deeds.goes_on:
        admin = confluent_kafka.admin.AdminClient(_confluent(bootstrap, client_id))
        admin.list_topics(timeout=PATIENCE_S)
        del admin
        deeds.add(1)


def _java(mode: str) -> Player:
    def play(bootstrap: str, client_id: str, deeds: Deeds) -> None:
        command = [*java_program("QuotaClient.java"), bootstrap, mode, client_id, str(deeds.seconds)]
        command.append(str(deeds.demand or 0.0))
        told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=deeds.seconds + 60)
        assert told.returncode == 0, told.stderr[-2000:]
        done, _, errors = told.stdout.partition("errors ")
        deeds.done = [int(each) for each in done.split()]
        deeds.errors += ["an error of Java"] * int(errors)

    return play


#: By what is done, then by library.
PLAYERS: dict[str, dict[str, Player]] = {
    "produce": {"ours": _ours_produce, "librdkafka": _confluent_produce, "java": _java("produce")},
    "fetch": {"ours": _ours_fetch, "librdkafka": _confluent_fetch, "java": _java("fetch")},
    "request": {"ours": _ours_request, "librdkafka": _confluent_request, "java": _java("request")},
    "mutations": {"ours": _ours_mutations, "librdkafka": _confluent_mutations, "java": _java("mutations")},
    "connections": {"ours": _ours_connections, "librdkafka": _confluent_connections, "java": _java("connections")},
}


def play_all(parts: list[tuple[Player, str, str]], seconds: int, demand: float | None = None) -> list[Deeds]:
    """All at once, each in a thread: a player, a broker and a client id."""
    deeds = [Deeds(seconds, demand) for _ in parts]
    threads = []
    for (play, bootstrap, client_id), each in zip(parts, deeds, strict=True):

        def run(play: Player = play, bootstrap: str = bootstrap, name: str = client_id, each: Deeds = each) -> None:
            try:
                play(bootstrap, name, each)
            except Exception as failure:
                each.errors.append(repr(failure))

        threads.append(threading.Thread(target=run))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return deeds
