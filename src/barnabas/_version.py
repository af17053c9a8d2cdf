"""The version of this package and the commit that it was built from, from its installed metadata."""

from functools import cache
from typing import NamedTuple


class Build(NamedTuple):
    """`commit` is "unknown", as Kafka says, unless the package was installed from a repository."""

    version: str
    commit: str


@cache
def package_build() -> Build:
    # Imported late: this alone takes longer than the start of a tool. Asked once: every connection tells it.
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = distribution("barnabas")
    except PackageNotFoundError:
        return Build("(not installed)", "unknown")
    origin = found.read_text("direct_url.json")  # says where it was installed from, if not from an index (PEP 610)
    if origin is None:
        return Build(found.version, "unknown")
    import json

    return Build(found.version, str(json.loads(origin).get("vcs_info", {}).get("commit_id", "unknown")))


def package_version() -> str:
    return package_build().version
