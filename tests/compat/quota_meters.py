"""What a broker says of itself, once a second: our node by its metrics, Apache Kafka by its MBeans."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from dataclasses import dataclass, field

from tests.broker.metrics.scraping import scrape
from tests.oracles import java_program

#: By what a value is of, such as a client id; one for each second.
Values = dict[str, list[float]]


@dataclass(frozen=True)
class Quantity:
    """A metric of ours with the MBean that it stands for, and what tells its values apart, in both."""

    family: str
    label: str
    bean: str
    attribute: str
    key: str


REQUEST_TIME = Quantity(
    "kafka_server_request_request_time",
    "client_id",
    "kafka.server:type=Request,client-id=*",
    "request-time",
    "client-id",
)
CONNECTIONS = Quantity(
    "kafka_server_socket_server_metrics_connection_creation_total",
    "listener",
    "kafka.server:type=socket-server-metrics,listener=PLAINTEXT,networkProcessor=*",
    "connection-creation-total",
    "listener",
)
#: Kafka has no such MBean: it counts no connection that it refuses.
REFUSED_CONNECTIONS = Quantity("barnabas_connections_refused_total", "reason", "", "", "")


@dataclass(frozen=True)
class OurMeter:
    """By the address of a node's metrics."""

    url: str

    def watch(self, quantity: Quantity, seconds: int) -> Values:
        found: Values = {}
        began_s = time.monotonic()
        for second in range(seconds):
            time.sleep(max(0.0, began_s + second - time.monotonic()))
            for (name, labels), value in scrape(self.url).samples.items():
                if name == quantity.family:
                    found.setdefault(dict(labels)[quantity.label], []).append(value)
        return found


@dataclass(frozen=True)
class KafkaMeter:
    """By the port of Kafka's JMX. Values of one second that have the same key are added."""

    jmx_port: int

    def watch(self, quantity: Quantity, seconds: int) -> Values:
        command = [*java_program("MBeanValues.java"), str(self.jmx_port), str(seconds)]
        told = subprocess.run(
            [*command, quantity.bean, quantity.attribute],
            capture_output=True,
            text=True,
            check=True,
            timeout=seconds + 60,
        )
        found: dict[str, dict[str, float]] = {}
        for line in told.stdout.splitlines():
            told_of, _, value = line.partition("\t")
            second, _, bean = told_of.partition(" ")
            key = re.search(rf'{quantity.key}="?([^,"]*)', bean)
            assert key is not None, bean
            by_second = found.setdefault(key[1], {})
            by_second[second] = by_second.get(second, 0.0) + float(value)
        return {key: list(by_second.values()) for key, by_second in found.items()}


Meter = OurMeter | KafkaMeter


@dataclass
class Watch:
    """Watches in a thread of its own, from `after_s` on."""

    meter: Meter
    quantity: Quantity
    seconds: int
    after_s: float
    values: Values = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        time.sleep(self.after_s)
        self.values = self.meter.watch(self.quantity, self.seconds)

    def wait(self) -> Values:
        self._thread.join()
        return self.values
