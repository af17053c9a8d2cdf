from typing_extensions import Buffer

def find_offset(buffer: Buffer, offset: int) -> tuple[int, int, int]: ...
def covers_offset(buffer: Buffer, offset: int) -> tuple[int, int]: ...
def find_timestamp(buffer: Buffer, timestamp_ms: int, from_offset: int) -> tuple[int, int]: ...
def skip_intact(buffer: Buffer, next_offset: int, end_offset: int) -> tuple[int, int, int, int]:
    """Step over whole batches of today's format that follow each other without a gap from `next_offset` on, do not
    reach beyond `end_offset`, and are as their CRC says.

    As (position, next offset, where the last of them begins, its offset): of what comes there, something is different,
    or it is not wholly in `buffer`; whoever looks closely can say what it is.
    """
