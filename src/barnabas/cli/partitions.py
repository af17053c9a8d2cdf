"""Partitions as options name them: `clicks`, or `clicks:0,1`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import click

from barnabas.base.ids import TopicPartition


class Named(NamedTuple):
    """Topics that are meant whole, and single partitions; each once, in the order in which they were named."""

    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]


def parse_partitions(texts: Iterable[str], option: str = "--topic") -> Named:
    topics: dict[str, None] = {}
    partitions: dict[TopicPartition, None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if not colon:
            topics[topic] = None
            continue
        try:
            partitions |= dict.fromkeys(TopicPartition(topic, int(number)) for number in numbers.split(","))
        except ValueError:
            raise click.UsageError(f"{option}: {text!r} is not of the form TOPIC or TOPIC:0,1,2") from None
    return Named(tuple(topics), tuple(partitions))
