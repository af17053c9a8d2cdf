"""What the optional parts need, for those who find it missing.

Barnabas is on no package index, so that `pip install 'barnabas[arrow]'` would help nobody: hints name the packages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The extras of pyproject.toml; a test holds that they agree.
EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "arrow": ("pyarrow>=17",),
    "avro": ("fastavro>=1.9",),
    "security": ("joserfc>=1.4", "cryptography>=44"),
    "spark": ("pyarrow>=17", "pyspark[pipelines]>=4.3,<5", "pandas<3"),
}


def how_to_install(extra: str) -> str:
    """The command that brings what an extra needs, wherever Barnabas itself came from.

    >>> how_to_install("arrow")
    "pip install 'pyarrow>=17' (the extra 'arrow' of barnabas: docs/installing.md)"
    """
    packages = " ".join(f"'{each}'" for each in EXTRAS[extra])
    return f"pip install {packages} (the extra '{extra}' of barnabas: docs/installing.md)"
