"""`barnabas consumer-groups --reset-offsets`: where groups shall go on reading, by each of Kafka's scenarios."""

from __future__ import annotations

import csv
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.cli.admin_options import reason
from barnabas.cli.consumer_groups import SCENARIOS, GroupsRequest
from barnabas.cli.consumer_groups_shown import Column, describe_groups, group_failure, show
from barnabas.cli.main import FAILED, tell
from barnabas.cli.output import is_watched, print_json, say, shown
from barnabas.cli.partitions import parse_partitions
from barnabas.cli.progress import progress

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, OffsetSpec

Offsets = dict[TopicPartition, int]

_DURATION: Final = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?=.)(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+(?:[.,]\d*)?)S)?)?", re.IGNORECASE
)
_UNKNOWN_OFFSET: Final = -1


async def reset(admin: Admin, wanted: GroupsRequest, groups: Sequence[str]) -> int:
    """Find out the new offsets of each group, commit them if that is wanted, and show them."""
    from barnabas.base.error_codes import ErrorCode

    given = wanted.given
    if not given.among(("--dry-run", "--execute")):
        say("WARN: nothing is changed, since --execute is missing; say --dry-run to be shown this only.", err=True)
    scenario = given.exactly_one(*SCENARIOS)
    plan = Plan(admin, wanted, scenario)
    await plan.start()
    described, failed = await describe_groups(admin, groups)
    found: dict[str, Offsets] = {}
    problems: list[str] = []
    with progress("resetting groups", len(groups)) as step:
        for group in groups:
            error = failed.get(group)
            # A group that does not exist comes into being with its first offsets.
            is_new = isinstance(error, BrokerError) and error.code is ErrorCode.GROUP_ID_NOT_FOUND
            if error is not None and not is_new:
                problems.append(group_failure(group, error))
            elif error is None and described[group].state != "Empty":
                state = described[group].state
                problems.append(f"offsets of group '{group}' can only be reset while it is inactive, but it is {state}")
            else:
                try:
                    offsets = await plan.offsets(group)
                    if "--execute" in given and offsets:
                        await _commit(admin, group, offsets)
                    found[group] = offsets
                except BarnabasError as failure:
                    # The other groups must not depend on this one; and what was done to them must be shown.
                    problems.append(f"group '{group}': {reason(failure)}")
            step()
    _show(found, wanted)
    for problem in problems:
        tell(shown(problem))
    return FAILED if problems or plan.has_gaps else 0


async def _commit(admin: Admin, group: str, offsets: Offsets) -> None:
    from barnabas.client.admin import OffsetAndMetadata

    await admin.alter_group_offsets(group, {each: OffsetAndMetadata(offset) for each, offset in offsets.items()})


