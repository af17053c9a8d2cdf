"""Names of settings: which known one is nearest to a misspelt one, and which look as if they hold a secret."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from functools import lru_cache

_SECRET = re.compile(r"password|passphrase|passwd|secret|jaas|credential|private.?key", re.IGNORECASE)


def nearest_name(name: str, known: Collection[str]) -> str | None:
    """The known name that was probably meant, if one is near enough.

    >>> nearest_name("linger.m", ["linger.ms", "batch.size"])
    'linger.ms'
    """
    return _nearest(name.strip().lower().replace("_", ".").replace("-", "."), tuple(known))


@lru_cache(maxsize=32)
def _nearest(spelt_with_dots: str, known: tuple[str, ...]) -> str | None:
    """Slow, and asked again with every change of settings that hold an unknown name."""
    matches = difflib.get_close_matches(spelt_with_dots, known, n=1, cutoff=0.75)
    return matches[0] if matches else None


def looks_secret(name: str) -> bool:
    """Whether the value of an unknown setting had better not be shown."""
    return _SECRET.search(name) is not None
