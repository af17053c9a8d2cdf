"""Which build a client is, and since when it is there (Kafka's group `app-info`)."""

from __future__ import annotations

from typing import Final

from barnabas._version import Build
from barnabas.base.metrics.registry import MetricsRegistry

GROUP: Final = "app-info"


def tell_app_info(registry: MetricsRegistry, build: Build, started_ms: int) -> None:
    """Values are numbers here: of what is a text in Kafka the value is 1, and the text is a tag of the same name."""
    version, commit = (("version", build.version),), (("commit-id", build.commit),)
    registry.gauge("version", GROUP, lambda now_ms: 1, "Always 1; the version is a tag.", tags=version)
    registry.gauge("commit-id", GROUP, lambda now_ms: 1, "Always 1; the commit of the build is a tag.", tags=commit)
    registry.gauge("start-time-ms", GROUP, lambda now_ms: started_ms, "When the client was made, since 1970.")
