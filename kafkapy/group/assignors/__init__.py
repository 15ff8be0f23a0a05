"""The server-side assignors of KIP-848 (group.consumer.assignors): plain functions from subscriptions to assignments.

spec.py       their input and output
uniform.py    equal numbers of partitions, moved as little as possible; the default
range.py      consecutive ranges of each topic

Called by `group/consumer/update.py` when a group's target assignment is computed.
"""

from collections.abc import Mapping
from typing import Final

from kafkapy.group.assignors.range import assign_ranges
from kafkapy.group.assignors.spec import Assignor
from kafkapy.group.assignors.uniform import assign_uniformly

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
"""By the name that a member sends as its ServerAssignor."""
