"""The tables of metrics in the docs: `python -m barnabas.broker.metrics.markdown docs/metrics.md` writes them."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path
from typing import Final

from barnabas.broker.metrics.kafka_mbeans import metrics_of, told_for
from barnabas.broker.metrics.node_metrics import FAMILIES

_BEGIN: Final = "<!-- made by barnabas.broker.metrics.markdown -->"
_END: Final = "<!-- end of what is made -->"


def table() -> str:
    """All families, then all MBeans without one."""
    lines = [
        _BEGIN,
        "",
        "### What there is",
        "",
        "| metric | kind | MBean of Kafka's | what it tells |",
        "|---|---|---|---|",
    ]
    for family in sorted(FAMILIES, key=lambda each: each.name):
        mbean = "" if family.mbean is None else f"`{family.mbean}`"
        lines.append(f"| `{family.name}` | {family.kind} | {mbean} | {family.help} |")
    lines += ["", "### MBeans without a metric", "", "| MBean | why |", "|---|---|"]
    for mbean in mbeans():
        told = told_for(mbean, FAMILIES)
        if told is not None and told.family is None:
            lines.append(f"| `{mbean}` | {told.reason} |")
    return "\n".join([*lines, "", _END])


def mbeans() -> list[str]:
    """Of a broker and controller of Kafka 4.3.1, as it was dumped."""
    facts = files("barnabas.broker.metrics").joinpath("kafka_mbeans.txt").read_text(encoding="utf-8")
    return [metric for line in facts.splitlines() for metric in metrics_of(line)]


def write(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    page.write_text(before + table() + after, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
