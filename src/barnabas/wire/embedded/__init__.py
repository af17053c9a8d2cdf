"""Messages that travel inside a `bytes` field of another message."""
