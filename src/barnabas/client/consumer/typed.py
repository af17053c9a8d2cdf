"""Which types keys and values have, as far as a type checker can tell from the deserializers.

`bytes` without one, `str` for `"string"`, what a function or a `deserialize` returns, and Any for other names. A record
has `Any` beside that: where a key or a value is null it is None, whatever the deserializer makes, and to check each for
that is a burden where a program knows better (the type checkers' "Any trick").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from typing_extensions import TypeVar

    from barnabas.client.serialization import Deserializer

    Key = TypeVar("Key", default=Any)
    Value = TypeVar("Value", default=Any)
    #: Of a consumer that is being made: where no deserializer is given, keys and values are bytes.
    MadeKey = TypeVar("MadeKey", default=bytes)
    MadeValue = TypeVar("MadeValue", default=bytes)

    _Made = TypeVar("_Made")
    #: What makes objects of a type that it tells. Alone, its absence included, it leaves them bytes.
    Makes = Callable[[bytes], _Made] | Deserializer[_Made] | type[Deserializer[_Made]] | Literal["bytes"] | None
    Text = Literal["string"]
else:
    from typing import TypeVar

    Key = TypeVar("Key")
    Value = TypeVar("Value")
