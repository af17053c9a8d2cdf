"""What a client does for every record, compiled."""
