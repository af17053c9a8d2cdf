"""What becomes of records between send() and their acknowledgement."""
