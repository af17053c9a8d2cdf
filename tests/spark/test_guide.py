"""The examples of docs/spark.md run, and its tables name the options that there are."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas import Producer
from barnabas.spark.core import options
from barnabas.testing import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_examples_run(spark: SparkSession, tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("clicks", 2)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for second, (user, page) in enumerate(
                [("u1", "/index"), ("u1", "/cart"), ("u2", "/index"), ("u1", "/pay")]
            ):
                value = json.dumps({"user": user, "page": page, "at": f"2026-01-01T10:00:0{second}Z"})
                producer.send("clicks", value.encode(), key=user.encode(), partition=int(user[1]) - 1)
            producer.send("clicks", b"not JSON", partition=1)
            producer.send("clicks", None, key=b"u3", partition=1)
        known = {"spark": spark, "servers": broker.bootstrap_servers, "folder": str(tmp_path)}
        failed, tried = doctest.testfile(
            str(GUIDE), module_relative=False, globs=known, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        )
    assert tried > 10
    assert failed == 0


def test_every_option_is_in_the_guide() -> None:
    told = set(re.findall(r"`([\w.]+)`", GUIDE.read_text()))
    assert {*options._SOURCE_OPTIONS, *options._SINK_OPTIONS} - told == set()
