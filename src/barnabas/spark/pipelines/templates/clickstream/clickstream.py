"""What happens to clicks, apart from where they come from and go to.

Every function takes data frames and returns one, so each can be tried on a few rows, with no topic and no pipeline:

    sessions(spark.createDataFrame([("u1", now, "/", 100)], "user string, at timestamp, page string, stay_ms long"))

Each ends with a `select` that names its columns: that is the contract with whoever reads them.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

#: The fields of a click, as JSON has them.
CLICK = "id long, user string, at timestamp, page string, stay_ms long"
USER = "name string, plan string, country string"

#: What must hold of a click that could be read. Who breaks one goes to the dead letters, with its name.
RULES = {
    "has a user": "value.user IS NOT NULL",
    "page is a path": "value.page LIKE '/%'",
    "stay is not negative": "value.stay_ms >= 0",
}

#: Whoever does nothing for this long has left.
PAUSE = "5 minutes"


def clicks(records: DataFrame) -> DataFrame:
    """One row per click: its fields, and where it lies in the topic."""
    return records.select(
        "value.id",
        "value.user",
        "value.at",
        "value.page",
        "value.stay_ms",
        "partition",
        "offset",
    )


def sessions(clicks: DataFrame) -> DataFrame:
    """One row per visit of a user; of a stream with a watermark, when the visit is over."""
    visit = f.session_window("at", PAUSE)
    return (
        clicks.groupBy("user", visit)
        .agg(
            f.count("*").alias("clicks"),
            f.max(f.col("page") == "/thanks").alias("has_bought"),
            f.sum("stay_ms").alias("stay_ms"),
        )
        .select(
            "user",
            f.col("session_window.start").alias("began_at"),
            (f.col("session_window.end") - f.expr(f"INTERVAL {PAUSE}")).alias("ended_at"),
            "clicks",
            "has_bought",
            "stay_ms",
        )
    )


def with_users(sessions: DataFrame, users: DataFrame) -> DataFrame:
    """Who it was. Users who are gone leave their sessions behind, without a name."""
    return sessions.join(users, "user", "left").select(
        "user",
        "name",
        "plan",
        "country",
        "began_at",
        "ended_at",
        "clicks",
        "has_bought",
        "stay_ms",
    )


def as_records(rows: DataFrame, key: str) -> DataFrame:
    """Rows as records of a topic: one column as the key, all of them as JSON."""
    return rows.select(f.col(key).alias("key"), f.to_json(f.struct("*")).alias("value"))
