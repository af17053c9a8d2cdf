"""Whole tables to a topic and back, and straight into Polars and DuckDB.

    pip install pyarrow polars duckdb
    python examples/arrow_into_polars_and_duckdb.py [HOST:PORT]

Arrow is the layout in memory that all of them share, so no Python object is made per record.
"""

import sys

import duckdb
import polars as pl
import pyarrow as pa

from barnabas import Consumer, Producer
from barnabas.testing import EmbeddedBroker

ROWS = 10_000


def main(bootstrap_servers: str) -> None:
    # A column `value`, and if you like `key`, `headers`, `timestamp` and `partition`, as text or bytes.
    measured = pa.table(
        {
            "key": [("kitchen", "cellar")[row % 2] for row in range(ROWS)],
            "value": [str((21.0, 12.0)[row % 2] + row % 10 / 10) for row in range(ROWS)],
        }
    )
    with Producer(bootstrap_servers=bootstrap_servers, compression_type="zstd") as producer:
        producer.send_arrow("temperatures", measured).result(timeout=60)

    # A poll returns what has arrived: one record batch after another, until all rows are there.
    batches: list[pa.RecordBatch] = []
    with Consumer(
        "temperatures", bootstrap_servers=bootstrap_servers, group_id="statistics", auto_offset_reset="earliest"
    ) as consumer:
        while sum(batch.num_rows for batch in batches) < ROWS:
            batches.append(consumer.poll_arrow(timeout=30))
    readings = pa.Table.from_batches(batches)

    # Polars takes the table over as it is. Kafka knows only bytes; what they mean is ours to say.
    frame = pl.DataFrame(readings).select(
        room=pl.col("key").cast(pl.String), degrees=pl.col("value").cast(pl.String).cast(pl.Float64)
    )
    for room, mean in frame.group_by("room").agg(pl.col("degrees").mean()).sort("room").iter_rows():
        print(f"Polars: {room} {mean:.2f}")

    # DuckDB finds the variable `readings` by its name in the query.
    warmest = duckdb.sql(
        """
        select decode(key) as key, max(decode(value)::double)::varchar as value
        from readings group by all order by all
        """
    )
    for room, degrees in warmest.fetchall():
        print(f"DuckDB: {room} {degrees}")

    # And back: what exports Arrow can be sent, a frame of Polars or a query of DuckDB.
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        written = producer.send_arrow("warmest", warmest).result(timeout=60)
    print(f"sent {sum(part.row_count for part in written)} rows of DuckDB's to the topic warmest")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with EmbeddedBroker() as broker:
            main(broker.bootstrap_servers)
