"""Spark as users have it: in processes of its own, started from wherever they are."""
