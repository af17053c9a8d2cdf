"""What becomes of a partition, decided by Kafka's own PartitionChangeBuilder and by ours."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable

from barnabas.base.ids import Uuid
from barnabas.metadata.features import record_version
from barnabas.metadata.image import PartitionImage, PlacedPartition, TopicImage
from barnabas.metadata.partition_changes import Election, PartitionChangeBuilder, PartitionRules
from barnabas.metadata.topics_delta import changed_partition
from barnabas.wire.stored.cluster_metadata import PartitionChangeRecord
from tests.oracles import needs_kafka, run_java

PARTITIONS = 4000
STEPS = 6


def directory(number: int) -> Uuid:
    return Uuid((1).to_bytes(8, "big") + number.to_bytes(8, "big"))


def number_of(directory_id: Uuid) -> int:
    return int.from_bytes(bytes(directory_id)[8:], "big")


def some(chance: random.Random, of: Collection[int]) -> list[int]:
    return [each for each in of if chance.random() < 0.6]


class Story:
    """A partition that goes through random events; a script for Kafka, and what we make of the same."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.metadata_version = chance.choice((11, 16, 19, 25, 25, 25))
        self.is_elr_enabled = self.metadata_version >= 23 and chance.random() < 0.7
        brokers = chance.sample(range(1, 7), chance.randint(1, 5))
        isr = some(chance, brokers) or brokers[:1]
        reassigns = chance.random() < 0.2
        self.partition = PartitionImage(
            replicas=tuple(brokers),
            isr=tuple(isr),
            leader=chance.choice((*isr, -1)),
            leader_epoch=4,
            partition_epoch=9,
            leader_recovery_state=chance.choice((0, 0, 0, 1)),
            removing_replicas=tuple(brokers[:1]) if reassigns and chance.random() < 0.5 else (),
            adding_replicas=tuple(brokers[1:2]) if reassigns else (),
            directories=tuple(directory(100 + each) for each in brokers),
        )
        self.lines: list[tuple[str, str]] = []

    def step(self) -> PartitionChangeRecord | None:
        chance, partition = self.chance, self.partition
        replicas = partition.replicas
        may_lead = some(chance, replicas)
        rules = PartitionRules(
            self.metadata_version,
            self.is_elr_enabled,
            chance.randint(1, len(replicas)),
            chance.choice(list(Election)),
        )
        placed = PlacedPartition(TopicImage("t", Uuid(bytes(15) + b"\x01"), (partition,)), 0, partition)
        builder = PartitionChangeBuilder(placed, lambda broker_id: broker_id in may_lead, rules)
        unclean = some(chance, replicas)[:1] if chance.random() < 0.3 else []
        if unclean:
            builder.isr = [each for each in partition.isr if each not in unclean]
        elif chance.random() < 0.7:
            builder.isr = some(chance, replicas)
        builder.unclean_shutdown_replicas = unclean
        if chance.random() < 0.1:
            builder.leader_recovery_state = 0
        moved = [chance.choice(replicas), chance.randint(200, 203)] if chance.random() < 0.2 else []
        if moved:
            builder.directories = {moved[0]: directory(moved[1])}
        asked = self._asked(rules, may_lead, builder, unclean, moved)
        record = builder.build()
        self.lines.append((asked, shown(record, self.metadata_version)))
        if record is not None:
            self.partition = changed_partition(partition, record)
        return record

    def _asked(
        self,
        rules: PartitionRules,
        may_lead: list[int],
        builder: PartitionChangeBuilder,
        unclean: list[int],
        moved: list[int],
    ) -> str:
        partition = self.partition
        words = (
            *map(
                listed,
                (
                    partition.replicas,
                    partition.isr,
                    partition.removing_replicas,
                    partition.adding_replicas,
                    partition.eligible_leader_replicas,
                    partition.last_known_elr,
                ),
            ),
            partition.leader,
            partition.leader_recovery_state,
            listed(map(number_of, partition.directories)),
            listed(may_lead),
            rules.metadata_version,
            rules.min_isr,
            int(rules.is_elr_enabled),
            rules.election.name,
            listed(builder.isr),
            builder.leader_recovery_state,
            listed(unclean),
            listed(moved),
        )
        return " ".join(map(str, words))


def listed(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers)) or "-"


def shown(record: PartitionChangeRecord | None, metadata_version: int) -> str:
    if record is None:
        return "nothing"
    directories = None if record.directories is None else [number_of(each) for each in record.directories]
    words = [
        str(record_version(record, metadata_version)),
        told("isr", record.isr),
        f"leader={record.leader}",
        told("elr", record.eligible_leader_replicas),
        told("known", record.last_known_elr),
        told("replicas", record.replicas),
        told("removing", record.removing_replicas),
        told("adding", record.adding_replicas),
        f"recovery={record.leader_recovery_state}",
        told("directories", directories),
    ]
    return " ".join(word for word in words if word)


def told(name: str, numbers: list[int] | None) -> str:
    return "" if numbers is None else f"{name}={','.join(map(str, numbers))}"


@needs_kafka()
def test_kafka_decides_the_same() -> None:
    expected: list[tuple[str, str]] = []
    met: Counter[str] = Counter()
    for seed in range(PARTITIONS):
        story = Story(seed)
        for _ in range(STEPS):
            record = story.step()
            met["nothing"] += record is None
            if record is not None:
                met["leader"] += record.leader >= 0
                met["no leader"] += record.leader == -1
                met["unclean"] += record.leader_recovery_state == 1
                met["elr"] += bool(record.eligible_leader_replicas)
                met["empty isr"] += record.isr == []
                met["last known leader"] += bool(record.last_known_elr)
                met["last known leader forgotten"] += record.last_known_elr == []
                met["reassigned"] += record.adding_replicas == []
        expected += story.lines
    theirs = run_java("PartitionChanges.java", "\n".join(command for command, _ in expected)).splitlines()
    for number, ((command, ours), their) in enumerate(zip(expected, theirs, strict=True)):
        assert ours == their, f"line {number}: {command}"
    # The test is worth something only if each kind of answer came often.
    assert min(met.values()) > 100, met
