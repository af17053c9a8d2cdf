"""Schemas by their id, from a schema registry over HTTP. Each is asked for once in the life of a worker process."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit
from urllib.request import Request, urlopen

from barnabas.spark.core.errors import OptionError, SparkConnectorError
from barnabas.spark.decoding.bad_records import BadKind, BadValueError

_TIMEOUT_S: Final = 10.0
#: Waits between tries of all addresses: a registry that is restarted is back within this, mostly.
_WAITS_S: Final = (0.2, 0.5, 1.0, 2.0, 4.0)
_MOST_ANSWER_BYTES: Final = 16 << 20
_MOST_REFERENCES: Final = 1000
#: No such subject, version or schema. Others say that there is nothing at this address at all.
_NOT_THERE: Final = (40401, 40402, 40403)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """`references` are schemas whose types this one names, each after those that it needs itself."""

    text: str
    kind: str = "AVRO"
    references: tuple[str, ...] = ()


class RegistryError(SparkConnectorError):
    """The registry cannot be asked. Says nothing of the record, so the task fails and is tried again."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: Any


def check_urls(text: str | None) -> tuple[str, ...]:
    """The addresses in an option, split at commas. Raises OptionError."""
    urls = tuple(url.strip().rstrip("/") for url in (text or "").split(",") if url.strip())
    for url in urls:
        try:
            parts = urlsplit(url)
            is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_right = False
        if not is_right:
            raise OptionError(
                "schemaRegistryUrl must be http://host:port or https://…, or several with commas between."
            )
    return urls


class SchemaRegistry:
    """A registry at one or more addresses. `user:password` comes from `auth`, or stands in the address."""

    def __init__(self, url: str, auth: str | None = None, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._bases = [_Base.of(each, auth) for each in check_urls(url)]
        self._sleep = sleep
        self._known: dict[int, RegisteredSchema] = {}

    def schema(self, schema_id: int) -> RegisteredSchema:
        """The schema with this id. Raises BadValueError if there is none, RegistryError if nobody can say."""
        known = self._known.get(schema_id)
        if known is None:
            try:
                known = self._known[schema_id] = self._fetched(schema_id)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise RegistryError(
                    f"What the schema registry answered for schema {schema_id} cannot be read "
                    f"({type(error).__name__}: {error}). Is it a schema registry?"
                ) from error
        return known

    def _fetched(self, schema_id: int) -> RegisteredSchema:
        answer = self._get(f"/schemas/ids/{schema_id}")
        if answer.status == 404:
            raise BadValueError(BadKind.UNKNOWN_SCHEMA, f"the registry has no schema with the id {schema_id}")
        references: dict[tuple[str, int], str] = {}
        self._add_references(answer.body, references)
        return RegisteredSchema(
            str(answer.body["schema"]), str(answer.body.get("schemaType") or "AVRO"), tuple(references.values())
        )

    def _add_references(self, body: Mapping[str, Any], found: dict[tuple[str, int], str]) -> None:
        for reference in body.get("references") or ():
            place = (str(reference["subject"]), int(reference["version"]))
            if place in found or len(found) > _MOST_REFERENCES:
                continue
            answer = self._get(f"/subjects/{quote(place[0], safe='')}/versions/{place[1]}")
            if answer.status == 404:
                explanation = f"the registry has no version {place[1]} of {place[0]}, which a schema refers to"
                raise BadValueError(BadKind.UNKNOWN_SCHEMA, explanation)
            self._add_references(answer.body, found)
            found[place] = str(answer.body["schema"])

    def _get(self, path: str) -> _Answer:
        failure = ""
        for wait_s in (*_WAITS_S, None):
            for base in self._bases:
                try:
                    return self._ask(base, path)
                except (OSError, HTTPException, _TryAgainError) as error:
                    failure = f"{base.url}: {error}"
            if wait_s is not None:
                self._sleep(wait_s)
        raise RegistryError(
            f"The schema registry did not answer, {len(_WAITS_S) + 1} times; the last time: {failure}. The records are "
            "not lost and not bad: start the registry, or correct schemaRegistryUrl, and run the query again."
        )

    def _ask(self, base: _Base, path: str) -> _Answer:
        request = Request(base.url + path, headers={"Accept": "application/vnd.schemaregistry.v1+json", **base.headers})
        try:
            with urlopen(request, timeout=_TIMEOUT_S) as response:
                status, text = int(response.status), response.read(_MOST_ANSWER_BYTES)
        except HTTPError as error:
            with error:
                status, text = error.code, error.read(_MOST_ANSWER_BYTES)
        if status == 429 or status >= 500:
            raise _TryAgainError(f"status {status}")
        try:
            body = json.loads(text)
            if status == 404 and body["error_code"] in _NOT_THERE:
                return _Answer(status, body)
            if status == 200 and "schema" in body:
                return _Answer(status, body)
        except (ValueError, TypeError, KeyError):
            pass
        hint = " Give user:password in schemaRegistryAuth." if status in (401, 403) else " Is it a schema registry?"
        raise RegistryError(f"{base.url} answered a request for {path} with status {status}.{hint}")


class _TryAgainError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Base:
    """An address without its password, which must not stand in a log; that goes into a header."""

    url: str
    headers: dict[str, str]

    @classmethod
    def of(cls, url: str, auth: str | None) -> _Base:
        parts = urlsplit(url)
        if parts.username is not None and auth is None:
            auth = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        place = parts.netloc.rpartition("@")[2]
        headers = {} if auth is None else {"Authorization": f"Basic {base64.b64encode(auth.encode()).decode()}"}
        return cls(parts._replace(netloc=place).geturl(), headers)


_registries: dict[tuple[str, str | None], SchemaRegistry] = {}
_lock = threading.Lock()


def shared_registry(url: str, auth: str | None) -> SchemaRegistry:
    """The registry of this worker process: the next task finds the schemas that were fetched for this one."""
    with _lock:
        return _registries.setdefault((url, auth), SchemaRegistry(url, auth))
