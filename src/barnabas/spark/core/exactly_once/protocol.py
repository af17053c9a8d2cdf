"""The driver's side: a batch is committed or aborted, and what a dead driver left is finished.

What must hold, and why, is said in the package; the comments here say which of it a line keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from barnabas.spark.core.exactly_once import refusals
from barnabas.spark.core.exactly_once.control import (
    BatchDecision,
    Control,
    LostControl,
    TaskPart,
    Written,
    decision_of,
    taken_over,
)
from barnabas.spark.core.exactly_once.names import Stream, run_of
from barnabas.spark.core.exactly_once.steps import (
    AbortTasks,
    CommitControl,
    CommitTask,
    DropControl,
    FenceDriver,
    HasCommitted,
    ListOpen,
    PeekControl,
    PeekReceipt,
    Probe,
    ReadControl,
    ReadOthers,
    ReadReceipt,
    Steps,
    WriteControl,
    take,
)


class Unclear(NamedTuple):
    """A part of a decision that was ended before. `is_forgotten`: so long ago that its coordinator does not know it."""

    part: TaskPart
    is_forgotten: bool


def commit(
    batch: int,
    written: Sequence[Written],
    *,
    needed_ms: int,
    first_batch: int = 0,
    keeps_other_rows: bool = False,
    newest_done: int = -1,
) -> Steps[BatchDecision]:
    """All tasks of a batch are done; ends when what was decided for it is in the topics, and with what that is.

    `needed_ms` is the time that every transaction must have left when the batch is decided. `first_batch` is the first
    that is written exactly once: none before it need have a decision. The caller has seen `newest_done` come to its
    end, so that nobody need look whether it has. `keeps_other_rows` is for what another run has decided: in one run
    only another writer has other rows.
    """
    stream, run = written[0].attempt.stream, written[0].attempt.run
    # Looked at before anything is fenced: a driver that has no business here should disturb nobody.
    control = yield from take(PeekControl(stream))
    check_owner(stream, run, control)
    check_not_later(stream, batch, control, written, keeps_other_rows)
    control = yield from fence_and_read(stream, run)
    check_not_later(stream, batch, control, written, keeps_other_rows)
    decided = control.decision if control is not None else None
    if (decided is None or decided.batch != batch) and (control is None or control.owner != run):
        # Once in a run: names do not change in it.
        yield from check_not_renamed(stream, run, decision_of(batch, run, written))
    check_chain(stream, batch, control, first_batch)
    if decided is not None and newest_done != decided.batch != batch:
        yield from settle_before(stream, decided, batch)
    listed = yield from take(ListOpen(stream))
    ours = taken_over(control, run, _runs(stream, listed))
    if decided is None or decided.batch != batch:
        decided = decision_of(batch, run, written)
        control = ours = replace(ours, decision=decided)
        yield from decide(stream, ours, needed_ms)
    unclear = yield from end_decided(stream, decided)
    if ours != control:
        yield from write(stream, ours)
    # Before receipts are read: an open transaction that has one of the same task would hide them.
    yield from abort_losers(stream, decided, {run, *ours.superseded}, [*_ids(written), *listed])
    yield from check_unclear(stream, decided, unclear)
    return decided


def abort(written: Sequence[Written]) -> Steps[None]:
    """Spark gave the batch up, perhaps after a `commit` that came some way. `written` is of the tasks that ended well;
    without any nobody knows which query this is."""
    if not written:
        return
    stream, run, batch = written[0].attempt.stream, written[0].attempt.run, written[0].attempt.batch
    check_owner(stream, run, (yield from take(PeekControl(stream))))
    control = yield from fence_and_read(stream, run)
    decided = control.decision if control is not None else None
    unclear = yield from end_decided(stream, decided)
    listed = yield from take(ListOpen(stream))
    yield from abort_losers(stream, decided, {run}, [*_ids(written), *listed])
    yield from check_unclear(stream, decided, unclear, newest_done=batch - 1)


def finish(stream: Stream, run: str, newest_done: int = -1) -> Steps[BatchDecision | None]:
    """End what dead drivers left: commit what was decided, abort the rest. `run` is a name that no run had before, and
    supersedes all that there are. `newest_done` is the newest batch that Spark has seen done."""
    control = yield from fence_and_read(stream, run)
    decided = control.decision if control is not None else None
    listed = yield from take(ListOpen(stream))
    unclear = yield from end_decided(stream, decided)
    ours = taken_over(control, run, _runs(stream, listed))
    yield from write(stream, ours)
    yield from abort_losers(stream, decided, set(ours.superseded), listed)
    yield from check_unclear(stream, decided, unclear, newest_done=newest_done)
    return decided


# Who decides, and what was decided before.


def check_owner(stream: Stream, run: str, control: Control | None) -> None:
    if control is not None and run in control.superseded:
        raise refusals.superseded(stream, run, control)


def fence_and_read(stream: Stream, run: str) -> Steps[Control | None]:
    """The newest control record, which stays the newest unless somebody else fences."""
    yield from take(FenceDriver(stream))
    control = yield from take(ReadControl(stream))
    if isinstance(control, LostControl):
        raise refusals.lost(stream, control)
    check_owner(stream, run, control)
    if control is None and (yield from take(HasCommitted(stream))):
        raise refusals.deleted(stream)
    return control


def check_not_later(
    stream: Stream, batch: int, control: Control | None, written: Sequence[Written], keeps_other_rows: bool
) -> None:
    """The newest decision is of no later batch; if it is of this one, with the same rows. True also of one that is not
    the newest any more: so this is looked at before anybody is disturbed."""
    newest = control.decision if control is not None else None
    if control is None or newest is None or newest.batch < batch:
        return
    if newest.batch > batch:
        raise refusals.rewound(stream, batch, newest)
    now = decision_of(batch, newest.run, written)
    if newest.topic is not None and newest.topic != now.topic:
        raise refusals.other_topic(stream, newest, now)
    # In one run a batch has one writer, also if another run has decided it: who comes later is another one.
    is_ours = written[0].attempt.run in (newest.run, control.owner)
    if (is_ours or not keeps_other_rows) and not newest.has_rows_of(now):
        raise refusals.other_rows(stream, newest, now, len(written), is_ours=is_ours)


def check_not_renamed(stream: Stream, run: str, now: BatchDecision) -> Steps[None]:
    """What is to be decided was not written by the same sink under another name, or it would be there twice. One that
    is at work in this run under its own name is another one."""
    if not now.rows:
        return
    for sink, control in (yield from take(ReadOthers(stream))).items():
        newest = control.decision
        if newest is None or control.owner == run or newest.topic not in (now.topic, None):
            continue
        if newest.batch > now.batch or (newest.batch == now.batch and newest.has_rows_of(now)):
            raise refusals.renamed(stream, now.batch, sink, newest)


def check_chain(stream: Stream, batch: int, control: Control | None, first_batch: int) -> None:
    """None is missing between the newest decision and this batch."""
    newest = control.decision if control is not None else None
    if batch != first_batch and (newest is None or newest.batch < batch - 1):
        raise refusals.gone(stream, batch, newest)


def settle_before(stream: Stream, before: BatchDecision, batch: int) -> Steps[None]:
    """Spark says that the batch before is done. So it is, unless somebody went on after a `commit` that failed: then
    what it decided may still be open, or its time over."""
    unclear = yield from end_decided(stream, before)
    yield from check_unclear(stream, before, unclear, newest_done=batch - 1, waits=False)


# The decision, and what follows from it.


def decide(stream: Stream, control: Control, needed_ms: int) -> Steps[None]:
    """Write the decision, probe, and commit it: the time-out of the driver's transaction runs from before the probe."""
    decision = control.decision
    assert decision is not None
    yield from take(WriteControl(stream, control))
    left_ms = yield from take(Probe(stream, decision.parts))
    refusal = refusal_of(stream, decision, left_ms, needed_ms)
    if refusal is not None:
        yield from take(DropControl(stream))
        raise refusal
    yield from take(CommitControl(stream))


