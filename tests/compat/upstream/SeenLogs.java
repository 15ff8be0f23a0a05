package org.apache.kafka.common.test;

import java.io.File;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.server.KafkaApis;
import kafka.server.ReplicaManager;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.requests.ListOffsetsRequest;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A broker's logs and replicas as far as one can see them from outside its process: directories, its metadata log, and
 * what it answers.
 */
class SeenLogs {
    static LogManager logManager(NodeProcess node) {
        return Seen.as(LogManager.class, call -> switch (call.getMethod().getName()) {
            case "getLog" -> {
                if (call.<Boolean>getArgument(1))
                    throw Seen.inside("LogManager.getLog(isFuture = true)");
                yield log(node, call.getArgument(0));
            }
            case "liveLogDirs" -> CollectionConverters.asScala(logDirs(node).stream().map(File::new).toList()).toSeq();
            default -> throw Seen.inside(call);
        });
    }

    static ReplicaManager replicaManager(NodeProcess node) {
        return Seen.as(ReplicaManager.class, call -> switch (call.getMethod().getName()) {
            case "metadataCache" -> MetadataOnDisk.read(node).cache();
            case "logManager" -> logManager(node);
            case "localLog" -> node.isStopped() ? Option.empty() : log(node, call.getArgument(0));
            case "onlinePartition" -> partition(node, call.getArgument(0));
            default -> throw Seen.inside(call);
        });
    }

    static KafkaApis requestProcessor(NodeProcess node, String clusterId) {
        return Seen.as(KafkaApis.class, call -> switch (call.getMethod().getName()) {
            case "brokerId" -> node.node.id();
            case "clusterId" -> clusterId;
            case "authorizerPlugin" -> SeenSecurity.authorizer(node);
            case "metadataCache" -> MetadataOnDisk.read(node).cache();
            default -> throw Seen.inside(call);
        });
    }

    private static Option<UnifiedLog> log(NodeProcess node, TopicPartition partition) {
        return option(directory(node, partition).map(found -> Seen.as(UnifiedLog.class, call -> switch (call.getMethod().getName()) {
            case "dir" -> found;
            case "partitionMetadataFile" -> Optional.of(new PartitionMetadataFile(PartitionMetadataFile.newFile(found), null));
            case "logStartOffset" -> AskedNode.offset(node, partition, ListOffsetsRequest.EARLIEST_TIMESTAMP);
            case "logEndOffset" -> AskedNode.offset(node, partition, ListOffsetsRequest.LATEST_TIMESTAMP);
            case "numberOfSegments" -> found.list((unused, name) -> name.endsWith(".log")).length;
            case "producerStateManager" -> producers(node, partition);
            default -> throw Seen.inside(call);
        })));
    }

    private static ProducerStateManager producers(NodeProcess node, TopicPartition partition) {
        return Seen.as(ProducerStateManager.class, call -> {
            if (call.getMethod().getName().equals("activeProducers"))
                return AskedNode.producers(node, partition);
            throw Seen.inside(call);
        });
    }

    /** A replica that the node's metadata and one of its log directories have. */
    private static Option<Partition> partition(NodeProcess node, TopicPartition wanted) {
        if (node.isStopped() || directory(node, wanted).isEmpty())
            return Option.empty();
        Optional<LeaderAndIsr> known = MetadataOnDisk.read(node).cache().getLeaderAndIsr(wanted.topic(), wanted.partition());
        return option(known.map(state -> Seen.as(Partition.class, call -> switch (call.getMethod().getName()) {
            case "isLeader" -> state.leader() == node.node.id();
            case "leaderReplicaIdOpt" -> Option.apply(state.leader());
            case "leaderIdIfLocal" -> state.leader() == node.node.id() ? Option.apply(state.leader()) : Option.empty();
            case "leaderLogIfLocal" -> state.leader() == node.node.id() ? log(node, wanted) : Option.empty();
            case "inSyncReplicaIds" -> CollectionConverters.asScala(state.isr()).toSet();
            case "getLeaderEpoch" -> state.leaderEpoch();
            default -> throw Seen.inside(call);
        })));
    }

    /** A deleted log's directory has another name until it is gone. */
    private static Optional<File> directory(NodeProcess node, TopicPartition partition) {
        return logDirs(node).stream().map(each -> new File(each, partition.toString())).filter(File::isDirectory).findFirst();
    }

    private static List<String> logDirs(NodeProcess node) {
        return Arrays.stream(node.property("log.dirs").split(",")).map(each -> new File(each).getAbsolutePath()).toList();
    }

    private static <T> Option<T> option(Optional<T> value) {
        return Option.apply(value.orElse(null));
    }
}
