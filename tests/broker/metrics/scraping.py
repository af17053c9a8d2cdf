"""A scrape as Prometheus would do it, read by somebody else's parser."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families


class Scrape:
    """The samples of one scrape, by name and labels."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = list(text_string_to_metric_families(text))
        self.samples: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        for family in self.families:
            for sample in family.samples:
                key = (sample.name, tuple(sorted(sample.labels.items())))
                assert key not in self.samples, f"{key} is there twice"
                self.samples[key] = sample.value

    def __getitem__(self, name: str) -> float:
        return self.value(name)

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name, tuple(sorted(labels.items()))]

    def sum(self, name: str, **labels: str) -> float:
        """Of all samples that have these labels."""
        wanted = set(labels.items())
        found = [value for (each, own), value in self.samples.items() if each == name and wanted <= set(own)]
        assert found, f"there is no {name} with {labels}"
        return sum(found)

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.samples}


def scrape(url: str, headers: Mapping[str, str] | None = None) -> Scrape:
    with urllib.request.urlopen(urllib.request.Request(url, headers=dict(headers or {})), timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return Scrape(answer.read().decode())
