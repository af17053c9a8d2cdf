"""Exactly once from stream to topics: what a query's tasks and its driver do, step by step, without doing it.

Each task writes its part of a batch in a transaction of its own, and leaves it open. When all have, the driver decides:
it writes the handles of these transactions to the control topic, and then commits each. A driver that comes later finds
the decision, and carries it out. `protocol` has the driver's side as generators of `steps`: a shell takes them with its
clients, a simulation in whatever order chance has it. `names` says what the transactions are called, `control` what is
in the control topic, `refusals` what is said where nobody can know.

What holds, after each step and whoever dies, pauses or comes back:

1. **A batch has one decision**, the first. It is written in a transaction of the driver's own transactional id. Who
   decides has fenced that id, then read the newest decision, then written: if anybody else did so in between, the
   write fails.
2. **Only what a decision names is committed**, and what commits it is the decision, not what a driver heard from tasks.
3. **What a decision names is alive when it is made**, with time left to end it. The probe lies inside the driver's
   transaction, whose own time-out bounds how old the probe can be when the decision counts.
4. **Nobody aborts what a decision names.** A transactional id names the run, the task, its attempts and the batch, so
   that no attempt can fence another. A transaction is aborted by the driver only after it has fenced its own id and
   read the newest decision, and only if it is of its own run or of one that is superseded.
5. **A superseded run decides nothing more.** Its name stands in the control record, before its transactions are
   aborted.
6. **Decisions are a chain.** That of batch N follows that of N - 1; one that is gone, or newer than the batch, means
   that checkpoint and topics tell of different pasts, and is refused. So is a repeated batch that has other rows, by
   their number, size and fingerprint, or another topic; and one that the same sink has written under another name. The
   batch before is done, or it is ended first. The newest decision is where its group says that it is, an offset that
   was committed with it: if it is not there, it is lost, and what stands before it does not take its place. One that is
   behind it, and committed, is newer: then brokers have lost the offset.
7. **A batch is done when every transaction of its decision is committed**: as EndTxn says or, where that cannot tell,
   as the receipt says, an offset that the task committed in the transaction itself. What is neither is a torn batch,
   and refused by name. Of what brokers have forgotten, Spark is believed, if it has seen the batch done.

What remains: a driver that stays away between the decision and the last EndTxn, for longer than the transactions have
left, finds some aborted and some committed. That is told, with tasks and rows.
"""

from __future__ import annotations

from barnabas.spark.core.exactly_once.control import BatchDecision, Control, Receipt, TaskPart, Written
from barnabas.spark.core.exactly_once.names import Attempt, Stream
from barnabas.spark.core.exactly_once.protocol import abort, commit, finish

__all__ = [
    "Attempt",
    "BatchDecision",
    "Control",
    "Receipt",
    "Stream",
    "TaskPart",
    "Written",
    "abort",
    "commit",
    "finish",
]
