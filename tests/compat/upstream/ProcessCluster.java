package org.apache.kafka.common.test;

import static org.apache.kafka.common.test.api.TestKitDefaults.BROKER_ID_OFFSET;
import static org.apache.kafka.common.test.api.TestKitDefaults.CONTROLLER_ID_OFFSET;

import java.io.File;
import java.io.IOException;
import java.util.AbstractMap;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.metadata.storage.Formatter;
import org.apache.kafka.raft.DynamicVoters;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.fault.FaultHandlerException;

/** The cluster of a test: each node a process of kafkapy with the properties that the test wants of its servers. */
public class ProcessCluster implements ClusterInstance {
    private static final AtomicInteger CLUSTERS = new AtomicInteger();
    private static final long WAIT_MS = 60_000;

    private final ClusterConfig config;
    private final boolean isCombined;
    private final int number = CLUSTERS.incrementAndGet();
    private final Map<Integer, NodeProcess> processes = new LinkedHashMap<>();
    private final Map<Integer, KafkaBroker> brokers = new TreeMap<>();
    private TestKitNodes nodes;
    private boolean started;
    private boolean stopped;

    public ProcessCluster(ClusterConfig config, boolean isCombined) {
        this.config = config;
        this.isCombined = isCombined;
    }

    public void format() throws Exception {
        if (nodes != null)
            return;
        nodes = new TestKitNodes.Builder()
            .setCombined(isCombined)
            .setNumBrokerNodes(config.numBrokers())
            .setNumDisksPerBroker(config.numDisksPerBroker())
            .setNumControllerNodes(config.numControllers())
            .setPerServerProperties(config.perServerOverrideProperties())
            .setBrokerListenerName(config.brokerListenerName())
            .setBrokerSecurityProtocol(config.brokerSecurityProtocol())
            .setControllerListenerName(config.controllerListenerName())
            .setControllerSecurityProtocol(config.controllerSecurityProtocol())
            .build();
        for (TestKitNode each : nodes.controllerNodes().values())
            processes.put(each.id(), new NodeProcess(each, number, listenersOf(each.id())));
        for (TestKitNode each : nodes.brokerNodes().values()) {
            NodeProcess process = processes.computeIfAbsent(each.id(), id -> new NodeProcess(each, number, listenersOf(id)));
            brokers.put(each.id(), SeenBroker.of(process, nodes.clusterId(), () -> startBroker(each.id()), () -> shutdownBroker(each.id())));
        }
        for (NodeProcess each : processes.values()) {
            each.setProperties(propertiesOf(each.node.id()));
            each.format(formatterOf(each.node.id()));
        }
    }

    private List<String> listenersOf(int id) {
        List<String> names = new ArrayList<>();
        if (nodes.brokerNodes().containsKey(id))
            names.add(config.brokerListenerName().value());
        if (nodes.controllerNodes().containsKey(id))
            names.add(config.controllerListenerName().value());
        return names;
    }

    /** What KafkaClusterTestKit gives a node, with ports that are known before it starts. */
    private Map<String, String> propertiesOf(int id) {
        String broker = config.brokerListenerName().value();
        String controller = config.controllerListenerName().value();
        TestKitNode brokerNode = nodes.brokerNodes().get(id);
        TestKitNode controllerNode = nodes.controllerNodes().get(id);
        TestKitNode first = controllerNode == null ? brokerNode : controllerNode;
        Map<String, String> all = new HashMap<>(config.serverProperties());
        all.put("node.id", Integer.toString(id));
        all.put("process.roles", controllerNode == null ? "broker" : brokerNode == null ? "controller" : "broker,controller");
        all.put("metadata.log.dir", first.metadataDirectory());
        all.put("log.dirs", brokerNode == null ? first.metadataDirectory() : String.join(",", brokerNode.logDataDirectories()));
        all.putIfAbsent("listener.security.protocol.map", "%s:%s,%s:%s".formatted(
            broker, config.brokerSecurityProtocol(), controller, config.controllerSecurityProtocol()));
        all.putIfAbsent("listeners", listenersOf(id).stream()
            .map(name -> "%s://localhost:%d".formatted(name, processes.get(id).port(name))).collect(Collectors.joining(",")));
        all.putIfAbsent("inter.broker.listener.name", broker);
        all.putIfAbsent("controller.listener.names", controller);
        all.put(config.standalone() ? "controller.quorum.bootstrap.servers" : "controller.quorum.voters", quorum());
        all.putIfAbsent("log.cleaner.dedupe.buffer.size", "2097152");
        if (brokerNode != null)
            all.remove("controller.quorum.auto.join.enable");
        if (config.brokerSecurityProtocol() == SecurityProtocol.SASL_PLAINTEXT)
            addLogins(all);
        if (brokerNode != null)
            all.putAll(brokerNode.propertyOverrides());
        if (controllerNode != null)
            all.putAll(controllerNode.propertyOverrides());
        return all;
    }

