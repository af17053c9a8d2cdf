"""The listener of a node: who may read, whether it is ready, and what strangers cannot do to it."""

from __future__ import annotations

import asyncio
import ssl
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator

import pytest

from barnabas.aio import Admin, Consumer, Producer
from barnabas.base.metrics.registry import Metric
from barnabas.base.metrics.reporters import MetricsContext
from barnabas.client.admin.sync_admin import Admin as SyncAdmin
from barnabas.testing import AsyncEmbeddedBroker, EmbeddedBroker
from barnabas.testing.certificates import CertificateAuthority
from tests.broker.metrics.scraping import Scrape, scrape

LISTENER = {"metrics.listener": "127.0.0.1:0"}
HOSTILE = 'a"b\\c\nd} 1\n# HELP evil 1\nevil{x="'


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(overrides=LISTENER) as broker:
        yield broker


def _get(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def test_health_and_readiness(broker: EmbeddedBroker) -> None:
    base = broker.metrics_url.removesuffix("/metrics")
    assert _get(f"{base}/healthz") == (200, "alive\n")
    assert _get(f"{base}/readyz") == (200, "ready\n")


def test_names_of_strangers_are_escaped(broker: EmbeddedBroker) -> None:
    async def work() -> None:
        async with Producer(bootstrap_servers=broker.bootstrap_servers, client_id=HOSTILE) as producer:
            await producer.send("t", b"x")
        async with Consumer(
            "t", bootstrap_servers=broker.bootstrap_servers, group_id=HOSTILE, auto_offset_reset="earliest"
        ) as consumer:
            async for _ in consumer:
                break
            await consumer.commit()

    asyncio.run(work())
    found = scrape(broker.metrics_url)
    assert found.value("barnabas_group_lag_sum", group=HOSTILE) == 0
    assert not any(name == "evil" for name in found.names)


def test_two_thousand_scrapes_at_once_are_few_scrapes(broker: EmbeddedBroker) -> None:
    async def ask(host: str, port: int) -> bytes:
        try:
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            answer = await asyncio.wait_for(reader.read(), 30)
            writer.close()
        except OSError:
            return b""
        return answer

    async def ask_all() -> list[bytes]:
        host, _, port = broker.metrics_url.removeprefix("http://").removesuffix("/metrics").partition(":")
        return await asyncio.gather(*(ask(host, int(port)) for _ in range(2000)))

    before = scrape(broker.metrics_url)["barnabas_scrapes_total"]
    began_s = time.monotonic()
    answers = asyncio.run(ask_all())
    took_s = time.monotonic() - began_s
    after = scrape(broker.metrics_url)["barnabas_scrapes_total"]
    whole = [each for each in answers if b" 200 " in each[:20]]
    assert whole
    assert all(_is_whole(each) for each in whole)
    assert {each[9:12] for each in answers if each} <= {b"200", b"503"}
    assert after - before <= 2 + took_s / 0.05, "who asks at the same time gets the same"


def _is_whole(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    return f"Content-Length: {len(body)}".encode() in head


def test_a_password_and_tls() -> None:
    authority = CertificateAuthority.create()
    node = authority.issue("node", ["127.0.0.1"])
    overrides = {
        "metrics.listener": "SSL://127.0.0.1:0",
        "metrics.listener.password": "secret",
        "listener.name.metrics.ssl.keystore.type": "PEM",
        "listener.name.metrics.ssl.keystore.key": node.key_pem,
        "listener.name.metrics.ssl.keystore.certificate.chain": node.chain_pem,
    }
    with EmbeddedBroker(overrides=overrides) as broker:
        url = broker.metrics_url.replace("http:", "https:")
        context = ssl.create_default_context(cadata=authority.certificate_pem)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(url, timeout=10, context=context)
        asked = urllib.request.Request(url, headers={"Authorization": f"Basic {b64encode(b'metrics:secret').decode()}"})
        with urllib.request.urlopen(asked, timeout=10, context=context) as answer:
            assert Scrape(answer.read().decode())["kafka_server_kafkaserver_brokerstate"] == 3


class Reporter:
    """A plug-in of a node."""

    contexts: list[MetricsContext] = []  # noqa: RUF012
    clusters: list[str | None] = []  # noqa: RUF012
    known: dict[str, Metric] = {}  # noqa: RUF012

    def context_change(self, context: MetricsContext) -> None:
        self.contexts.append(context)

    def on_update(self, cluster_id: str | None) -> None:
        self.clusters.append(cluster_id)

    def init(self, metrics: list[Metric]) -> None:
        self.known.update({str(each.name): each for each in metrics})

    def metric_change(self, metric: Metric) -> None:
        self.known[str(metric.name)] = metric

    def metric_removal(self, metric: Metric) -> None:
        del self.known[str(metric.name)]

    def close(self) -> None:
        self.known.clear()


def test_reporters_of_a_node() -> None:
    async def run() -> None:
        overrides = {
            "metric.reporters": f"{__name__}.Reporter",
            "metrics.context.region": "north",
            "metrics.recording.level": "DEBUG",
        }
        async with AsyncEmbeddedBroker(overrides=overrides) as broker:
            async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                cluster = await admin.describe_cluster()
            [context] = Reporter.contexts
            assert context.labels["region"] == "north"
            assert context.labels["kafka.cluster.id"] == cluster.cluster_id
            assert Reporter.clusters == [cluster.cluster_id]
            assert any("busy-ratio" in name for name in Reporter.known)
        assert not Reporter.known

    asyncio.run(run())


def test_with_debug_each_part_of_the_time_is_a_histogram() -> None:
    with EmbeddedBroker(overrides={**LISTENER, "metrics.recording.level": "DEBUG"}) as broker:
        with SyncAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.describe_cluster()
        found = scrape(broker.metrics_url)
    assert any(name.endswith("localtimems_bucket") for name in found.names)
