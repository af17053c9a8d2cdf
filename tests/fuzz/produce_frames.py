"""Random and mutated produce frames at two nodes, one of which has no compiled path: they must do the same.

    python -m tests.fuzz.produce_frames --rounds 200 --seed 1

A round is one pair of nodes and some hundred frames. Besides what it compares, it is there to be run with kernels that
watch their own memory accesses: CONTRIBUTING.md says how. What differs is printed with its seed and frame.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections import Counter
from random import Random
from typing import Final

from barnabas.cli.output import say
from barnabas.records import Codec
from tests.broker.produce_twins import (
    BATCH_HARMS,
    FRAME_HARMS,
    NO_TIME,
    PRODUCERS,
    TOPICS,
    UNKNOWN,
    Producer,
    Request,
    Sent,
    Twins,
    with_crc,
)

FRAMES: Final = 300
#: Of a frame, up to the correlation id; and of a batch.
_HEADER_BYTES: Final = 8
_BATCH_HEADER_BYTES: Final = 61
#: Numbers that are the last of their kind, as bytes.
_EDGES: Final = (
    b"\0",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xff\xff\xff\xff\x0f",
)


def plain(random: Random) -> Request:
    """What would be taken without the rules if nobody changed it, but for the first batch of a producer."""
    topics = random.sample(("plain", "dense", "short-segments", "compacted", "flushed"), random.choice((1, 1, 1, 2, 3)))
    parts = [
        Sent(
            topic,
            count=random.randint(1, 4),
            producer=random.choice((None, PRODUCERS[0], PRODUCERS[-1])),
            value_bytes=random.choice((0, 1, 60, 63, 64, 130)),
            age_ms=random.choice((0, 1, 100)),
        )
        for topic in topics
    ]
    return Request(tuple(parts), version=random.randint(3, 13), acks=random.choice((1, -1, 0)))


def sent(random: Random) -> Sent:
    return Sent(
        topic=random.choice((*TOPICS, UNKNOWN)),
        number=random.choice((0, 0, 0, 1, 2, -1)),
        count=random.randint(1, 5),
        producer=random.choice((None, *PRODUCERS)),
        turn=random.choice(("next", "next", "next", "again", "gap", "up", "down")),
        back=random.randint(1, 6),
        key=random.choice((b"key", b"", None)),
        value_bytes=random.choice((0, 1, 60, 63, 64, 130, 1000, 66_000)),
        age_ms=random.choice((0, 0, 0, 1, 6000, -6000, 10**13, NO_TIME)),
        codec=random.choice((*[Codec.NONE] * 5, *Codec)),
        harm=random.choice(BATCH_HARMS) if random.random() < 0.1 else "",
    )


def request(random: Random) -> Request:
    return Request(
        parts=tuple(sent(random) for _ in range(random.choice((1, 1, 1, 2, 3, 0)))),
        version=random.randint(3, 13),
        acks=random.choice((1, 1, -1, 0, random.randint(-3, 3))),
        timeout_ms=random.choice((500, 500, 0, -1)),
        client_id=random.choice(("tests", "", None, "__admin_client", "ö")),
        transactional_id=random.choice((None, None, None, None, "id")),
        harm=random.choice(FRAME_HARMS) if random.random() < 0.1 else "",
        place=random.random(),
    )


def mutated(given: bytes, lowest: int, crowded_bytes: int, random: Random) -> bytes:
    """Some bytes changed, left out, put in or said again, mostly among the first: there are sizes, counts, headers."""
    data = bytearray(given)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        highest = min(len(data), crowded_bytes) if random.random() < 0.8 else len(data)
        place = random.randint(min(lowest, highest), highest)
        match random.randrange(6):
            case 0 if place < len(data):
                data[place] ^= 1 << random.randrange(8)
            case 1:
                edge = random.choice(_EDGES)
                data[place : place + len(edge)] = edge
            case 2:
                del data[place : place + random.choice((1, 1, 2, 4, 16))]
            case 3:
                data[place:place] = random.randbytes(random.choice((1, 1, 2, 4)))
            case 4:
                del data[place:]
            case _:
                start = random.randint(0, place)
                data[place:place] = data[start : start + random.randint(1, 70)]
    return bytes(data)


def mutated_batch(given: bytes | None, random: Random) -> bytes | None:
    """A batch whose length and CRC are right all the same, mostly: else nobody would look at the rest."""
    data = bytearray(mutated(given or b"", 12, 80, random))
    if len(data) < _BATCH_HEADER_BYTES or random.random() < 0.05:
        return bytes(data)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    return with_crc(data)


def garbage(random: Random) -> bytes:
    version = random.randint(3, 13)
    return b"\0\0" + version.to_bytes(2, "big") + random.randbytes(random.choice((0, 4, 6, 20, 100, 3000)))


def frame(producer: Producer, random: Random) -> bytes:
    kind = random.random()
    if kind < 0.02:
        return garbage(random)
    wanted = request(random) if kind < 0.2 else plain(random)
    if kind > 0.8:
        return producer.frame(wanted, lambda records: mutated_batch(records, random))
    made = producer.frame(wanted)
    return mutated(made, _HEADER_BYTES if random.random() < 0.95 else 0, 140, random) if kind < 0.5 else made


def play(seed: int, frames: int = FRAMES) -> Counter[str]:
    """One round; how many frames were sent, and taken without the rules."""
    random = Random(seed)
    twins = Twins()
    producer = Producer(twins)
    for number in range(frames):
        sending = frame(producer, random)
        try:
            twins.send(sending)
        except AssertionError:
            say(f"seed {seed}, frame {number}: {sending.hex()}")
            raise
        if random.random() < 0.02:
            twins.both(lambda plane: plane.pass_ms(600))
    twins.finish()
    return Counter(sent=twins.sent, taken=twins.taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    given = parser.parse_args()
    logging.disable()  # connections are closed all the time
    counted: Counter[str] = Counter()
    begun_s = time.monotonic()
    for seed in range(given.seed, given.seed + given.rounds):
        counted += play(seed)
    seconds = time.monotonic() - begun_s
    say(f"{given.rounds} rounds, {counted['sent']} frames, {counted['taken']} without the rules, {seconds:.0f} s")


if __name__ == "__main__":
    main()
