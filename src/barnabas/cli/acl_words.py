"""The words of ACLs on command lines: principals and operations."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import click

from barnabas.client.admin.acls import AclOperation
from barnabas.metadata.standard_authorizer import is_principal

#: Operations by all that people write for them.
_OPERATIONS: Final = {
    each.name.replace("_", "").lower(): each for each in AclOperation if each.name not in ("UNKNOWN", "ANY")
}


def parse_principal(text: str) -> str:
    if not is_principal(text.strip()):
        raise click.UsageError(f"{text!r} is no principal: write type and name, as in User:ann")
    return text.strip()


def parse_operation(text: str) -> AclOperation:
    """`DescribeConfigs`, `describe_configs` and so on."""
    found = _OPERATIONS.get(text.strip().replace("_", "").lower())
    if found is None:
        names = ", ".join(map(operation_name, _OPERATIONS.values()))
        raise click.UsageError(f"there is no operation {text!r}, only {names}")
    return found


def operation_name(operation: IntEnum) -> str:
    """As Kafka's tools write it.

    >>> operation_name(AclOperation.DESCRIBE_CONFIGS)
    'DescribeConfigs'
    """
    return "".join(word.capitalize() for word in operation.name.split("_"))
