"""Bugs planted on purpose in the protocol of the sink, which the simulation must find.

python -m tests.spark.exactly_once.planted                          # a table of all, with the story that finds each
python -m tests.spark.exactly_once.planted forgets_a_handle         # one of them, with the story
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from barnabas.spark.core.exactly_once import names, protocol, refusals, steps
from barnabas.spark.core.exactly_once.control import BatchDecision, Control, LostControl, Written
from barnabas.spark.core.exactly_once.names import Attempt, Stream
from barnabas.spark.core.exactly_once.steps import DriverStep, Steps, take
from tests.spark.exactly_once.simulated_batches import VARIANTS, play

#: More stories than any of the bugs needs.
MAX_STORIES: Final = 6000

Plant = Callable[[], AbstractContextManager[Any]]


class PlantedBug(NamedTuple):
    """A bug, what it is in words, and seed and variant of a story that finds it."""

    plant: Plant
    text: str
    story: tuple[int, str]


BUGS: Final[dict[str, PlantedBug]] = {}


def planted(text: str, story: tuple[int, str]) -> Callable[[Plant], Plant]:
    def register(plant: Plant) -> Plant:
        BUGS[plant.__name__] = PlantedBug(plant, text, story)
        return plant

    return register


# The schedules that break the obvious protocol.


@planted("the loser of two attempts fences the winner, before or after the decision", (1, "old cluster"))
def attempts_share_an_id() -> AbstractContextManager[Any]:
    def transactional_id(self: Attempt) -> str:
        return f"{self.stream.task_prefix}{self.run}.{self.task}.{self.batch % names.SLOTS}"

    return patch.object(Attempt, "transactional_id", property(transactional_id))


@planted("a zombie of batch N wakes in N + 1, and begins in the id that is in use there", (0, "copied"))
def batches_share_an_id() -> AbstractContextManager[Any]:
    return patch.multiple(names, SLOTS=1, STAGES=1, REMAINDERS=1)


@planted("commit fails half way, abort follows, and does not look for a decision", (0, "goes on"))
def abort_does_not_settle() -> AbstractContextManager[Any]:
    def abort(written: Sequence[Written]) -> Steps[None]:
        if written:
            yield from take(steps.AbortTasks(written[0].attempt.stream, tuple(_ids(written))))

    return patch.object(protocol, "abort", abort)


@planted("abort ends what it can of the decision, and aborts what is left of the batch", (16, "forgetful"))
def abort_after_a_failed_commit() -> AbstractContextManager[Any]:
    real = protocol.abort

    def abort(written: Sequence[Written]) -> Steps[None]:
        try:
            yield from real(written)
        except Exception:
            yield from take(steps.AbortTasks(written[0].attempt.stream, tuple(_ids(written))))
            raise

    return patch.object(protocol, "abort", abort)


@planted("a straggler passes the first task's time-out: nobody looks at the time that is left", (36, "renamed"))
def decides_too_late() -> AbstractContextManager[Any]:
    def refusal_of(
        stream: Stream, decision: BatchDecision, left_ms: Mapping[str, int], needed_ms: int
    ) -> refusals.NotAliveError | None:
        dead = [part for part in decision.parts if part.handle.transactional_id not in left_ms]
        return refusals.not_alive(stream, decision.batch, dead) if dead else None

    return patch.object(protocol, "refusal_of", refusal_of)


@planted("the old driver comes back: what was read before the fence is believed after it", (2, "two drivers"))
def fences_after_reading() -> AbstractContextManager[Any]:
    def fence_and_read(stream: Stream, run: str) -> Steps[Control | None]:
        control = yield from take(steps.ReadControl(stream))
        if isinstance(control, LostControl):
            raise refusals.lost(stream, control)
        protocol.check_owner(stream, run, control)
        yield from take(steps.FenceDriver(stream))
        return control

    return patch.object(protocol, "fence_and_read", fence_and_read)


@planted("the old driver comes back, and nobody asks whether it is superseded", (0, "copied"))
def nobody_is_superseded() -> AbstractContextManager[Any]:
    return patch.object(protocol, "check_owner", lambda stream, run, control: None)


@planted("another number of tasks after a restart: handles are ended only for tasks that there are now", (6, "goes on"))
def ends_tasks_of_now() -> AbstractContextManager[Any]:
    def change(written: Sequence[Written], step: DriverStep[Any]) -> DriverStep[Any] | None:
        tasks = {each.attempt.task for each in written}
        is_old = isinstance(step, steps.CommitTask) and _task(step) not in tasks
        return None if is_old else step

    return _changed_commit(change)


@planted("the checkpoint is rewound, and what was decided is decided again", (0, "copied"))
def chain_may_go_back() -> AbstractContextManager[Any]:
    return _past_without("check_not_later", lambda newest, batch: newest is not None and newest.batch > batch)


@planted("a repeated batch with other rows is taken for the one that was decided", (1, "copied"))
def other_rows_pass() -> AbstractContextManager[Any]:
    return _past_without("check_not_later", lambda newest, batch: newest is not None and newest.batch == batch)


@planted("the control topic is lost, and the chain begins anew in the middle", (1, "control topic gone"))
def chain_may_begin_anywhere() -> AbstractContextManager[Any]:
    return _past_without("check_chain", lambda newest, batch: newest is None)


@planted(
    "the control topic is lost after the first batch, and nobody asks for commits",
    (102, "control topic gone"),
)
def first_batch_is_always_first() -> AbstractContextManager[Any]:
    return _changed_commit(lambda written, step: None if isinstance(step, steps.HasCommitted) else step, answer=False)


@planted("what may be old is believed: a decision that was just made is not seen, and said to be gone", (0, "crashes"))
def old_news_are_believed() -> AbstractContextManager[Any]:
    real = protocol.check_not_later

    def check_not_later(stream: Stream, batch: int, control: Control | None, *rest: Any) -> None:
        real(stream, batch, control, *rest)
        protocol.check_chain(stream, batch, control, 0)

    return patch.object(protocol, "check_not_later", check_not_later)


@planted("the control topic has lost its end, and what is left is the newest", (6, "control topic cut"))
def what_is_left_is_the_newest() -> AbstractContextManager[Any]:
    def fence_and_read(stream: Stream, run: str) -> Steps[Control | None]:
        yield from take(steps.FenceDriver(stream))
        control = yield from take(steps.ReadControl(stream))
        if isinstance(control, LostControl):
            control = yield from take(steps.PeekControl(stream))
        protocol.check_owner(stream, run, control)
        return control

    return patch.object(protocol, "fence_and_read", fence_and_read)


@planted("what nobody remembers any more is called torn, though it is done", (4, "forgetful"))
def the_forgotten_is_torn() -> AbstractContextManager[Any]:
    real = protocol.check_unclear

    def check_unclear(
        stream: Stream, decided: BatchDecision | None, unclear: Iterable[protocol.Unclear], **options: Any
    ) -> Steps[None]:
        yield from real(stream, decided, [each._replace(is_forgotten=False) for each in unclear], **options)

    return patch.object(protocol, "check_unclear", check_unclear)


@planted("a sink that was renamed is new, and writes again what it wrote under its former name", (24, "renamed"))
def a_new_name_has_no_past() -> AbstractContextManager[Any]:
    return patch.object(protocol, "check_not_renamed", lambda stream, run, now: iter(()))


@planted("a sink that got its former name again is looked at as if it had never had another", (215, "renamed"))
def a_former_name_has_its_own_past() -> AbstractContextManager[Any]:
    real = protocol.check_not_renamed

    def check_not_renamed(stream: Stream, run: str, now: BatchDecision) -> Steps[None]:
        control = yield from take(steps.PeekControl(stream))
        if control is None:
            yield from real(stream, run, now)

    return patch.object(protocol, "check_not_renamed", check_not_renamed)


@planted("rows that are never the same are refused, though what was decided is to be kept", (2, "never the same"))
def nothing_is_kept() -> AbstractContextManager[Any]:
    real = protocol.check_not_later

    def check_not_later(
        stream: Stream, batch: int, control: Control | None, written: Sequence[Written], keeps_other_rows: bool
    ) -> None:
        real(stream, batch, control, written, False)

    return patch.object(protocol, "check_not_later", check_not_later)


# Steps that are left out, or taken in another order.


@planted("what is open is fenced before the decision is read", (0, "two drivers"))
def fences_before_reading() -> AbstractContextManager[Any]:
    real = protocol.commit

    def commit(batch: int, written: Sequence[Written], **options: Any) -> Steps[BatchDecision]:
        stream, run = written[0].attempt.stream, written[0].attempt.run
        listed = yield from take(steps.ListOpen(stream))
        others = tuple(each for each in listed if names.run_of(each, stream) != run)
        yield from take(steps.AbortTasks(stream, others))
        return (yield from real(batch, written, **options))

    return patch.object(protocol, "commit", commit)


@planted("a batch is decided with a handle that is dead", (0, "tries again"))
def decides_with_dead_handles() -> AbstractContextManager[Any]:
    return patch.object(protocol, "refusal_of", lambda stream, decision, left_ms, needed_ms: None)


@planted(
    "the handles are probed before the driver's transaction begins, long before",
    (0, "control topic cut"),
)
def probes_before_writing() -> AbstractContextManager[Any]:
    def decide(stream: Stream, control: Control, needed_ms: int) -> Steps[None]:
        decision = control.decision
        assert decision is not None
        left_ms = yield from take(steps.Probe(stream, decision.parts))
        refusal = protocol.refusal_of(stream, decision, left_ms, needed_ms)
        if refusal is not None:
            raise refusal
        yield from protocol.write(stream, control)

    return patch.object(protocol, "decide", decide)


@planted("the handles of the messages are ended, not those of the decision", (0, "forgetful"))
def ends_the_messages() -> AbstractContextManager[Any]:
    real = protocol.commit

    def commit(batch: int, written: Sequence[Written], **options: Any) -> Steps[BatchDecision]:
        def change(written: Sequence[Written], step: DriverStep[Any]) -> DriverStep[Any] | None:
            return None if isinstance(step, steps.CommitTask) else step

        decided: BatchDecision = yield from _changed(real(batch, written, **options), written, change, True)
        for each in written:
            if each.handle is not None:
                yield from take(steps.CommitTask(each.attempt.stream, each.handle))
        return decided

    return patch.object(protocol, "commit", commit)


@planted("a handle is forgotten", (0, "crashes"))
def forgets_a_handle() -> AbstractContextManager[Any]:
    real = protocol.end_decided

    def end_decided(stream: Stream, decided: BatchDecision | None) -> Steps[list[protocol.Unclear]]:
        if decided is None or len(decided.parts) < 2:
            return (yield from real(stream, decided))
        for part in decided.parts[:-1]:
            yield from take(steps.CommitTask(stream, part.handle))
        return []

    return patch.object(protocol, "end_decided", end_decided)


@planted("a transaction that cannot be ended counts as committed", (1, "renamed"))
def receipts_are_not_read() -> AbstractContextManager[Any]:
    def check_unclear(stream: Stream, decided: BatchDecision | None, *rest: Any, **options: Any) -> Steps[None]:
        yield from ()

    return patch.object(protocol, "check_unclear", check_unclear)


@planted("somebody goes on after a commit that failed, and nobody looks at the batch before", (20, "goes on"))
def the_batch_before_is_believed() -> AbstractContextManager[Any]:
    def settle_before(stream: Stream, before: BatchDecision, batch: int) -> Steps[None]:
        yield from ()

    return patch.object(protocol, "settle_before", settle_before)


@planted("losers and vanished tasks are left open", (0, "forgetful"))
def losers_stay_open() -> AbstractContextManager[Any]:
    def abort_losers(stream: Stream, decided: BatchDecision | None, runs: set[str], ids: Iterable[str]) -> Steps[None]:
        yield from ()

    return patch.object(protocol, "abort_losers", abort_losers)


@planted("what others have open is aborted, though they may decide", (118, "copied"))
def aborts_those_who_may_decide() -> AbstractContextManager[Any]:
    real = protocol.abort_losers

    def abort_losers(stream: Stream, decided: BatchDecision | None, runs: set[str], ids: Iterable[str]) -> Steps[None]:
        ids = list(ids)
        yield from real(stream, decided, runs | {names.run_of(each, stream) for each in ids}, ids)

    return patch.object(protocol, "abort_losers", abort_losers)


@planted("who takes over aborts what others have open, before it is written that they are superseded", (4, "rewound"))
def takes_over_in_silence() -> AbstractContextManager[Any]:
    def write(stream: Stream, control: Control) -> Steps[None]:
        yield from ()

    return patch.object(protocol, "write", write)


# How they are planted.


def _ids(written: Iterable[Written]) -> list[str]:
    return [each.handle.transactional_id for each in written if each.handle is not None]


def _task(step: steps.CommitTask) -> int:
    return names.task_of(step.handle.transactional_id, step.stream)


Change = Callable[[Sequence[Written], DriverStep[Any]], DriverStep[Any] | None]


def _changed(asked: Steps[Any], written: Sequence[Written], change: Change, answer: Any) -> Steps[Any]:
    """The same steps, without some, which are answered here."""
    said: Any = None
    while True:
        try:
            step = asked.send(said)
        except StopIteration as end:
            return end.value
        other = change(written, step)
        said = answer if other is None else (yield other)


def _changed_commit(change: Change, answer: Any = True) -> AbstractContextManager[Any]:
    real = protocol.commit

    def commit(batch: int, written: Sequence[Written], **options: Any) -> Steps[BatchDecision]:
        return _changed(real(batch, written, **options), written, change, answer)

    return patch.object(protocol, "commit", commit)


def _past_without(check: str, passes: Callable[[BatchDecision | None, int], bool]) -> AbstractContextManager[Any]:
    """A check of the past, without one of its cases."""
    real = getattr(protocol, check)

    def check_past(stream: Stream, batch: int, control: Control | None, *rest: Any) -> None:
        if not passes(control.decision if control is not None else None, batch):
            real(stream, batch, control, *rest)

    return patch.object(protocol, check, check_past)


def find(name: str, stories: int = MAX_STORIES) -> tuple[int, str] | None:
    """How many stories it takes to notice the bug, and how the last of them went."""
    with BUGS[name].plant():
        for number, (seed, variant) in enumerate(itertools.product(range(stories), VARIANTS), start=1):
            if number > stories:
                break
            try:
                play(seed, variant)
            except AssertionError as error:
                return number, str(error)
    return None


def main(arguments: Sequence[str]) -> int:
    missed = 0
    for name in arguments or BUGS:
        found = find(name)
        if found is None:
            missed += 1
            sys.stdout.write(f"{name:30} NOT FOUND in {MAX_STORIES} stories: {BUGS[name].text}\n")
            continue
        first, *story = found[1].splitlines()
        sys.stdout.write(f"{name:30} story {found[0]:4}: {first}\n")
        sys.stdout.flush()
        if arguments:
            sys.stdout.write("\n".join([BUGS[name].text, *story, ""]))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
