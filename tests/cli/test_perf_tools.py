"""`producer-perf-test` and `consumer-perf-test`: they do what was asked for, and their numbers are right."""

from __future__ import annotations

import json
import os
import pty
import random
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas import Consumer
from barnabas.cli.java_dates import java_date_format
from barnabas.cli.producer_perf_test import Latencies, random_payloads
from barnabas.cli.throughput import ThroughputThrottler
from barnabas.testing import EmbeddedBroker
from tests.cli.processes import TIMEOUT_S, command
from tests.cli.tools import Told, Tools

#: The forms of Kafka's lines.
TOTAL = re.compile(
    r"(\d+)( steady state)? records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, "
    r"([\d.]+) ms max latency, (\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99.9th\."
)
WINDOW = re.compile(
    r"\d+ records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, [\d.]+ ms max latency\."
)
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
READ = re.compile(rf"{TIME}, {TIME}, ([\d.]+), ([\d.]+), (\d+), ([\d.]+), (\d+), (\d+), ([\d.]+), ([\d.]+)")
DETAIL = re.compile(rf"{TIME}, 0, ([\d.]+), ([\d.]+), (\d+), ([\d.]+), (\d+), (\d+), ([\d.]+), ([\d.]+)")


@pytest.fixture(scope="module")
def node() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def produce(barnabas: Tools, node: EmbeddedBroker, topic: str, *options: str) -> Told:
    return barnabas(
        "producer-perf-test", "--bootstrap-server", node.bootstrap_servers, "--topic", topic, "--throughput", *options
    )


