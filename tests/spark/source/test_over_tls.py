"""Spark writes and reads over TLS: the options `kafka.ssl.*` reach the clients of the driver and of its tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.testing import EmbeddedBroker
from barnabas.testing.certificates import CertificateAuthority

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_there_and_back(spark: SparkSession, tmp_path: Path) -> None:
    authority = CertificateAuthority.create()
    node, client = authority.issue("node", ["127.0.0.1"]), authority.issue("spark")
    (tmp_path / "spark.pem").write_text(client.pem)
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": node.key_pem,
        "ssl.keystore.certificate.chain": node.chain_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.certificate_pem,
        "ssl.client.auth": "required",
    }
    with EmbeddedBroker(overrides=settings) as broker:
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.security.protocol": "SSL",
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.location": str(tmp_path / "spark.pem"),
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.certificates": authority.certificate_pem,
        }
        rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
        rows.write.format("barnabas").options(**options).option("topic", "t").mode("append").save()
        read = spark.read.format("barnabas").options(**options).option("subscribe", "t").load()
        found = {int(row.value) for row in read.select("value").collect()}
    assert found == set(range(100))
