"""The metadata log of a node and the quorum that keeps it."""
