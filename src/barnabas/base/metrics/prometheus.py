"""Metrics as text that Prometheus scrapes (its text format, version 0.0.4).

`record-send-total` of the group `producer-metrics` becomes `kafka_producer_record_send_total{client_id="…"}`. Kafka
uses one name for a whole client, a topic of it and a partition of it; here `topic_` or `partition_` tells them apart,
so that a sum over one name counts nothing twice.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

from barnabas.base.foreign_text import told_apart
from barnabas.base.metrics.registry import Metric, MetricName

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_LABELS: Final = {"client-id": "client_id", "node-id": "node"}
_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_]")


def prometheus_text(metrics: Iterable[Metric]) -> str:
    """The metrics of one client or of several, each name with its help and type once."""
    families: dict[str, list[Metric]] = {}
    for metric in metrics:
        families.setdefault(family_name(metric.name), []).append(metric)
    lines: list[str] = []
    for family, members in families.items():
        lines.append(f"# HELP {family} {escaped_help(members[0].name.description)}")
        lines.append(f"# TYPE {family} {'counter' if members[0].is_counter else 'gauge'}")
        lines += (f"{family}{{{_labels(each.name)}}} {number_text(each.value())}" for each in members)
    return "\n".join(lines) + "\n" if lines else ""


def family_name(name: MetricName) -> str:
    """What Prometheus calls a metric."""
    tags = {key for key, _ in name.tags}
    group = name.group.removesuffix("-metrics")
    for finest in ("partition", "topic"):
        if finest in tags and finest not in group:
            group += f"-{finest}"
            break
    return _NOT_IN_A_NAME.sub("_", f"kafka_{group.removeprefix('kafka-')}_{name.name}")


def _labels(name: MetricName) -> str:
    return ",".join(
        f'{_LABELS.get(key, _NOT_IN_A_NAME.sub("_", key))}="{escaped_label(_label_value(key, value))}"'
        for key, value in name.tags
    )


def _label_value(key: str, value: str) -> str:
    return value.removeprefix("node-") if key == "node-id" else value


def escaped_label(text: str) -> str:
    """The value of a label: nobody's name can end it, or the line, or be endless."""
    return told_apart(text).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def escaped_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def number_text(value: float) -> str:
    """A value; whole numbers stay whole, also those that have a name."""
    if isinstance(value, int):
        return str(int(value))
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
