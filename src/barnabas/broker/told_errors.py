"""The errors in an answer, wherever its declaration has room for one."""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from barnabas.wire.schema import Array, Struct

#: So many elements of an answer are looked at: the errors of one request are mostly alike.
_MOST_ELEMENTS: Final = 500
_CODE: Final = "error_code"


class _Plan(NamedTuple):
    """Where errors may stand in a struct: in itself, and in those of its arrays."""

    has_code: bool
    arrays: tuple[tuple[str, type[Struct]], ...]


@cache
def _plan(kind: type[Struct]) -> _Plan:
    arrays = []
    for field in kind.FIELDS:
        element = field.type.element if isinstance(field.type, Array) else None
        if isinstance(element, type) and issubclass(element, Struct) and any(_plan(element)):
            arrays.append((field.name, element))
    return _Plan(any(field.name == _CODE for field in kind.FIELDS), tuple(arrays))


def told_errors(response: Struct) -> list[int]:
    """Codes but for that of no error, of the first elements; what is encoded already is passed over."""
    codes: list[int] = []
    _look(response, type(response), codes, _MOST_ELEMENTS)
    return codes


def _look(struct: Struct, kind: type[Struct], codes: list[int], budget: int) -> int:
    has_code, arrays = _plan(kind)
    if has_code and (code := getattr(struct, _CODE)):
        codes.append(int(code))
    for name, element in arrays:
        for each in getattr(struct, name) or ():
            if budget <= 0:
                return 0
            if type(each) is element:
                budget = _look(each, element, codes, budget - 1)
    return budget
