"""Tools for tests, ours and our users': shipped with the package."""
