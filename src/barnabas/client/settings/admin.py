"""Settings of an admin client."""

from __future__ import annotations

from barnabas.base.settings import HIGH, LOW, MEDIUM, Int, Names, Registry, again, rule, setting
from barnabas.base.settings.allowed import HOSTS_AND_PORTS, at_least
from barnabas.base.settings.units import INT_MAX
from barnabas.client.settings.common import ClientSettings


class AdminSettings(ClientSettings, title="Admin", importance=HIGH):
    """Administration of a cluster."""

    bootstrap_servers: Names = again(default=(), allowed=HOSTS_AND_PORTS)

    bootstrap_controllers: Names = setting(
        "Controllers to talk to directly instead of brokers: host:port.", default=(), allowed=HOSTS_AND_PORTS
    )
    default_api_timeout_ms: Int = setting(
        "How long a call may take that has no timeout of its own.",
        default=60_000,
        allowed=at_least(0),
        importance=MEDIUM,
    )
    retries: Int = setting(
        "How often a failed request is sent again.", default=INT_MAX, allowed=at_least(0), importance=LOW
    )

    @rule("bootstrap_servers", "bootstrap_controllers")
    def _one_way_in(self) -> str | None:
        if bool(self.bootstrap_servers) == bool(self.bootstrap_controllers):
            return "give brokers or controllers to connect to, and not both"
        return None


ADMIN_SETTINGS = Registry("admin", AdminSettings)
