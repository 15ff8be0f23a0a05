"""CRC-32C, what a batch is checked with: the crc32c package's extension, without the package around it.

`import crc32c` asks importlib.metadata for the package's version, and so imports email, zipfile, csv and tempfile: 20
ms of a start that may take 300. The extension is found beside it and loaded alone; a package that keeps it elsewhere is
imported as it is.
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
