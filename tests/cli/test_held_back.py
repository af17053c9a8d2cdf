"""What `why` says of a transaction that is open: by whom, since when, who ends it, and what to do."""

from __future__ import annotations

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.cli.diagnosis import Diagnosis, Verdict
from barnabas.cli.hanging_transactions import OpenTransaction
from barnabas.cli.held_back import first_open, with_open_transaction
from barnabas.client.admin import TransactionDescription, TransactionState
from barnabas.client.admin.transactions import ProducerState

PLACE = TopicPartition("t", 0)
NOW_MS = 1_700_000_100_000
WELL = Diagnosis(Verdict.WELL, ("t-0 is well.",))
ABORT = "barnabas transactions --bootstrap-server b:1 abort --topic t --partition 0 --start-offset 7"
TERMINATE = "barnabas transactions --bootstrap-server b:1 forceTerminateTransaction --transactionalId orders"
WHY = "barnabas why t:0 --bootstrap-server b:1"


def producer(start_offset: int = 7) -> ProducerState:
    return ProducerState(4, 1, 0, NOW_MS - 300_000, None, start_offset)


def known(state: TransactionState, *partitions: TopicPartition) -> TransactionDescription:
    return TransactionDescription("orders", 2, state, 4, 1, 60_000, NOW_MS - 20_000, partitions)


@pytest.mark.parametrize(
    ("coordinator", "now_ms", "verdict", "said", "command"),
    [
        (None, NOW_MS, Verdict.HELD_BACK, "2023-11-14 22:10:00 UTC (5 min ago). No coordinator knows", ABORT),
        (
            known(TransactionState.ONGOING, TopicPartition("t", 1)),
            NOW_MS,
            Verdict.HELD_BACK,
            "Transactional id orders has this producer, but its coordinator 2 knows of no transaction of it here",
            ABORT,
        ),
        (
            known(TransactionState.ONGOING, PLACE),
            NOW_MS,
            Verdict.WELL,
            "(20 s ago), and may take 60 s: it is aborted in 40 s, if its producer does not end it before.",
            TERMINATE,
        ),
        (
            known(TransactionState.ONGOING, PLACE),
            NOW_MS + 41_000,
            Verdict.HELD_BACK,
            "its time is up, and its coordinator is about to abort it",
            TERMINATE,
        ),
        (
            known(TransactionState.PREPARE_COMMIT, PLACE),
            NOW_MS,
            Verdict.WELL,
            "It has ended, and coordinator 2 writes its markers.",
            WHY,
        ),
    ],
)
def test_what_is_said(
    coordinator: TransactionDescription | None, now_ms: int, verdict: Verdict, said: str, command: str
) -> None:
    found = with_open_transaction(WELL, OpenTransaction(PLACE, producer(), coordinator), now_ms, "b:1")
    assert found.verdict is verdict
    assert found.sentences[0] == "t-0 is well."
    assert "from offset 7 on" in found.sentences[1]
    assert "producer 4 (epoch 1)" in found.sentences[1]
    assert said in " ".join(found.sentences)
    assert [each.command for each in found.advice] == [command]


def test_what_is_worse_stays() -> None:
    bad = Diagnosis(Verdict.WRITES_REFUSED, ("refused",))
    assert with_open_transaction(bad, OpenTransaction(PLACE, producer()), NOW_MS, "b:1").verdict is bad.verdict


def test_the_earliest_holds_readers_back() -> None:
    found = [
        OpenTransaction(TopicPartition("t", 1), producer(1)),
        OpenTransaction(PLACE, producer(9)),
        OpenTransaction(PLACE, producer(7)),
    ]
    assert first_open(found, PLACE) is found[2]
    assert first_open(found, TopicPartition("t", 2)) is None
