"""The request log, Kafka's `kafka.request.logger`, and the log of slow requests.

At DEBUG each request that was answered is a line with what was asked, what was answered, and the parts of its time, in
the form of Kafka's; bodies that are long are told by their size. At TRACE they are whole, up to a bound. Secrets are
never shown: neither what passwords and tokens are proven with, nor values of settings that are not known to be none.

Both hang on the meter of the server, which tells of finished requests; nothing is asked of a request while both are
off. What is logged at DEBUG is kept from the moment a request is dispatched: frames are copied, and decoded again, for
they are changed by those who answer them, and often never decoded.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from barnabas.base.log_context import TRACE, logger
from barnabas.base.settings import Password
from barnabas.broker.configs.config_resources import is_secret
from barnabas.broker.configs.logger_levels import REQUEST_LOG, on_levels_changed
from barnabas.net import Connection, RequestMeter, Server
from barnabas.net.connection import CapturedRequest
from barnabas.storage.settings import TOPIC_SETTINGS
from barnabas.wire.apis import Api, ApiKey, api
from barnabas.wire.headers import RequestHeader, ResponseHeader
from barnabas.wire.json_form import to_json
from barnabas.wire.message import Message

_log = logger(REQUEST_LOG)
_slow_log = logger(f"{REQUEST_LOG}.slow")

_MS: Final = 1_000_000
#: Longer frames are told by their size, at TRACE too.
_MOST_BYTES: Final = 64 * 1024
#: At DEBUG, longer bodies are: so many characters of JSON.
_SHORT: Final = 1500
_SECRETS: Final = frozenset({"authBytes", "hmac", "saltedPassword", "salt", "requestData", "responseData"})
#: Their clients let them wait, for records or for each other, and say for how long.
_MAY_WAIT: Final = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.SHARE_FETCH})


class RequestLog:
    """Both logs of one node, on the server's meter while it is started."""

    def __init__(self, server: Server, protocols: Mapping[str, str]) -> None:
        """`protocols`: the security protocol of each listener."""
        self._server = server
        self._protocols = protocols
        self._stop_slow: Callable[[], None] | None = None
        self._stop_all: Callable[[], None] | None = None
        self._forget_levels: Callable[[], None] | None = None
        self._slow_ms = -1

    def start(self, slow_ms: int) -> None:
        """Begin to tell of requests that take longer, and of all when the level asks for it: now, or later."""
        self._forget_levels = on_levels_changed(self._follow_level)
        self._follow_level()
        self.set_slow_ms(slow_ms)

    def stop(self) -> None:
        if self._forget_levels is not None:
            self._forget_levels()
            self._forget_levels = None
        self.set_slow_ms(-1)
        self._set_whole(False)

    def set_slow_ms(self, slow_ms: int) -> None:
        """-1 for none."""
        if slow_ms == self._slow_ms:
            return
        self._slow_ms = slow_ms
        if self._stop_slow is not None:
            self._stop_slow()
            self._stop_slow = None
        if slow_ms >= 0:
            self._stop_slow = self._meter.observe(self._tell_if_slow, slow_ms * _MS)

    @property
    def _meter(self) -> RequestMeter:
        return self._server.meter

    def _follow_level(self) -> None:
        self._set_whole(_log.isEnabledFor(logging.DEBUG))

    def _set_whole(self, is_on: bool) -> None:
        if is_on == (self._stop_all is not None):
            return
        if self._stop_all is None:
            self._server.capture_requests(True)
            self._stop_all = self._meter.observe(self._tell)
        else:
            self._stop_all()
            self._stop_all = None
            self._server.capture_requests(False)

    def _tell(self, connection: Connection) -> None:
        captured, connection.captured = connection.captured, None
        if captured is None:
            return  # it was begun before the log was turned on
        described = self._description(connection, captured, is_whole=_log.isEnabledFor(TRACE))
        text = json.dumps(described, separators=(",", ":"), ensure_ascii=False)
        _log.debug("Completed request:%s", text, extra={"fields": described, "summary": "Completed request"})

    def _description(self, connection: Connection, captured: CapturedRequest, *, is_whole: bool) -> dict[str, Any]:
        request, response = _bodies(connection, captured, is_whole=is_whole)
        local = self._server.endpoints.get(connection.listener, ("", 0))
        name, version = connection.client_software
        return {
            "isForwarded": False,
            "requestHeader": {
                "requestApiKey": connection.api_key,
                "requestApiVersion": connection.api_version,
                "correlationId": connection.correlation_id,
                "clientId": connection.client_id,
                "requestApiKeyName": _name(connection.api_key),
            },
            "request": request,
            "response": response,
            "connection": f"{local[0]}:{local[1]}-{connection.peer}-{connection.id}",
            **_times(connection),
            "securityProtocol": self._protocols.get(connection.listener, "UNKNOWN"),
            "principal": connection.principal,
            "listener": connection.listener,
            "clientInformation": {"softwareName": name, "softwareVersion": version},
            "requestSizeBytes": connection.request_bytes,
            "responseSizeBytes": connection.response_bytes,
        }

    def _tell_if_slow(self, connection: Connection) -> None:
        took_ns = connection.total_time_ns
        if connection.api_key in _MAY_WAIT:
            took_ns -= connection.remote_time_ns
        if took_ns < self._slow_ms * _MS:
            return
        times = _times(connection)
        name, client = _name(connection.api_key), connection.client_id
        _slow_log.warning(
            "%s v%d of client %s at %s, as %s on %s, took %s ms: %s in the queue, %s worked on, %s waiting for others, "
            "%s until its answer was sent, %s sending it; %d bytes were asked, %d answered",
            name,
            connection.api_version,
            "(none)" if client is None else repr(client),
            connection.peer,
            connection.principal,
            connection.listener,
            times["totalTimeMs"],
            times["requestQueueTimeMs"],
            times["localTimeMs"],
            times["remoteTimeMs"],
            times["responseQueueTimeMs"],
            times["sendTimeMs"],
            connection.request_bytes,
            connection.response_bytes,
            extra={
                "fields": {"api": name, "version": connection.api_version, "clientId": client, "peer": connection.peer}
                | {"principal": connection.principal, "listener": connection.listener}
                | times
                | {"requestSizeBytes": connection.request_bytes, "responseSizeBytes": connection.response_bytes},
                "summary": "Slow request",
            },
        )


