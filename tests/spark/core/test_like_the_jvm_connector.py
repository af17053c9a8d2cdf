"""What the core decides is what Spark's own Kafka connector decides: hundreds of cases, in one run of its code."""

from __future__ import annotations

import functools
import importlib.util
import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, Final

from barnabas.base.ids import TopicPartition
from barnabas.spark.core.admission import MinOffsetsGate, rate_limit
from barnabas.spark.core.admission_limits import Earliest, LatestOffsets, Limit, Offsets, Timestamp, Timestamps
from barnabas.spark.core.errors import OptionError
from barnabas.spark.core.java_regex import RegexError, compile_java
from barnabas.spark.core.options import SourceOptions
from barnabas.spark.core.positions import Positions, from_offset, to_offset
from barnabas.spark.core.ranges import OffsetRange, split
from barnabas.spark.core.selection import Partitions, Pattern, Topics
from barnabas.spark.core.values import size_bytes, time_ms
from tests.oracles import QUICK_JVM, SOURCES, other_process
from tests.spark.rig.sessions import connector_jars, connector_missing

Case = dict[str, Any]


def spark_jars() -> Path | None:
    pyspark = importlib.util.find_spec("pyspark")
    return Path(pyspark.origin).parent / "jars" if pyspark and pyspark.origin else None


def reason_to_skip() -> str | None:
    if shutil.which("java") is None:
        return "java is not installed"
    if spark_jars() is None:
        return "pyspark is not installed"
    return connector_missing()


pytestmark = other_process(reason_to_skip())


