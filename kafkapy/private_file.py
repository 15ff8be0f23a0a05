"""Files that only their owner may read, such as profiles, keys and passwords, written whole: nobody sees a part."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write a file, in the place of one that is there. Raises OSError."""
    with _written_beside(path, text) as temporary:
        os.replace(temporary, path)


def create_private(path: Path, text: str) -> None:
    """Write a file unless there is one. Raises OSError, FileExistsError if there is."""
    with _written_beside(path, text) as temporary:
        os.link(temporary, path)


@contextmanager
def _written_beside(path: Path, text: str) -> Iterator[str]:
    """Yield a temporary file with the text, in the directory of `path`. It is deleted at the end if it is still there.

    Raises OSError.
    """
    import tempfile

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # made with 0600
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        yield temporary
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
