"""Spark's own master and two workers, as processes that know nothing of the project: rows and functions reach them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.dataset
import pytest

from barnabas import Producer
from barnabas.testing import EmbeddedBroker
from tests.oracles import other_process
from tests.spark.rig import sessions

pytestmark = [
    pytest.mark.slow,
    other_process(sessions.missing()),
]
_TIMEOUT_S = 300

SPEC = """
name: toy
storage: storage
libraries: [{{glob: {{include: transformations/**}}}}]
configuration:
  spark.toy.servers: "{servers}"
  spark.toy.topic: "{topic}"
  spark.sql.shuffle.partitions: "2"
  spark.executor.memory: 512m
  spark.driver.host: 127.0.0.1
  spark.driver.memory: 768m
"""

HELPER = """
def loud(text: str) -> str:
    return text.upper() + "!"
"""

FLOWS = """
from loudness import loud
from pyspark import pipelines as dp
from pyspark.sql import functions as f
from pyspark.sql.types import StringType

at = {"kafka.bootstrap.servers": spark.conf.get("spark.toy.servers"), "subscribe": spark.conf.get("spark.toy.topic")}


@dp.table
def lines():
    records = spark.readStream.format("barnabas").options(**at, startingOffsets="earliest").load()
    return records.select(f.udf(loud, StringType())(f.col("value").cast("string")).alias("line"), "partition", "offset")
"""


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The address of a master with two workers of a core each."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    command = str(Path(*spec.submodule_search_locations or (), "bin", "spark-class"))
    variables = {**sessions.not_activated(), "SPARK_DAEMON_MEMORY": "256m"}
    started: list[subprocess.Popen[str]] = []

    def start(name: str, *arguments: str) -> subprocess.Popen[str]:
        call = [command, f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", "--webui-port", "0", *arguments]
        started.append(
            subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=variables)
        )
        return started[-1]

    try:
        address = said(start("master.Master", "--port", "0"), "Starting Spark master at ")
        for number in (1, 2):
            worker = start("worker.Worker", "-c", "1", "-m", "1g", "-d", str(folder / f"work{number}"), address)
            said(worker, "Successfully registered with master ")
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(30)


def said(process: subprocess.Popen[str], words: str) -> str:
    """What comes after the words, on the line that has them. What is said later is read and forgotten."""
    assert process.stdout is not None
    heard = []
    for line in process.stdout:
        heard.append(line)
        if words in line:
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return line.partition(words)[2].strip()
    raise AssertionError("".join(heard))


def test_two_runs_on_two_workers_have_each_record_once(
    tmp_path: Path, broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    """From a virtual environment that is not activated; the functions of the project's modules run on the workers."""
    topic = new_topic(2)
    project = tmp_path / "toy"
    (project / "transformations").mkdir(parents=True)
    (project / "spark-pipeline.yml").write_text(SPEC.format(servers=broker.bootstrap_servers, topic=topic))
    (project / "loudness.py").write_text(HELPER)
    (project / "transformations" / "lines.py").write_text(FLOWS)
    with cluster(tmp_path) as address:
        for first in (0, 300):
            with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                for number in range(first, first + 300):
                    producer.send(topic, f"line {number}".encode(), partition=number % 2)
            done = subprocess.run(
                [sys.executable, "-m", "barnabas", "pipeline", "run", str(project), "--master", address],
                capture_output=True,
                text=True,
                check=False,
                timeout=_TIMEOUT_S,
                env=sessions.not_activated(),
                cwd=tmp_path,
            )
            assert done.returncode == 0, done.stderr
    (table,) = (project / "tables").glob("**/lines")
    lines = pyarrow.dataset.dataset(table).to_table()["line"].to_pylist()
    assert sorted(lines) == sorted(f"LINE {number}!" for number in range(600))
