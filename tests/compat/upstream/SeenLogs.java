package org.apache.kafka.common.test;

import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.withSettings;

import java.io.File;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.server.KafkaApis;
import kafka.server.ReplicaManager;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.mockito.MockMakers;
import org.mockito.invocation.InvocationOnMock;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** A broker's logs and replicas as far as one can see them from outside its process: directories, and its metadata log. */
class SeenLogs {
    static LogManager logManager(NodeProcess node) {
        return seen(LogManager.class, call -> switch (call.getMethod().getName()) {
            case "getLog" -> log(directory(node, call.getArgument(0)));
            case "liveLogDirs" -> CollectionConverters.asScala(logDirs(node).stream().map(File::new).toList()).toSeq();
            default -> throw inside("LogManager", call);
        });
    }

    static ReplicaManager replicaManager(ProcessCluster cluster, NodeProcess node) {
        return seen(ReplicaManager.class, call -> switch (call.getMethod().getName()) {
            case "metadataCache" -> cluster.metadataOf(node);
            case "logManager" -> logManager(node);
            case "onlinePartition" -> partition(cluster, node, call.getArgument(0));
            default -> throw inside("ReplicaManager", call);
        });
    }

    static KafkaApis requestProcessor(NodeProcess node) {
        return seen(KafkaApis.class, call -> {
            if (call.getMethod().getName().equals("brokerId"))
                return node.node.id();
            throw inside("KafkaApis", call);
        });
    }

    private static Option<UnifiedLog> log(Optional<File> directory) {
        return option(directory.map(found -> seen(UnifiedLog.class, call -> switch (call.getMethod().getName()) {
            case "dir" -> found;
            case "partitionMetadataFile" -> Optional.of(new PartitionMetadataFile(PartitionMetadataFile.newFile(found), null));
            default -> throw inside("UnifiedLog", call);
        })));
    }

    /** A replica that the node's metadata and one of its log directories have. */
    private static Option<Partition> partition(ProcessCluster cluster, NodeProcess node, TopicPartition wanted) {
        if (node.isStopped() || directory(node, wanted).isEmpty())
            return Option.empty();
        return option(cluster.metadataOf(node).getLeaderAndIsr(wanted.topic(), wanted.partition()).map(known -> seen(Partition.class, call -> {
            if (call.getMethod().getName().equals("leaderIdIfLocal"))
                return known.leader() == node.node.id() ? Option.apply(known.leader()) : Option.empty();
            throw inside("Partition", call);
        })));
    }

    /** A deleted log's directory has another name until it is gone. */
    private static Optional<File> directory(NodeProcess node, TopicPartition partition) {
        return logDirs(node).stream().map(each -> new File(each, partition.toString())).filter(File::isDirectory).findFirst();
    }

    private static List<String> logDirs(NodeProcess node) {
        return Arrays.asList(node.property("log.dirs").split(","));
    }

    private static <T> Option<T> option(Optional<T> value) {
        return Option.apply(value.orElse(null));
    }

    private interface Answer {
        Object to(InvocationOnMock call);
    }

    /** Their constructors would make what a broker consists of. */
    private static <T> T seen(Class<T> type, Answer answer) {
        return mock(type, withSettings().mockMaker(MockMakers.SUBCLASS).stubOnly().defaultAnswer(answer::to));
    }

    private static UnsupportedOperationException inside(String type, InvocationOnMock call) {
        return new UnsupportedOperationException("%s.%s %s".formatted(type, call.getMethod().getName(), SeenBroker.INSIDE));
    }
}
