class FrameReader:
    """A request that is read where it lies."""
