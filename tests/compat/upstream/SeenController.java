package org.apache.kafka.common.test;

import java.lang.reflect.Proxy;
import java.util.concurrent.CompletableFuture;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.ControllerServer;
import kafka.server.KafkaConfig;
import kafka.server.SharedServer;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.objenesis.ObjenesisStd;

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
        Class<?>[] interfaces = {Controller.class};
        return (Controller) Proxy.newProxyInstance(Controller.class.getClassLoader(), interfaces, (proxy, method, arguments) -> {
            if (method.getName().equals("findAllTopicIds"))
                return CompletableFuture.completedFuture(MetadataOnDisk.read(node).cache().topicNamesToIds());
            throw new UnsupportedOperationException("Controller." + method.getName() + " " + SeenBroker.INSIDE);
        });
    }

    @Override
    public SharedServer sharedServer() {
        throw new UnsupportedOperationException("ControllerServer.sharedServer " + SeenBroker.INSIDE);
    }

    @Override
    public SocketServer socketServer() {
        return SeenSocketServer.of(node);
    }

    @Override
    public KafkaRaftManager<ApiMessageAndVersion> raftManager() {
        throw new UnsupportedOperationException("ControllerServer.raftManager " + SeenBroker.INSIDE);
    }
}
