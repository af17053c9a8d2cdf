"""The producer: records in, acknowledgements out."""
