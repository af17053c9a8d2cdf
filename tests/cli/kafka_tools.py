"""Kafka's command-line tools in one process, to set ours beside them."""

from __future__ import annotations

import json
import subprocess
from threading import Timer
from types import TracebackType
from typing import Final, Self

from tests.cli.tools import Told
from tests.oracles import java_program

_TIMEOUT_S: Final = 60
_CLASSES: Final = {
    "storage": "kafka.tools.StorageTool",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "acls": "org.apache.kafka.tools.AclCommand",
    "configs": "kafka.admin.ConfigCommand",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
}


class KafkaTools:
    """Runs the tools by our names for them."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            java_program("KafkaTools.java"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self

    def __call__(self, tool: str, *arguments: str, standard_input: str = "") -> Told:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = Timer(_TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            call = {"tool": _CLASSES[tool], "arguments": arguments, "input": standard_input}
            print(json.dumps(call), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        finally:
            timer.cancel()
        assert answer, f"{tool} did not end within {_TIMEOUT_S} s"
        return Told(**json.loads(answer))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=_TIMEOUT_S)
