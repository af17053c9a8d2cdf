"""Tools for tests, ours and our users': shipped with the package.

>>> from barnabas.testing import EmbeddedBroker
>>> with EmbeddedBroker() as broker:
...     broker.create_topic("orders", partitions=3)
...     host, port = broker.bootstrap_servers.split(":")

`sim` has a whole simulated world, for those who want to see what happens when it is a bad one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.testing.embedded import AsyncEmbeddedBroker, EmbeddedBroker
    from barnabas.testing.embedded_cluster import AsyncEmbeddedCluster, EmbeddedCluster
    from barnabas.testing.oidc import OidcIssuer
    from barnabas.testing.security import Security

__all__ = [
    "AsyncEmbeddedBroker",
    "AsyncEmbeddedCluster",
    "EmbeddedBroker",
    "EmbeddedCluster",
    "OidcIssuer",
    "Security",
]
_PLACES = {"OidcIssuer": "oidc", "Security": "security"}


def __getattr__(name: str) -> object:
    """Imported when asked for: the plug-in and the simulator's parts live in this package and do not need a broker."""
    if name in __all__:
        from importlib import import_module

        place = _PLACES.get(name, "embedded_cluster" if name.endswith("Cluster") else "embedded")
        return getattr(import_module(f"barnabas.testing.{place}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
