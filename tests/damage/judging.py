"""Starts a node on damaged files, asks it for everything, and says how honest it was."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.testing.sim.world import DATA_DIRECTORY, SimulatedNode, World
from tests.damage.filling import OFFSETS, PARTITIONS, SETTINGS, Filled
from tests.damage.mutations import Contents, Mutation
from tests.damage.witness import Failure, Stuck, Subject, Truth, Witness, take_account

ADDRESS: Final = "10.0.0.1"
#: The clock goes on: files are never looked at before they were written.
LATER_MS: Final = 600_000
METADATA: Final = "__cluster_metadata-0"
#: The value of records that are written after a start.
NEW: Final = b"new"
#: What would change the records by itself meanwhile.
QUIET: Final = {"log.cleaner.enable": "false", "log.initial.task.delay.ms": 3_600_000}


class Outcome(Enum):
    """How a start on damaged files ended, from best to worst."""

    RIGHT = "right"
    CUT = "cut with a WARN"
    FAILED = "failed at the reader"
    REFUSED = "refused by name"
    UNNAMED = "refused without a name"
    SILENT = "silently less"

    @property
    def is_bad(self) -> bool:
        return self in (Outcome.UNNAMED, Outcome.SILENT)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutation; `why` says what was missing, or how it was told."""

    mutation: Mutation
    outcome: Outcome
    why: str
    #: Whether all that is missing lay, after a kill, at the end of a log and was not flushed.
    is_unflushed_tail: bool = False


@dataclass(frozen=True, slots=True)
class _Difference:
    """Something is not as it was."""

    text: str
    #: Whose: a partition's directory, or that of the metadata.
    owner: str
    #: Whether the client was told of an error.
    is_error: bool = False
    #: The first offset that is missing, where only offsets from there on are.
    from_offset: int | None = None


@dataclass(slots=True)
class _Look:
    """One start, what was to be seen, and what was. `refusal` is why it did not come about."""

    truth: Truth
    refusal: BaseException | None
    account: dict[Subject, Any]
    told: list[logging.LogRecord]


def judge(filled: Filled, mutation: Mutation) -> Verdict:
    """Two starts on the damaged directory: what was refused must stay refused, what was right must stay right."""
    contents: Contents = mutation.apply(filled.contents)
    truth = filled.truth
    verdicts: list[Verdict] = []
    cuts: dict[str, int] = {}
    for number in range(2):
        look, contents = _start(contents, truth, number)
        verdict = _judge_look(filled, mutation, look, cuts, number)
        verdicts.append(verdict)
        if verdict.outcome.is_bad:
            break
        truth = _with_new_records(truth, look)
    return max(verdicts, key=lambda each: list(Outcome).index(each.outcome))


# Looking


def _start(contents: Contents, truth: Truth, number: int) -> tuple[_Look, Contents]:
    with World(number, tolerates_logged_errors=True) as world, _listening() as told:
        host = world.host(ADDRESS)
        host.skew_ms = LATER_MS * (number + 1)
        host.disk.hook = None  # no trace: nobody reads it
        for path, content in contents.items():
            _put(host.disk, path, content)
        look = world.run(
            _look(world, SimulatedNode(host, {**SETTINGS, **QUIET}, {}), truth, told, is_first=number == 0)
        )
        return look, {f"/{path}": content for path, content in host.disk.contents().items()}


def _put(disk: Any, path: str, content: bytes | None) -> None:
    if content is None:
        disk.make_directory(path)
    else:
        disk.open(path, create=True).write_at(0, content)


async def _look(
    world: World, node: SimulatedNode, truth: Truth, told: list[logging.LogRecord], *, is_first: bool
) -> _Look:
    try:
        await node.start()
    except Exception as failure:
        node.host.kill()
        return _Look(truth, failure, {}, told)
    witness = await Witness.of(world, node)
    account = await take_account(
        witness,
        truth.partitions,
        truth.groups,
        {each: truth.questions("from", each) for each in truth.partitions if is_first},
        {each: truth.questions("time", each) for each in truth.partitions if is_first},
    )
    for partition, retry in truth.retries.items():
        account["retry", partition] = await witness.produce(partition, retry.values, retry.producer)
    account["producer id",] = await witness.producer_id()
    for partition in PARTITIONS:
        account["new", partition] = await witness.produce(partition, [NEW])
    await witness.close()
    with contextlib.suppress(BarnabasError):
        await node.stop()
    return _Look(truth, None, account, told)


