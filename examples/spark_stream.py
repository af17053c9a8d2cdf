"""A Spark stream from one topic to another.

    pip install '.[spark]'                                # Java 17 comes from your system
    python examples/spark_stream.py [HOST:PORT]

`format("barnabas")` has the options of Spark's own `format("kafka")`, and needs no jars.
"""

import sys
import tempfile

from pyspark.sql import SparkSession

import barnabas.spark
from barnabas import Consumer, Producer
from barnabas.testing import EmbeddedBroker

CLICKS = [("u1", "/index"), ("u1", "/cart"), ("u2", "/index"), ("u3", "/cart"), ("u1", "/pay")]


def main(bootstrap_servers: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, key_serializer="string", value_serializer="string") as producer:
        for user, page in CLICKS:
            producer.send("clicks", page, key=user)

    spark = SparkSession.builder.master("local[2]").getOrCreate()
    barnabas.spark.register(spark)
    clicks = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", "clicks")
        .option("startingOffsets", "earliest")  # of a new query; one that goes on does so where its checkpoint says
        .load()
    )
    # Keys and values are bytes. From here on it is a DataFrame as any other.
    carts = clicks.selectExpr("key", "cast(value as string) as value").where("value = '/cart'")
    # The checkpoint is the memory of the query: keep it in a place that stays, and a restart loses and repeats nothing
    # of what is read.
    with tempfile.TemporaryDirectory() as folder:
        query = (
            carts.writeStream.format("barnabas")
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .option("topic", "carts")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)  # ends when it has read what is there; without it, a stream goes on for ever
            .start()
        )
        query.awaitTermination()
        spark.stop()

    with Consumer("carts", bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        for record in consumer.poll(timeout=30):
            print(f"{record.key.decode()} has a cart")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with EmbeddedBroker() as broker:
            main(broker.bootstrap_servers)
