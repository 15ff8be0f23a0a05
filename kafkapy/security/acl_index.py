"""An index of an image's ACLs, so that a check visits only the few ACLs that can apply.

An ACL applies to a resource if its pattern is the literal name, a prefix of the name, or the wildcard `*`, and if its
principal is the request's principal or `User:*`. ACLs are therefore stored by (resource type, pattern type, name) and
then by principal. Prefixes of a name are looked up only for the lengths of existing prefixed patterns.

Invariant: after any additions and removals the index holds exactly the ACLs of the image (in CVE-2024-27309, removing
one ACL made Kafka ignore others).
"""

from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from kafkapy.metadata.acl_types import WILDCARD, WILDCARD_PRINCIPAL, Acl, PatternType
from kafkapy.protocol.messages.access_control_entry_record import AccessControlEntryRecord
from kafkapy.types import Uuid

_LITERAL: Final = int(PatternType.LITERAL)
_PREFIXED: Final = int(PatternType.PREFIXED)

Acls = Mapping[Uuid, AccessControlEntryRecord]
Bucket = dict[str, list[Acl]]
"""The ACLs of one pattern by principal."""


_Pattern = tuple[int, int, str]
"""Resource type, pattern type, name. A plain tuple for speed: every check creates a few of them."""


class AclIndex:
    def __init__(self) -> None:
        self._by_id: dict[Uuid, Acl] = {}
        self._buckets: dict[_Pattern, Bucket] = {}
        self._prefix_counts: dict[int, Counter[int]] = {}
        """By resource type: the number of prefixed patterns of each name length."""
        self._prefix_lengths: dict[int, list[int]] = {}
        """By resource type: the name lengths of prefixed patterns, ascending."""

    def __len__(self) -> int:
        return len(self._by_id)

    def update(self, acls: Acls) -> None:
        """Make this the index of `acls`. The cost is proportional to the changes."""
        for acl_id in self._by_id.keys() - acls.keys():
            self._remove(acl_id)
        for acl_id in acls.keys() - self._by_id.keys():
            self._add(acl_id, Acl.of(acls[acl_id]))

    def buckets(self, resource_type: int, name: str) -> Iterator[Bucket]:
        """Yield the ACLs of the patterns that match a resource: its name, its prefixes from long to short, `*`.

        Deviation: Apache Kafka 4.3.1 does not apply `*` to names that begin with `*`, and it fails or loops for ever at
        names that begin with a character below `*` and meet an ACL on another such name. Here `*` matches every name,
        because that is what it says.
        """
        buckets = self._buckets
        literal = buckets.get((resource_type, _LITERAL, name))
        if literal is not None:
            yield literal
        lengths = self._prefix_lengths.get(resource_type, [])
        for length in reversed(lengths[: bisect_right(lengths, len(name))]):
            prefixed = buckets.get((resource_type, _PREFIXED, name[:length]))
            if prefixed is not None:
                yield prefixed
        wildcard = buckets.get((resource_type, _LITERAL, WILDCARD)) if name != WILDCARD else None
        if wildcard is not None:
            yield wildcard

    def of_principal(self, resource_type: int, principal: str) -> Iterator[Acl]:
        """Yield all ACLs of a resource type for the principal or for `User:*`."""
        for pattern, bucket in self._buckets.items():
            if pattern[0] == resource_type:
                for each in {principal, WILDCARD_PRINCIPAL}:
                    yield from bucket.get(each, ())

    def _add(self, acl_id: Uuid, acl: Acl) -> None:
        self._by_id[acl_id] = acl
        pattern = _pattern_of(acl)
        bucket = self._buckets.get(pattern)
        if bucket is None:
            bucket = self._buckets[pattern] = {}
            self._count_prefix(pattern, 1)
        insort(bucket.setdefault(acl.principal, []), acl, key=details)

    def _remove(self, acl_id: Uuid) -> None:
        acl = self._by_id.pop(acl_id)
        pattern = _pattern_of(acl)
        bucket = self._buckets[pattern]
        acls = bucket[acl.principal]
        acls.remove(acl)
        if not acls:
            del bucket[acl.principal]
        if not bucket:
            del self._buckets[pattern]
            self._count_prefix(pattern, -1)

    def _count_prefix(self, pattern: _Pattern, change: int) -> None:
        resource_type, pattern_type, name = pattern
        if pattern_type != PatternType.PREFIXED:
            return
        counts = self._prefix_counts.setdefault(resource_type, Counter())
        counts[len(name)] += change
        if not counts[len(name)]:
            del counts[len(name)]
        self._prefix_lengths[resource_type] = sorted(counts)


def details(acl: Acl) -> tuple[int, str, str, int]:
    """Return the sort key of ACLs of one pattern, as in Apache Kafka: it decides which ACL the audit log names."""
    return acl.operation, acl.principal, acl.host, acl.permission_type


def _pattern_of(acl: Acl) -> _Pattern:
    return acl.resource_type, acl.pattern_type, acl.resource_name
