"""One real pipeline: from a topic into a table, a view and a dead-letter topic, update after update, until Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from barnabas import Consumer, Producer
from barnabas.testing import EmbeddedBroker
from tests.oracles import other_process
from tests.spark.rig import sessions

_TIMEOUT_S = 300

SPEC = """
name: toy
storage: storage
database: shop
delivery: exactly-once
libraries: [{{glob: {{include: transformations/**}}}}]
configuration:
  spark.toy.servers: "{servers}"
  spark.toy.topics: "{clicks} {dead}"
  spark.sql.session.timeZone: UTC
"""

HELPER = 'RULES = {"has a user": "value.user IS NOT NULL"}\n'

TOPIC = """
from pyspark import pipelines as dp
from barnabas.spark.pipelines import quality
import helper

servers = spark.conf.get("spark.toy.servers")
clicks_name, dead_name = spark.conf.get("spark.toy.topics").split()
rules = quality.rules(helper.RULES, bad_records="_bad_record")


@dp.temporary_view
def records():
    options = {"kafka.bootstrap.servers": servers, "subscribe": clicks_name, "startingOffsets": "earliest"}
    value = {"valueFormat": "json", "valueSchema": "user string, page string", "badRecords": "column"}
    return spark.readStream.format("barnabas").options(**options, **value).load()


@dp.table(format="parquet")
def clicks():
    return rules.good(spark.readStream.table("records")).select("value.user", "value.page", "offset")


dp.create_sink(
    "dead", "barnabas", {"kafka.bootstrap.servers": servers, "topic": dead_name, "includeHeaders": "true"}
)


@dp.append_flow(target="dead")
def dead_letters():
    return rules.dead_letters(spark.readStream.table("records"))
"""

VIEW = "CREATE MATERIALIZED VIEW pages AS SELECT page, count(*) AS views FROM clicks GROUP BY page;"


@pytest.fixture
def project(tmp_path: Path, broker: EmbeddedBroker, new_topic: Callable[..., str]) -> Path:
    folder = tmp_path / "toy"
    (folder / "transformations").mkdir(parents=True)
    spec = SPEC.format(servers=broker.bootstrap_servers, clicks=new_topic(2), dead=new_topic())
    (folder / "spark-pipeline.yml").write_text(spec)
    (folder / "helper.py").write_text(HELPER)
    (folder / "transformations" / "topic.py").write_text(TOPIC)
    (folder / "transformations" / "pages.sql").write_text(VIEW)
    return folder


@contextmanager
def running(project: Path, scratch: Path) -> Iterator[subprocess.Popen[str]]:
    """The command in a session of its own, as a shell would start it, with what it says on standard error in a file."""
    settings = {
        name: value
        for name, value in sessions.settings(scratch).items()
        if name not in ("spark.jars", "spark.sql.warehouse.dir", "spark.log.level")
    }
    command = [sys.executable, "-m", "barnabas", "pipeline", "run", str(project), "--json", "--every", "200ms"]
    command += ["--master", "local[2]", *(word for pair in settings.items() for word in ("--conf", "=".join(pair)))]
    with (scratch / "stderr").open("w") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **sessions.environment(scratch)},
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def processes_of(session: int) -> list[str]:
    """Commands that still run in a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        if int(rest.split()[3]) == session and rest.split()[0] != "Z":
            found.append(name)
    return found


def send(servers: str, topic: str, *values: dict[str, Any] | bytes) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for value in values:
            producer.send(topic, value if isinstance(value, bytes) else json.dumps(value).encode())
        producer.flush()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for orphans in /proc")
@pytest.mark.slow
@other_process(sessions.missing())
def test_updates_follow_the_topic_until_somebody_stops_them(
    project: Path, tmp_path: Path, broker: EmbeddedBroker
) -> None:
    servers = broker.bootstrap_servers
    configuration = (project / "spark-pipeline.yml").read_text()
    clicks, dead = configuration.split('topics: "')[1].split('"')[0].split()
    send(servers, clicks, *({"user": f"u{n}", "page": "/"} for n in range(50)), {"page": "/x"}, b"{not json")

    rows = bad = updates = 0
    events = []
    with running(project, tmp_path) as process:
        assert process.stdout is not None
        # If it hangs, the output ends and the test with it.
        for line in process.stdout:
            event = json.loads(line)
            events.append(event)
            if event["event"] == "update-ended":
                assert event["outcome"] == "completed", event
                updates += 1
                rows += sum(flow["rows"] or 0 for flow in event["flows"] if flow["flow"] == "clicks")
                bad += event["badRecords"]
                if updates == 1:
                    send(servers, clicks, {"user": "late", "page": "/late"})
                elif rows == 53:
                    # As a terminal does it: everybody in the foreground gets the signal.
                    os.killpg(process.pid, signal.SIGINT)
                    break
        told, _ = process.communicate(timeout=_TIMEOUT_S)
        assert process.returncode == 0, (tmp_path / "stderr").read_text()
        assert processes_of(process.pid) == []

    ended = json.loads(told.splitlines()[-1])
    assert (ended["event"], ended["outcome"], rows, bad) == ("ended", "stopped", 53, 2)
    flow = next(flow for flow in events[-1]["flows"] if flow["flow"] == "clicks")
    assert (flow["lagRecords"], flow["lagSeconds"]) == (0, 0)
    assert flow["bytesRead"] > 0
    defined = next(event for event in events if event["event"] == "defined")
    assert {flow["name"]: flow["inputs"] for flow in defined["flows"]} == {
        "records": [f"barnabas: {clicks}"],
        "clicks": ["records"],
        "dead_letters": ["records"],
        "pages": ["clicks"],
    }
    assert defined["delivery"] == {"exactlyOnce": ["clicks", "dead_letters"], "atLeastOnce": []}
    table = pyarrow.parquet.read_table(project / "tables" / "shop.db" / "clicks")
    assert sorted(table["user"].to_pylist()) == sorted(["late", *(f"u{n}" for n in range(50))])
    with Consumer(dead, bootstrap_servers=servers, group_id="letters", auto_offset_reset="earliest") as consumer:
        letters: list[Any] = []
        while len(letters) < 2:
            letters.extend(consumer.poll(timeout=10))
    assert sorted(letter.value for letter in letters) == [b'{"page":"/x"}', b"{not json"]
    # What the control topic tells of the run, all updates together.
    flow = next(flow for flow in ended["flows"] if flow["flow"] == "dead_letters")
    assert flow["bytesWritten"] == sum(len(letter.key) + len(letter.value) for letter in letters)
    assert flow["transactionsDecided"] >= 1
    assert flow["transactionsOpen"] == 0
    assert {dict(letter.headers)["barnabas.error.message"][:10] for letter in letters} == {b"has a user", b"JSON_SYNTA"}
