"""A request with as many acknowledgements as it can have, all of one record."""

import time

from kafkapy.share.acknowledgement import AcknowledgementBatch
from kafkapy.share.persister import StateBatch
from kafkapy.share.record_state import ACK_ACCEPT, ACK_RENEW
from tests.unit.share.test_partition import ACKNOWLEDGED, acquire, loaded


def test_a_renewal_that_is_repeated_in_a_request_costs_one_lookup() -> None:
    """A request has room for 15,000 of them, which held the loop for 60 ms."""
    partition = loaded()
    acquire(partition, (0, 9))
    batches = [AcknowledgementBatch(5, 5, [ACK_RENEW])] * 15_000 + [AcknowledgementBatch(5, 5, [ACK_ACCEPT])]
    began_s = time.process_time()
    outcome = partition.acknowledge("m1", batches, 0)
    assert time.process_time() - began_s < 0.03
    assert outcome.refusal is None
    assert outcome.write is not None
    assert outcome.write.state_batches == [StateBatch(5, 5, ACKNOWLEDGED, 1)]