def values(node: EmbeddedBroker, topic: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    with Consumer(topic, bootstrap_servers=node.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        while len(found) < count:
            found += [record.value for record in consumer.poll(10)]
    return found


def test_as_fast_as_possible(barnabas: Tools, node: EmbeddedBroker) -> None:
    told = produce(barnabas, node, "fast", "-1", "--num-records", "60007", "--record-size", "100")
    assert (told.code, told.err) == (0, "")
    matched = TOTAL.fullmatch(told.out.strip())
    assert matched is not None, told.out
    assert matched[1] == "60007"
    sent = values(node, "fast", 60_007)
    assert len(sent) == 60_007
    assert {len(value) for value in sent} == {100}
    assert len(set(sent)) > 40_000


def test_at_a_given_pace_and_in_phases(barnabas: Tools, node: EmbeddedBroker) -> None:
    options = ("--num-records", "1000", "--record-size", "10", "--warmup-records", "400", "--reporting-interval", "200")
    start = time.monotonic()
    told = produce(barnabas, node, "slow", "1000", *options)
    elapsed = time.monotonic() - start
    lines = told.out.splitlines()
    assert lines[0].startswith("Warmup first 400 records.")
    assert "In steady state." in lines
    assert any(WINDOW.fullmatch(line) for line in lines)
    everything, steady = (TOTAL.fullmatch(line) for line in lines[-2:])
    assert everything is not None
    assert steady is not None
    assert (everything[1], everything[2], steady[1], steady[2]) == ("1000", None, "600", " steady state")
    assert float(everything[3]) <= 1001
    assert elapsed >= 0.99


def test_results_for_programs(barnabas: Tools, node: EmbeddedBroker) -> None:
    options = ("--num-records", "300", "--record-size", "10", "--warmup-records", "100", "--json")
    told = json.loads(produce(barnabas, node, "counted", "-1", *options).out)
    assert (told["records"], told["failed"], told["steadyState"]["records"]) == (300, 0, 200)
    assert told["latencyMs"]["p50"] <= told["latencyMs"]["max"]
    address = ("--bootstrap-server", node.bootstrap_servers, "--topic", "counted")
    told = json.loads(barnabas("consumer-perf-test", *address, "--num-records", "300", "--json").out)
    assert (told["records"], told["bytes"]) == (300, 3000)


def test_payloads(barnabas: Tools, node: EmbeddedBroker, tmp_path: Path) -> None:
    told = produce(barnabas, node, "numbers", "-1", "--num-records", "50", "--payload-monotonic")
    assert told.code == 0
    assert values(node, "numbers", 50) == [b"%d" % number for number in range(50)]
    path = tmp_path / "payloads"
    path.write_text("one;two;three;")
    options = ("--num-records", "50", "--payload-file", str(path), "--payload-delimiter", ";")
    told = produce(barnabas, node, "texts", "-1", *options)
    assert told.out.splitlines()[:2] == [f"Reading payloads from: {path}", "Number of records read: 3"]
    assert set(values(node, "texts", 50)) == {b"one", b"two", b"three"}


def test_settings_in_a_row_and_metrics(barnabas: Tools, node: EmbeddedBroker) -> None:
    options = ("--producer-props", f"bootstrap.servers={node.bootstrap_servers}", "linger.ms=1", "client.id=perf")
    told = barnabas("producer-perf-test", "--topic", "props", *options, "--num-records", "10", "--record-size", "5",
                    "--throughput", "-1", "--print-metrics")  # fmt: skip
    assert told.code == 0
    assert "Warning: --producer-props is deprecated" in told.err
    assert re.search(r"^producer-metrics:record-send-total:\{client-id=perf\} +: 10.000$", told.out, re.MULTILINE)


def test_records_that_fail_are_counted_apart(barnabas: Tools, node: EmbeddedBroker) -> None:
    options = ("--num-records", "30", "--record-size", "3000", "--command-property", "max.request.size=2000")
    told = produce(barnabas, node, "failing", "-1", *options)
    assert told.code == 1
    assert TOTAL.match(told.out)
    assert told.out.startswith("0 records sent")
    lines = told.err.splitlines()
    assert len(lines) == 11
    assert "30 records were not sent in all" in lines[-1]


def test_of_mixed_records_those_that_go_are_counted(barnabas: Tools, node: EmbeddedBroker, tmp_path: Path) -> None:
    path = tmp_path / "payloads"
    path.write_bytes(b"\n".join([b"small"] * 50 + [b"x" * 3000]))
    options = ("--num-records", "60000", "--payload-file", str(path), "--command-property", "max.request.size=2000")
    told = produce(barnabas, node, "mixed", "-1", *options)
    matched = TOTAL.search(told.out)
    assert matched is not None
    failed = re.search(r"(\d+) records were not sent in all", told.err)
    assert failed is not None
    assert int(matched[1]) + int(failed[1]) == 60_000
    assert len(values(node, "mixed", int(matched[1]))) == int(matched[1])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("-1 --num-records 1", "exactly one of --record-size"),
        ("-1 --num-records 1 --record-size 1 --payload-monotonic", "exactly one of --record-size"),
        ("-1 --num-records 0 --record-size 1", "--num-records must be greater than 0"),
        ("-1 --num-records 1 --record-size 0", "--record-size must be greater than 0"),
        ("-1 --num-records 1 --record-size 1 --reporting-interval 0", "--reporting-interval must be"),
        ("0 --num-records 1 --record-size 1", "--throughput 0 would never send"),
        ("-1 --num-records 1 --record-size 1 --transaction-duration-ms 0", "--transaction-duration-ms must be greater"),
        ("-1 --num-records 1 --record-size 1 --command-property a", "'a' is not of the form name=value"),
        ("-1 --num-records 1 --payload-file /nowhere", "/nowhere: No such file"),
    ],
)
def test_wrong_calls(barnabas: Tools, node: EmbeddedBroker, options: str, said: str) -> None:
    told = produce(barnabas, node, "t", *options.split())
    assert told.code == 1
    assert said in told.err


