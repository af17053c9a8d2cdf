"""The names of the files in a partition's directory, and what they say of work that was interrupted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from barnabas.storage.segment import (
    ABORTED_SUFFIX,
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
)

#: What a segment has beside its data.
INDEX_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX)
# Strangers in the directory are left alone.
_SEGMENT_FILE: Final = re.compile(r"[0-9]{20}\.[a-z]+(\.(deleted|cleaned|swap))?")


def segment_files(names: Iterable[str]) -> list[str]:
    """Those of the names that belong to segments, whatever became of them."""
    return [name for name in names if _SEGMENT_FILE.fullmatch(name)]


def offset_of(name: str) -> int:
    """The first offset of the segment whose file has this name."""
    return int(name.partition(".")[0])


def data_offsets(names: Iterable[str], suffix: str = "") -> set[int]:
    """The first offsets of the segments whose data is there under its name with `suffix`."""
    return {offset_of(name) for name in names if name.endswith(LOG_SUFFIX + suffix)}


def is_taken_back(name: str, names: Iterable[str]) -> bool:
    """Whether a `.swap` counts for nothing: where `.cleaned` files are left, the same cleaning had more to give, and
    only what lies before them is finished."""
    if not name.endswith(SWAP_SUFFIX):
        return False
    unfinished = [offset_of(each) for each in names if each.endswith(CLEANED_SUFFIX)]
    return bool(unfinished) and offset_of(name) >= min(unfinished)
