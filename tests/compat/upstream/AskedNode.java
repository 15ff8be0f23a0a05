package org.apache.kafka.common.test;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.DescribeProducersRequestData;
import org.apache.kafka.common.message.DescribeProducersRequestData.TopicRequest;
import org.apache.kafka.common.message.DescribeProducersResponseData;
import org.apache.kafka.common.message.DescribeProducersResponseData.ProducerState;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.DescribeProducersRequest;
import org.apache.kafka.common.requests.DescribeProducersResponse;
import org.apache.kafka.common.requests.ListOffsetsRequest;
import org.apache.kafka.common.requests.ListOffsetsResponse;
import org.apache.kafka.server.IntegrationTestUtils;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;

/** What a node says of its own replicas, leader or not. */
class AskedNode {
    private static final short LIST_OFFSETS_VERSION = 7;

    static long offset(NodeProcess node, TopicPartition partition, long timestamp) {
        ListOffsetsPartition wanted = new ListOffsetsPartition().setPartitionIndex(partition.partition()).setTimestamp(timestamp);
        ListOffsetsResponse response = ask(node, ListOffsetsRequest.Builder
            .forReplica(LIST_OFFSETS_VERSION, ListOffsetsRequest.DEBUGGING_REPLICA_ID)
            .setTargetTimes(ListOffsetsRequest.toListOffsetsTopics(Map.of(partition, wanted))).build(LIST_OFFSETS_VERSION));
        var answer = response.topics().get(0).partitions().get(0);
        Errors.forCode(answer.errorCode()).maybeThrow();
        return answer.offset();
    }

    static Map<Long, ProducerStateEntry> producers(NodeProcess node, TopicPartition partition) {
        TopicRequest wanted = new TopicRequest().setName(partition.topic()).setPartitionIndexes(List.of(partition.partition()));
        DescribeProducersResponse response = ask(node, new DescribeProducersRequest.Builder(
            new DescribeProducersRequestData().setTopics(List.of(wanted))).build((short) 0));
        DescribeProducersResponseData.PartitionResponse answer = response.data().topics().get(0).partitions().get(0);
        Errors.forCode(answer.errorCode()).maybeThrow();
        return answer.activeProducers().stream().collect(Collectors.toMap(ProducerState::producerId, AskedNode::entry));
    }

    private static ProducerStateEntry entry(ProducerState state) {
        OptionalLong start = state.currentTxnStartOffset() < 0 ? OptionalLong.empty() : OptionalLong.of(state.currentTxnStartOffset());
        return new ProducerStateEntry(state.producerId(), (short) state.producerEpoch(), state.coordinatorEpoch(), state.lastTimestamp(),
            start);
    }

    private static <T extends AbstractResponse> T ask(NodeProcess node, AbstractRequest request) {
        try {
            return IntegrationTestUtils.connectAndReceive(request, node.anyPort());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
