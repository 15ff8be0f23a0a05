package org.apache.kafka.common.test;

import java.util.Collection;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Collectors;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.ControllerServer;
import kafka.server.KafkaConfig;
import kafka.server.SharedServer;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.ResultOrError;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.objenesis.ObjenesisStd;
import scala.Option;

/** A controller as far as one can see it from outside its process. */
class SeenController extends ControllerServer {
    private NodeProcess node;

    /** Never called: see of(). */
    private SeenController() {
        super(null, null, null);
    }

    /** Apache Kafka's class is not made to be extended: its constructor would make what a controller consists of. */
    static ControllerServer of(NodeProcess node) {
        SeenController made = new ObjenesisStd().newInstance(SeenController.class);
        made.node = node;
        return made;
    }

    @Override
    public KafkaConfig config() {
        return node.config();
    }

    @Override
    public Controller controller() {
        return Seen.as(Controller.class, call -> switch (call.getMethod().getName()) {
            case "findAllTopicIds" -> CompletableFuture.completedFuture(MetadataOnDisk.read(node).cache().topicNamesToIds());
            case "findTopicIds" -> CompletableFuture.completedFuture(topicIds(call.getArgument(1)));
            case "isActive" -> !node.isStopped();
            default -> throw Seen.inside(call);
        });
    }

    private Map<String, ResultOrError<Uuid>> topicIds(Collection<String> names) {
        Map<String, Uuid> known = MetadataOnDisk.read(node).cache().topicNamesToIds();
        return names.stream().collect(Collectors.toMap(name -> name, name -> known.containsKey(name)
            ? new ResultOrError<>(known.get(name)) : new ResultOrError<>(Errors.UNKNOWN_TOPIC_OR_PARTITION, null)));
    }

    @Override
    public SharedServer sharedServer() {
        throw Seen.inside("ControllerServer.sharedServer");
    }

    @Override
    public SocketServer socketServer() {
        return SeenSocketServer.of(node);
    }

    @Override
    public KafkaRaftManager<ApiMessageAndVersion> raftManager() {
        return manager();
    }

    /** By which a helper of the tests asks how far the metadata log goes. */
    @SuppressWarnings("unchecked")
    private KafkaRaftManager<ApiMessageAndVersion> manager() {
        return Seen.as(KafkaRaftManager.class, call -> {
            if (!call.getMethod().getName().equals("raftLog"))
                throw Seen.inside(call);
            return Seen.as(RaftLog.class, asked -> {
                if (!asked.getMethod().getName().equals("endOffset"))
                    throw Seen.inside(asked);
                return new LogOffsetMetadata(MetadataOnDisk.read(node).offset() + 1);
            });
        });
    }

    @Override
    public Option<Plugin<Authorizer>> authorizerPlugin() {
        return SeenSecurity.authorizer(node);
    }

    @Override
    public void shutdown() {
        node.stop();
    }
}
