"""Batches of streams that are written exactly once, from a seed: the real protocol, with everything else played here.
Drivers run one after another or at once, tasks fail, vanish, are run twice and come back long after, answers get
lost, transactions run out of time, checkpoints are rewound or copied, the control topic is deleted, or loses its end,
brokers forget what was long ago, a sink gets another name and its former one again, somebody goes on as if a batch were
done that was decided, and failed, or tries it again in the same run, and a query gives other rows each time; each of it
between any two steps.

A row is a number; a batch is a range of them, cut into tasks by chance each time that it runs. This must hold:

1. No row is ever committed twice.
2. When `commit` of a batch ends well, all its rows are committed, whichever driver, and on whichever checkpoint; also
   those of the batches before, if all are of one past.
3. What a standing decision names is never aborted, unless its driver stayed away for longer than the time that the
   protocol asks for.
4. A run that was superseded decides nothing.
5. What is refused has its reason in the story: a batch is torn only after 3, pasts differ only if a checkpoint was
   rewound or copied, the control topic is gone or the sink renamed, and so on. What is refused stays so.
6. When the faults end, a new driver comes to the end of the input, and leaves no transaction open. (A loser that
   begins when the last batch is being committed is not seen, and runs out of time; so there are none in the end.)

Rows have one size each, and are told apart by their fingerprints. The full form is
`python -m tests.spark.exactly_once.simulated_batches --stories 20000`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar

import click

from barnabas.spark.core.exactly_once import protocol, steps
from barnabas.spark.core.exactly_once.control import BatchDecision, Control, LostControl, Receipt, Written
from barnabas.spark.core.exactly_once.names import Attempt, Stream
from barnabas.spark.core.exactly_once.refusals import (
    DeliveryError,
    ForgottenBatchError,
    OtherPastError,
    SupersededError,
    TornBatchError,
)
from tests.spark.exactly_once.coordinator import Coordinator, Fenced, Transaction

T = TypeVar("T")
#: What one of those who act does until somebody else may.
Turns = Generator[None, None, T]

VARIANTS: Final = (
    *("crashes", "two drivers", "old cluster", "copied", "rewound", "control topic gone", "goes on"),
    *("control topic cut", "forgetful", "tries again", "never the same", "renamed"),
)

_TIMEOUT: Final = 200
_DRIVER_TIMEOUT: Final = 20
_LATENESS: Final = 10
_NEEDED: Final = 80
#: What is left of it at the moment at which a decision counts.
_SURE: Final = _NEEDED - _DRIVER_TIMEOUT - _LATENESS
#: How long who only peeks may be shown what was the newest before: markers of transactions come late.
_STALE: Final = 60
_MOST_TURNS: Final = 20_000


class Unreachable(Exception):  # noqa: N818
    """A broker does not answer; what was asked for may have happened."""


class Concurrent(Exception):  # noqa: N818
    """Spark finds that somebody else writes to the checkpoint."""


@dataclass(eq=False, slots=True)
class Checkpoint:
    """Where each batch ends, logged before it runs, and how many are done."""

    name: str
    ends: list[int] = field(default_factory=list)
    done: int = 0


@dataclass(eq=False, slots=True)
class Actor:
    """A driver, or an attempt at a task."""

    name: str
    turns: Turns[None]
    driver: Driver
    wakes: int = 0


@dataclass(eq=False, slots=True)
class Driver:
    run: str
    checkpoint: Checkpoint
    stream: Stream
    #: The first that is written under this name.
    first_batch: int
    #: What it got when it fenced its transactional id.
    handle: Any = None
    has_committed: bool = False
    #: The newest batch that its process has seen done.
    newest_done: int = -1
    #: How often it has written a batch, from the beginning.
    writings: int = 0
    error: Exception | None = None
    is_at_end: bool = False


@dataclass(eq=False, slots=True)
class Stage:
    """The tasks of a batch, and whose word Spark has taken for each."""

    batch: int
    number: int
    #: As Spark numbers it: attempts at a stage have one number.
    writing: int
    tasks: list[range]
    launched: list[int]
    taken: dict[int, Written] = field(default_factory=dict)
    failed: int = 0


@dataclass(eq=False, slots=True)
class Past:
    """What is known of what was decided for a sink, to judge by."""

    control: Control | None = None
    #: What was the newest before, and until when it may be shown.
    control_before: tuple[Control | None, int] = (None, 0)
    #: Whether the newest is not in the control topic any more.
    is_cut: bool = False
    #: When each transaction of the newest decision was decided.
    decided: dict[str, int] = field(default_factory=dict)
    ever_superseded: set[str] = field(default_factory=set)

    @property
    def decision(self) -> BatchDecision | None:
        return self.control.decision if self.control is not None else None


class Story:
    """A stream from its first batch to its last."""

    def __init__(self, seed: int, variant: str) -> None:
        self.chance = chance = Random(f"{variant} {seed}")
        self.variant = variant
        self.row_count = chance.randint(4, 40)
        self.cluster = Coordinator(is_v2=chance.random() < 0.5, lateness=lambda: chance.randint(0, _LATENESS))
        self.cluster.on_commit, self.cluster.on_abort = self.committed, self.aborted
        self.can_list = variant != "old cluster" and (variant != "control topic gone" or chance.random() < 0.5)
        #: How likely whoever has a turn dies, stops for a while, or is not answered.
        self.harm = chance.choice((0.001, 0.004, 0.015, 0.04))
        #: Whether tasks of dead drivers go on when the faults end.
        self.keeps_zombies = chance.random() < 0.5
        self.checkpoints = [Checkpoint("checkpoint")]
        self.actors: list[Actor] = []
        self.runs = self.launches = 0
        self.trace: list[str] = []
        #: What drivers call the sink that start from now on, and the first batch that is written under this name.
        self.stream, self.first_batch = Stream("query", "sink"), 0
        self.pasts = {self.stream: Past()}
        self.visible: Counter[int] = Counter()
        self.has_other_past = self.has_lost_control = self.is_torn = False
        #: Whether two who decide were there at once.
        self.has_met = False
        self.batches_done = 0

    def say(self, text: str) -> None:
        self.trace.append(f"{self.cluster.now:5} {text}")

    # The story.

    def play(self) -> None:
        for _ in range(self.chance.randint(100, 1000)):
            self.happen()
            self.turn()
        self.heal()

    def happen(self) -> None:
        """What people do: start drivers, and worse."""
        chance, checkpoint = self.chance, self.chance.choice(self.checkpoints)
        if not self.drivers_of(checkpoint):
            is_at_end = checkpoint.done == len(checkpoint.ends) and checkpoint.ends[-1:] == [self.row_count]
            if chance.random() < (0.01 if is_at_end else 0.1):
                self.misfortune(checkpoint)
                self.start(checkpoint)
        elif self.variant in ("two drivers", "copied") and chance.random() < 0.01 and len(self.drivers()) < 3:
            self.start(checkpoint)
        if chance.random() < 0.002:
            self.start_finishing()

    def misfortune(self, checkpoint: Checkpoint) -> None:
        chance, past = self.chance, self.pasts[self.stream]
        if chance.random() > 0.2:
            return
        if self.variant == "copied" and len(self.checkpoints) < 3:
            self.has_other_past = True
            self.checkpoints.append(Checkpoint(f"copy {len(self.checkpoints)}", [*checkpoint.ends], checkpoint.done))
            self.say(f"{self.checkpoints[-1].name} is made of {checkpoint.name}")
        elif self.variant == "rewound" and checkpoint.ends:
            self.has_other_past = True
            checkpoint.done = chance.randint(max(0, checkpoint.done - 2), checkpoint.done)
            del checkpoint.ends[checkpoint.done + chance.randint(0, 1) :]
            self.say(f"{checkpoint.name} is rewound to batch {checkpoint.done}")
        elif self.variant == "control topic gone" and not self.is_deciding() and (self.can_list or checkpoint.done):
            # Of a first batch that was decided, an old cluster tells nothing more.
            self.has_lost_control, past.control = True, None
            past.decided.clear()
            self.say("the control topic is gone")
        elif self.variant == "control topic cut" and not self.is_deciding() and past.control is not None:
            self.has_lost_control = past.is_cut = True
            # What is left is what was there before, and nobody must go by it.
            past.control = past.control_before[0]
            past.decided.clear()
            self.say("the control topic has lost its end")
        elif self.variant == "forgetful" and not self.actors:
            self.cluster.tick(10 * _TIMEOUT)
            self.cluster.forget()
            self.say("the brokers have forgotten what was long ago")
        elif self.variant == "renamed" and not self.is_deciding():
            self.has_other_past = True
            self.stream, self.first_batch = Stream("query", chance.choice(("sink", "other"))), checkpoint.done
            self.pasts.setdefault(self.stream, Past())
            self.say(f"the sink is called {self.stream.sink}, from batch {self.first_batch} on")

    def heal(self) -> None:
        """No more faults; each checkpoint gets a driver."""
        self.say("from here on nothing goes wrong")
        self.harm = 0.0
        self.actors = [each for each in self.actors if self.keeps_zombies and "/task" in each.name]
        if self.chance.random() < 0.3:
            finishing = self.start_finishing()
            while finishing in self.actors:
                self.turn()
        for checkpoint in self.checkpoints:
            driver = self.start(checkpoint)
            for _ in range(_MOST_TURNS):
                if driver.error is not None or driver.is_at_end:
                    break
                self.turn()
            self.check_end(driver)
            if driver.is_at_end and driver.has_committed and not self.keeps_zombies and self.can_list:
                left = self.tasks(driver.stream, "open")
                assert not left, f"these are left open: {left}"

    def turn(self) -> None:
        chance, cluster = self.chance, self.cluster
        awake = [each for each in self.actors if each.wakes <= cluster.now]
        if not awake:
            if self.actors:
                cluster.tick(min(each.wakes for each in self.actors) - cluster.now)
            else:
                cluster.tick(chance.randint(0, 20))
            return
        cluster.tick(chance.choice((0, 0, 1, 1, 2)))
        actor = chance.choice(awake)
        if chance.random() < self.harm:
            self.harm_to(actor)
            return
        try:
            next(actor.turns)
        except StopIteration:
            self.actors.remove(actor)

    def harm_to(self, actor: Actor) -> None:
        if self.chance.random() < 0.5:
            actor.wakes = self.cluster.now + self.chance.choice((10, 40, 120, 300))
            self.say(f"{actor.name} stops until {actor.wakes}")
            return
        self.actors.remove(actor)
        self.say(f"{actor.name} dies")
        if actor.name == actor.driver.run:
            # Most tasks go with their driver.
            self.actors = [
                each for each in self.actors if each.driver is not actor.driver or self.chance.random() < 0.3
            ]

    def drivers(self) -> list[Driver]:
        return [each.driver for each in self.actors if each.name == each.driver.run]

    def is_deciding(self) -> bool:
        return any("/task" not in each.name for each in self.actors)

    def drivers_of(self, checkpoint: Checkpoint) -> list[Driver]:
        return [each for each in self.drivers() if each.checkpoint is checkpoint]

    # What Spark does.

    def start(self, checkpoint: Checkpoint) -> Driver:
        self.runs += 1
        driver = Driver(f"run{self.runs}", checkpoint, self.stream, self.first_batch)
        self.has_met = self.has_met or self.is_deciding()
        self.actors.append(Actor(driver.run, self.drive(driver), driver))
        self.say(f"{driver.run} starts on {checkpoint.name}, at batch {checkpoint.done}")
        return driver

    def start_finishing(self) -> Actor:
        """Somebody runs `barnabas transactions --finish`, whether or not there is a driver."""
        self.runs += 1
        self.has_met = self.has_met or self.is_deciding()
        driver = Driver(f"run{self.runs}", Checkpoint("no checkpoint"), self.stream, self.first_batch)
        self.actors.append(Actor(f"{driver.run}/finish", self.finish(driver), driver))
        self.say(f"{driver.run} finishes what is there")
        return self.actors[-1]

    def finish(self, driver: Driver) -> Turns[None]:
        try:
            # It looks at a checkpoint, if there is but one.
            newest_done = self.checkpoints[0].done - 1 if len(self.checkpoints) == 1 else -1
            for stream in [*self.pasts]:
                yield from self.perform(driver, protocol.finish(stream, driver.run, newest_done))
        except (DeliveryError, Fenced, Unreachable) as error:
            self.say(f"{driver.run} does not finish: {type(error).__name__} {error}")
            self.check_refusal(error)

    def drive(self, driver: Driver) -> Turns[None]:
        checkpoint = driver.checkpoint
        batch = checkpoint.done
        try:
            while True:
                start = checkpoint.ends[batch - 1] if batch else 0
                if batch == len(checkpoint.ends):
                    if start == self.row_count:
                        driver.is_at_end = True
                        self.say(f"{driver.run} is at the end")
                        return
                    end = min(self.row_count, start + self.chance.choice((0, 1, 2, 3, 5)))
                    yield
                    if len(checkpoint.ends) != batch:
                        raise Concurrent
                    checkpoint.ends.append(end)
                yield
                try:
                    yield from self.run_batch_until_done(driver, batch, range(start, checkpoint.ends[batch]))
                except (DeliveryError, Fenced, Unreachable) as error:
                    is_last = checkpoint.ends[batch] == self.row_count  # nobody comes who would look
                    decided = self.pasts[driver.stream].decision
                    is_decided = decided is not None and decided.batch == batch
                    if self.variant != "goes on" or is_last or not is_decided:
                        raise
                    self.say(f"{driver.run} goes on after {type(error).__name__} {error}")
                yield
                if checkpoint.done != batch:
                    raise Concurrent
                batch += 1
                checkpoint.done = batch
        except (DeliveryError, Fenced, Unreachable, Concurrent, IndexError) as error:
            self.say(f"{driver.run} fails: {type(error).__name__} {error}")
            driver.error = error
            self.check_refusal(error)

    def run_batch_until_done(self, driver: Driver, batch: int, rows: range) -> Turns[None]:
        """Or until nobody tries again."""
        while True:
            try:
                return (yield from self.run_batch(driver, batch, rows))
            except (DeliveryError, Fenced, Unreachable) as error:
                if self.variant != "tries again" or self.chance.random() < 0.3:
                    raise
                self.say(f"{driver.run} tries batch {batch} again after {type(error).__name__} {error}")
                self.check_refusal(error)

    def run_batch(self, driver: Driver, batch: int, rows: range) -> Turns[None]:
        stage = yield from self.run_stages(driver, batch, rows)
        written = [stage.taken[task] for task in sorted(stage.taken)]
        self.chance.shuffle(written)
        try:
            if stage.failed > 2:
                raise Unreachable("a task failed too often")
            asked = protocol.commit(
                batch,
                written,
                needed_ms=_NEEDED,
                first_batch=driver.first_batch,
                newest_done=driver.newest_done,
                keeps_other_rows=self.variant == "never the same",
            )
            decided = yield from self.perform(driver, asked)
        except (DeliveryError, Fenced, Unreachable) as error:
            self.say(f"{driver.run} aborts batch {batch}: {type(error).__name__} {error}")
            yield
            try:
                yield from self.perform(driver, protocol.abort(written))
            except (DeliveryError, Fenced, Unreachable) as another:
                self.say(f"{driver.run} did not abort: {type(another).__name__} {another}")
                self.check_refusal(another)
            raise error from None
        self.check_done(driver, batch, rows, decided)

    def run_stages(self, driver: Driver, batch: int, rows: range) -> Turns[Stage]:
        driver.writings += 1
        for number in range(3):
            cuts = sorted(self.chance.choices(range(len(rows) + 1), k=self.chance.choice((0, 1, 1, 2))))
            tasks = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
            stage = Stage(batch, number, driver.writings, tasks, [0] * len(tasks))
            self.say(f"{driver.run} runs batch {batch} as {[list(each) for each in tasks]}, stage attempt {number}")
            for task in range(len(tasks)):
                self.launch(driver, stage, task)
            while len(stage.taken) < len(tasks) and stage.failed <= 2:
                yield
                if self.chance.random() < self.harm and number < 2:
                    break
                task = self.chance.randrange(len(tasks))
                if task not in stage.taken and (
                    not self.is_running(driver, stage, task)
                    or (self.harm > 0 and self.chance.random() < 0.15 and stage.launched[task] < 3)
                ):
                    self.launch(driver, stage, task)
            else:
                break
        return stage

    def launch(self, driver: Driver, stage: Stage, task: int) -> None:
        self.launches += 1
        numbers = (stage.batch, task, stage.launched[task], self.launches, stage.writing)
        attempt = Attempt(driver.stream, driver.run, *numbers)
        stage.launched[task] += 1
        name = f"{driver.run}/batch{stage.batch}.{stage.writing}.{stage.number}/task{task}.{attempt.attempt}"
        self.actors.append(Actor(name, self.write(attempt, stage), driver, self.cluster.now + self.delay()))

    def delay(self) -> int:
        if self.harm and self.chance.random() < 0.03:
            return self.chance.choice((30, 60, 100, 130))
        return self.chance.choice((0, 0, 0, 1, 5, 5, 20))

    def is_running(self, driver: Driver, stage: Stage, task: int) -> bool:
        begin = f"{driver.run}/batch{stage.batch}.{stage.writing}.{stage.number}/task{task}."
        return any(each.name.startswith(begin) for each in self.actors)

    def write(self, attempt: Attempt, stage: Stage) -> Turns[None]:
        """An attempt. Its last word may come when nobody listens any more."""
        rows, cluster, handle, begun = stage.tasks[attempt.task], self.cluster, None, self.cluster.now
        try:
            if rows:
                handle = cluster.init(attempt.transactional_id, _TIMEOUT, f"an attempt at task {attempt.task}")
                for row in rows:
                    yield
                    cluster.write(handle, [row])
                yield
                receipt = Receipt(attempt.batch, handle.transactional_id)
                cluster.write(handle).receipt = (attempt.stream.group_of(attempt.task), receipt)
            yield
            if self.chance.random() < self.harm * 3:
                raise Unreachable
        except (Fenced, Unreachable):
            stage.failed += 1
            return
        fingerprint = sum(1 << row for row in rows)
        if self.variant == "never the same" and rows:
            fingerprint += attempt.attempt_id << self.row_count
        written = Written(attempt, len(rows), len(rows), handle, begun, fingerprint)
        stage.taken.setdefault(attempt.task, written)

    # What the protocol asks for.

    def perform(self, driver: Driver, asked: steps.Steps[T]) -> Turns[T]:
        """Take the steps, with time between any two for whatever else happens."""
        answer, error = None, None
        while True:
            try:
                step = asked.throw(error) if error is not None else asked.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            yield
            answer, error, luck = None, None, self.chance.random()
            try:
                if luck < self.harm:
                    raise Unreachable("no answer, nothing done")
                answer = self.do(driver, step)
                self.say(f"{driver.run}: {_told(step, answer)}")
                if luck < self.harm * 2:
                    raise Unreachable("no answer, but done")
            except (Fenced, Unreachable) as problem:
                error = problem
            yield

    def do(self, driver: Driver, step: steps.DriverStep[Any]) -> Any:
        cluster, stream = self.cluster, step.stream
        past = self.pasts[stream]
        match step:
            case steps.PeekControl():
                before, until = past.control_before
                return before if cluster.now < until and self.chance.random() < 0.5 else past.control
            case steps.ReadControl():
                return LostControl("control", 50) if past.is_cut else past.control
            case steps.ReadOthers():
                others = {each.sink: self.pasts[each].control for each in self.pasts if each != stream}
                return {sink: control for sink, control in others.items() if control is not None}
            case steps.HasCommitted():
                return self.can_list and bool(self.tasks(stream, "committed"))
            case steps.FenceDriver():
                driver.handle = cluster.init(stream.driver_id, _DRIVER_TIMEOUT, driver.run)
            case steps.ListOpen():
                return self.tasks(stream, "open") if self.can_list else ()
            case steps.WriteControl(control=control):
                cluster.write(driver.handle).control = control
            case steps.CommitControl():
                if not cluster.commit(driver.handle):
                    raise Fenced
            case steps.DropControl():
                cluster.drop(driver.handle)
            case steps.Probe(parts=parts):
                left = {each.handle.transactional_id: cluster.left(each.handle) for each in parts}
                return {name: each for name, each in left.items() if each is not None}
            case steps.CommitTask(handle=handle):
                return cluster.commit(handle)
            case steps.AbortTasks(transactional_ids=names):
                for name in names:
                    cluster.init(name, _TIMEOUT, driver.run)
            case steps.ReadReceipt(task=task):
                group = stream.group_of(task)
                if cluster.is_pending(group):
                    raise Unreachable("the receipt may change yet")
                return cluster.receipts.get(group)
            case steps.PeekReceipt(task=task):
                return cluster.receipts.get(stream.group_of(task))
        return None

    def tasks(self, stream: Stream, state: str) -> tuple[str, ...]:
        ids = self.cluster.ids
        return tuple(name for name in ids if name.startswith(stream.task_prefix) and ids[name].state == state)

    # What must hold.

    def committed(self, name: str, ended: Transaction) -> None:
        for stream, past in self.pasts.items():
            if name == stream.driver_id:
                assert ended.control is not None
                self.decided_by(past, ended.control)
                return
        self.visible.update(ended.rows)
        twice = [row for row in ended.rows if self.visible[row] > 1]
        assert not twice, f"rows {twice} are there twice, now from {name}"

    def decided_by(self, past: Past, control: Control) -> None:
        assert control.owner not in past.ever_superseded, f"{control.owner} was superseded"
        past.ever_superseded |= {*control.superseded}
        before = past.decision
        if control.decision is not None and control.decision != before:
            assert before is None or before.batch < control.decision.batch, f"batch {before} is decided twice"
            past.decided = dict.fromkeys(control.decision.transactional_ids, self.cluster.now)
        past.control_before = past.control, self.cluster.now + self.chance.choice((0, 0, 0, _STALE))
        past.control = control

    def aborted(self, name: str, ended: Transaction, why: str) -> None:
        self.say(f"  {name} is aborted: {why}")
        since = next((past.decided[name] for past in self.pasts.values() if name in past.decided), None)
        if since is None or self.has_lost_control:
            return
        assert "time" in why, f"{name} was decided, and {why}"
        self.is_torn = True
        away = self.cluster.now - since
        assert away >= _SURE, f"{name} was decided {away} ago, when it had less time left than {_NEEDED}"

    def check_done(self, driver: Driver, batch: int, rows: range, decided: BatchDecision) -> None:
        is_one_past = not self.has_lost_control and self.variant not in ("copied", "rewound")
        expected = range(rows.stop) if is_one_past else rows
        missing = [row for row in expected if not self.visible[row]]
        assert not missing, f"batch {batch} is done, and rows {missing} are not there"
        self.say(f"{driver.run} has done batch {batch}, decided by {decided.run}")
        driver.has_committed = True
        # Mostly Spark commits the next one in the same process.
        driver.newest_done = batch if decided.rows % 3 else -1
        self.batches_done += 1

    def check_refusal(self, error: Exception) -> None:
        if isinstance(error, TornBatchError):
            assert self.is_torn or self.has_lost_control, f"nothing is torn: {error}"
        elif isinstance(error, ForgottenBatchError):
            assert self.cluster.has_forgotten, f"nobody has forgotten anything: {error}"
        elif isinstance(error, OtherPastError):
            # A second driver on the checkpoint may have gone on.
            assert self.has_other_past or self.has_lost_control or self.has_met, f"there is one past: {error}"
        elif isinstance(error, SupersededError):
            assert self.has_met, f"there was no other driver: {error}"

    def check_end(self, driver: Driver) -> None:
        error = driver.error
        if error is None:
            assert driver.is_at_end, "it does not come to its end"
            missing = [row for row in range(self.row_count) if not self.visible[row]]
            assert not missing, f"rows {missing} are not there"
        elif isinstance(error, Unreachable):
            # A receipt that an open transaction hides, if a task is still at work or nobody can list what is open.
            assert "receipt" in str(error), error
            assert not self.can_list or self.keeps_zombies, error
        else:
            is_other = self.has_other_past or self.has_lost_control
            is_known = isinstance(error, TornBatchError | ForgottenBatchError)
            assert is_known or (is_other and isinstance(error, OtherPastError)), error


def _told(step: steps.DriverStep[Any], answer: Any) -> str:
    match step:
        case steps.CommitTask(handle=handle):
            subject = handle.transactional_id
        case steps.AbortTasks(transactional_ids=names):
            subject = " ".join(names)
        case steps.WriteControl(control=answer):
            subject = ""
        case _:
            subject = ""
    if isinstance(answer, Control):
        decision = answer.decision
        batch = "nothing" if decision is None else f"batch {decision.batch} by {decision.run}"
        answer = f"{answer.owner} over {answer.superseded}, {batch}"
    return f"{type(step).__name__} {subject}-> {answer}"


def play(seed: int, variant: str) -> Story:
    """Play a story. What goes wrong is told with the seed and all that happened."""
    story = Story(seed, variant)
    try:
        story.play()
    except Exception as error:
        raise AssertionError("\n".join((f"seed {seed}, {variant}: {error!r}", *story.trace))) from error
    return story


@click.command()
@click.option("--stories", default=20_000, show_default=True, help="How many to play, of all variants together.")
@click.option("--first-seed", default=0, show_default=True)
def main(stories: int, first_seed: int) -> None:
    """Play many stories; stops at the first that ends as none must."""
    for number in range(stories):
        if number % 100 == 0:
            click.echo(f"\r{number} of {stories} stories", nl=False)
        seed, variant = divmod(number, len(VARIANTS))
        play(first_seed + seed, VARIANTS[variant])
    click.echo(f"\r{stories} of {stories} stories: every row once")


if __name__ == "__main__":
    main()