def ask(cases: list[Case]) -> list[Any]:
    """The connector's answers; an error is a string."""
    class_path = ":".join([*map(str, connector_jars()), f"{spark_jars()}/*"])
    done = subprocess.run(
        ["java", *QUICK_JVM, "-cp", class_path, str(SOURCES / "SparkConnector.java")],
        input="".join(json.dumps(case) + "\n" for case in cases),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(cases)
    return [answer["answer"] if "answer" in answer else str(answer["error"]) for answer in answers]


# The cases

TOPICS: Final = ("clicks", "orders", "a.b-c_d")


def parts(text: str) -> list[str]:
    return text.split("|")


def some_partitions(random: Random, most: int = 6) -> list[TopicPartition]:
    everything = [TopicPartition(topic, number) for topic in TOPICS for number in range(4)]
    return sorted(random.sample(everything, random.randint(1, most)))


def some_size(random: Random) -> int:
    """Mostly small, sometimes so large that doubles and longs show their limits."""
    return random.choice([0, 1, 2, 3, 7, 10, 99, 100, 1_000, 12_345, 10**9, 2**52 + 1, 2**60])


def listed(positions: Iterable[tuple[TopicPartition, int]]) -> list[list[Any]]:
    return [[partition.topic, partition.partition, position] for partition, position in positions]


def split_cases(random: Random) -> list[Case]:
    cases = []
    for _ in range(250):
        ranges = []
        for partition in some_partitions(random):
            start = random.choice([0, 5, 10**6])
            # Sizes that allow for many parts are small, or a case would have billions of them.
            size = random.choice([-3, 0, 1, 2, 3, 10, 99, 100, 101, 1000, 5000])
            ranges.append([partition.topic, partition.partition, start, start + size])
        cases.append(
            {
                "what": "split",
                "min": random.choice([None, 1, 2, 3, 5, 7, 10, 64, 100]),
                "max": random.choice([None, None, 1, 3, 10, 50, 99, 1000, 10**12]),
                "ranges": ranges,
            }
        )
    for _ in range(50):
        ranges = [[*partition, 0, some_size(random)] for partition in some_partitions(random)]
        cases.append({"what": "split", "min": random.randint(1, 200), "max": None, "ranges": ranges})
    return cases


def rate_limit_cases(random: Random) -> list[Case]:
    cases = []
    for _ in range(300):
        begin: Positions = {}
        end: Positions = {}
        new: Positions = {}
        for partition in some_partitions(random):
            start = random.choice([0, 1, 17, 10**9, 2**62])
            end[partition] = min(start + some_size(random) - random.choice([0, 0, 0, 5]), 2**63 - 1)
            (begin if random.random() < 0.8 else new)[partition] = start
        limit = random.choice([1, 2, 3, 10, 100, 1000, 10**12, 2**63 - 1])
        cases.append(
            {
                "what": "rate limit",
                "limit": limit,
                "begin": listed(begin.items()),
                "end": listed(end.items()),
                "new": listed(new.items()),
            }
        )
    return cases


def gate_cases(random: Random) -> list[Case]:
    cases = []
    for _ in range(60):
        now_ms, steps = random.choice([0, 5, 10**12]), []
        for _ in range(8):
            now_ms += random.choice([0, 1, 50, 100, 101])
            partitions = some_partitions(random, 3)
            begin = [(partition, random.randint(0, 20)) for partition in partitions if random.random() < 0.8]
            end = [(partition, random.randint(0, 40)) for partition in partitions]
            steps.append([now_ms, listed(begin), listed(end)])
        delay_ms = random.choice([0, 1, 100, 900_000])
        cases.append({"what": "gate", "min": random.choice([0, 1, 10, 30]), "delay": delay_ms, "steps": steps})
    return cases


def offset_cases(random: Random) -> list[Case]:
    cases: list[Case] = []
    for _ in range(40):
        positions = {partition: some_size(random) for partition in some_partitions(random)}
        starts = {partition: random.randint(0, 10**6) for partition in positions}
        cases.append({"what": "write offsets", "positions": listed(positions.items())})
        offsets = to_offset(positions), to_offset(positions, starts), to_offset(positions, {})
        cases += [{"what": "read offsets", "text": json.dumps(offset)} for offset in offsets]
    cases += [
        {"what": "read offsets", "text": f'{{"t": {{"0": 150}}, "@{key} t 0 100": {{}}}}'} for key in ("start", "anew")
    ]
    cases.append({"what": "read offsets", "text": "{}"})
    return cases


TIMES: Final = parts(
    "15m|15M| 15m |100s|100|0|-5s|1.5h|1 h|h||10min|2h|3d|1999us|-1999us|5 ms|5ms|+5ms|5w|5sec|1_000"
    "|9223372036854775807|9223372036854775808|9223372036854775807d"
)
SIZES: Final = parts(
    "64m|64M| 1g |1gb|1gib|1gi|512k|10|10b|1.5g|-1m|1 m|m||1t|2p|9000p|8191p|1e6|+1m|1mbit|9223372036854775807"
    "|9223372036854775808"
)

BASE: Final = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
BROKERS: Final = {"kafka.bootstrap.servers": "h:1"}


def some_values(name: str, texts: str, base: dict[str, str] = BASE) -> list[dict[str, str]]:
    return [{**base, name: text} for text in parts(texts)]


def pairs_of_limits() -> list[dict[str, str]]:
    ends = ({"0": 5}, {"0": 4}, {"1": 7}, {"0": 6, "1": 7}, {"0": -1})
    return [
        {**BASE, f"starting{kind}": json.dumps({"t": start}), f"ending{kind}": json.dumps({"t": end})}
        for kind in ("Offsets", "OffsetsByTimestamp")
        for start in ({"0": 5}, {"0": -2})
        for end in ends
        if kind == "Offsets" or (-1 not in end.values() and -2 not in start.values())
    ]


def option_cases() -> list[Case]:
    offsets = ["0", "5", "-1", "-2", '"5"', "true", "[1]"]
    both = [
        BASE,
        {},
        {"subscribe": "t"},
        BROKERS,
        {"KAFKA.Bootstrap.Servers": "h:1", "SUBSCRIBE": "a, b,,c ,"},
        {**BASE, "assign": '{"t":[0]}'},
        {**BASE, "subscribePattern": "x"},
        {**BASE, "subscribe": " , "},
        *some_values("subscribePattern", " t.* | |(", BROKERS),
        *some_values("assign", '{"t":[0,1]}| {"t":[0]} |{"t":0}|{"t":["x"]}|t|[]', BROKERS),
        *some_values("minPartitions", "1|0|-1|x|2147483648| 1|+3|1.0"),
        *some_values("maxRecordsPerPartition", "1|0|-1|x|9223372036854775808"),
        *some_values("minOffsetsPerTrigger", "4|5|x", {**BASE, "maxOffsetsPerTrigger": "4"}),
        *({**BASE, f"kafka.{name}": "x"} for name in ("auto.offset.reset", "key.deserializer", "value.deserializer")),
        *({**BASE, f"kafka.{name}": "x"} for name in ("enable.auto.commit", "interceptor.classes", "key.serializer")),
        {**BASE, "kafka.group.id": "g", "groupIdPrefix": "p"},
        {**BASE, "KAFKA.Auto.Offset.Reset": "latest"},
        *some_values("startingOffsets", 'earliest| EARLIEST |latest|Latest|x||{|{}|[]|{"t": 5}|{"t": {"x": 5}}'),
        *({**BASE, "startingOffsets": f'{{"t": {{"0": {offset}}}}}'} for offset in offsets),
        *({**BASE, "endingOffsets": f'{{"t": {{"0": {offset}}}}}'} for offset in offsets),
        *some_values("startingTimestamp", "0| 1700000000000 |x||1.5"),
        {**BASE, "startingTimestamp": "5", "startingOffsets": "latest"},
        {**BASE, "startingTimestamp": "5", "startingOffsetsByTimestamp": "x"},
        {**BASE, "startingOffsetsByTimestamp": ' {"t": {"0": 7}} ', "startingOffsets": "x"},
        {**BASE, "startingOffsetsByTimestamp": "earliest"},
        *some_values("startingOffsetsByTimestampStrategy", "error|LATEST|earliest|| error"),
        {**BASE, "startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "Latest"},
        *some_values("endingOffsets", "earliest|latest| LATEST |x"),
        {**BASE, "endingTimestamp": "5", "endingOffsets": "earliest"},
        *some_values("endingOffsetsByTimestamp", '{"t": {"0": 7}}|x'),
        *pairs_of_limits(),
    ]
    return [{"what": "options", "options": one, "streaming": streaming} for one in both for streaming in (True, False)]


NAMES: Final = parts(
    "clicks|clicks-1|Clicks|orders|orders.eu|orders_eu|a|b|ab|abc|aab|abab|ba|x-y|0|7|42|a1|A1|aB|-|.|_|a.b"
    "|a-b|a_b|zz|aaa|CLICKS-99|clicks-1-clicks-1"
)
REGEXES: Final = tuple(Path(__file__).with_name("java_regexes.txt").read_text(encoding="utf-8").splitlines())


def some_regex(random: Random) -> str:
    """Something that is mostly a regular expression: atoms, some repeated, in groups and beside each other."""
    atoms = [
        "a",
        "b",
        "A",
        ".",
        r"\d",
        r"\W",
        "[a-c]",
        "[^b]",
        "[a-z&&[^a]]",
        r"\p{Upper}",
        r"\Q.-\E",
        "^",
        "$",
        r"\1",
        "(?i)",
    ]
    parts = []
    for _ in range(random.randint(1, 4)):
        part = random.choice(atoms)
        if random.random() < 0.3:
            opening = random.choice(["(", "(?:", "(?i:", "(?=", "(?!", "(?>", "(?-i:", "(?<n>"])
            part = f"{opening}{part}{random.choice(['', '|', 'b'])}{random.choice(atoms)})"
        if random.random() < 0.4:
            part += random.choice(["*", "+", "?", "{2}", "{1,}", "*?", "++", "?+", "**"])
        parts.append(part)
    return random.choice(["", "|"]).join(parts)


@functools.cache
def answers() -> list[tuple[Case, Any]]:
    random = Random(6)
    cases = [
        *split_cases(random),
        *rate_limit_cases(random),
        *gate_cases(random),
        *offset_cases(random),
        *({"what": "time", "text": text} for text in TIMES),
        *({"what": "size", "text": text} for text in SIZES),
        *option_cases(),
        *({"what": "regex", "regex": regex, "names": NAMES} for regex in REGEXES),
        *({"what": "regex", "regex": some_regex(random), "names": NAMES} for _ in range(300)),
    ]
    return list(zip(cases, ask(cases), strict=True))


def answered(what: str) -> list[tuple[Case, Any]]:
    found = [(case, answer) for case, answer in answers() if case["what"] == what]
    assert found
    return found


def positions(rows: Iterable[list[Any]]) -> Positions:
    return {TopicPartition(topic, partition): position for topic, partition, position in rows}


# The comparisons


def test_ranges_are_split_alike() -> None:
    for case, answer in answered("split"):
        ranges = [OffsetRange(TopicPartition(topic, number), *bounds) for topic, number, *bounds in case["ranges"]]
        parts = split(ranges, min_partitions=case["min"], max_records_per_partition=case["max"])
        assert [[*part.topic_partition, part.from_offset, part.until_offset] for part in parts] == answer, case


def test_rates_are_limited_alike() -> None:
    for case, answer in answered("rate limit"):
        end = rate_limit(case["limit"], positions(case["begin"]), positions(case["end"]), positions(case["new"]))
        assert end == positions(answer), case


def test_batches_are_held_back_alike() -> None:
    for case, answer in answered("gate"):
        gate = MinOffsetsGate(case["min"], case["delay"])
        passed = [gate.may_run(now_ms, positions(begin), positions(end)) for now_ms, begin, end in case["steps"]]
        assert passed == answer, case


def test_offsets_are_written_as_the_same_json() -> None:
    for case, answer in answered("write offsets"):
        assert to_offset(positions(case["positions"])) == json.loads(answer)
        assert from_offset(json.loads(answer)) == positions(case["positions"])


def test_the_connector_reads_our_offsets_and_passes_over_the_starts_in_them() -> None:
    for case, answer in answered("read offsets"):
        assert from_offset(json.loads(case["text"])) == positions(answer), case
    assert [answer for case, answer in answered("read offsets") if " t 0 100" in case["text"]] == [[["t", 0, 150]]] * 2


def test_times_and_sizes_are_read_alike() -> None:
    for case, answer in answered("time"):
        assert result(time_ms, "maxTriggerDelay", case["text"]) == (None if isinstance(answer, str) else answer), case
    for case, answer in answered("size"):
        assert result(size_bytes, "maxBytesPerTrigger", case["text"]) == (
            None if isinstance(answer, str) else answer
        ), case


def result(reader: Any, *arguments: Any, **keywords: Any) -> Any:
    try:
        return reader(*arguments, **keywords)
    except OptionError:
        return None


def test_options_are_taken_and_refused_alike() -> None:
    for case, answer in answered("options"):
        ours = result(SourceOptions.parse, case["options"], is_streaming=case["streaming"])
        assert (ours is None) == isinstance(answer, str), (case, answer)
        if ours is not None:
            assert shown_selection(ours) == answer["reads"], case
            assert in_limit(ours.starting, answer["start"]), (case, answer)
            assert case["streaming"] or in_limit(ours.ending, answer["end"]), (case, answer)


def shown_selection(options: SourceOptions) -> str:
    match options.selection:
        case Topics(topics):
            return f"Subscribe[{', '.join(topics)}]"
        case Pattern(regex):
            return f"SubscribePattern[{regex}]"
        case Partitions(partitions):
            return f"Assign[{', '.join(map(str, sorted(partitions)))}]"


def in_limit(limit: Limit, text: str) -> bool:
    """Whether a limit is what Scala shows of the connector's; with no option at all that is null."""
    match limit:
        case Earliest():
            return text in ("EarliestOffsetRangeLimit", "null")
        case LatestOffsets():
            return text in ("LatestOffsetRangeLimit", "null")
        case Offsets(offsets):
            return text == f"SpecificOffsetRangeLimit({scala_map(offsets)})"
        case Timestamps(timestamps_ms, _):
            return text.startswith(f"SpecificTimestampRangeLimit({scala_map(timestamps_ms)},")
        case Timestamp(timestamp_ms, _):
            return text.startswith(f"GlobalTimestampRangeLimit({timestamp_ms},")


def scala_map(numbers: Any) -> str:
    return f"Map({', '.join(f'{partition} -> {number}' for partition, number in numbers.items())})"


#: Java's regular expressions that we refuse, in words, since they mean nothing or Python has nothing like it.
UNTRANSLATED: Final = frozenset({"{2}", "[&&a]", "[a&&]", "(?<=a|bb)c"})


def test_topics_are_found_by_java_regexes_alike() -> None:
    refused = 0
    for case, answer in answered("regex"):
        regex = case["regex"]
        try:
            compiled = compile_java(regex)
        except RegexError:
            refused += not isinstance(answer, str)
            assert isinstance(answer, str) or regex not in REGEXES or regex in UNTRANSLATED, (regex, answer)
            continue
        assert not isinstance(answer, str), (regex, compiled.pattern, answer)
        found = [compiled.search(name) is not None for name in case["names"]]
        wrong = [name for name, one, other in zip(case["names"], found, answer, strict=True) if one != other]
        assert not wrong, (regex, compiled.pattern, wrong)
    assert refused < 20
