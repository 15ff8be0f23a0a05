package org.apache.kafka.common.test;

import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import kafka.server.BrokerServer;
import kafka.server.SharedServer;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.server.BrokerLifecycleManager;

/** A broker as far as one can see it from outside its process. */
class SeenBroker {
    static BrokerServer of(NodeProcess node, String clusterId, Runnable start, Runnable stop) {
        return Seen.as(BrokerServer.class, call -> switch (call.getMethod().getName()) {
            case "config" -> node.config();
            case "clusterId" -> clusterId;
            case "isShutdown" -> node.isStopped();
            // That of Apache Kafka stays at SHUTTING_DOWN when it has stopped.
            case "brokerState" -> node.isStopped() ? BrokerState.SHUTTING_DOWN : BrokerState.RUNNING;
            case "boundPort" -> node.port(((ListenerName) call.getArgument(0)).value());
            case "socketServer" -> SeenSocketServer.of(node);
            case "metadataCache" -> MetadataOnDisk.read(node).cache();
            case "logManager" -> SeenLogs.logManager(node);
            case "replicaManager" -> SeenLogs.replicaManager(node);
            case "dataPlaneRequestProcessor" -> SeenLogs.requestProcessor(node, clusterId);
            case "groupCoordinator" -> groupCoordinator(node);
            case "authorizerPlugin" -> SeenSecurity.authorizer(node);
            case "credentialProvider" -> SeenSecurity.credentials(node);
            case "tokenCache" -> SeenSecurity.tokens(node);
            case "lifecycleManager" -> lifecycle();
            case "sharedServer" -> sharedServer(node);
            case "shutdown" -> {
                stop.run();
                yield null;
            }
            case "startup" -> {
                start.run();
                yield null;
            }
            case "awaitShutdown" -> null;
            case "toString" -> "broker " + node.node.id();
            default -> throw Seen.inside(call);
        });
    }

    /** What a helper of the tests asks before it creates the topic of offsets. */
    private static GroupCoordinator groupCoordinator(NodeProcess node) {
        return Seen.as(GroupCoordinator.class, call -> {
            if (!call.getMethod().getName().equals("groupMetadataTopicConfigs"))
                throw Seen.inside(call);
            Properties configs = new Properties();
            configs.put("cleanup.policy", "compact");
            configs.put("compression.type", "producer");
            configs.put("segment.bytes", String.valueOf(node.config().groupCoordinatorConfig().offsetsTopicSegmentBytes()));
            return configs;
        });
    }

    /** By which tests wait until a broker that was started serves clients: that it does when its start has returned. */
    private static BrokerLifecycleManager lifecycle() {
        return Seen.as(BrokerLifecycleManager.class, call -> {
            if (call.getMethod().getName().equals("initialUnfenceFuture"))
                return CompletableFuture.completedFuture(null);
            throw Seen.inside(call);
        });
    }

    /** By which a helper of the tests waits until a broker has the metadata of its controller. */
    private static SharedServer sharedServer(NodeProcess node) {
        return Seen.as(SharedServer.class, call -> {
            if (!call.getMethod().getName().equals("loader"))
                throw Seen.inside(call);
            return Seen.as(MetadataLoader.class, asked -> {
                if (!asked.getMethod().getName().equals("lastAppliedOffset"))
                    throw Seen.inside(asked);
                return MetadataOnDisk.read(node).offset();
            });
        });
    }
}
