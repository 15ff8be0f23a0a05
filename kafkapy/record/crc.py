"""CRC-32C, the checksum of batches: the extension module of the crc32c package, loaded without the package itself.

`import crc32c` reads the package's version with importlib.metadata, which imports email, zipfile, csv and tempfile: 20
ms of a broker start that may take 300. If the extension is not found at its usual place, the package is imported.

A batch's CRC is checked by `has_valid_crc` (batch.py, batches.py), or by `crc32c` itself if a call less counts: before
each append (validate.py, small_batch.py), after a crash (storage/recovery/segment_recovery.py) and by compaction. A
fetch sends batches as they lie on disk.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


def _load() -> Callable[..., int]:
    package = PathFinder.find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", places) if places else None
    if spec is None or spec.loader is None:
        from crc32c import crc32c as whole  # noqa: TID251

        return whole
    extension = module_from_spec(spec)
    spec.loader.exec_module(extension)
    return extension.crc32c  # type: ignore[no-any-return]


crc32c = _load()
