"""Clicks from their topic into a table; what is wrong with them into the topic of dead letters."""

import clickstream
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from topics import at_cluster

from barnabas.spark.pipelines import quality

spark = SparkSession.active()
rules = quality.rules(clickstream.RULES, bad_records="_bad_record")

# Spark wants to know a sink before the flows that write to it.
dp.create_sink(
    "dead_letters_topic",
    "barnabas",
    at_cluster(topic="clicks.dead", includeHeaders="true", delivery="exactly-once"),
)


@dp.temporary_view
def clicks_topic() -> DataFrame:
    """Every record of the topic, as a stream. Those that are no clicks have the cause in `_bad_record`."""
    return (
        spark.readStream.format("barnabas")
        .options(**at_cluster(subscribe="clicks", startingOffsets="earliest"))
        .options(valueFormat="json", valueSchema=clickstream.CLICK, badRecords="column")
        .load()
    )


@dp.table(comment="Every valid click, once")
def clicks() -> DataFrame:
    return clickstream.clicks(rules.good(spark.readStream.table("clicks_topic")))


@dp.append_flow(target="dead_letters_topic")
def dead_letters() -> DataFrame:
    return rules.dead_letters(spark.readStream.table("clicks_topic"))