    private void addLogins(Map<String, String> all) {
        all.putIfAbsent("sasl.enabled.mechanisms", "PLAIN");
        all.putIfAbsent("sasl.mechanism.inter.broker.protocol", "PLAIN");
        all.putIfAbsent("sasl.mechanism.controller.protocol", "PLAIN");
        all.putIfAbsent("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer");
        all.putIfAbsent("allow.everyone.if.no.acl.found", "false");
        all.putIfAbsent("super.users", "User:" + JaasUtils.KAFKA_PLAIN_ADMIN);
        JaasModule users = JaasModule.plainLoginModule(JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD, false,
            Map.of(
                JaasUtils.KAFKA_PLAIN_USER1, JaasUtils.KAFKA_PLAIN_USER1_PASSWORD,
                JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD));
        for (ListenerName each : List.of(config.brokerListenerName(), config.controllerListenerName()))
            all.put("listener.name.%s.plain.sasl.jaas.config".formatted(each.value().toLowerCase()), users.toString());
    }

    private String quorum() {
        String listener = config.controllerListenerName().value();
        return nodes.controllerNodes().keySet().stream()
            .map(id -> (config.standalone() ? "" : id + "@") + "localhost:" + processes.get(id).port(listener))
            .collect(Collectors.joining(","));
    }

    /** The test's metadata.version; the other features at what it names, or at that version's own levels. */
    private Formatter formatterOf(int id) {
        Formatter formatter = new Formatter().setReleaseVersion(config.metadataVersion());
        formatter.setControllerListenerName(config.controllerListenerName().value());
        config.features().forEach((feature, level) -> formatter.setFeatureLevel(feature.featureName(), level));
        if (!config.standalone())
            return formatter;
        formatter.setHasDynamicQuorum(true);
        if (id == BROKER_ID_OFFSET + CONTROLLER_ID_OFFSET)
            formatter.setInitialControllers(DynamicVoters.parse("%d@%s:%s".formatted(
                id, addresses(Set.of(id), controllerListenerName()), nodes.controllerNodes().get(id).metadataDirectoryId())));
        return formatter;
    }

    @Override
    public void start() {
        try {
            format();
            if (started)
                return;
            started = true;
            processes.values().forEach(NodeProcess::start);
            for (NodeProcess each : processes.values())
                for (String listener : listenersOf(each.node.id()))
                    each.waitUntilItAnswers(listener);
            waitForReadyBrokers();
        } catch (Exception error) {
            throw new RuntimeException("Failed to start the cluster", error);
        }
    }

    @Override
    public void stop() {
        if (stopped || nodes == null)
            return;
        stopped = true;
        List<RuntimeException> errors = new ArrayList<>();
        for (boolean isController : new boolean[] {false, true})
            for (NodeProcess each : processes.values())
                if (nodes.controllerNodes().containsKey(each.node.id()) == isController)
                    try {
                        each.stop();
                    } catch (RuntimeException error) {
                        errors.add(error);
                    }
        try {
            Utils.delete(new File(nodes.baseDirectory()));
        } catch (IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
        if (!errors.isEmpty())
            throw errors.get(0);
    }

    /** A broker of its own process. That of a combined node would take its controller with it. */
    @Override
    public void shutdownBroker(int id) {
        NodeProcess process = brokerOf(id);
        if (nodes.isCombined(id))
            throw Seen.inside("What stops a broker but not its controller");
        process.stop();
    }

    @Override
    public void startBroker(int id) {
        NodeProcess process = brokerOf(id);
        process.start();
        process.waitUntilItAnswers(config.brokerListenerName().value());
    }

    private NodeProcess brokerOf(int id) {
        if (!brokers.containsKey(id))
            throw new IllegalArgumentException("Unknown brokerId " + id);
        return processes.get(id);
    }

    // -- waiting

    /** What a wait is for; an exception counts as not yet. */
    interface Condition {
        boolean holds() throws Exception;
    }

    static void waitFor(long timeoutMs, Condition condition, String missing) {
        long end = System.currentTimeMillis() + timeoutMs;
        Exception last = null;
        while (System.currentTimeMillis() < end) {
            try {
                if (condition.holds())
                    return;
            } catch (IllegalStateException | InterruptedException error) {
                throw new AssertionError(missing, error);
            } catch (Exception error) {
                last = error;
            }
            pause(missing);
        }
        throw new AssertionError(missing, last);
    }

    private static void pause(String missing) {
        try {
            Thread.sleep(50);
        } catch (InterruptedException error) {
            throw new AssertionError(missing, error);
        }
    }

    @Override
    public void waitForReadyBrokers() throws InterruptedException {
        Set<Integer> alive = processes.values().stream().filter(each -> !each.isStopped())
            .map(each -> each.node.id()).filter(brokers::containsKey).collect(Collectors.toSet());
        for (int id : alive)
            waitFor(WAIT_MS, () -> MetadataOnDisk.read(processes.get(id)).cache().getAliveBrokerNodes(config.brokerListenerName()).stream()
                .map(org.apache.kafka.common.Node::id).collect(Collectors.toSet()).containsAll(alive), "not all brokers are ready");
    }

    @Override
    public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        if (partitions <= 0)
            throw new IllegalArgumentException("Partition count must be > 0, but was " + partitions);
        for (KafkaBroker broker : aliveBrokers().values())
            waitFor(WAIT_MS, () -> broker.metadataCache().numPartitions(topic).filter(count -> count == partitions).isPresent(),
                topic + " is not known to " + broker);
    }

