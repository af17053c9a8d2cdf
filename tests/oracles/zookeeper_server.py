"""Apache Kafka of old, with the ZooKeeper that it needs: a broker of one node."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.oracles import WITH_ZOOKEEPER, end_process, java
from tests.oracles.kafka_server import KafkaServer
from tests.ports import free_ports

_START_TIMEOUT_S = 60


class KafkaWithZooKeeper(KafkaServer):
    """The same as `KafkaServer`, for releases before KRaft."""

    def __init__(self, folder: Path, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, overrides, release=WITH_ZOOKEEPER)
        (self._zookeeper_port,) = free_ports(1)
        self._zookeeper: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._start_zookeeper()
        try:
            super().start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        super().stop()
        process, self._zookeeper = self._zookeeper, None
        end_process(process, signal.SIGKILL)

    def format(self) -> Path:
        return self.write_properties()

    def _start_zookeeper(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        settings = self._folder / "zookeeper.properties"
        data = self._folder / "zookeeper"
        settings.write_text(
            f"dataDir={data}\nclientPort={self._zookeeper_port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
        )
        with (self._folder / "zookeeper.log").open("ab") as log:
            self._zookeeper = subprocess.Popen(
                [
                    *java("-Xmx128m", release=WITH_ZOOKEEPER),
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                    str(settings),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
            )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._zookeeper_answers():
            if self._zookeeper.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"ZooKeeper does not answer:\n{(self._folder / 'zookeeper.log').read_text()[-2000:]}"
                )
            time.sleep(0.05)

    def _zookeeper_answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._zookeeper_port), timeout=2).close()
        except OSError:
            return False
        return True

    def _settings(self) -> dict[str, str]:
        return {
            "broker.id": "1",
            "zookeeper.connect": f"127.0.0.1:{self._zookeeper_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self._folder / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        } | self._overrides
