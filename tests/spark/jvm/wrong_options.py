"""Option sets that must be refused: by the JVM connector, so by ours; and what ours has to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Wrong:
    """Options (over topic `{a}` with three partitions, unless they say otherwise) and the option that is to blame."""

    blamed: str
    options: Mapping[str, str]
    is_streaming: bool = False
    left_out: str | None = None

    def complete(self) -> dict[str, str]:
        chosen = {"subscribe", "subscribepattern", "assign"} & {name.lower() for name in self.options}
        return ({} if chosen else {"subscribe": "{a}"}) | dict(self.options)


def _alone(name: str, *values: str) -> dict[str, Wrong]:
    return {f"{name} = {value!r}": Wrong(name, {name: value}) for value in values}


def _streaming(name: str, *values: str) -> dict[str, Wrong]:
    return {f"stream: {name} = {value!r}": Wrong(name, {name: value}, is_streaming=True) for value in values}


WRONG: Final[Mapping[str, Wrong]] = {
    **_alone("subscribe", " , "),
    **_alone("subscribePattern", " ", "("),
    **_alone("assign", "t", '{{"t":0}}'),
    "no broker": Wrong("kafka.bootstrap.servers", {}, left_out="kafka.bootstrap.servers"),
    "no topic": Wrong("subscribe", {}, left_out="subscribe"),
    "topics and partitions": Wrong("assign", {"subscribe": "{a}", "assign": '{{"{a}":[0]}}'}),
    "an address without port": Wrong("bootstrap.servers", {"kafka.bootstrap.servers": "nonsense"}),
    **_alone("startingOffsets", "latest", "soon", '{{"{a}":{{"0":-1,"1":0,"2":0}}}}'),
    **_alone("endingOffsets", "earliest", "later", '{{"{a}":{{"0":-2,"1":0,"2":0}}}}'),
    **_alone("startingTimestamp", "x"),
    **_alone("endingTimestamp", "x"),
    **_alone("startingOffsetsByTimestamp", "nonsense"),
    **_alone("endingOffsetsByTimestamp", "nonsense"),
    **_alone("minPartitions", "0", "many"),
    **_alone("maxRecordsPerPartition", "0"),
    **_alone("failOnDataLoss", "perhaps"),
    **_alone("includeHeaders", "perhaps"),
    **_alone("kafkaConsumer.pollTimeoutMs", "x"),
    **_alone("fetchOffset.numRetries", "x"),
    **_alone("kafka.auto.offset.reset", "earliest"),
    **_alone("kafka.key.deserializer", "x"),
    **_alone("kafka.value.deserializer", "x"),
    **_alone("kafka.enable.auto.commit", "true"),
    **_alone("kafka.interceptor.classes", "x"),
    **_alone("kafka.isolation.level", "read_all"),
    "an odd strategy": Wrong(
        "startingOffsetsByTimestampStrategy",
        {"startingTimestamp": "99999999999999", "startingOffsetsByTimestampStrategy": "never"},
    ),
    "no record so late": Wrong("startingOffsetsByTimestampStrategy", {"startingTimestamp": "99999999999999"}),
    "the end before the start": Wrong(
        "startingOffsets",
        {
            "startingOffsets": '{{"{a}":{{"0":3,"1":0,"2":0}}}}',
            "endingOffsets": '{{"{a}":{{"0":1,"1":0,"2":0}}}}',
        },
    ),
    "the times of some partitions": Wrong(
        "startingOffsetsByTimestamp", {"startingOffsetsByTimestamp": '{{"{a}":{{"0":1}}}}'}
    ),
    "the end times of some partitions": Wrong(
        "endingOffsetsByTimestamp", {"endingOffsetsByTimestamp": '{{"{a}":{{"0":1}}}}'}
    ),
    "the starts of some partitions": Wrong("startingOffsets", {"startingOffsets": '{{"{a}":{{"0":5}}}}'}),
    "the ends of some partitions": Wrong("endingOffsets", {"endingOffsets": '{{"{a}":{{"0":2}}}}'}),
    "a start beyond the end": Wrong("startingOffsets", {"startingOffsets": '{{"{a}":{{"0":5000,"1":0,"2":0}}}}'}),
    **_streaming("endingOffsets", "latest"),
    **_streaming("endingOffsetsByTimestamp", '{{"{a}":{{"0":1}}}}'),
    **_streaming("maxOffsetsPerTrigger", "x"),
    **_streaming("startingOffsets", "soon"),
    "stream: the starts of some partitions": Wrong(
        # Here the JVM connector has no condition, and ours has that of batches.
        "[KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED]",
        {"startingOffsets": '{{"{a}":{{"0":5}}}}'},
        is_streaming=True,
    ),
    "stream: no record so late": Wrong(
        "startingOffsetsByTimestampStrategy", {"startingTimestamp": "99999999999999"}, is_streaming=True
    ),
    "stream: more at least than at most": Wrong(
        "minOffsetsPerTrigger", {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "2"}, is_streaming=True
    ),
    "stream: a delay that is none": Wrong(
        "maxTriggerDelay", {"maxTriggerDelay": "soon", "minOffsetsPerTrigger": "5"}, is_streaming=True
    ),
}
