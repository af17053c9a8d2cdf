"""How far groups have read; shared by all kinds of groups."""
