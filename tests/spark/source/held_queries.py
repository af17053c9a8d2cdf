"""A driver to be killed: starts a query for each way to begin, and none of them gets beyond its first batch.

python -m tests.spark.source.held_queries ADDRESS TOPIC FOLDER
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame

from tests.spark.rig import sessions

STARTS = ("latest", "earliest")


def main(address: str, topic: str, folder: Path) -> None:
    spark = sessions.start_session(folder / "session")
    never = threading.Event()
    for start in STARTS:

        def hold(frame: DataFrame, batch: int, start: str = start) -> None:
            # By now Spark has written down the end of the batch; that it is done will never be.
            rows = frame.count()
            (folder / f"held-{start}").write_text(f"{batch} {rows}")
            never.wait()

        frame = (
            spark.readStream.format("barnabas")
            .option("kafka.bootstrap.servers", address)
            .option("subscribe", topic)
            .option("startingOffsets", start)
            .load()
        )
        frame.writeStream.foreachBatch(hold).option("checkpointLocation", str(folder / f"checkpoint-{start}")).start()
    never.wait()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
