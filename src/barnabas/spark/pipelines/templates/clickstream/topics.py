"""Where the topics are: options that all sources and sinks have in common."""

from pyspark.sql import SparkSession


def at_cluster(**options: str) -> dict[str, str]:
    """`options`, and the address of the cluster, which stands in spark-pipeline.yml."""
    address = SparkSession.active().conf.get("spark.clickstream.bootstrap.servers")
    return {"kafka.bootstrap.servers": str(address), **options}
