"""The transaction coordinator, without a node."""