class Plan:
    """A scenario: from a group to its new offsets."""

    def __init__(self, admin: Admin, wanted: GroupsRequest, scenario: str) -> None:
        self._admin = admin
        self._wanted = wanted
        self._scenario = scenario
        self._named = parse_partitions(wanted.topics)
        value: Any = wanted.scenarios.get(scenario)
        self._number: int = value if isinstance(value, int) else 0
        self._timestamp_ms = 0
        self._file: dict[str, Offsets] = {}
        self._scope: list[TopicPartition] = []
        #: Whether a group was not in the file.
        self.has_gaps = False
        if scenario == "--to-datetime":
            self._timestamp_ms = parse_datetime(value)
        elif scenario == "--by-duration":
            self._timestamp_ms = max(0, int(time.time() * 1000) - parse_duration(value))
        elif scenario == "--from-file":
            self._file = parse_plan(value, wanted.groups)

    async def offsets(self, group: str) -> Offsets:
        """In the order of partitions."""
        found = await self._from_file(group) if self._scenario == "--from-file" else await self._by_scenario(group)
        return dict(sorted(found.items()))

    async def _by_scenario(self, group: str) -> Offsets:
        from barnabas.client.admin import OffsetSpec

        partitions = await self._partitions(group)
        if self._scenario == "--to-earliest":
            return await self._listed(partitions, OffsetSpec.earliest())
        if self._scenario == "--to-latest":
            return await self._listed(partitions, OffsetSpec.latest())
        if self._scenario in ("--to-datetime", "--by-duration"):
            return await self._at(partitions)
        if self._scenario == "--to-offset":
            return await self._within_range(dict.fromkeys(partitions, self._number))
        committed = await self._committed(group)
        if self._scenario == "--to-current":
            rest = [each for each in partitions if each not in committed]
            known = {each: committed[each] for each in partitions if each in committed}
            return known | await self._listed(rest, OffsetSpec.latest())
        for each in partitions:
            if each not in committed:
                raise BarnabasError(f"--shift-by: there is no offset of {each} that could be shifted")
        return await self._within_range({each: committed[each] + self._number for each in partitions})

    async def _from_file(self, group: str) -> Offsets:
        if group not in self._file:
            self.has_gaps = True
            tell(f"--from-file: there is nothing for group '{shown(group)}' in the file")
            return {}
        await self._check(self._file[group])
        return await self._within_range(self._file[group])

    async def _partitions(self, group: str) -> list[TopicPartition]:
        """Those in the scope: all that the group has offsets for, or those that are named."""
        if "--all-topics" in self._wanted.given:
            partitions = list(await self._committed(group))
            await self._check(partitions)
            return partitions
        return self._scope

    async def start(self) -> None:
        """Find out which partitions are named, once for all groups and before any change."""
        topics = list(self._named.topics)
        described = await self._admin.describe_topics(topics) if topics else {}
        whole = [TopicPartition(topic, each.partition) for topic in topics for each in described[topic].partitions]
        self._scope = list(dict.fromkeys([*self._named.partitions, *whole]))
        await self._check(self._scope)

    async def _check(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions that do not exist or have no leader are told at once: asking for offsets would wait for them."""
        wanted = list(partitions)
        topics = sorted({each.topic for each in wanted})
        described = await self._admin.describe_topics(topics) if topics else {}
        has_leader = {
            TopicPartition(topic, each.partition): each.leader is not None
            for topic, found in described.items()
            for each in found.partitions
        }
        for text, bad in (
            ("do not exist", [each for each in wanted if each not in has_leader]),
            ("have no leader", [each for each in wanted if not has_leader.get(each, True)]),
        ):
            if bad:
                raise BarnabasError(f"these partitions {text}: {', '.join(map(str, bad))}")

    async def _committed(self, group: str) -> Offsets:
        found = await self._admin.list_group_offsets(group)
        return {partition: each.offset for partition, each in found.items() if each is not None}

    async def _listed(self, partitions: Sequence[TopicPartition], spec: OffsetSpec) -> Offsets:
        found = await self._admin.list_offsets(dict.fromkeys(partitions, spec)) if partitions else {}
        return {partition: each.offset for partition, each in found.items()}

    async def _at(self, partitions: Sequence[TopicPartition]) -> Offsets:
        """The first record since a time; where there is none, the end."""
        from barnabas.client.admin import OffsetSpec

        found = await self._listed(partitions, OffsetSpec.at(self._timestamp_ms))
        rest = [each for each in partitions if found[each] == _UNKNOWN_OFFSET]
        for topic, number in rest:
            say(
                f"\nWarn: Partition {number} from topic {topic} is empty. Falling back to latest known offset.",
                err=True,
            )
        return found | await self._listed(rest, OffsetSpec.latest())

    async def _within_range(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        """An offset that lies outside its partition is drawn to the nearest end, with a warning."""
        from barnabas.client.admin import OffsetSpec

        partitions = list(wanted)
        first = await self._listed(partitions, OffsetSpec.earliest())
        end = await self._listed(partitions, OffsetSpec.latest())
        found = {}
        for each, offset in wanted.items():
            found[each] = min(max(offset, first[each]), end[each])
            if found[each] != offset:
                which = "higher than latest" if offset > end[each] else "lower than earliest"
                text = f"WARN: New offset ({offset}) is {which} offset for topic partition {each}."
                say(f"{text} Value will be set to {found[each]}", err=True)
        return found


def parse_datetime(text: str) -> int:
    """Milliseconds since 1970; UTC where no zone is given.

    >>> parse_datetime("1970-01-01T00:00:01.500"), parse_datetime("1970-01-01T02:00:00.000+02:00")
    (1500, 0)
    """
    try:
        if "T" not in text:
            raise ValueError
        when = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--to-datetime: {text!r} is no time like 2026-01-31T10:00:00.000") from None
    timestamp_ms = int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)
    if timestamp_ms < 0:
        raise click.UsageError(f"--to-datetime: {text} lies before 1970")
    return timestamp_ms


def parse_duration(text: str) -> int:
    """Milliseconds.

    >>> parse_duration("P1DT1H"), parse_duration("PT1M0.5S"), parse_duration("-PT1S")
    (90000000, 60500, -1000)
    """
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()[1:]):
        raise click.UsageError(f"--by-duration: {text!r} is no duration like P7D or PT1H30M")
    sign, days, hours, minutes, seconds = match.groups()
    total = float((seconds or "0").replace(",", ".")) + 60 * int(minutes or 0) + 3600 * int(hours or 0)
    return round((total + 86_400 * int(days or 0)) * 1000) * (-1 if sign == "-" else 1)


def parse_plan(path: str, groups: Sequence[str]) -> dict[str, Offsets]:
    """Read TOPIC,PARTITION,OFFSET for the one group that is named, or GROUP,TOPIC,PARTITION,OFFSET."""
    found: dict[str, Offsets] = {}
    with Path(path).open(encoding="utf-8", newline="") as lines:
        for number, row in enumerate(csv.reader(lines), start=1):
            if not row:
                continue
            if len(row) == 3 and len(groups) == 1:
                row.insert(0, groups[0])
            try:
                group, topic, partition, offset = (cell.strip() for cell in row)
                found.setdefault(group, {})[TopicPartition(topic, int(partition))] = int(offset)
            except ValueError:
                form = "TOPIC,PARTITION,OFFSET or " if len(groups) == 1 else ""
                raise BarnabasError(
                    f"{path} line {number}: {form}GROUP,TOPIC,PARTITION,OFFSET is expected, not {','.join(row)!r}"
                ) from None
    return found


def _show(found: Mapping[str, Offsets], wanted: GroupsRequest) -> None:
    rows = [(group, *each, offset) for group, offsets in found.items() for each, offset in offsets.items()]
    if wanted.as_json:
        names = ("group", "topic", "partition", "newOffset")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    elif "--export" in wanted.given:
        # For `--from-file`, which must find the names as they are; only at a terminal do people look at it.
        cells = [[shown(each) for each in row] for row in rows] if is_watched() else rows
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows(row[1:] if len(wanted.groups) == 1 else row for row in cells)
    elif found:
        columns = [Column("GROUP", grows=True), Column("TOPIC", grows=True), Column("PARTITION", 10)]
        show([*columns, Column("NEW-OFFSET", 0)], rows)
