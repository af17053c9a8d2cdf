"""The first program of a user, on a Spark of several processes: reads a topic and writes what it read to another.

`python -m tests.spark.cluster.program BOOTSTRAP TOPIC TARGET FOLDER` prints JSON: the number of rows, and for each
executor that read some the interpreter of its worker.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

import barnabas.spark

if TYPE_CHECKING:
    import pyarrow as pa


def main(bootstrap: str, topic: str, target: str, folder: str) -> None:
    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        # Both executors shall be there before the first task is given away.
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .getOrCreate()
    )
    barnabas.spark.register(spark)
    connection = {"kafka.bootstrap.servers": bootstrap}
    read = spark.read.format("barnabas").options(**connection, subscribe=topic, minPartitions="8").load()
    seen = read.select("value").mapInArrow(_tell_who_reads, "python string, executor long, value binary").cache()
    workers = {(row["executor"], row["python"]) for row in seen.collect()}
    write = seen.select("value").write.format("barnabas").options(**connection, topic=target)
    write.mode("append").save()
    sys.stdout.write(json.dumps({"rows": seen.count(), "workers": sorted(workers)}))
    spark.stop()


def _tell_who_reads(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import os

    import pyarrow as pa

    for batch in batches:
        size = len(batch)
        # Workers are forked by a daemon, of which each executor has its own.
        columns = [pa.repeat(sys.executable, size), pa.repeat(os.getppid(), size), batch.column(0)]
        yield pa.RecordBatch.from_arrays(columns, ["python", "executor", "value"])


if __name__ == "__main__":
    main(*sys.argv[1:])
