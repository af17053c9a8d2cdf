"""From the name of an MBean to that of a family: what an operator knows from Kafka can be found here."""

from __future__ import annotations

import re
from typing import Final

from barnabas.base.metrics.exposition import Family, Kind

_NOT_IN_A_NAME: Final = re.compile(r"[^a-z0-9_]")


def of_mbean(mbean: str, kind: Kind, text: str) -> Family:
    """The family for an MBean, or for an attribute of it, named behind a `#`."""
    return Family(family_name(mbean, kind), kind, text, mbean)


def family_name(mbean: str, kind: Kind) -> str:
    """`kafka.server:type=ReplicaManager,name=IsrShrinksPerSec` → `kafka_server_replicamanager_isrshrinks_total`."""
    bean, _, attribute = mbean.partition("#")
    domain, _, rest = bean.partition(":")
    properties = dict(each.split("=", 1) for each in rest.split(","))
    parts = [domain, properties["type"], properties.get("name", ""), attribute]
    name = "_".join(each for each in parts if each)
    name = _NOT_IN_A_NAME.sub("_", name.lower().removesuffix("persec"))
    return f"{name.removesuffix('_total')}_total" if kind == "counter" else name


def own(name: str, kind: Kind, text: str) -> Family:
    """A family that Kafka has no MBean for."""
    return Family(f"barnabas_{name}", kind, text)
