"""What a client does for every record: the only compiled code beside that of `records`."""
