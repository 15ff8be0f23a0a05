"""The largest matching of a bipartite graph (Kuhn): which alternatives of an old schema live on in a new one."""

from collections.abc import Collection


def largest_matching(left_count: int, edges: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return pairs of (left, right) such that none is used twice, as many as can be."""
    partners: dict[int, int] = {}
    """By a node of the right side: that of the left."""
    rights: dict[int, list[int]] = {}
    for left, right in sorted(edges):
        rights.setdefault(left, []).append(right)

    def finds(left: int, seen: set[int]) -> bool:
        for right in rights.get(left, ()):
            if right not in seen:
                seen.add(right)
                if right not in partners or finds(partners[right], seen):
                    partners[right] = left
                    return True
        return False

    for left in range(left_count):
        finds(left, set())
    return sorted((left, right) for right, left in partners.items())