    @Override
    public void waitTopicDeletion(String topic) throws InterruptedException {
        for (KafkaBroker broker : aliveBrokers().values())
            waitFor(WAIT_MS, () -> broker.metadataCache().numPartitions(topic).isEmpty(), topic + " is still known to " + broker);
        for (NodeProcess each : processes.values())
            for (String directory : each.directories())
                waitFor(WAIT_MS, () -> Arrays.stream(new File(directory).list()).noneMatch(name -> isLogOrDeleted(topic, name)),
                    topic + " is still in " + directory);
    }

    /** A log that a broker no longer had a replica for when it started ends in "-stray", and is kept. */
    private static boolean isLogOrDeleted(String topic, String name) {
        return name.equals(topic + "-0") || name.startsWith(topic + "-0.") && name.endsWith("-delete");
    }

    @Override
    public void ensureConsistentMetadata() throws InterruptedException {
        long end = processes.values().stream().filter(each -> !each.isStopped()).mapToLong(each -> MetadataOnDisk.read(each).offset()).max().orElse(-1);
        for (NodeProcess each : processes.values())
            if (!each.isStopped())
                waitFor(WAIT_MS, () -> MetadataOnDisk.read(each).offset() >= end, "metadata is late on " + each.node.id());
    }

    @Override
    public void ensureConsistentMetadata(Collection<KafkaBroker> unused, Collection<ControllerServer> none) throws InterruptedException {
        ensureConsistentMetadata();
    }

    @Override
    public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries) throws InterruptedException {
        try (Admin admin = admin()) {
            waitFor(15_000, () -> admin.describeAcls(filter).values().get().stream().map(AclBinding::entry).collect(Collectors.toSet())
                .equals(new HashSet<>(entries)), "expected acls: " + entries);
        }
    }

    // -- what is known of it

    private String addresses(Set<Integer> ids, ListenerName listener) {
        return ids.stream().map(id -> "localhost:" + processes.get(id).port(listener.value())).collect(Collectors.joining(","));
    }

    @Override
    public String bootstrapServers() {
        return addresses(brokers.keySet(), config.brokerListenerName());
    }

    @Override
    public String bootstrapControllers() {
        return addresses(controllerIds(), config.controllerListenerName());
    }

    @Override
    public List<Integer> brokerBoundPorts() {
        return brokers.keySet().stream().map(id -> processes.get(id).port(clientListener().value())).toList();
    }

    @Override
    public List<Integer> controllerBoundPorts() {
        return controllerIds().stream().map(id -> processes.get(id).port(controllerListenerName().value())).toList();
    }

    @Override
    public Set<GroupProtocol> supportedGroupProtocols() {
        Feature version = Feature.GROUP_VERSION;
        boolean hasConsumer = config.features().getOrDefault(version, version.defaultLevel(config.metadataVersion())) > 0;
        return hasConsumer ? Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER) : Set.of(GroupProtocol.CLASSIC);
    }

    @Override
    public List<Authorizer> authorizers() {
        throw Seen.inside("Authorizer");
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        return new TreeMap<>(brokers);
    }

    /** Ids, and what is found by them; values() is empty: tests wait until brokers are where each controller there is. */
    @Override
    public Map<Integer, ControllerServer> controllers() {
        return new AbstractMap<>() {
            @Override
            public Set<Entry<Integer, ControllerServer>> entrySet() {
                return Set.of();
            }

            @Override
            public Set<Integer> keySet() {
                return controllerIds();
            }

            @Override
            public ControllerServer get(Object id) {
                return nodes.controllerNodes().containsKey(id) ? SeenController.of(processes.get(id)) : null;
            }
        };
    }

    @Override
    public Set<Integer> controllerIds() {
        return nodes.controllerNodes().keySet();
    }

    @Override
    public ListenerName clientListener() {
        return config.brokerListenerName();
    }

    @Override
    public ListenerName controllerListenerName() {
        return config.controllerListenerName();
    }

    @Override
    public String clusterId() {
        return nodes.clusterId();
    }

    @Override
    public Type type() {
        return isCombined ? Type.CO_KRAFT : Type.KRAFT;
    }

    @Override
    public ClusterConfig config() {
        return config;
    }

    @Override
    public boolean started() {
        return started;
    }

    @Override
    public boolean stopped() {
        return stopped;
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }
}
