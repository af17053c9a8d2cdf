"""Looks at a partition's directory without changing anything in it, for the verdict on its log.

After a clean stop no whole segment is read: the names and sizes of the files, the last entries of the indexes, and the
batches behind them. After any other stop the segment in which the recovery point lies is read up to there, and every
batch checked. Only where an index is wrong is its segment read from the start.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, NamedTuple

from barnabas.base.errors import RemoteProtocolError
from barnabas.records._kernel.scan import skip_intact
from barnabas.records.batch import BatchView
from barnabas.storage.damage import LogFacts, SegmentFacts
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.files import FileSystem, join
from barnabas.storage.indexes import OffsetEntry
from barnabas.storage.layout import data_offsets, is_taken_back, offset_of, segment_files
from barnabas.storage.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SCAN_BYTES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    segment_name,
)
from barnabas.storage.settings import TopicSettings

_ENDLESS: Final = 2**63
# For those who only look.
_NO_MATTER: Final = TopicSettings()
# To read so much is quicker than to look into the index first.
_SMALL_BYTES: Final = 16 * 1024


class _Walk(NamedTuple):
    """How far whole batches reach that follow each other, and why not further."""

    end_offset: int
    end_position: int
    problem: str


def inspect_log(
    files: FileSystem,
    directory: str,
    *,
    was_clean: bool,
    recovery_point: int,
    log_start_offset: int = 0,
    may_have_gaps: bool = False,
    names: list[str] | None = None,
    opened: dict[int, Segment] | None = None,
    settings: TopicSettings = _NO_MATTER,
) -> LogFacts:
    """What there is to know for the verdict. Where nothing must be there, nothing is looked at.

    `names` of what is in the directory, if they are known. Segments that have their final name are left open in
    `opened`, by their first offsets, for whoever opens the log next, with `settings`; without it they are closed.
    """
    known = LogFacts(directory, None, recovery_point, log_start_offset, may_have_gaps)
    if names is None and not files.exists(directory):
        return known
    if recovery_point <= log_start_offset:
        return known._replace(segments=(), recovery_point=0)
    names = segment_files(files.names(directory) if names is None else names)
    swaps = [name for name in names if name.endswith(LOG_SUFFIX + SWAP_SUFFIX) and not is_taken_back(name, names)]
    data = dict.fromkeys(data_offsets(names), "")
    covered: list[tuple[int, int]] = []
    for base_offset in map(offset_of, swaps):
        end_offset = (
            _examine(files, directory, base_offset, SWAP_SUFFIX, _ENDLESS, _ENDLESS, may_have_gaps=True).end_offset or 0
        )
        covered.append((base_offset, max(end_offset, base_offset + 1)))
    for offset in [each for each in data if any(start <= each < end for start, end in covered)]:
        del data[offset]
    data |= dict.fromkeys(map(offset_of, swaps), SWAP_SUFFIX)
    missing = {each for each in _missing(names) if not any(start <= each < end for start, end in covered)} - set(data)
    segments: list[SegmentFacts] = []
    offsets = sorted({*data, *missing})
    for place, offset in enumerate(offsets):
        bound = offsets[place + 1] if place + 1 < len(offsets) else _ENDLESS
        if offset in missing:
            path = join(directory, segment_name(offset) + LOG_SUFFIX)
            segments.append(SegmentFacts(offset, path, None, None))
        else:
            # Where the recovery point lies, or beyond: what is below it is flushed, what is above may be torn.
            is_recovered = not was_clean and bound > recovery_point
            segments.append(
                _examine(
                    files,
                    directory,
                    offset,
                    data[offset],
                    bound,
                    recovery_point,
                    # The last batch says where a log ends that was stopped in good order: offsets may be missing before
                    # it, but not around the end that was noted.
                    may_have_gaps=may_have_gaps,
                    may_end_later=not was_clean or bound < _ENDLESS,
                    is_recovered=is_recovered,
                    opened=opened,
                    settings=settings,
                )
            )
    return known._replace(segments=segments)


def _missing(names: list[str]) -> set[int]:
    """The segments that have indexes and no data, though no deletion or cleaning has taken it."""
    placed = data_offsets(names)
    indexes = {offset_of(name) for name in names if name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX))}
    if indexes <= placed and not any(name.endswith(SWAP_SUFFIX) for name in names):
        return set()  # as nearly always
    present, deleted = set(names), data_offsets(names, DELETED_SUFFIX)
    orphans = {
        offset
        for name in names
        if name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX))
        # A deletion gives this name to the data first. If the index has both, that was an earlier one, of a segment
        # that a cleaning has put another in the place of.
        and ((offset := offset_of(name)) not in deleted or name + DELETED_SUFFIX in present)
    }
    placed |= data_offsets(names, SWAP_SUFFIX)
    orphans -= placed
    # Indexes of a finished cleaning whose data has neither the one name nor the other.
    swaps = (INDEX_SUFFIX + SWAP_SUFFIX, TIME_INDEX_SUFFIX + SWAP_SUFFIX)
    cleaned = {offset_of(each) for each in names if each.endswith(swaps) and not is_taken_back(each, names)}
    return orphans | (cleaned - placed)


def _examine(
    files: FileSystem,
    directory: str,
    base_offset: int,
    suffix: str,
    bound: int,
    wanted: int,
    *,
    may_have_gaps: bool,
    may_end_later: bool = True,
    is_recovered: bool = False,
    opened: dict[int, Segment] | None = None,
    settings: TopicSettings = _NO_MATTER,
) -> SegmentFacts:
    """Of a segment after which the next begins at `bound`, as far as it must be there, up to `wanted`.

    If it is to be recovered, each batch below that is checked.
    """
    segment = Segment(
        files,
        directory,
        base_offset,
        index_bytes=settings.segment_index_bytes,
        index_interval_bytes=settings.index_interval_bytes,
        create=False,
        suffix=suffix,
    )
    is_kept = opened is not None and not suffix
    if opened is not None and is_kept:
        opened[base_offset] = segment
    try:
        path, size_bytes = segment.path(LOG_SUFFIX), segment.size_bytes
        if base_offset >= wanted:
            return SegmentFacts(base_offset, path, size_bytes, None)
        if is_recovered:
            start = _Walk(base_offset, 0, "")
            walk = _follow(segment, start, wanted, bound, may_skip=may_have_gaps, check_crc=True)
            indexed_offset = -1
            if walk.end_offset < min(bound, wanted) and not walk.problem:
                indexed_offset = _indexed_below(segment, wanted)
            return SegmentFacts(
                base_offset,
                path,
                size_bytes,
                *walk,
                indexed_offset if indexed_offset >= walk.end_offset else -1,
                checked_bytes=walk.end_position,
            )
        if is_kept and bound == _ENDLESS and size_bytes > _SMALL_BYTES:
            _load_index(segment)  # of the last segment it is checked as a whole when the log is opened
        entry = None if size_bytes <= _SMALL_BYTES else _last_entry(segment)
        may_skip = may_have_gaps and may_end_later
        walk = _walk(segment, entry, wanted, bound, may_skip=may_skip)
        is_index_wrong = bool(walk.problem) and entry is not None
        if is_index_wrong:
            walk = _walk(segment, None, wanted, bound, may_skip=may_skip)
        indexed_offset = -1
        if walk.end_offset < min(bound, wanted) and not walk.problem:
            indexed_offset = _indexed_offset(segment)
        knows_more = walk.end_offset <= indexed_offset < bound
        return SegmentFacts(
            base_offset, path, size_bytes, *walk, indexed_offset if knows_more else -1, is_index_wrong=is_index_wrong
        )
    finally:
        if not is_kept:
            segment.close()


def _load_index(segment: Segment) -> None:
    # What is wrong with it is told by whoever asks it for something.
    with suppress(FileNotFoundError, CorruptLogError):
        segment.offset_index.load()


def _last_entry(segment: Segment) -> OffsetEntry | None:
    """The last entry of the offset index, if it says more than that the segment begins."""
    try:
        entry = segment.offset_index.peek_last_entry()
    except (FileNotFoundError, CorruptLogError):
        return None
    return entry if entry is not None and entry.position else None


def _indexed_below(segment: Segment, end_offset: int) -> int:
    """The highest offset below another that the index says lies behind the end of the data; -1 if there is none. What
    it says of offsets that were not flushed may be ahead of the data."""
    try:
        entry = segment.offset_index.lookup(end_offset - 1)
    except (FileNotFoundError, CorruptLogError):
        return -1
    return entry.offset if entry.position and entry.position >= segment.size_bytes else -1


def _indexed_offset(segment: Segment) -> int:
    """The highest offset that the indexes say is in the data; -1 if they say nothing that the data does not say."""
    entry = _last_entry(segment)
    # If the entry points into the data, a batch lies there, which says itself what it holds.
    offset = entry.offset if entry is not None and entry.position >= segment.size_bytes else -1
    try:
        youngest = segment.time_index.peek_last_entry()
    except (FileNotFoundError, CorruptLogError):
        youngest = None
    return max(offset, -1 if youngest is None else youngest.offset)


def _walk(segment: Segment, entry: OffsetEntry | None, end_offset: int, bound: int, *, may_skip: bool) -> _Walk:
    """From where an index entry points, or from the start, up to an offset. Headers alone are looked at."""
    if entry is not None and not 0 < entry.position < segment.size_bytes:
        return _Walk(segment.base_offset, 0, "an index points outside its segment")
    start = _Walk(segment.base_offset, 0, "")
    if entry is not None:
        there = segment.header_at(entry.position)
        first_offset = entry.offset if there is None else there.base_offset
        if not segment.base_offset <= first_offset <= entry.offset:
            return start._replace(problem="an index points to another batch")
        start = _Walk(first_offset, entry.position, "")
    return _follow(segment, start, end_offset, bound, may_skip=may_skip, check_crc=False)


def _follow(segment: Segment, start: _Walk, end_offset: int, bound: int, *, may_skip: bool, check_crc: bool) -> _Walk:
    """Whole batches that follow each other, from a place in a segment on up to an offset; the next segment begins at
    `bound`. `may_skip`: offsets around `end_offset` may be missing, as long as a batch follows."""
    reached = before = start
    if check_crc:
        before, reached = _skip_intact(segment, start, end_offset)
    try:
        for at, batch in segment.positioned_entries(reached.end_position):
            first_offset = batch.base_offset if isinstance(batch, BatchView) else batch.last_offset
            if first_offset < reached.end_offset:
                problem = f"offset {first_offset} comes after offset {reached.end_offset - 1}"
                # Which of the two is wrong? The one ahead, if this one would follow well without it.
                return (before if first_offset >= before.end_offset else reached)._replace(problem=problem)
            if first_offset >= end_offset:
                problem = ""
                if isinstance(batch, BatchView):
                    problem = segment.misplaced(at, batch, reached.end_offset, bound)
                if may_skip and not problem:
                    return reached._replace(end_offset=max(end_offset, reached.end_offset))
                if reached.end_offset < end_offset and not problem:
                    problem = f"the next batch begins at offset {first_offset}"
                return reached._replace(problem=problem)
            if batch.next_offset > end_offset and isinstance(batch, BatchView) and batch.record_count:
                # Whoever notes an end has flushed whole batches: the offset, which is under no CRC, is a wrong one.
                # (Without records it stands for a loss that was accepted, which may be more than was flushed.)
                problem = f"offsets {first_offset} to {batch.next_offset - 1} are in one batch"
                return reached._replace(problem=problem)
            if check_crc:
                batch.check_crc()
            before, reached = reached, _Walk(batch.next_offset, at + batch.size_bytes, "")
    except (CorruptLogError, RemoteProtocolError) as problem:
        return reached._replace(problem=problem.reason if isinstance(problem, CorruptLogError) else str(problem))
    return reached


def _skip_intact(segment: Segment, start: _Walk, end_offset: int) -> tuple[_Walk, _Walk]:
    """Where batches end of which nothing more need be said, as most: before and after the last of them."""
    before, reached = start, start
    while reached.end_position < segment.size_bytes:
        chunk = segment.file.read_at(reached.end_position, min(SCAN_BYTES, segment.size_bytes - reached.end_position))
        position, next_offset, last_position, last_offset = skip_intact(chunk, reached.end_offset, end_offset)
        if not position:
            break
        before = _Walk(last_offset, reached.end_position + last_position, "")
        reached = _Walk(next_offset, reached.end_position + position, "")
    return before, reached
