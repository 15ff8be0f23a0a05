"""How many files a broker keeps open: what the process may have, less what its sockets need."""

import resource
from collections.abc import Iterator

import pytest

from kafkapy.server.limits import MAX_OPEN_FILES, MIN_OPEN_FILES, open_file_capacity


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(("descriptors", "files"), [(900, 500), (300, 125), (100, MIN_OPEN_FILES)])
def test_two_thirds_of_the_descriptors_are_for_files_but_those_that_are_kept(
    limits: tuple[int, int], descriptors: int, files: int
) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, limits[1]))
    assert open_file_capacity() == files


def test_open_files_have_a_bound_whatever_the_process_may_have() -> None:
    assert MIN_OPEN_FILES <= open_file_capacity() <= MAX_OPEN_FILES
