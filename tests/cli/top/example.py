"""A cluster in some trouble, as samples: what the screens in the documentation show."""

from __future__ import annotations

from barnabas.base.ids import TopicPartition
from barnabas.cli.top.figures import ApiFigures, NodeFigures
from barnabas.cli.top.history import EndHistory
from barnabas.cli.top.model import BrokerSeen, GroupFacts, Model, PartitionSeen, Sample, model_of

START_MS = 1_795_000_000_000
SECONDS = 2
#: Partitions, and records in a second.
TOPICS = {
    "clicks": (6, 5400),
    "orders": (12, 810),
    "payments": (3, 95),
    "views": (24, 12_040),
    "__consumer_offsets": (9, 12),
}
RECORD_BYTES = 130


def partitions(*, is_troubled: bool) -> dict[TopicPartition, PartitionSeen]:
    found = {}
    for topic, (count, _) in TOPICS.items():
        for number in range(count):
            replicas = tuple((number + step) % 3 + 1 for step in range(3))
            lost = is_troubled and topic in ("orders", "payments") and number % 3 == 1
            isr = tuple(each for each in replicas if each != 3) if lost else replicas
            leader = None if is_troubled and (topic, number) == ("payments", 2) else isr[0]
            found[TopicPartition(topic, number)] = PartitionSeen(leader, replicas, isr)
    return found


def ends(looks: int) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, number): 1_000_000 + looks * SECONDS * rate // count
        for topic, (count, rate) in TOPICS.items()
        for number in range(count)
    }


def committed(looks: int) -> dict[str, dict[TopicPartition, int]]:
    def behind(topic: str, seconds: float) -> dict[TopicPartition, int]:
        count, rate = TOPICS[topic]
        return {
            each: max(0, end - int(seconds * rate / count)) for each, end in ends(looks).items() if each.topic == topic
        }

    return {
        "billing": behind("orders", 0.4) | behind("payments", 0.0),
        "clicks-to-warehouse": behind("clicks", 41.0),
        "fraud": behind("payments", 7200.0),
        "recommendations": behind("views", 3.1),
    }


GROUPS = (
    GroupFacts("billing", "Stable", 3),
    GroupFacts("clicks-to-warehouse", "Stable", 1),
    GroupFacts("fraud", "Empty", 0),
    GroupFacts("recommendations", "PreparingRebalance", 4),
)
BOUNDS = [0.001024 * 2**power for power in range(4, 27)]


def api(count: int, *parts_ms: float) -> ApiFigures:
    """Requests that took so long each: queue, local, remote, throttle, response queue, send."""
    total = sum(parts_ms) - parts_ms[3]
    buckets = [(bound, float(count) if bound >= total else 0.0) for bound in BOUNDS]
    sums = tuple(count * each for each in (*parts_ms, total))
    return ApiFigures(float(count), sums, (*buckets, (float("inf"), float(count))))


def node(number: int, looks: int) -> NodeFigures:
    passed = looks * SECONDS
    return NodeFigures(
        {
            "Produce": api(passed * (210 + number), 3.1, 1.2, 182.0, 0.0, 0.1, 0.3),
            "FetchConsumer": api(passed * 160, 0.4, 0.9, 260.0, 0.0, 0.1, 2.2),
            "FetchFollower": api(passed * 95, 0.3, 0.4, 21.0, 0.0, 0.1, 0.4),
            "Metadata": api(passed * 4, 0.2, 0.8, 0.0, 0.0, 0.1, 0.1),
            "OffsetCommit": api(passed * 9, 2.0, 0.5, 34.0, 0.0, 0.1, 0.1),
        },
        {topic: passed * rate * RECORD_BYTES / 3 for topic, (_, rate) in TOPICS.items()},
        {topic: passed * rate * RECORD_BYTES / 2 for topic, (_, rate) in TOPICS.items()},
        {},
        {1: 0.61, 2: 0.07, 3: 0.72}[number],
        {1: 4.0, 2: 412.0, 3: 3.2}[number],
        {"report-7 as User:reports": passed * 425.0} if number == 1 else {},
        number,
    )


def sample(looks: int, *, with_nodes: bool, is_troubled: bool = True) -> Sample:
    sizes = {number: {topic: 40_000_000 * (index + 1) for index, topic in enumerate(TOPICS)} for number in (1, 2, 3)}
    return Sample(
        START_MS + looks * SECONDS * 1000,
        "4L6g3nShT-eMCtK--X86sw",
        2,
        tuple(BrokerSeen(number, f"kafka-{number}:9092", False) for number in (1, 2, 3)),
        partitions(is_troubled=is_troubled),
        ends(looks),
        GROUPS,
        committed(looks),
        sizes,
        {number: node(number, looks) for number in (1, 2, 3)} if with_nodes else {},
    )


def model(*, with_nodes: bool = True, is_troubled: bool = True, looks: int = 60) -> Model:
    history = EndHistory()
    for number in range(looks + 1):
        for partition, end in ends(number).items():
            history.note(partition, end, START_MS + number * SECONDS * 1000)
    # The oldest that a group has not read was there before anybody looked.
    for partition, offset in committed(looks)["fraud"].items():
        history.note_written(partition, offset, START_MS - 7_000_000)
    before, now = (sample(each, with_nodes=with_nodes, is_troubled=is_troubled) for each in (looks - 1, looks))
    return model_of(now, before, history)
