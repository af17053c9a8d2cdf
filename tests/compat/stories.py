"""What is written into logs that Kafka and we compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from barnabas.records import BatchBuilder, Codec, TransactionMarker, build_marker
from tests.compat.players import NOW_MS, ROLL, STATE, Command, Record, built, ended, watermark

HEADERS: list[tuple[str, bytes | None]] = [("plain", b"text"), ("null", None), ("", b""), ("größe", b"\xff")]


def records(first: int, count: int, time_ms: int = NOW_MS, size_bytes: int = 40) -> list[Record]:
    """Records of every kind, with timestamps that go up and down."""
    made: list[Record] = []
    for number in range(first, first + count):
        key = None if number % 5 == 3 else b"key %d" % (number % 7)
        value = None if number % 5 == 1 else (b"value %d " % number).ljust(size_bytes, b"x")
        made.append((time_ms + (number * 7) % 10, key, value, HEADERS if number % 4 == 0 else []))
    return made


def everything() -> list[Command]:
    """All codecs, idempotent producers, transactions that overlap and end both ways, leader epochs, rolled segments."""
    script: list[Command] = []
    for step, codec in enumerate(Codec):
        script.append(built(records(10 * step, 9, NOW_MS + 50 * step), codec=codec, leader_epoch=step // 2))
    for sequence in range(0, 28, 4):
        idempotent: dict[str, Any] = {"producer_id": 100, "producer_epoch": 2, "base_sequence": sequence}
        script.append(built(records(sequence, 4, NOW_MS - sequence), leader_epoch=3, **idempotent))
    # Sent again: it must be answered with where it is, and not be written.
    script.append(
        built(records(24, 4, NOW_MS - 24), producer_id=100, producer_epoch=2, base_sequence=24, leader_epoch=3)
    )
    sequences = {7: 0, 8: 0, 9: 0}
    for step in range(24):
        for producer_id in sequences:
            if (step + producer_id) % 3:
                script.append(
                    built(
                        records(step, 1 + step % 3, NOW_MS + 400 + 10 * step),
                        codec=list(Codec)[step % 5],
                        producer_id=producer_id,
                        producer_epoch=0,
                        base_sequence=sequences[producer_id],
                        transactional=True,
                        leader_epoch=5,
                    )
                )
                sequences[producer_id] += 1 + step % 3
            elif step % 2:
                script.append(
                    ended(
                        producer_id,
                        committed=step % 4 == 1,
                        coordinator_epoch=step // 8,
                        leader_epoch=5,
                        now_ms=NOW_MS + 400 + 10 * step,
                    )
                )
    script += [ended(7, committed=False, leader_epoch=5, coordinator_epoch=3), ROLL]
    # A transaction that is still open, and a producer of whom only a marker is known.
    script.append(
        built(records(3, 2), producer_id=11, producer_epoch=4, base_sequence=0, transactional=True, leader_epoch=8)
    )
    script += [ended(12, 1, committed=True, leader_epoch=8), built(records(1, 3, NOW_MS + 900), leader_epoch=8)]
    return script


def start_within_a_transaction() -> list[Command]:
    """Records are deleted up to the middle of a transaction that is open; then the log is truncated."""
    return [
        built(records(0, 3), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True),
        built(records(3, 3)),
        built(records(6, 3)),
        watermark(9),
        {"do": "log_start", "offset": 1},
        {"do": "truncate", "offset": 6},
        STATE,
    ]


def random_story(random: Random, length: int, *, with_refusals: bool) -> list[Command]:
    """Whatever comes to mind. With refusals also what must not be accepted, truncation and deletion.

    A batch that is refused, and would not have fitted, makes Kafka begin a segment for it all the same. So stories with
    refusals are for logs whose segments are never full.
    """
    script: list[Command] = []
    now_ms, leader_epoch, high_watermark = NOW_MS, 0, 0
    epochs = dict.fromkeys((1, 2, 3), 0)
    sequences = dict.fromkeys(epochs, 0)
    for step in range(length):
        now_ms += random.choice((0, 1, 1000, 60_000))
        producer_id = random.choice(list(epochs))
        how = random.random()
        # Kafka notes a new epoch before it refuses a batch.
        leader_epoch += how < 0.05 and not with_refusals
        where: dict[str, Any] = {"leader_epoch": leader_epoch, "now_ms": now_ms}
        some = records(step, random.randint(1, 6), now_ms - random.randint(0, 5000), random.choice((5, 40, 150)))
        codec = random.choice(list(Codec))
        if how < 0.3:
            script.append(built(some, codec=codec, **where))
        elif how < 0.75:
            if random.random() < 0.05:
                epochs[producer_id] += 1
                sequences[producer_id] = 0
            is_wrong = with_refusals and random.random() < 0.1
            script.append(
                built(
                    some,
                    codec=codec,
                    producer_id=producer_id,
                    producer_epoch=epochs[producer_id] - (is_wrong and epochs[producer_id] > 0),
                    base_sequence=sequences[producer_id] + is_wrong,
                    transactional=producer_id > 1,
                    **where,
                )
            )
            sequences[producer_id] += len(some)
            if with_refusals and random.random() < 0.1:
                script.append({**script[-1], "now_ms": now_ms + 1})
        elif how < 0.9:
            committed = random.random() < 0.4
            script.append(ended(producer_id, epochs[producer_id], committed=committed, **where))
        elif how < 0.94:
            script.append(ROLL)
        elif how < 0.98:
            high_watermark = max(high_watermark, random.randint(0, step))
            script += [watermark(high_watermark), STATE]
        elif with_refusals:
            offset = random.randint(0, high_watermark)
            deletion: list[Command] = [{"do": "log_start", "offset": offset}, {"do": "delete_old"}, STATE]
            truncation: list[Command] = [{"do": "truncate", "offset": offset}, STATE]
            script += random.choice((deletion, truncation))
    return script


def with_our_bytes(script: Iterable[Command]) -> Iterator[Command]:
    """The same, but both players get the bytes that our builder made."""
    for command in script:
        if command["do"] == "build":
            made = _our_batch(**{name: value for name, value in command.items() if name not in ("do", "leader_epoch")})
            yield _given("client", made, command)
        elif command["do"] == "marker":
            marker = TransactionMarker(
                command["producer_id"], command["producer_epoch"], command["coordinator_epoch"], command["committed"]
            )
            yield _given("coordinator", build_marker(marker, command["now_ms"]), command)
        else:
            yield command


def _given(origin: str, batch: bytearray, command: Command) -> Command:
    return {
        "do": origin,
        "hex": batch.hex(),
        "leader_epoch": command["leader_epoch"],
        "now_ms": command["now_ms"],
    }


def _our_batch(records: list[Any], codec: str, now_ms: int, **header: Any) -> bytearray:
    builder = BatchBuilder(1 << 20, codec=Codec[codec.upper()], **header)
    for timestamp_ms, key, value, headers in records:
        parts = [None if part is None else bytes.fromhex(part) for part in (key, value)]
        named = [(name, None if content is None else bytes.fromhex(content)) for name, content in headers]
        builder.append(parts[1], parts[0], timestamp_ms, named)
    return builder.build()