@contextlib.contextmanager
def _listening() -> Iterator[list[logging.LogRecord]]:
    """What is logged meanwhile, from warnings on."""
    logger = logging.getLogger("barnabas")
    told: list[logging.LogRecord] = []

    class Ears(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record)

    ears, before = Ears(logging.WARNING), logger.propagate
    logger.addHandler(ears)
    logger.propagate = False
    try:
        yield told
    finally:
        logger.removeHandler(ears)
        logger.propagate = before


def _with_new_records(truth: Truth, look: _Look) -> Truth:
    """What the second start must find: also what was written after the first."""
    account = dict(truth.account)
    for partition in PARTITIONS:
        offset = look.account.get(("new", partition))
        if isinstance(offset, int):
            account["written", partition] = offset
            account["end", partition] = max(account["end", partition], offset + 1)
    producer_id = look.account.get(("producer id",))
    taken = {producer_id[0]} if isinstance(producer_id, tuple) else set()
    return Truth(account, {}, truth.producer_ids | taken)


# Comparing


def _judge_look(filled: Filled, mutation: Mutation, look: _Look, cuts: dict[str, int], number: int) -> Verdict:
    """`cuts` has where logs were cut with a warning at an earlier start, and gets those of this one."""
    place = "" if number == 0 else "at the second start: "
    if look.refusal is not None:
        text = f"{type(look.refusal).__name__}: {look.refusal}"
        outcome = Outcome.REFUSED if _names_a_file(look.refusal) else Outcome.UNNAMED
        return Verdict(mutation, outcome, place + text)
    lines = [record.getMessage() for record in look.told]
    worst, why, is_unflushed_tail = Outcome.RIGHT, "", True
    for difference in _differences(look.truth, look.account):
        is_unflushed = _is_unflushed(filled, difference)
        outcome = _outcome_of(difference, lines, is_unflushed=is_unflushed)
        from_offset = difference.from_offset
        if from_offset is not None:
            if outcome is Outcome.SILENT and cuts.get(difference.owner, 2**63) <= from_offset:
                outcome = Outcome.CUT
            if outcome is Outcome.CUT:
                cuts[difference.owner] = min(cuts.get(difference.owner, from_offset), from_offset)
        if outcome is Outcome.SILENT and not is_unflushed:
            is_unflushed_tail = False
        if list(Outcome).index(outcome) > list(Outcome).index(worst):
            worst, why = outcome, difference.text
    return Verdict(mutation, worst, place + why, worst is Outcome.SILENT and is_unflushed_tail)


def _names_a_file(refusal: BaseException) -> bool:
    return isinstance(refusal, BarnabasError) and DATA_DIRECTORY in str(refusal)


def _outcome_of(difference: _Difference, lines: list[str], *, is_unflushed: bool) -> Outcome:
    is_named = any(difference.owner in line for line in lines)
    if difference.is_error:
        return Outcome.REFUSED if is_named else Outcome.FAILED
    return Outcome.CUT if is_named and is_unflushed else Outcome.SILENT


def _is_unflushed(filled: Filled, difference: _Difference) -> bool:
    """Whether a crash may take what is missing: after a kill, the end of a log, from the recovery point on."""
    partition = _partition(difference.owner)
    if filled.after != "kill" or difference.from_offset is None or partition is None:
        return False
    return difference.from_offset >= filled.recovery_points.get(partition, 0)


def _partition(owner: str) -> TopicPartition | None:
    topic, _, number = owner.rpartition("-")
    return TopicPartition(topic, int(number)) if topic and number.isdigit() else None


