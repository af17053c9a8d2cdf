"""A node: its settings and, as they arrive, its parts."""
