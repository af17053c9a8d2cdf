"""The version of this package, from its installed metadata."""

from importlib.metadata import PackageNotFoundError, version


def package_version() -> str:
    try:
        return version("barnabas")
    except PackageNotFoundError:
        return "(not installed)"
