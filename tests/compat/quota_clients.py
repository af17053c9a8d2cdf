"""Clients of three libraries that do as much as they may, and tell how much that was in each second."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka

import barnabas
from tests.oracles import java_program

VALUE = bytes(10_000)
#: Small beside what a window allows. What comes in large pieces leaves much of it unused, at Kafka as with us: of a
#: piece that takes seven tenths of a window, no second one fits.
FETCH_BYTES = 30_000


@dataclass
class Deeds:
    """Bytes by second."""

    seconds: int
    done: list[int] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.done = [0] * self.seconds

    @property
    def goes_on(self) -> bool:
        return time.monotonic() - self.began_s < self.seconds

    def add(self, value: int) -> None:
        second = int(time.monotonic() - self.began_s)
        if second < self.seconds:
            self.done[second] += value

    def per_second(self, last: int) -> float:
        """Over the last seconds; at first everybody gets what a whole window allows."""
        return sum(self.done[-last:]) / last


Player = Callable[[str, str, Deeds], None]


def _ours_produce(bootstrap: str, client_id: str, deeds: Deeds) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "client_id": client_id, "buffer_memory": 262_144}

    def told(outcome: Any) -> None:
        if (failure := outcome.exception()) is not None:
            deeds.errors.append(str(failure))
        else:
            deeds.add(len(VALUE))

    with barnabas.Producer(**settings) as producer:
        while deeds.goes_on:
            producer.send("quotas", VALUE).add_done_callback(told)


def _ours_fetch(bootstrap: str, client_id: str, deeds: Deeds) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "client_id": client_id, "auto_offset_reset": "earliest"}
    with barnabas.Consumer(**settings, max_partition_fetch_bytes=FETCH_BYTES) as consumer:
        consumer.assign([barnabas.TopicPartition("filled", 0)])
        while deeds.goes_on:
            for record in consumer.poll(0.2):
                deeds.add(len(record.value or b""))


def _confluent_produce(bootstrap: str, client_id: str, deeds: Deeds) -> None:
    settings = {"bootstrap.servers": bootstrap, "client.id": client_id, "queue.buffering.max.kbytes": 256}
    producer = confluent_kafka.Producer(settings)

    def told(failure: Any, _: Any) -> None:
        if failure is not None:
            deeds.errors.append(str(failure))
        else:
            deeds.add(len(VALUE))

    while deeds.goes_on:
        try:
            producer.produce("quotas", VALUE, on_delivery=told)
            producer.poll(0)
        except BufferError:
            producer.poll(0.02)
    producer.purge()


def _confluent_fetch(bootstrap: str, client_id: str, deeds: Deeds) -> None:
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "client.id": client_id, "group.id": client_id}
    # As little ahead as it can: what it keeps is not what it was given.
    settings |= {"queued.max.messages.kbytes": 64, "max.partition.fetch.bytes": FETCH_BYTES}
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition("filled", 0, 0)])
    while deeds.goes_on:
        message = consumer.poll(0.2)
        if message is not None and message.error() is not None:
            deeds.errors.append(str(message.error()))
        elif message is not None:
            deeds.add(len(message.value() or b""))
    consumer.close()


def _java(mode: str) -> Player:
    def play(bootstrap: str, client_id: str, deeds: Deeds) -> None:
        command = [*java_program("QuotaClient.java"), bootstrap, mode, client_id, str(deeds.seconds)]
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
}


def play_all(parts: list[tuple[Player, str, str]], seconds: int) -> list[Deeds]:
    """All at once, each in a thread: a player, a broker and a client id."""
    deeds = [Deeds(seconds) for _ in parts]
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
