"""What a broker offers of the requests that it forwards: what it and the active controller both understand."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from barnabas.wire.messages.api_versions import ApiVersion


def common_versions(
    own: Iterable[ApiVersion], forwarded: Collection[int], controllers: Mapping[int, tuple[int, int]] | None
) -> list[ApiVersion]:
    """`controllers` are the versions of the active controller by API, None where they are not known: then a request
    that it does not understand is refused when it comes there."""
    if not controllers:
        return list(own)
    found = []
    for each in own:
        if each.api_key in forwarded:
            low, high = controllers.get(each.api_key, (1, 0))
            low, high = max(low, each.min_version), min(high, each.max_version)
            if low > high:
                continue
            each = ApiVersion(api_key=each.api_key, min_version=low, max_version=high)
        found.append(each)
    return found
