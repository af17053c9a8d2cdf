"""The answer to a request that failed as a whole, for any API: the error wherever its response has room for one.

Responses repeat the shape of their requests (topics, in them partitions), so they need not be written one by one: the
lists of a request are mirrored down to the first level that carries an error code, and its names are taken over. An
element a step, since there may be very many; only the first of them get the message too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any, Final

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.turns import Steps
from barnabas.wire.apis import api
from barnabas.wire.message import Request, Response
from barnabas.wire.schema import Array, Field, Struct, default_of
from barnabas.wire.types import INT32, INT64, STRING

_MOST_MESSAGES: Final = 1000


def error_response(context: RequestContext, request: Request, code: ErrorCode, message: str | None) -> Steps[Response]:
    messages = chain(repeat(message or code.text, _MOST_MESSAGES), repeat(""))
    response: Response = yield from _mirror(api(request.API_KEY).response, request, context.version, code, messages)
    return response


def _mirror(cls: type[Struct], asked: object, version: int, code: ErrorCode, messages: Iterator[str]) -> Steps[Any]:
    answer = default_of(cls)
    fields = {each.name: each for each in cls.FIELDS if version in each.versions}
    for name, each in fields.items():
        if name == "error_code":
            answer.error_code = int(code)
        elif name == "error_message":
            answer.error_message = next(messages)
        elif isinstance(asked, Struct) and _is_repeated(asked, each):
            value = getattr(asked, name)
            if value is not None or version in each.nullable:
                setattr(answer, name, value)
        elif (isinstance(asked, str) and each.type is STRING) or (isinstance(asked, int) and each.type is INT32):
            setattr(answer, name, asked)
            asked = None
        elif each.type in (INT32, INT64) and each.is_required:
            setattr(answer, name, -1)
    if "error_code" not in fields and isinstance(asked, Struct):
        for name, each in fields.items():
            if _tells_errors(each, version):
                wanted = _first_list(asked, version)
                element: Any = each.type.element  # type: ignore[union-attr]
                mirrored: list[Any] = []
                setattr(answer, name, mirrored)
                for item in wanted:
                    mirrored.append((yield from _mirror(element, item, version, code, messages)))
                    yield None
    return answer


def _is_repeated(asked: Struct, each: Field) -> bool:
    """Whether the field has the same meaning in the request: of a list, if it has elements of the same class."""
    if not hasattr(asked, each.name) or not isinstance(each.type, Array):
        return hasattr(asked, each.name)
    theirs = next(field.type for field in asked.FIELDS if field.name == each.name)
    return isinstance(theirs, Array) and theirs.element is each.type.element


def _tells_errors(each: Field, version: int) -> bool:
    """Whether the field is a list whose elements, or theirs, carry an error code."""
    element = each.type.element if isinstance(each.type, Array) else None
    if not (isinstance(element, type) and issubclass(element, Struct)):
        return False
    fields = [inner for inner in element.FIELDS if version in inner.versions]
    return any(inner.name == "error_code" for inner in fields) or any(_tells_errors(inner, version) for inner in fields)


def _first_list(asked: Struct, version: int) -> list[Any]:
    for each in asked.FIELDS:
        if isinstance(each.type, Array) and version in each.versions:
            return getattr(asked, each.name) or []
    return []