def refusal_of(
    stream: Stream, decision: BatchDecision, left_ms: Mapping[str, int], needed_ms: int
) -> refusals.NotAliveError | None:
    dead = [part for part in decision.parts if part.handle.transactional_id not in left_ms]
    if dead:
        return refusals.not_alive(stream, decision.batch, dead)
    shortest_ms = min(left_ms.values(), default=needed_ms)
    return refusals.too_late(stream, decision.batch, shortest_ms, needed_ms) if shortest_ms < needed_ms else None


def write(stream: Stream, control: Control) -> Steps[None]:
    """Take over, with the decision that stands."""
    yield from take(WriteControl(stream, control))
    yield from take(CommitControl(stream))


def end_decided(stream: Stream, decided: BatchDecision | None) -> Steps[list[Unclear]]:
    """Commit every transaction of the decision; returns those of which EndTxn could not tell."""
    unclear = []
    for part in decided.parts if decided is not None else ():
        is_committed = yield from take(CommitTask(stream, part.handle))
        if not is_committed:
            unclear.append(Unclear(part, is_forgotten=is_committed is None))
    return unclear


def check_unclear(
    stream: Stream,
    decided: BatchDecision | None,
    unclear: Iterable[Unclear],
    *,
    newest_done: int = -1,
    waits: bool = True,
) -> Steps[None]:
    """What EndTxn could not tell, the receipts do. Where these are forgotten as well, Spark is believed, which has seen
    `newest_done`. With `waits` receipts are read that no open transaction may change."""
    if decided is None:
        return
    missing, forgotten = [], []
    for part, is_forgotten in unclear:
        receipt = yield from take(ReadReceipt(stream, part.task) if waits else PeekReceipt(stream, part.task))
        if receipt is None and is_forgotten:
            forgotten.append(part)
        elif receipt is None or not receipt.proves(part, decided.batch):
            missing.append(part)
    if missing:
        raise refusals.torn(stream, decided, missing)
    if forgotten and decided.batch > newest_done:
        raise refusals.forgotten(stream, decided, forgotten)


def abort_losers(
    stream: Stream, decided: BatchDecision | None, runs: set[str], transactional_ids: Iterable[str]
) -> Steps[None]:
    """Abort what the newest decision does not name, of runs that cannot decide it any more."""
    kept = decided.transactional_ids if decided is not None else frozenset()
    losers = sorted(each for each in {*transactional_ids} - kept if run_of(each, stream) in runs)
    if losers:
        yield from take(AbortTasks(stream, tuple(losers)))


def _ids(written: Iterable[Written]) -> list[str]:
    return [each.handle.transactional_id for each in written if each.handle is not None]


def _runs(stream: Stream, transactional_ids: Iterable[str]) -> list[str]:
    return sorted({run_of(each, stream) for each in transactional_ids})
