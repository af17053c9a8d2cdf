"""The states of a replica, one class each. `transitions` has the table of what follows what."""
