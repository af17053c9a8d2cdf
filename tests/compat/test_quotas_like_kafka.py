"""Clients of three libraries with quotas, two of each at once, at Kafka and at our node: over a minute each gets what
its quota says, both get the same, and none sees an error.

Who fetches in a hurry gets less, by Kafka's own rule: what would be too much does not count, so nothing more comes
until the oldest sample goes, and then all of it at once. So a fetch is measured by what the same client gets of Kafka.

    pytest -m slow tests/compat/test_quotas_like_kafka.py -s
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

import barnabas
from barnabas.client.admin import NewTopic, QuotaEntity
from tests.compat.brokers import OVERRIDES, OurServer
from tests.compat.quota_clients import PLAYERS, VALUE, play_all
from tests.oracles import needs_kafka
from tests.oracles.kafka_server import KafkaServer

pytestmark = [pytest.mark.slow, needs_kafka()]

BYTES_PER_S = 150_000
WARM_UP_S, MINUTE_S = 25, 60
FILLED = 16_000_000
#: What is bounded, by which quota, and how much of it a second may bring.
QUOTAS = {
    "produce": ("producer_byte_rate", BYTES_PER_S),
    "fetch": ("consumer_byte_rate", BYTES_PER_S),
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("quotas")
    (folder / "ours").mkdir()
    with KafkaServer(folder / "kafka", OVERRIDES) as kafka, OurServer(folder / "ours", OVERRIDES) as ours:
        found = {"kafka": kafka.bootstrap, "ours": ours.bootstrap}
        for bootstrap in found.values():
            _prepare(bootstrap)
        yield found


def _prepare(bootstrap: str) -> None:
    with barnabas.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic("quotas", 1), NewTopic("filled", 1)])
    with barnabas.Producer(bootstrap_servers=bootstrap, batch_size=16_384) as producer:
        for _ in range(FILLED // len(VALUE)):
            producer.send("filled", VALUE)
        producer.flush(60)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", QUOTAS)
def test_each_gets_what_its_quota_says_for_a_minute(brokers: dict[str, str], what: str) -> None:
    key, bound = QUOTAS[what]
    cast = [
        (broker, library, f"{what}-{library}-{number}")
        for broker in brokers
        for library in PLAYERS[what]
        for number in range(2)
    ]
    for broker, bootstrap in brokers.items():
        with barnabas.Admin(bootstrap_servers=bootstrap) as admin:
            admin.alter_client_quotas(
                {QuotaEntity(client_id=name): {key: bound} for at, _, name in cast if at == broker}
            )
    parts = [(PLAYERS[what][library], brokers[broker], name) for broker, library, name in cast]
    told = play_all(parts, WARM_UP_S + MINUTE_S)
    means = {(broker, name): each.per_second(MINUTE_S) for (broker, _, name), each in zip(cast, told, strict=True)}
    for (broker, name), mean in means.items():
        sys.stdout.write(f"{broker:>6} {name:<22} {mean:>12,.1f} a second, {mean / bound:.3f} of the quota\n")
    assert [each.errors[:3] for each in told] == [[]] * len(told), "no client sees an error"
    for (broker, name), mean in means.items():
        if broker == "ours":
            expected = bound if what == "produce" else means["kafka", name]
            assert mean == pytest.approx(expected, rel=0.1), name
            assert mean <= 1.1 * bound, name
    for library in PLAYERS[what]:
        pair = [means["ours", f"{what}-{library}-{number}"] for number in range(2)]
        assert min(pair) / max(pair) > 0.85, "two with the same quota get the same"
