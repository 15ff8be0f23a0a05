package org.apache.kafka.common.test;

import java.lang.reflect.Proxy;
import java.util.Properties;
import kafka.server.KafkaBroker;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.BrokerState;

/** A broker as far as one can see it from outside its process. */
class SeenBroker {
    /** Ends the message of a test that asks for what is inside a broker's process: it cannot run here. */
    static final String INSIDE = "is inside the broker's process";

    static KafkaBroker of(ProcessCluster cluster, NodeProcess node) {
        Class<?>[] interfaces = {KafkaBroker.class};
        return (KafkaBroker) Proxy.newProxyInstance(KafkaBroker.class.getClassLoader(), interfaces, (proxy, method, arguments) ->
            switch (method.getName()) {
                case "config" -> node.config();
                case "clusterId" -> cluster.clusterId();
                case "isShutdown" -> node.isStopped();
                // That of Apache Kafka stays at SHUTTING_DOWN when it has stopped.
                case "brokerState" -> node.isStopped() ? BrokerState.SHUTTING_DOWN : BrokerState.RUNNING;
                case "boundPort" -> node.port(((ListenerName) arguments[0]).value());
                case "socketServer" -> SeenSocketServer.of(node);
                case "metadataCache" -> cluster.metadataOf(node);
                case "logManager" -> SeenLogs.logManager(node);
                case "replicaManager" -> SeenLogs.replicaManager(cluster, node);
                case "dataPlaneRequestProcessor" -> SeenLogs.requestProcessor(node);
                case "groupCoordinator" -> groupCoordinator(node);
                case "shutdown" -> {
                    cluster.shutdownBroker(node.node.id());
                    yield null;
                }
                case "startup" -> {
                    cluster.startBroker(node.node.id());
                    yield null;
                }
                case "awaitShutdown" -> null;
                case "hashCode" -> System.identityHashCode(proxy);
                case "equals" -> proxy == arguments[0];
                case "toString" -> "broker " + node.node.id();
                default -> throw new UnsupportedOperationException("KafkaBroker." + method.getName() + " " + INSIDE);
            });
    }

    /** What a helper of the tests asks before it creates the topic of offsets. */
    private static GroupCoordinator groupCoordinator(NodeProcess node) {
        Class<?>[] interfaces = {GroupCoordinator.class};
        return (GroupCoordinator) Proxy.newProxyInstance(GroupCoordinator.class.getClassLoader(), interfaces, (proxy, method, arguments) -> {
            if (!method.getName().equals("groupMetadataTopicConfigs"))
                throw new UnsupportedOperationException("GroupCoordinator." + method.getName() + " " + INSIDE);
            Properties configs = new Properties();
            configs.put("cleanup.policy", "compact");
            configs.put("compression.type", "producer");
            configs.put("segment.bytes", String.valueOf(node.config().groupCoordinatorConfig().offsetsTopicSegmentBytes()));
            return configs;
        });
    }
}
