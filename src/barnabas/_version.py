"""The version of this package, from its installed metadata."""

from functools import cache


@cache
def package_version() -> str:
    # Imported late: this alone takes longer than the start of a tool. Asked once: every connection tells it.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("barnabas")
    except PackageNotFoundError:
        return "(not installed)"
