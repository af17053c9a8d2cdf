"""The group coordinator of a node."""
