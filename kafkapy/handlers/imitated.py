"""Older releases of Apache Kafka that a broker can imitate: the API versions that each of them lists.

Source: what brokers of 2.8.2 (with ZooKeeper, as 2.8 was run), 3.9.1, 4.1.1 and 4.3.1 answer to ApiVersions, as
tests/golden/release_versions.json has it; 71 and 72 are listed only by one with a receiver of client metrics. What is
not imitated: docs/howto/older.md.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kafkapy.handlers.table import ServedApi
from kafkapy.protocol.messages.api_versions_response import ApiVersionsResponse

VERSIONS: Final = {
    "2.8": (
        "0:0-9 1:0-12 2:0-6 3:0-11 4:0-5 5:0-3 6:0-7 7:0-3 8:0-8 9:0-7 10:0-3 11:0-7 12:0-4 13:0-4 14:0-5 "
        "15:0-5 16:0-4 17:0-1 18:0-3 19:0-7 20:0-6 21:0-2 22:0-4 23:0-4 24:0-3 25:0-3 26:0-3 27:0-1 28:0-3 "
        "29:0-2 30:0-2 31:0-2 32:0-4 33:0-2 34:0-2 35:0-2 36:0-2 37:0-3 38:0-2 39:0-2 40:0-2 41:0-2 42:0-2 "
        "43:0-2 44:0-1 45:0-0 46:0-0 47:0-0 48:0-1 49:0-1 50:0-0 51:0-0 56:0-0 57:0-0 60:0-0 61:0-0 "
    ),
    "3.9": (
        "0:0-11 1:0-17 2:0-9 3:0-12 8:0-9 9:0-9 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-5 16:0-5 17:0-1 "
        "18:0-4 19:0-7 20:0-6 21:0-2 22:0-5 23:0-4 24:0-5 25:0-4 26:0-4 27:0-1 28:0-4 29:0-3 30:0-3 31:0-3 "
        "32:0-4 33:0-2 34:0-2 35:0-4 36:0-2 37:0-3 38:0-3 39:0-2 40:0-2 41:0-3 42:0-2 43:0-2 44:0-1 45:0-0 "
        "46:0-0 47:0-0 48:0-1 49:0-1 50:0-0 51:0-0 55:0-2 57:0-1 60:0-1 61:0-0 64:0-0 65:0-0 66:0-1 68:0-0 "
        "69:0-0 71:0-0 72:0-0 74:0-0 75:0-0 80:0-0 81:0-0 "
    ),
    "4.1": (
        "0:0-13 1:4-18 2:1-10 3:0-13 8:2-9 9:1-9 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 17:0-1 "
        "18:0-4 19:2-7 20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-1 28:0-5 29:1-3 30:1-3 31:1-3 "
        "32:1-4 33:0-2 34:1-2 35:1-4 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 42:0-2 43:0-2 44:0-1 45:0-1 "
        "46:0-0 47:0-0 48:0-1 49:0-1 50:0-0 51:0-0 55:0-2 57:0-2 60:0-2 61:0-0 64:0-0 65:0-0 66:0-2 68:0-1 "
        "69:0-1 71:0-0 72:0-0 74:0-1 75:0-0 76:1-1 77:1-1 78:1-1 79:1-1 80:0-0 81:0-0 83:0-0 84:0-0 85:0-0 "
        "86:0-0 87:0-0 90:0-0 91:0-0 92:0-0 "
    ),
    "4.3": (
        "0:0-13 1:4-18 2:1-11 3:0-13 8:2-10 9:1-10 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 17:0-1 "
        "18:0-4 19:2-7 20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-2 28:0-5 29:1-3 30:1-3 31:1-3 "
        "32:1-4 33:0-2 34:1-2 35:1-5 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 42:0-2 43:0-2 44:0-1 45:0-1 "
        "46:0-0 47:0-0 48:0-1 49:0-1 50:0-0 51:0-0 55:0-2 57:0-2 60:0-2 61:0-0 64:0-0 65:0-0 66:0-2 68:0-1 "
        "69:0-1 71:0-0 72:0-0 74:0-1 75:0-0 76:1-1 77:1-1 78:1-2 79:1-2 80:0-1 81:0-0 83:0-0 84:0-0 85:0-1 "
        "86:0-0 87:0-1 88:0-0 89:0-0 90:0-1 91:0-0 92:0-0 "
    ),
}
"""By release: API key, first and last version. 4.4 is not imitated: its versions are the served ones."""
FEATURES: Final = {
    "3.9": {"kraft.version": (0, 1), "metadata.version": (1, 21)},
    "4.1": {
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 27),
        "share.version": (0, 1),
        "transaction.version": (0, 2),
    },
    "4.3": {
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 30),
        "share.version": (0, 1),
        "streams.version": (0, 1),
        "transaction.version": (0, 2),
    },
}
"""By release: the first and last level of each feature that its brokers support. 4.4's are those of this broker."""
WITHOUT_FEATURES: Final = ("2.8",)
"""Releases whose brokers, with ZooKeeper, finalized no features."""


def ranges_of(release: str) -> Mapping[int, tuple[int, int]] | None:
    """Return the versions of a release by API key; None for the release whose versions are served."""
    if release not in VERSIONS:
        return None
    found = {}
    for row in VERSIONS[release].split():
        key, _, versions = row.partition(":")
        first, _, last = versions.partition("-")
        found[int(key)] = (int(first), int(last))
    return found


def narrowed(apis: Mapping[int, ServedApi], release: str) -> Mapping[int, ServedApi]:
    """Return the table of APIs, limited to the versions of a release."""
    ranges = ranges_of(release)
    if ranges is None:
        return apis
    found = {}
    for key, served in apis.items():
        first, last = ranges.get(key, (0, -1))
        lowest, highest = max(served.served_min, first), min(served.max_version, last)
        if lowest <= highest:
            listed = None if served.listed_from is None else max(served.listed_from, first)
            found[key] = replace(served, served_min=lowest, max_version=highest, listed_from=listed)
    return found


def narrow_features(response: ApiVersionsResponse, release: str) -> None:
    """Limit the supported features to those of a release, also where a directory has other levels."""
    if release not in FEATURES:
        return
    bounds = FEATURES[release]
    left = [each for each in response.supported_features if each.name in bounds]
    for each in left:
        first, each.max_version = bounds[each.name]
        each.min_version = max(each.min_version, first)
    response.supported_features = left