def test_reading(barnabas: Tools, node: EmbeddedBroker) -> None:
    produce(barnabas, node, "read", "-1", "--num-records", "5000", "--record-size", "1024")
    where = ("consumer-perf-test", "--bootstrap-server", node.bootstrap_servers, "--topic", "read")
    told = barnabas(*where, "--num-records", "5000")
    assert told.code == 0
    header, line = told.out.splitlines()
    assert header == (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
        "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
    )
    matched = READ.fullmatch(line)
    assert matched is not None, line
    assert (matched[1], matched[3]) == ("4.8828", "5000")
    told = barnabas(*where, "--messages", "5000", "--show-detailed-stats", "--reporting-interval", "1", "--hide-header")
    assert "Warning: --messages is deprecated" in told.err
    assert all(DETAIL.fullmatch(line) for line in told.out.splitlines())
    told = barnabas(*where, "--num-records", "6000", "--timeout", "300", "--date-format", "yyyy", "--print-metrics")
    assert "WARNING: Exiting before consuming the expected number of records: timeout (300 ms) exceeded." in told.out
    assert re.search(r"^consumer-fetch-manager-metrics:records-consumed-total.* : \d+\.000$", told.out, re.MULTILINE)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=200), st.floats(0, 0.999))
def test_percentiles_are_those_of_the_sorted_latencies(latencies: list[int], part: float) -> None:
    counted = Latencies()
    for latency in latencies:
        counted.counts[latency] += 1
    assert counted.percentiles([part]) == [sorted(latencies)[int(part * len(latencies))]]
    assert counted.average_ms == pytest.approx(sum(latencies) / len(latencies))
    assert (counted.count, counted.highest_ms) == (len(latencies), max(latencies))


@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)))
def test_a_window_is_what_came_since_the_last(before: list[int], since: list[int]) -> None:
    counted, only = Latencies(), Latencies()
    for latency in before:
        counted.counts[latency] += 1
    earlier = counted.copy()
    for latency in since:
        counted.counts[latency] += 1
        only.counts[latency] += 1
    assert counted.without(earlier).counts == only.counts
    assert earlier.with_all(only).counts == counted.counts


def test_a_pace_is_kept_over_all_and_a_pause_caught_up_with(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    pace = ThroughputThrottler(250, sleep)
    sent = 0
    while now < 110:
        sent += pace.due(sent, 100)
    assert sent == pytest.approx(2500, abs=2)
    now += 2
    while (count := pace.due(sent, 100)) > 0:
        sent += count
    assert sent == pytest.approx(3000, abs=3)


def test_payloads_are_letters_of_the_right_length() -> None:
    for size in (1, 100, 1 << 20):
        payloads = random_payloads(random.Random(0), size)
        assert all(len(payload) == size for payload in payloads)
        assert re.fullmatch(b"[A-Z]+", payloads[0][:1000])


def test_dates_in_javas_patterns() -> None:
    moment = time.mktime((2024, 2, 29, 13, 5, 9, 0, 0, -1)) + 0.042
    shown = {
        "yyyy-MM-dd HH:mm:ss:SSS": "2024-02-29 13:05:09:042",
        "d.M.yy h:mm a": "29.2.24 1:05 PM",
        "yyyy'T'HH 'o''clock'": "2024T13 o'clock",
        "DDD/EEE/MMM": "060/Thu/Feb",
    }
    for pattern, text in shown.items():
        assert java_date_format(pattern, "--date-format")(moment) == text
    for wrong in ("yyyy'", "Q"):
        with pytest.raises(Exception, match="--date-format"):
            java_date_format(wrong, "--date-format")


def test_a_bar_at_a_terminal(node: EmbeddedBroker) -> None:
    master, terminal = pty.openpty()
    options = ("--bootstrap-server", node.bootstrap_servers, "--topic", "bar", "--throughput", "2000")
    process = subprocess.Popen(
        command("producer-perf-test", *options, "--num-records", "1000", "--record-size", "10"),
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(terminal)
    out, _ = process.communicate(timeout=TIMEOUT_S)
    shown = os.read(master, 100_000).decode()
    os.close(master)
    assert TOTAL.fullmatch(out.strip())
    assert "sending" in shown
    assert re.search(r"\d/s", shown)
