"""Messages that live in files and internal topics: the same declarations and codecs as on the wire."""
