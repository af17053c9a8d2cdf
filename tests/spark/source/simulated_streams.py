"""Streams from a seed: topics that grow, expire, gain partitions, are deleted and created again, and a query over them
whose driver may die at any moment. The reader is the real one, down to its admin client; brokers, tasks and Spark's log
of batches are played here.

A row is one offset of one partition of one topic; a topic that is created again is another one of the same name. When
the world stands still, and the query has read on until nothing more comes, this must hold:

1. No row was taken twice, and none from before the place where the first batch began, whatever `startingOffsets` says
   when a driver starts later.
2. With failOnDataLoss, every row that ever was behind that place was taken, or the query failed and told of a loss.
   Without it, every row that is there now was taken, except those that a task waited for in vain and warned about: its
   range may have been planned by the ends of an older topic.
3. Excused from 2: a run of the query knows a topic by its first look at it. If the log of batches tells of an older one
   of that name, rows of the new one before the logged positions may be missing, and what was not read of the old. The
   log tells of the topics as they were when the last batch was planned, whether or not the driver looked at them then.
   And a run that saw both, and then failed with a word of its own, excuses nothing, unless that was of a loss, or of a
   topic that is not there.
4. A loss is told only if rows have expired or a topic was deleted; without failOnDataLoss no query fails of it.
5. A batch takes no more than `maxOffsetsPerTrigger`, beside one row of each partition whose share is less than one;
   not checked once a topic was deleted, because of 3.
6. In a world that stands still, a driver comes to its end within a bounded number of batches, and needs no other one to
   take the rest; unless it is to wait for more.

The full form is `python -m tests.spark.source.simulated_streams --stories 20000`.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final
from unittest.mock import patch

import click

import barnabas
from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.client.admin.offsets import ListedOffset, OffsetSpec
from barnabas.client.admin.topic_descriptions import TopicDescription, TopicPartitionInfo
from barnabas.client.errors import KeyedError
from barnabas.spark.core.errors import DataLossError, SparkConnectorError, could_not_read_offset_range
from barnabas.spark.core.positions import SparkOffset, from_offset
from barnabas.spark.reading import RangePartition
from tests.spark.source.support import next_batch, stored, stream_reader

#: Strict is with failOnDataLoss. A run with `availableNow` ends with what was there when it began.
VARIANTS: Final = ("lenient", "strict", "lenient, available now", "strict, available now")
#: Far more than a story needs to come to its end.
_MOST_BATCHES: Final = 500
_UNKNOWN: Final = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class DriverDies(Exception):  # noqa: N818
    """What is not in the checkpoint is forgotten."""


@dataclass(eq=False, slots=True)
class Topic:
    """One topic for as long as it lives, by its number among all that ever were."""

    name: str
    number: int
    ends: list[int]
    #: What is before has expired.
    firsts: list[int]

    @property
    def topic_id(self) -> Uuid:
        return Uuid((Uuid.RESERVED_COUNT + self.number).to_bytes(16, "big"))

    def __str__(self) -> str:
        return f"{self.name}#{self.number}"


#: A topic, one of its partitions, and an offset.
Row = tuple[Topic, int, int]


@dataclass(slots=True)
class World:
    """The topics, and chance."""

    chance: Random
    names: tuple[str, ...]
    #: How much of what happens takes something away.
    harm: float
    topics: dict[str, Topic] = field(default_factory=dict)
    ever: list[Topic] = field(default_factory=list)
    has_lost: bool = False
    has_deleted: bool = False

    def create(self, name: str, ends: list[int]) -> Topic:
        self.topics[name] = Topic(name, len(self.ever), ends, [0] * len(ends))
        self.ever.append(self.topics[name])
        return self.topics[name]

    def create_any(self, name: str) -> Topic:
        before = [each.ends for each in self.ever if each.name == name]
        if before and self.chance.random() < 0.5:
            # One that looks like the one before, or like a part of it, is the hardest to tell from it.
            return self.create(name, before[-1][: self.chance.randint(1, len(before[-1]))])
        return self.create(name, [self.chance.randint(0, 5) for _ in range(self.chance.randint(1, 3))])

    def change(self) -> str:
        """One of the things that happen to topics, in words."""
        name, chance = self.chance.choice(self.names), self.chance
        topic = self.topics.get(name)
        if topic is None:
            return f"{self.create_any(name)} is created"
        partition = chance.randrange(len(topic.ends))
        if chance.random() < self.harm:
            self.has_lost = True
            if chance.random() < 0.3:
                topic.firsts[partition] = chance.randint(topic.firsts[partition], topic.ends[partition])
                return f"{topic}-{partition} expires up to {topic.firsts[partition]}"
            self.has_deleted = True
            del self.topics[name]
            return f"{topic} is deleted" + (f", {self.create_any(name)} is created" if chance.random() < 0.7 else "")
        if chance.random() < 0.2 and len(topic.ends) < 4:
            topic.ends.append(chance.randint(0, 5))
            topic.firsts.append(0)
            return f"{topic} gets partition {len(topic.ends) - 1} with {topic.ends[-1]} rows"
        topic.ends[partition] += chance.randint(1, 5)
        return f"{topic}-{partition} grows to {topic.ends[partition]}"


class Brokers:
    """What one run of the query has for an admin client. Before each answer there is a moment for things to happen."""

    def __init__(self, world: World, moment: Callable[[], None]) -> None:
        self._world = world
        self._moment = moment
        self.looks: list[dict[str, Topic]] = []

    def describe_topics(self, names: tuple[str, ...]) -> dict[str, TopicDescription]:
        self._moment()
        there = {name: self._world.topics[name] for name in names if name in self._world.topics}
        self.looks.append(there)
        described = {}
        for name, topic in there.items():
            partitions = tuple(TopicPartitionInfo(each, None, 0, (), ()) for each in range(len(topic.ends)))
            described[name] = TopicDescription(name, topic.topic_id, False, partitions)
        missing = {name: _UNKNOWN for name in names if name not in there}
        if missing:
            raise KeyedError(missing, described) if len(names) > 1 else _UNKNOWN
        return described

    def list_offsets(
        self, specs: Mapping[TopicPartition, OffsetSpec], *, isolation_level: str
    ) -> dict[TopicPartition, ListedOffset]:
        self._moment()
        listed = {}
        for each, spec in specs.items():
            topic = self._world.topics.get(each.topic)
            if topic is None or each.partition >= len(topic.ends):
                raise _UNKNOWN
            offsets = topic.ends if spec == OffsetSpec.latest() else topic.firsts
            listed[each] = ListedOffset(offsets[each.partition], -1, 0)
        return listed

    def close(self) -> None:
        """Nothing is open."""


class Story:
    """A query with its checkpoint and its sink, in a world."""

    def __init__(self, seed: int, variant: str) -> None:
        self.chance = chance = Random(f"{variant} {seed}")
        self.is_strict, self.is_available_now = "strict" in variant, "available now" in variant
        # A strict query goes no further than the first loss.
        harm = chance.choice((0, 0.02, 0.1) if self.is_strict else (0, 0.15, 0.4, 0.7))
        self.world = World(chance, chance.choice((("a",), ("a", "b"))), harm)
        #: How likely the driver dies in a moment: one that lives for long must notice more.
        self.mortality = chance.choice((0, 0.02, 0.06))
        self.is_still = False
        self.trace: list[str] = []
        self.say = self.trace.append
        self.most = chance.choice((None, 1, 3, 7))
        self.limits: dict[str, object] = {} if self.most is None else {"maxOffsetsPerTrigger": self.most}
        if chance.random() < 0.5:
            self.limits |= {"minOffsetsPerTrigger": self.most or 6, "maxTriggerDelay": "1d"}
        # The checkpoint: ends are logged before a batch runs, and how many are done after. The sink takes a batch once.
        self.ends: list[SparkOffset] = []
        self.done = 0
        self.sink: dict[int, list[Row]] = {}
        # For what must hold: the topics that the last logged end tells of; where rows begin to count, by 1 and by 3;
        # topics that do not count; those that a run noticed which failed; rows that a task waited for in vain.
        self.logged: dict[str, Topic] = {}
        self.first: dict[tuple[Topic, int], int] = {}
        self.passed: dict[tuple[Topic, int], int] = {}
        self.forgotten: set[Topic] = set()
        self.noticed: set[Topic] = set()
        self.too_late: set[Row] = set()

    # What happens.

    def play(self) -> None:
        """The story from its beginning to its end, or to a loss that is told."""
        self.create_missing()
        self.start()
        try:
            for _ in range(self.chance.randint(3, 15)):
                self.say(self.world.change())
                if not self.attempt() and self.is_available_now:
                    self.start()
            self.finish()
        except DataLossError as loss:
            self.say(f"the query fails: {loss}")
            assert self.is_strict, "it must not fail of a loss"
            assert self.world.has_lost, "nothing was lost"
        self.check_taken()

    def finish(self) -> None:
        self.is_still = True
        self.say("from here on the world stands still")
        self.create_missing()
        if self.is_available_now or self.limits.pop("minOffsetsPerTrigger", None):
            self.start()
        is_at_end = any(not self.attempt() for _ in range(_MOST_BATCHES))
        assert is_at_end, "the query does not come to its end"
        self.check_nothing_is_missing()

    def attempt(self) -> bool:
        """A trigger, and a new driver if this one died or failed; False if there was nothing new."""
        try:
            return self.trigger()
        except DriverDies:
            self.say("the driver dies")
        except DataLossError:
            raise
        except BarnabasError as error:
            self.say(f"the query fails: {error}")
            if isinstance(error, SparkConnectorError) and error.error_class != _UNKNOWN.code.name:
                looks = self.brokers.looks
                known = {name: topic for look in reversed(looks) for name, topic in look.items()}
                self.noticed |= {topic for look in looks for topic in look.values()} - set(known.values())
        self.start()
        return True

    def moment(self) -> None:
        """Between any two steps: the world goes on, or the driver dies."""
        if self.is_still:
            return
        if self.chance.random() < self.mortality:
            raise DriverDies
        if self.chance.random() < 0.12:
            self.say(f"  meanwhile {self.world.change()}")

    def create_missing(self) -> None:
        for name in self.world.names:
            if name not in self.world.topics:
                self.say(f"{self.world.create_any(name)} is created")

    # What Spark does.

    def start(self) -> None:
        """A new driver. Where it is told to start counts only until a batch is logged."""
        starting = self.chance.choice(("earliest", "latest"))
        self.say(f"a driver starts, startingOffsets={starting}")
        self.brokers = Brokers(self.world, self.moment)
        self.met: set[str] = set()
        self.reader = stream_reader(
            "simulated:1",
            subscribe=",".join(self.world.names),
            startingOffsets=starting,
            failOnDataLoss=self.is_strict,
            fetchOffset__numRetries=1,
            **self.limits,
        )
        if self.is_available_now:
            self.reader.prepareForTriggerAvailableNow()

    def trigger(self) -> bool:
        """Plan a batch, unless one is logged that was not done, and run it; False if there is none."""
        if len(self.ends) == self.done and not self.plan():
            return False
        self.moment()
        self.run()
        return True

    def plan(self) -> bool:
        start = self.ends[-1] if self.ends else stored(self.reader.initialOffset())
        self.moment()
        # It goes by its first look from here on; one that does not look would have to know.
        look, there = len(self.brokers.looks), dict(self.world.topics)
        # Spark runs a first batch in any case.
        end = next_batch(self.reader, start) or (None if self.ends else start)
        self.meet()
        if end is None:
            return False
        if not self.ends:
            self.begin(start)
        # Of a topic that is in the end and not there, positions are those that it had before.
        seen = self.brokers.looks[0] | self.logged | next(iter(self.brokers.looks[look:]), there)
        self.logged = {name: topic for name, topic in seen.items() if name in end}
        self.ends.append(end)
        self.say(f"batch {self.done} is logged: {end}")
        return True

    def run(self) -> None:
        start = self.ends[self.done - 1] if self.done else stored(self.reader.initialOffset())
        end = self.ends[self.done]
        tasks: list[RangePartition] = []
        for _ in range(self.chance.choice((1, 1, 2, 3))):
            self.moment()
            tasks = [each for each in self.reader.partitions(start, end) if isinstance(each, RangePartition)]
            self.meet()
        self.check_size([task.until_offset - task.from_offset for task in tasks])
        rows = [row for task in tasks for row in self.read(task)]
        self.moment()
        self.sink.setdefault(self.done, rows)
        self.say(f"batch {self.done} has {_text(rows)}")
        self.moment()
        self.done += 1
        self.reader.commit(end)

    def read(self, task: RangePartition) -> list[Row]:
        """What a task finds of its range."""
        self.moment()
        topic, place, rows = self.world.topics.get(task.topic), TopicPartition(task.topic, task.partition), list[Row]()
        wanted = range(task.from_offset, task.until_offset)
        if topic is not None and task.topic_id in (None, str(topic.topic_id)) and place.partition < len(topic.ends):
            there = range(topic.firsts[place.partition], topic.ends[place.partition])
            rows = [(topic, place.partition, offset) for offset in wanted if offset in there]
            self.too_late |= {(topic, place.partition, offset) for offset in wanted if offset >= there.stop}
        if self.is_strict and len(rows) < len(wanted):
            raise could_not_read_offset_range(place, task.from_offset, task.until_offset)
        return rows

    # What must hold.

    def begin(self, start: SparkOffset) -> None:
        """From here on rows count."""
        here = self.brokers.looks[0]
        self.first = {(here[each.topic], each.partition): offset for each, offset in from_offset(start).items()}
        self.forgotten = {each for each in self.world.ever if each.number < here[each.name].number}

    def meet(self) -> None:
        """The first look of a run at a topic: see 3."""
        for name, topic in itertools.chain.from_iterable(look.items() for look in self.brokers.looks):
            is_another = self.logged.get(name, topic) is not topic
            if name not in self.met and is_another and topic not in self.noticed:
                self.say(f"  this driver does not know that {topic} was {self.logged[name]} before")
                at = from_offset(self.ends[-1])
                self.passed |= {(topic, each.partition): at[each] for each in at if each.topic == name}
                self.forgotten |= {each for each in self.world.ever[: topic.number] if each.name == name}
            self.met.add(name)

    def check_size(self, sizes: list[int]) -> None:
        if self.most is not None and not self.world.has_deleted:
            assert sum(sizes) <= self.most + sizes.count(1), f"a batch takes {sizes} rows, {self.most} are allowed"

    def check_taken(self) -> None:
        taken = Counter(itertools.chain.from_iterable(self.sink.values()))
        twice = [row for row, count in taken.items() if count > 1]
        assert not twice, f"taken twice: {_text(twice)}"
        early = [row for row in taken if row[2] < self.first.get(row[:2], 0)]
        assert not early, f"taken from before the start: {_text(early)}"

    def check_nothing_is_missing(self) -> None:
        taken = set(itertools.chain.from_iterable(self.sink.values()))
        missing = [row for row in self.expected() if row not in taken]
        assert not missing, f"missing: {_text(missing)}"

    def expected(self) -> Iterator[Row]:
        for topic in self.world.ever:
            if topic in self.forgotten or not (self.is_strict or self.world.topics[topic.name] is topic):
                continue
            for partition, end in enumerate(topic.ends):
                expired = 0 if self.is_strict else topic.firsts[partition]
                begins = (each.get((topic, partition), 0) for each in (self.first, self.passed))
                rows = ((topic, partition, offset) for offset in range(max(expired, *begins), end))
                yield from (row for row in rows if row not in self.too_late)


def _text(rows: Iterable[Row]) -> str:
    return " ".join(f"{topic}-{partition}@{offset}" for topic, partition, offset in rows) or "no rows"


def play(seed: int, variant: str) -> Story:
    """Play a story. What goes wrong is told with the seed and all that happened."""
    story = Story(seed, variant)
    try:
        with patch.object(barnabas, "Admin", lambda client: story.brokers):
            story.play()
    except Exception as error:
        raise AssertionError("\n".join((f"seed {seed}, {variant}: {error!r}", *story.trace))) from error
    return story


@click.command()
@click.option("--stories", default=20_000, show_default=True, help="How many to play, of all variants together.")
@click.option("--first-seed", default=0, show_default=True)
def main(stories: int, first_seed: int) -> None:
    """Play many stories; stops at the first that ends as none must."""
    logging.disable()
    for number in range(stories):
        if number % 100 == 0:
            click.echo(f"\r{number} of {stories} stories", nl=False)
        seed, variant = divmod(number, len(VARIANTS))
        play(first_seed + seed, VARIANTS[variant])
    click.echo(f"\r{stories} of {stories} stories: no row is lost in silence, none is taken twice")


if __name__ == "__main__":
    main()
