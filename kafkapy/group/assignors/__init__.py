"""The assignors that members can select by name (group.consumer.assignors)."""

from collections.abc import Mapping
from typing import Final

from kafkapy.group.assignors.range import assign_ranges
from kafkapy.group.assignors.spec import Assignor
from kafkapy.group.assignors.uniform import assign_uniformly

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
"""By the name that a member sends as its ServerAssignor."""
