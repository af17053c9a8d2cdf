"""Visits of users, out of their clicks, into a topic."""

import clickstream
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from topics import at_cluster

spark = SparkSession.active()

# Users change, so a batch that is repeated after a crash may find others: what was decided before, stays.
dp.create_sink(
    "sessions_topic", "barnabas", at_cluster(topic="sessions", delivery="exactly-once", repeatedBatches="keep")
)


@dp.temporary_view
def users_topic() -> DataFrame:
    """The compacted topic as it is now: possibly several records of a user, the last of which counts."""
    return (
        spark.read.format("barnabas")
        .options(**at_cluster(subscribe="users"))
        .options(valueFormat="json", valueSchema=clickstream.USER)
        .load()
    )


@dp.append_flow(target="sessions_topic")
def sessions() -> DataFrame:
    over = clickstream.sessions(spark.readStream.table("timed_clicks"))
    return clickstream.as_records(clickstream.with_users(over, spark.read.table("users")), key="user")