def _times(connection: Connection) -> dict[str, float]:
    return {
        "totalTimeMs": _ms(connection.total_time_ns),
        "requestQueueTimeMs": _ms(connection.queue_time_ns),
        "localTimeMs": _ms(connection.local_time_ns),
        "remoteTimeMs": _ms(connection.remote_time_ns),
        "throttleTimeMs": connection.throttle_time_ms,
        "responseQueueTimeMs": _ms(connection.response_queue_time_ns),
        "sendTimeMs": _ms(connection.response_send_time_ns),
    }


def _ms(time_ns: int) -> float:
    return round(time_ns / _MS, 3)


def _name(key: int) -> str:
    try:
        return ApiKey(key).name
    except ValueError:
        return str(key)


def _bodies(connection: Connection, captured: CapturedRequest, *, is_whole: bool) -> tuple[Any, Any]:
    """Request and response as values for JSON."""
    version = connection.api_version
    try:
        asked = api(connection.api_key)
    except KeyError:
        return _size(connection.request_bytes), _size(connection.response_bytes)
    request = _size(connection.request_bytes)
    if captured.frame is not None:
        request = _body(asked, captured.frame, version, of_request=True, is_whole=is_whole) or request
    response: Any = _size(connection.response_bytes) if connection.response_bytes else None
    if captured.answer is not None:
        response = _body(asked, captured.answer[4:], version, of_request=False, is_whole=is_whole) or response
    return request, response


def _body(asked: Api, frame: bytes, version: int, *, of_request: bool, is_whole: bool) -> Any:
    """None if it is not to be shown, or cannot be read: an answer to a version that is not served is in another."""
    if len(frame) > _MOST_BYTES:
        return None
    try:
        body: Message
        if of_request:
            _, start = RequestHeader.decode_prefix(frame, asked.request_header_version(version))
            body, _ = asked.request.decode_prefix(memoryview(frame), version, start)
        else:
            _, start = ResponseHeader.decode_prefix(frame, asked.response_header_version(version))
            body, _ = asked.response.decode_prefix(memoryview(frame), version, start)
        shown = without_secrets(to_json(body, version))
    except Exception:
        return None
    return shown if is_whole or len(json.dumps(shown)) <= _SHORT else None


def without_secrets(value: Any) -> Any:
    """The same value, of any message as JSON, with nothing in it that lets somebody in."""
    if isinstance(value, list):
        return [without_secrets(each) for each in value]
    if not isinstance(value, dict):
        return value
    hides_value = "value" in value and isinstance(value.get("name"), str) and _may_be_secret(value["name"])
    return {
        name: Password.HIDDEN
        if (name in _SECRETS and each) or (hides_value and name == "value" and each is not None)
        else without_secrets(each)
        for name, each in value.items()
    }


def _may_be_secret(setting: str) -> bool:
    known = TOPIC_SETTINGS.get(setting)
    return known.secret if known is not None else is_secret(setting)


def _size(size_bytes: int) -> dict[str, int]:
    return {"sizeInBytes": size_bytes}
