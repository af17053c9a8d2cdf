"""What the shipped alerts go off at, by Prometheus's own test of rules, which has a time of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from barnabas.net.throttled import ThrottledClients, ThrottledWait
from tests.broker.metrics.test_dashboards import ALERTS, prometheus
from tests.oracles import other_process

PROMETHEUS = prometheus()
PROMTOOL = None if PROMETHEUS is None else PROMETHEUS.with_name("promtool")
HAS_PROMTOOL = PROMTOOL is not None and PROMTOOL.exists()
pytestmark = other_process(None if HAS_PROMTOOL else "promtool is not in .oracles: run 'make oracles'")

NODE = 'instance="a",job="barnabas"'
PARTITION = f'{NODE},topic="t",partition="0"'


def check(folder: Path, alert: str, series: dict[str, str], told: dict[str, list[dict[str, Any]]]) -> None:
    """`series` have a value each minute; `told` is what is told of `alert` at a time."""
    story = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {"eval_time": time, "alertname": alert, "exp_alerts": alerts} for time, alerts in told.items()
        ],
    }
    rules = folder / "rules.json"
    rules.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [story]}))
    done = subprocess.run([str(PROMTOOL), "test", "rules", str(rules)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def alert(summary: str, severity: str, **labels: str) -> dict[str, Any]:
    return {"exp_labels": {"severity": severity, **labels}, "exp_annotations": {"summary": summary}}


def test_a_node_that_cannot_be_scraped(tmp_path: Path) -> None:
    gone = alert("a cannot be scraped: nothing else here is known of it", "critical", instance="a", job="barnabas")
    series = {f"up{{{NODE}}}": "1x5 0x20", 'up{instance="b",job="other"}': "0x25"}
    check(tmp_path, "BarnabasNotScraped", series, {"5m": [], "10m": [gone]})


def test_a_node_that_cannot_tell_some_of_its_metrics(tmp_path: Path) -> None:
    failed = alert("a cannot tell some of its metrics: see its log", "warning", instance="a")
    series = {f"barnabas_scrape_errors_total{{{NODE}}}": "0x10 1x30"}
    check(tmp_path, "BarnabasScrapeErrors", series, {"10m": [], "15m": [failed], "30m": []})


WAITS = alert(
    "till of User:ann waits for its quota most of the time on a",
    "warning",
    instance="a",
    principal="User:ann",
    client_id="till",
)
THROTTLED = f'barnabas_throttled_ms_total{{{NODE},principal="User:ann",client_id='


def test_a_client_that_waits_most_of_the_time(tmp_path: Path) -> None:
    series = {f'{THROTTLED}"till"}}': "0+40000x30 1200000x30", f'{THROTTLED}"shop"}}': "0+20000x60"}
    check(tmp_path, "BarnabasClientThrottled", series, {"5m": [], "25m": [WAITS], "50m": []})


def waits_for(*waits_s: tuple[int, int]) -> str:
    """What a node tells each minute of two hours of a client that waits so long from then on, and not again before."""
    throttled, told, to_come = ThrottledClients(), [], list(waits_s)
    wait: ThrottledWait | None = None
    for now_s in range(0, 7200, 5):
        if wait is not None and now_s >= wait.until_s:
            throttled.end(wait, now_s)
            wait = None
        if to_come and now_s >= to_come[0][0]:
            begin_s, lasts_s = to_come.pop(0)
            wait = throttled.begin("User:ann", "till", now_s, begin_s + lasts_s)
        if now_s % 60 == 0:
            found = throttled.told(("User:ann", "till"), now_s)
            told.append("_" if found is None else str(found.total_ms))
    return " ".join(told)


def test_a_client_that_is_told_once_to_wait_for_an_hour(tmp_path: Path) -> None:
    series = {f'{THROTTLED}"till"}}': waits_for((125, 3600))}
    check(tmp_path, "BarnabasClientThrottled", series, {"5m": [], "25m": [WAITS], "60m": [WAITS], "80m": []})


def test_a_client_that_waits_twelve_minutes_every_twelve_minutes(tmp_path: Path) -> None:
    series = {f'{THROTTLED}"till"}}': waits_for(*((125 + number * 725, 720) for number in range(6)))}
    moments = {f"{minute}m": [WAITS] for minute in range(25, 75, 5)}
    check(tmp_path, "BarnabasClientThrottled", series, {"10m": [], **moments, "90m": []})


def test_a_client_that_waits_for_a_while_now_and_then(tmp_path: Path) -> None:
    series = {f'{THROTTLED}"till"}}': waits_for(*((125 + number * 1200, 240) for number in range(5)))}
    check(tmp_path, "BarnabasClientThrottled", series, {f"{minute}m": [] for minute in range(5, 110, 5)})


BEHIND = alert("The group g is more than ten minutes behind", "warning", group="g")


def test_a_group_that_is_behind_in_seconds(tmp_path: Path) -> None:
    series = {f'barnabas_group_lag_seconds_max{{{NODE},group="g"}}': "0x5 700x30"}
    check(tmp_path, "BarnabasGroupBehind", series, {"10m": [], "20m": [BEHIND]})


def of_records(committed: str, end: str, start: str = "0x60") -> dict[str, str]:
    """The group's coordinator has no replica of the partition."""
    return {
        'barnabas_group_committed_offset{instance="b",job="barnabas",group="g",topic="t",partition="0"}': committed,
        f"barnabas_log_highwatermark{{{PARTITION}}}": end,
        f"kafka_log_log_logstartoffset{{{PARTITION}}}": start,
    }


def test_a_group_that_is_behind_by_seconds_that_nobody_knows(tmp_path: Path) -> None:
    stands = of_records(committed="0+10x5 50x55", end="0+10x60")
    check(tmp_path, "BarnabasGroupBehind", stands, {"20m": [], "30m": [BEHIND]})


def test_a_group_that_follows_at_nine_minutes_is_not_behind(tmp_path: Path) -> None:
    follows = of_records(committed="0x9 0+10x50", end="0+10x60")
    check(tmp_path, "BarnabasGroupBehind", follows, {"30m": [], "60m": []})


def test_a_group_of_which_all_that_it_has_not_read_is_deleted_is_not_behind(tmp_path: Path) -> None:
    left = of_records(committed="5x60", end="100x60", start="0x10 100x50")
    check(tmp_path, "BarnabasGroupBehind", left, {"30m": [], "60m": []})
