"""Whether anybody is there to read from: asked before Spark is started, which takes long and then waits in vain."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import Final

from barnabas.spark.pipelines.failures import PipelineError

#: What settings of a project that hold the addresses of brokers end with, by custom.
_SERVERS: Final = "bootstrap.servers"
_TIMEOUT_S: Final = 3.0
#: Python takes more for digits, and does not make a number of all of it.
_PORT: Final = re.compile("[0-9]{1,5}")


def check_brokers(configuration: Mapping[str, str]) -> None:
    """Raise if at none of the addresses in a setting anybody listens. What is no address is passed over: files of the
    project may make more of it."""
    for name, value in configuration.items():
        if not name.lower().endswith(_SERVERS):
            continue
        addresses = [_address(part) for part in value.split(",") if part.strip()]
        known = [address for address in addresses if address is not None]
        if known and len(known) == len(addresses) and not any(_is_there(*address) for address in known):
            raise PipelineError(f"no broker answers at {value} ({name}): is it running, and is this its address?")


def _address(text: str) -> tuple[str, int] | None:
    host, _, port = text.strip().rpartition(":")
    # A client may be told the protocol of a listener in front of its address.
    host = host.rpartition("://")[2].strip("[]")
    return (host, int(port)) if host and _PORT.fullmatch(port) and int(port) <= 65535 else None


def _is_there(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), _TIMEOUT_S).close()
    except (OSError, UnicodeError):  # the latter of a name that no host can have, as `kafka..local`
        return False
    return True
