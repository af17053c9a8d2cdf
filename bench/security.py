"""TLS: records through librdkafka and handshakes, our node against Apache Kafka, and against ours without TLS.

The keys are of the curve P-256, the version of TLS is 1.3 and the suite what both sides prefer. Clients show no
certificate. Brokers take turns; a ratio is the median of those of the pairs of turns.
"""

from __future__ import annotations

import shutil
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.oracles import missing
from tests.ports import free_ports

from barnabas.testing.certificates import CertificateAuthority
from bench import node_clients as clients
from bench.measure import Result
from bench.node_brokers import Barnabas, Broker, Kafka, cpu_seconds
from bench.node_contest import GB, MB, Figures, cost, paired

_THREADS: Final = 2


class Plan:
    def __init__(self, *, pairs: int, record_bytes: int, handshake_s: float, warm_up_s: float) -> None:
        self.pairs = pairs
        self.record_bytes = record_bytes
        self.handshake_s = handshake_s
        self.warm_up_s = warm_up_s


FULL: Final = Plan(pairs=5, record_bytes=100 * MB, handshake_s=1.5, warm_up_s=10.0)
QUICK: Final = Plan(pairs=1, record_bytes=50 * MB, handshake_s=0.5, warm_up_s=1.0)


class Secured:
    """A broker that listens with TLS, too."""

    def __init__(self, broker: Broker, port: int) -> None:
        self.broker = broker
        self.bootstrap = f"127.0.0.1:{port}"


@contextmanager
def started() -> Iterator[tuple[list[Secured], dict[str, str]]]:
    """The brokers, ours first, and what librdkafka needs to trust them."""
    folder = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    authority = CertificateAuthority.create()
    (folder / "ca.pem").write_text(authority.certificate_pem)
    (folder / "node.p12").write_bytes(authority.issue("node", ["127.0.0.1"]).pkcs12("benchmark"))
    brokers: list[Secured] = []
    try:
        for kind in ("barnabas", "kafka"):
            if kind == "kafka" and missing() is not None:
                print(f"security: alone, without Apache Kafka: {missing()}", file=sys.stderr)
                continue
            plain, tls, controller = free_ports(3)
            settings = _settings(folder / "node.p12", plain, tls, controller)
            if kind == "barnabas":
                broker: Broker = Barnabas(folder / kind, *(f"{name}={value}" for name, value in settings.items()))
                broker.prepare()
            else:
                broker = Kafka(folder / kind, settings)
                broker._port = plain
            broker.start()
            brokers.append(Secured(broker, tls))
        yield brokers, {"security.protocol": "ssl", "ssl.ca.location": str(folder / "ca.pem")}
    finally:
        for each in brokers:
            each.broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _settings(store: Path, plain: int, tls: int, controller: int) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{tls},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{tls}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": "benchmark",
        "ssl.key.password": "benchmark",
    }


def _turn(
    place: Secured, bootstrap: str, topic: str, records: int, size: int, security: Mapping[str, str], figures: Figures,
    *, writes: bool,
) -> None:  # fmt: skip
    before = cpu_seconds(place.broker.pid)
    if writes:
        seconds = clients.produce(bootstrap, topic, 1, records, size, security)
    else:
        seconds = clients.consume(bootstrap, topic, 1, records, security)
    figures.add(records, seconds, cpu_seconds(place.broker.pid) - before)


def _topics(brokers: list[Secured], name: str) -> None:
    for each in brokers:
        with clients.connected(each.broker.bootstrap) as peer:
            clients.create_topic(peer, name, 1)


def records(brokers: list[Secured], trust: Mapping[str, str], plan: Plan, size: int) -> Iterator[Result]:
    """Each turn: with TLS ours and theirs, and ours without."""
    count = plan.record_bytes // size // clients.CHUNK * clients.CHUNK
    ours = brokers[0]
    for verb, writes in (("produce", True), ("consume", False)):
        secured, plain = [Figures() for _ in brokers], Figures()
        for number in range(plan.pairs):
            topic = f"{verb}-{size}-{number}"
            _topics(brokers, topic)
            for each, figures in zip(brokers, secured, strict=True):
                if not writes:
                    clients.fill(each.broker.bootstrap, topic, 1, count, size)
                _turn(each, each.bootstrap, topic, count, size, trust, figures, writes=writes)
            _turn(ours, ours.broker.bootstrap, topic, count, size, {}, plain, writes=writes)
        shown = " / ".join(f"{sum(each.rates) / len(each.rates) * size / MB:,.0f} MB/s" for each in secured)
        name = f"TLS: librdkafka {verb} {size} B records"
        yield Result(name, paired(secured), 1.0 if len(brokers) > 1 else None, shown)
        yield cost("CPU seconds per GB", secured, GB / size)
        both = [secured[0], plain]
        yield Result("  ours with TLS over ours without", paired(both), None, _rates(both, size))
        yield cost("CPU seconds per GB without TLS, over with", both, GB / size)


def _rates(measured: list[Figures], size: int) -> str:
    return " / ".join(f"{sum(each.rates) / len(each.rates) * size / MB:,.0f} MB/s" for each in measured)


def handshakes(brokers: list[Secured], trust: Mapping[str, str], plan: Plan) -> Iterator[Result]:
    """Full handshakes, one after the other on two threads, each closed at once."""
    measured = [Figures() for _ in brokers]
    for _ in range(plan.pairs):
        for each, figures in zip(brokers, measured, strict=True):
            before = cpu_seconds(each.broker.pid)
            done = _shake_hands(each.bootstrap, trust["ssl.ca.location"], plan.handshake_s)
            figures.add(done, plan.handshake_s, cpu_seconds(each.broker.pid) - before)
    shown = " / ".join(f"{sum(each.rates) / len(each.rates):,.0f} per s" for each in measured)
    yield Result("TLS: handshakes", paired(measured), 1.0 if len(brokers) > 1 else None, shown)
    yield cost("CPU seconds per thousand", measured, 1000)


def _shake_hands(bootstrap: str, ca: str, seconds: float) -> int:
    host, _, port = bootstrap.rpartition(":")
    counts = [0] * _THREADS
    end_s = time.perf_counter() + seconds

    def work(index: int) -> None:
        context = ssl.create_default_context(cafile=ca)
        while time.perf_counter() < end_s:
            with (
                socket.create_connection((host, int(port))) as raw,
                context.wrap_socket(raw, server_hostname=host),
            ):
                counts[index] += 1

    threads = [threading.Thread(target=work, args=(index,)) for index in range(_THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return sum(counts)


def _warm_up(brokers: list[Secured], trust: Mapping[str, str], plan: Plan) -> None:
    _topics(brokers, "warm")
    for each in brokers:
        end_s = time.monotonic() + plan.warm_up_s
        while time.monotonic() < end_s:
            clients.produce(each.bootstrap, "warm", 1, 20_000, 1000, trust)
            clients.consume(each.bootstrap, "warm", 1, 20_000, trust)
            _shake_hands(each.bootstrap, trust["ssl.ca.location"], 0.2)


def run(plan: Plan = FULL) -> Iterator[Result]:
    with started() as (brokers, trust):
        _warm_up(brokers, trust, plan)
        yield from records(brokers, trust, plan, 1000)
        yield from handshakes(brokers, trust, plan)


def run_quickly() -> Iterator[Result]:
    return run(QUICK)
