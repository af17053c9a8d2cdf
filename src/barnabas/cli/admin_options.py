"""How a tool gets at an admin client: from its options to a connection, and from failures to words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from barnabas.base.errors import BrokerError
from barnabas.cli.warnings_shown import show_warnings

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.net.security import ChannelSecurity

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Where the cluster is, as the options tell."""

    bootstrap_server: str | None
    command_config: str | None = None
    bootstrap_controller: str | None = None

    def run(self, work: Callable[[Admin], Awaitable[T]], settings: Mapping[str, Any] | None = None) -> T:
        """Do some work with an admin client; `settings` stand over those of the file."""
        show_warnings()
        return asyncio.run(self._run(work, settings or {}))

    async def _run(self, work: Callable[[Admin], Awaitable[T]], settings: Mapping[str, Any]) -> T:
        from barnabas.client.admin import Admin

        async with Admin(self.settings() | dict(settings)) as admin:
            return await work(admin)

    def settings(self) -> dict[str, Any]:
        """By Kafka's names. Where the cluster is, the command line says, whatever the file does."""
        from barnabas.base.properties import load_properties_file

        found: dict[str, Any] = dict(load_properties_file(self.command_config)) if self.command_config else {}
        if self.bootstrap_server is None and self.bootstrap_controller is None:
            raise click.UsageError("--bootstrap-server is missing")
        if self.bootstrap_server is not None:
            found.pop("bootstrap.controllers", None)
            found["bootstrap.servers"] = self.bootstrap_server
        else:
            found.pop("bootstrap.servers", None)
            found["bootstrap.controllers"] = self.bootstrap_controller
        return found

    def security(self) -> ChannelSecurity:
        """How connections besides those of the admin client are secured."""
        from barnabas.base.system_runtime import new_randomness
        from barnabas.client.security import security_of
        from barnabas.client.settings import AdminSettings

        return security_of(AdminSettings.load(self.settings()), new_randomness())


def reason(error: BaseException) -> str:
    """Why something failed, in the broker's own words if it had some."""
    if isinstance(error, BrokerError):
        return error.message or error.code.text
    return str(error)
