"""Bytes on sockets: the connections that a node accepts, and those that it opens.

`server.Server` is the way in for accepting, `channel.Channel` for asking others, `runtime` for the real world.
"""

from barnabas.net._kernel.metering import RequestFields, RequestMeter
from barnabas.net.channel import Channel, ChannelLimits
from barnabas.net.connection import Connection
from barnabas.net.errors import (
    AnswerTooLargeError,
    AuthenticationFailedError,
    ChannelError,
    ConnectError,
    DisconnectedError,
    ListenError,
    NotSentError,
    RequestTimeoutError,
    SslAuthenticationError,
    UnsupportedRequestError,
)
from barnabas.net.limits import ListenerLimits, ServerLimits
from barnabas.net.listener import Listener, ListenerSpec
from barnabas.net.phases import ConnectionPhase
from barnabas.net.server import Server

__all__ = [
    "AnswerTooLargeError",
    "AuthenticationFailedError",
    "Channel",
    "ChannelError",
    "ChannelLimits",
    "ConnectError",
    "Connection",
    "ConnectionPhase",
    "DisconnectedError",
    "ListenError",
    "Listener",
    "ListenerLimits",
    "ListenerSpec",
    "NotSentError",
    "RequestFields",
    "RequestMeter",
    "RequestTimeoutError",
    "Server",
    "ServerLimits",
    "SslAuthenticationError",
    "UnsupportedRequestError",
]
