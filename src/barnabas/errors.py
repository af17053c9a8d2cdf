"""What the clients raise, in one place to import from.

>>> from barnabas.errors import BrokerError, ClientTimeoutError
"""

from barnabas.base.errors import BarnabasError, SettingsError
from barnabas.client.errors import *  # noqa: F403
from barnabas.client.errors import __all__ as _client_errors
from barnabas.net.errors import (
    AuthenticationFailedError,
    ConnectError,
    DisconnectedError,
    RequestTimeoutError,
    UnsupportedRequestError,
)

__all__ = [
    "AuthenticationFailedError",
    "BarnabasError",
    "ConnectError",
    "DisconnectedError",
    "RequestTimeoutError",
    "SettingsError",
    "UnsupportedRequestError",
]
__all__ += _client_errors
