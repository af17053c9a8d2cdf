"""Settings that change while a node runs, and what they mean for its parts."""
