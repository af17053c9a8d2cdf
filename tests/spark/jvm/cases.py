"""Option sets over three topics, by what they are about. `{a}`, `{b}` and `{c}` stand for the topics' names.

a has three partitions, the last one empty; b has one, whose front was deleted; c stamps records itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas import Admin, NewTopic, TopicPartition
from tests.spark.rig.contents import FIRST_MS, STEP_MS, fill

#: Records per partition.
SIZES_OF_A: Final = (41, 25, 0)
SIZE_OF_B: Final = 12
SIZE_OF_C: Final = 4
DELETED_FROM_B: Final = 5

_AT_10: Final = str(FIRST_MS + 10 * STEP_MS)
_BEFORE_11: Final = str(FIRST_MS + 10 * STEP_MS + 1)
_AT_20: Final = str(FIRST_MS + 20 * STEP_MS)
_NEVER: Final = str(FIRST_MS + 10_000 * STEP_MS)

READS: Final[Mapping[str, Mapping[str, str]]] = {
    "one topic": {"subscribe": "{a}"},
    "two topics, untidy": {"subscribe": " {a} , {b} ,"},
    "the broker's timestamps": {"subscribe": "{c}"},
    "a pattern": {"subscribePattern": "{a}|{b}.*"},
    "a pattern that no topic fits": {"subscribePattern": "{a}."},
    "partitions": {"assign": '{{"{a}":[1],"{b}":[0]}}'},
    "a partition that is not there": {"assign": '{{"{a}":[1,9]}}'},
    "headers": {"subscribe": "{a}", "includeHeaders": "true"},
    "names in any case": {"SUBSCRIBE": "{a}", "IncludeHEADERS": "TRUE", "startingoffsets": "EARLIEST"},
    "offsets": {
        "subscribe": "{a}",
        "startingOffsets": '{{"{a}":{{"0":10,"1":-2,"2":0}}}}',
        "endingOffsets": '{{"{a}":{{"0":20,"1":-1,"2":0}}}}',
    },
    "from the deleted front on": {"subscribe": "{b}", "startingOffsets": '{{"{b}":{{"0":-2}}}}'},
    "nothing": {"subscribe": "{b}", "startingOffsets": '{{"{b}":{{"0":12}}}}'},
    "a time": {"subscribe": "{b}", "startingTimestamp": _AT_10},
    "between two times": {"subscribe": "{b}", "startingTimestamp": _BEFORE_11, "endingTimestamp": _AT_20},
    "until a time, which beats offsets": {
        "subscribe": "{b}",
        "endingTimestamp": _AT_10,
        "endingOffsets": '{{"{b}":{{"0":6}}}}',
    },
    "times of partitions": {
        "subscribe": "{a}",
        "startingOffsetsByTimestamp": f'{{{{"{{a}}":{{{{"0":{_AT_10},"1":{_BEFORE_11},"2":0}}}}}}}}',
        "startingOffsetsByTimestampStrategy": "latest",
        "startingOffsets": '{{"{a}":{{"0":3,"1":3,"2":0}}}}',
    },
    "end times of partitions": {
        "subscribe": "{a}",
        "endingOffsetsByTimestamp": f'{{{{"{{a}}":{{{{"0":{_AT_10},"1":{_NEVER},"2":0}}}}}}}}',
    },
    "a time that no record has": {
        "subscribe": "{a}",
        "startingTimestamp": _NEVER,
        "startingOffsetsByTimestampStrategy": "LATEST",
    },
    "more tasks than partitions": {"subscribe": "{a},{b}", "minPartitions": "8"},
    "fewer tasks than partitions": {"subscribe": "{a},{b}", "minPartitions": "2"},
    # With earliest or latest, the JVM connector passes over a maximum that stands alone, against its guide.
    "small tasks": {
        "subscribe": "{a}",
        "maxRecordsPerPartition": "7",
        "startingOffsets": '{{"{a}":{{"0":1,"1":0,"2":0}}}}',
        "endingOffsets": '{{"{a}":{{"0":41,"1":25,"2":0}}}}',
    },
    "small tasks, and many": {"subscribe": "{a}", "maxRecordsPerPartition": "20", "minPartitions": "5"},
    "committed records": {"subscribe": "{a}", "kafka.isolation.level": "read_committed"},
    "an odd option": {"subscribe": "{b}", "kafka.no.such.setting": "1", "nonsense": "2"},
    "trigger limits are for streams": {"subscribe": "{b}", "maxOffsetsPerTrigger": "2"},
}


class Topics:
    """The three topics, written to a broker once; names start with `prefix`."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.bootstrap = bootstrap
        self.names = {each: f"{prefix}-{each}" for each in "abc"}
        kept = {"retention.ms": -1}
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics(
                [
                    NewTopic(self.names["a"], num_partitions=len(SIZES_OF_A), configs=kept),
                    NewTopic(self.names["b"], num_partitions=1, configs=kept),
                    NewTopic(self.names["c"], num_partitions=1, configs={"message.timestamp.type": "LogAppendTime"}),
                ]
            )
            fill(bootstrap, self.names["a"], SIZES_OF_A)
            fill(bootstrap, self.names["b"], [SIZE_OF_B])
            fill(bootstrap, self.names["c"], [SIZE_OF_C])
            admin.delete_records({TopicPartition(self.names["b"], 0): DELETED_FROM_B})

    def options(self, case: Mapping[str, str]) -> dict[str, str]:
        """A case's options with the topics' names, and the broker's address unless the case has its own."""
        return {"kafka.bootstrap.servers": self.bootstrap} | {
            name: text.format(**self.names) for name, text in case.items()
        }
