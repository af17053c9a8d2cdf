"""Which transaction holds a partition's last stable offset back, and what to do: decided from what leader and
coordinators say. Nothing is asked here; `cli/why.py` does that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from barnabas.base.ids import TopicPartition
from barnabas.cli.diagnosis import Advice, Diagnosis, Verdict
from barnabas.cli.hanging_transactions import OpenTransaction


def first_open(found: Iterable[OpenTransaction], place: TopicPartition) -> OpenTransaction | None:
    """The one that read_committed waits for: the earliest."""
    here = [each for each in found if each.place == place]
    return min(here, key=lambda each: each.producer.transaction_start_offset or 0, default=None)


def with_open_transaction(diagnosis: Diagnosis, open_one: OpenTransaction, now_ms: int, bootstrap: str) -> Diagnosis:
    """What is said of a partition, and of the transaction that is open in it.

    One that will end by itself in time is nothing bad.
    """
    sentences, advice, is_late = _told(open_one, now_ms, bootstrap)
    verdict = diagnosis.verdict
    if is_late and verdict is Verdict.WELL:
        verdict = Verdict.HELD_BACK
    return replace(
        diagnosis,
        verdict=verdict,
        sentences=(*diagnosis.sentences, *sentences),
        advice=(*diagnosis.advice, *advice),
    )


def _told(open_one: OpenTransaction, now_ms: int, bootstrap: str) -> tuple[list[str], list[Advice], bool]:
    producer, known, place = open_one.producer, open_one.known, open_one.place
    offset = producer.transaction_start_offset
    who = f"producer {producer.producer_id} (epoch {producer.producer_epoch})"
    if known is None or open_one.hangs:
        sentences = [
            f"read_committed sees nothing from offset {offset} on: a transaction of {who} is open, and hangs.",
            f"It was written to last at {_when(producer.last_timestamp_ms, now_ms)}. "
            + (
                "No coordinator knows this producer: nobody will end it."
                if known is None
                else f"Transactional id {known.transactional_id} has this producer, but its coordinator "
                f"{known.coordinator_id} knows of no transaction of it here: nobody will end it."
            ),
        ]
        end = (
            f"barnabas transactions --bootstrap-server {bootstrap} abort --topic {place.topic} "
            f"--partition {place.partition} --start-offset {offset}"
        )
        return sentences, [Advice("End it here; what was written in it is never read:", end)], True
    sentences = [
        f"read_committed sees nothing from offset {offset} on: the transaction of {known.transactional_id} is open "
        f"({known.state}), of {who}; coordinator: broker {known.coordinator_id}."
    ]
    if known.state.startswith("Prepare"):
        sentences.append(f"It has ended, and coordinator {known.coordinator_id} writes its markers.")
        again = f"barnabas why {place.topic}:{place.partition} --bootstrap-server {bootstrap}"
        advice = Advice(
            f"Ask again in a moment; if it stays, look at the log of broker {known.coordinator_id}, and whether all "
            "partitions of the transaction have leaders.",
            again,
        )
        return sentences, [advice], False
    begun_ms = known.started_ms if known.started_ms is not None else producer.last_timestamp_ms
    left_ms = begun_ms + known.timeout_ms - now_ms
    until = (
        f"it is aborted in {left_ms / 1000:.0f} s, if its producer does not end it before"
        if left_ms > 0
        else "its time is up, and its coordinator is about to abort it"
    )
    sentences.append(f"It began at {_when(begun_ms, now_ms)}, and may take {known.timeout_ms / 1000:g} s: {until}.")
    end = (
        f"barnabas transactions --bootstrap-server {bootstrap} forceTerminateTransaction "
        f"--transactionalId {known.transactional_id}"
    )
    text = "Wait for it. Only if its producer is gone for good, and you cannot: abort it, and lock that producer out."
    return sentences, [Advice(text, end)], left_ms <= 0


def _when(at_ms: int, now_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"{at} ({_ago(now_ms - at_ms)} ago)"


def _ago(passed_ms: int) -> str:
    seconds = max(0, passed_ms) // 1000
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
