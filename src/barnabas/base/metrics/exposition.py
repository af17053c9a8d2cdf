"""Families of samples as text for Prometheus, written bit by bit: whoever has very many samples pauses in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from barnabas.base.metrics.prometheus import escaped_help, number_text
from barnabas.base.metrics.prometheus import escaped_label as escaped

__all__ = ["Exposition", "Family", "Kind", "by_name", "escaped", "labels", "whole_text"]

Kind = Literal["counter", "gauge", "histogram", "summary"]
#: So much of the text is put together at a time.
_LINES_PER_STEP: Final = 5_000


@dataclass(frozen=True, slots=True)
class Family:
    """Samples of one name. `mbean` is where Kafka has the same, None for what it has not: its name with `*` for what
    varies, and of those with attributes that are metrics of their own, the attribute behind a `#`."""

    name: str
    kind: Kind
    help: str
    mbean: str | None = None


def labels(**values: object) -> str:
    """Labels as they stand in a sample, escaped, with braces; an underscore at the end of a name is left out."""
    inside = ",".join(f'{name.rstrip("_")}="{escaped(str(value))}"' for name, value in values.items())
    return f"{{{inside}}}"


class Exposition:
    """The samples of one scrape."""

    def __init__(self) -> None:
        self._lines: dict[Family, list[str]] = {}

    @property
    def sample_count(self) -> int:
        return sum(map(len, self._lines.values()))

    def add(self, family: Family, value: float, labels: str = "") -> None:
        self.lines_of(family).append(f"{family.name}{labels} {number_text(value)}")

    def lines_of(self, family: Family) -> list[str]:
        """Where lines of a family go, for those who write many: `name{labels} value`."""
        lines = self._lines.get(family)
        if lines is None:
            lines = self._lines[family] = []
        return lines

    def histogram(
        self, family: Family, bounds: Sequence[float], counts: Sequence[int], total: float, labels: str = ""
    ) -> None:
        """`counts` has one more than there are bounds; `labels` are without what is in a bucket."""
        lines, inside = self.lines_of(family), labels[1:-1]
        comma = "," if inside else ""
        seen = 0
        for bound, count in zip(bounds, counts, strict=False):
            seen += count
            lines.append(f'{family.name}_bucket{{{inside}{comma}le="{bound:g}"}} {seen}')
        everything = sum(counts)
        lines.append(f'{family.name}_bucket{{{inside}{comma}le="+Inf"}} {everything}')
        lines.append(f"{family.name}_sum{labels} {number_text(total)}")
        lines.append(f"{family.name}_count{labels} {everything}")

    def families(self) -> Iterator[tuple[Family, list[str]]]:
        """Each family with its lines."""
        yield from self._lines.items()

    def text(self) -> Iterator[str]:
        """All of it, in pieces."""
        for family, lines in self._lines.items():
            yield f"# HELP {family.name} {escaped_help(family.help)}\n# TYPE {family.name} {family.kind}\n"
            for start in range(0, len(lines), _LINES_PER_STEP):
                yield "\n".join(lines[start : start + _LINES_PER_STEP]) + "\n"


def whole_text(exposition: Exposition) -> str:
    return "".join(exposition.text())


def by_name(families: Iterable[Family]) -> dict[str, Family]:
    return {each.name: each for each in families}
