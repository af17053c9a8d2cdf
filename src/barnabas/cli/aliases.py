"""Kafka's own names for our tools: `kafka-topics.sh --create …` does what `barnabas topics --create …` does.

They are installed as scripts, with and without `.sh`. All lead to `run`, which sees from its own name what is meant.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final

from barnabas.cli.main import FAILED, TOOLS, main, tell

#: Kafka's name, and the words with which ours begins.
ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "kafka-acls": ("acls",),
    "kafka-broker-api-versions": ("broker-api-versions",),
    "kafka-cluster": ("cluster",),
    "kafka-configs": ("configs",),
    "kafka-console-consumer": ("console-consumer",),
    "kafka-console-producer": ("console-producer",),
    "kafka-consumer-groups": ("consumer-groups",),
    "kafka-consumer-perf-test": ("consumer-perf-test",),
    "kafka-delegation-tokens": ("delegation-tokens",),
    "kafka-delete-records": ("delete-records",),
    "kafka-dump-log": ("dump-log",),
    "kafka-features": ("features",),
    "kafka-get-offsets": ("get-offsets",),
    "kafka-leader-election": ("leader-election",),
    "kafka-log-dirs": ("log-dirs",),
    "kafka-metadata-quorum": ("metadata-quorum",),
    "kafka-metadata-shell": ("metadata-shell",),
    "kafka-producer-perf-test": ("producer-perf-test",),
    "kafka-server-start": ("server", "start"),
    "kafka-server-stop": ("server", "stop"),
    "kafka-storage": ("storage",),
    "kafka-topics": ("topics",),
    "kafka-transactions": ("transactions",),
    "kafka-verifiable-consumer": ("verifiable-consumer",),
    "kafka-verifiable-producer": ("verifiable-producer",),
}

_ENDINGS: Final = (".exe", ".py", ".sh", ".bat")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the tool that has this name with Kafka; the exit code."""
    called, *given = sys.argv if arguments is None else arguments
    name = alias_of(called)
    words = ALIASES.get(name)
    if words is None or words[0] not in TOOLS:
        tell(f"{name}: there is no such tool here (see 'barnabas --help' for those that there are)")
        return FAILED
    return main([*words, *given])


def alias_of(path: str) -> str:
    """The bare name under which a script was called.

    >>> alias_of("/usr/bin/kafka-topics.sh"), alias_of("kafka-topics")
    ('kafka-topics', 'kafka-topics')
    """
    name = PurePath(path.replace("\\", "/")).name
    while name.endswith(_ENDINGS):
        name = name.rpartition(".")[0]
    return name