def _differences(truth: Truth, account: Mapping[Subject, Any]) -> Iterator[_Difference]:
    for subject, expected in truth.account.items():
        kind = subject[0]
        owner = str(subject[1]) if len(subject) > 1 and isinstance(subject[1], TopicPartition) else METADATA
        if kind == "written":
            yield from _compare_written(subject[1], expected, account)
            continue
        if kind == "commits":
            owner = str(_offsets_partition(subject[1]))
        if subject not in account:
            if kind not in ("from", "time"):
                yield _Difference(f"{subject} is gone", owner)
            continue
        yield from _compare(subject, expected, account[subject], owner, truth)
    for partition, retry in truth.retries.items():
        found = account.get(("retry", partition))
        if isinstance(found, Failure):
            yield _Difference(f"a retry to {partition} failed: {found.reason}", str(partition), is_error=True)
        elif found != retry.base_offset:
            text = f"{partition}: a retry was written again at {found}"
            yield _Difference(text, str(partition), from_offset=retry.base_offset)
    for partition in PARTITIONS:
        yield from _compare_new(partition, truth, account)
    fresh = account.get(("producer id",))
    if isinstance(fresh, tuple) and fresh[0] in truth.producer_ids:
        yield _Difference(f"producer id {fresh[0]} was given twice", METADATA)


def _compare(subject: Subject, expected: Any, found: Any, owner: str, truth: Truth) -> Iterator[_Difference]:
    if found == expected:
        return
    if isinstance(found, Failure):
        yield _Difference(f"{subject}: {found.reason}", owner, is_error=True)
    elif isinstance(found, Stuck):
        yield _Difference(f"{subject}: {found.reason}", owner)
    elif subject[0] == "records":
        yield from _compare_records(subject[1], expected, found, owner)
    elif subject[0] == "end" and isinstance(found, int):
        if found < expected:
            yield _Difference(f"{subject[1]} ends at {found}, not at {expected}", owner, from_offset=found)
    elif subject[0] in ("from", "time"):
        end = truth.account["end", subject[1]]
        yield _Difference(f"{subject}: {found}, not {expected}", owner, from_offset=_from(subject, expected, end))
    elif subject[0] == "commits":
        yield _Difference(f"commits of {subject[1]}: {found}, not {expected}", owner, from_offset=2**62)
    else:
        yield _Difference(f"{subject}: {found}, not {expected}", owner)


def _from(subject: Subject, expected: Any, end: int) -> int:
    """The offset that an answer should have led to."""
    if subject[0] == "time":
        return expected if isinstance(expected, int) and expected >= 0 else end
    return expected[0][0] if expected else end


def _compare_records(partition: TopicPartition, expected: Any, found: Any, owner: str) -> Iterator[_Difference]:
    lost = sorted(set(expected) - set(found))
    added = [each for each in found if each not in set(expected) and each[0] <= (expected[-1][0] if expected else -1)]
    if lost:
        offsets = [each[0] for each in lost]
        text = f"{partition}: {len(lost)} records are missing or changed, from offset {offsets[0]} to {offsets[-1]}"
        is_tail = offsets[-1] == expected[-1][0] and len(lost) == len(
            [each for each in expected if each[0] >= offsets[0]]
        )
        yield _Difference(text, owner, from_offset=offsets[0] if is_tail else None)
    elif added:
        yield _Difference(f"{partition}: {len(added)} records came back, from offset {added[0][0]}", owner)
    elif [each[0] for each in found] != sorted({each[0] for each in found}):
        yield _Difference(f"{partition}: records are out of order or there twice", owner)


def _compare_written(partition: TopicPartition, offset: int, account: Mapping[Subject, Any]) -> Iterator[_Difference]:
    found = account.get(("records", partition))
    if isinstance(found, list) and not any(each[0] == offset and each[3] == NEW for each in found):
        yield _Difference(f"{partition}: what was written at {offset} after the first start is gone", str(partition))


def _compare_new(partition: TopicPartition, truth: Truth, account: Mapping[Subject, Any]) -> Iterator[_Difference]:
    offset = account.get(("new", partition), Failure("nobody asked"))
    if isinstance(offset, Failure):
        yield _Difference(f"{partition} takes nothing: {offset.reason}", str(partition), is_error=True)
    elif offset < truth.account["end", partition]:
        text = f"{partition}: offset {offset} was handed out before and is used again"
        yield _Difference(text, str(partition), from_offset=offset)


def _offsets_partition(group: str) -> TopicPartition:
    """Where a group's commits lie: Java's hash of its name."""
    value = 0
    for character in group:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return OFFSETS[(value & 0x7FFFFFFF) % len(OFFSETS)]
