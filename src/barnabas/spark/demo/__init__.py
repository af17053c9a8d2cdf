"""A click stream, the example pipeline on it, and a screen that shows both: what `barnabas demo` runs."""
