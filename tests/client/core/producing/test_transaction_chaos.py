"""A transactional sender in a world where anything may be answered at any time, looked at by a simple model.

The model knows what a coordinator and a partition would know: which partitions were added, which numbers were used, and
what was acknowledged when an end was asked for.
"""

from __future__ import annotations

from random import Random

import pytest

from barnabas.client.core.producing.transaction_states import State
from tests.client.core.producing.transaction_stories import Player

PARTITIONS = 3
CODES = (
    "NOT_COORDINATOR",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "CONCURRENT_TRANSACTIONS",
    "TRANSACTION_ABORTABLE",
    "UNKNOWN_PRODUCER_ID",
)
PRODUCE_CODES = ("NOT_LEADER_OR_FOLLOWER", "INVALID_RECORD", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH")


class Chaos:
    def __init__(self, seed: int, txn: int) -> None:
        self.random = Random(seed)
        self.txn = txn
        self.player = Player()
        self.producer_epoch = -1
        self.added: set[int] = set()
        self.numbers: dict[tuple[int, int, int], int] = {}  # (epoch, partition, sequence) to how many records
        self.open: dict[str, list[int]] = {}  # requests that are on their way, with their partitions
        self.sent = self.acked = self.failed = 0
        self.commits = 0
        self.log: list[str] = []
        self.do(f"set partitions={PARTITIONS} txn={txn} delivery_timeout=700")

    def do(self, line: str) -> None:
        self.log.append(line)
        for told in self.player.step(line.split()):
            self.log.append(told)
            self.look(told)
        assert self.player.manager.state is not State.FATAL_ERROR, "\n".join(self.log)

    def look(self, told: str) -> None:
        words = told.split()
        if words[0] == ">" and words[1].startswith("#"):
            self.look_at_batches(words[1], told.partition(": ")[2].split(" (")[0])
        elif told.startswith("> ADD_PARTITIONS"):
            self.asked = {int(each) for each in told.partition(": ")[2].split()}
        elif told.startswith("> END"):
            assert not self.open, f"{told} while batches are on their way"
            assert self.acked + self.failed == self.sent, "an end before every record has its outcome"
            assert "abort" in told or not self.failed, "a commit although a record failed"
        elif words[0] == "=" and words[1][0].isdigit():
            first, _, last = words[2].partition("..")
            count = int(last) - int(first) + 1
            if words[3] == "at":
                self.acked += count
            else:
                self.failed += count
        elif told == "= commit: done":
            assert not self.failed
            self.commits += 1
            self.over()
        elif told == "= abort: done":
            self.over()

    def look_at_batches(self, token: str, shown: str) -> None:
        self.open[token] = []
        for each in shown.split(", "):
            partition, epoch, numbers = each.split()
            sequence, _, count = numbers[1:].partition("+")
            assert self.txn == 2 or int(partition) in self.added, "a record before its partition was added"
            key = (int(epoch[1:]), int(partition), int(sequence))
            assert key[0] == self.producer_epoch
            assert self.numbers.setdefault(key, int(count)) == int(count), "numbers used for another batch"
            self.open[token].append(int(partition))

    def over(self) -> None:
        self.added.clear()
        self.sent = self.acked = self.failed = 0

    def turn(self) -> None:
        """Something happens."""
        manager, chance = self.player.manager, self.random.random
        if self.player.asked is not None and chance() < 0.5:
            self.reply()
        elif self.open and chance() < 0.5:
            self.answer()
        elif manager.state is State.IN_TRANSACTION and chance() < 0.7:
            self.sent += 1
            try:
                self.do(f"send {self.random.randrange(PARTITIONS)} 1")
            finally:
                self.sent -= self.log[-1].startswith("= send: ")
        elif manager.state is State.READY:
            self.do("begin")
        elif manager.state is State.UNINITIALIZED:
            self.do("init")
        elif manager.state is State.IN_TRANSACTION:
            self.do(self.random.choice(["commit", "abort", f"offsets g 0={self.random.randrange(9)}"]))
        elif manager.state is State.ABORTABLE_ERROR and chance() < 0.5:
            self.do("abort")
        self.do(f"at {self.player.now_ms + self.random.randrange(120)}")

    def reply(self) -> None:
        kind = self.player.asked.kind.name  # type: ignore[union-attr]
        is_good = self.random.random() < 0.6
        if kind == "FIND_COORDINATOR":
            self.do("found 1" if is_good else "not-found COORDINATOR_NOT_AVAILABLE")
        elif not is_good:
            allowed = CODES[: {"ADD_PARTITIONS": 5, "ADD_OFFSETS": 5, "TXN_OFFSET_COMMIT": 4}.get(kind, 3)]
            self.do(self.random.choice([*(f"reply {code}" for code in allowed), "lost"]))
        elif kind in ("INIT_PRODUCER_ID", "BUMP_EPOCH") or (kind == "END" and self.txn == 2):
            self.producer_epoch += 1
            self.do(f"reply NONE 7 {self.producer_epoch}")
        else:
            if kind == "ADD_PARTITIONS":
                self.added |= self.asked
            self.do("reply NONE")

    def answer(self) -> None:
        token = next(iter(self.open))
        partitions = self.open.pop(token)
        how = self.random.random()
        if how < 0.75:
            self.do(f"answer {token} " + " ".join(f"{each}=NONE@1" for each in partitions))
        elif how < 0.9:
            code = self.random.choice(PRODUCE_CODES)
            self.do(f"answer {token} " + " ".join(f"{each}={code}" for each in partitions))
        else:
            self.do(f"fail {token} disconnected")


@pytest.mark.parametrize("txn", [1, 2])
@pytest.mark.parametrize("block", range(4))
def test_whatever_is_answered(block: int, txn: int) -> None:
    commits = 0
    for seed in range(block * 20, block * 20 + 20):
        chaos = Chaos(seed, txn)
        try:
            for _ in range(150):
                chaos.turn()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}\n" + "\n".join(chaos.log[-60:])) from error
        commits += chaos.commits
    assert commits > 20
