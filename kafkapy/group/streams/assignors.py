"""The assignors of streams groups, by the names in group.streams.assignors and streams.assignor.name."""

from collections.abc import Mapping
from typing import Final

from kafkapy.group.streams.assignor_spec import TaskAssignor
from kafkapy.group.streams.sticky_assignor import NAME, assign_steps

ASSIGNORS: Final[Mapping[str, TaskAssignor]] = {NAME: assign_steps}
