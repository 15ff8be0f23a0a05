"""An immutable map that shares structure with the version it was made from.

It has two dicts: a large `base` that many versions share, and a small `overlay` with the differences. A new version
copies only the overlay; when that exceeds the square root of the base's size, both are merged into a new base. So
adding n entries one version at a time costs O(n * sqrt(n)) copied slots, and a lookup at most two dict lookups.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar, cast

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

SMALL_OVERLAY: Final = 16
"""Overlays up to this size are never merged: copying one costs less than a microsecond."""


class _Removed:
    """Marks a key in an overlay as removed, though the base still has it."""

    __slots__ = ()


_REMOVED: Final = _Removed()
_MISSING: Final = _Removed()


class PersistentMap(Mapping[K, V], Generic[K, V]):
    """An immutable Mapping; `updated` returns the next version."""

    __slots__ = ("_base", "_length", "_overlay")

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self._base: dict[K, V] = dict(entries) if entries else {}
        self._overlay: dict[K, V | _Removed] = {}
        self._length = len(self._base)

    def __getitem__(self, key: K) -> V:
        value = self._overlay.get(key, _MISSING)
        if value is _MISSING:
            return self._base[key]
        if value is _REMOVED:
            raise KeyError(key)
        return cast(V, value)

    def get(self, key: K, default: V | None = None) -> V | None:  # type: ignore[override]
        """Return the value of `key`, or `default`; avoids the exception that Mapping.get uses internally."""
        value = self._overlay.get(key, _MISSING)
        if value is _MISSING:
            return self._base.get(key, default)
        return default if value is _REMOVED else cast(V, value)

    def __contains__(self, key: object) -> bool:
        value = self._overlay.get(key, _MISSING)  # type: ignore[arg-type]
        if value is _MISSING:
            return key in self._base
        return value is not _REMOVED

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[K]:
        overlay = self._overlay
        for key in self._base:
            if key not in overlay:
                yield key
        for key, value in overlay.items():
            if value is not _REMOVED:
                yield key

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self.items())!r})"

    def updated(self, changes: Mapping[K, V | None]) -> "PersistentMap[K, V]":
        """Return the next version: each key of `changes` is set to its value, or removed if the value is None.

        A change of the whole map costs one copy; without changes this map is returned.
        """
        if not changes:
            return self
        if len(changes) * len(changes) > len(self._base) and len(changes) > SMALL_OVERLAY:
            return self._rebuilt(changes)
        overlay = dict(self._overlay)
        length = self._length
        for key, value in changes.items():
            was_present = key in self
            if value is not None:
                overlay[key] = value
                length += not was_present
            elif was_present:
                length -= 1
                if key in self._base:
                    overlay[key] = _REMOVED
                else:
                    del overlay[key]
        return _version(self._base, overlay, length)

    def _rebuilt(self, changes: Mapping[K, V | None]) -> "PersistentMap[K, V]":
        """Return the next version as a single dict, for many changes: an overlay would be merged at once anyway."""
        base: dict[Any, Any] = _folded(self._base, self._overlay)
        base.update(changes)
        if None in changes.values():
            base = {key: value for key, value in base.items() if value is not None}
        return _version(base, {}, len(base))


def _version(base: dict[K, V], overlay: dict[K, V | _Removed], length: int) -> PersistentMap[K, V]:
    if len(overlay) > SMALL_OVERLAY and len(overlay) * len(overlay) > len(base):
        base, overlay = _folded(base, overlay), {}
    result: PersistentMap[K, V] = PersistentMap.__new__(PersistentMap)
    result._base, result._overlay, result._length = base, overlay, length
    assert length >= 0
    return result


def _folded(base: dict[K, V], overlay: dict[K, V | _Removed]) -> dict[K, V]:
    folded = dict(base)
    for key, value in overlay.items():
        if value is _REMOVED:
            del folded[key]
        else:
            folded[key] = cast(V, value)
    return folded
