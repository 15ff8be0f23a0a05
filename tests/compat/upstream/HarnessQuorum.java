package org.apache.kafka.common.test;

import static net.bytebuddy.matcher.ElementMatchers.named;
import static net.bytebuddy.matcher.ElementMatchers.takesArguments;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.invoke.MethodHandles;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import kafka.server.KRaftQuorumImplementation;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import kafka.server.QuorumTestHarness;
import kafka.utils.TestInfoUtils;
import net.bytebuddy.ByteBuddy;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.dynamic.loading.ClassLoadingStrategy;
import net.bytebuddy.implementation.MethodDelegation;
import net.bytebuddy.implementation.bind.annotation.Argument;
import net.bytebuddy.implementation.bind.annotation.This;
import net.bytebuddy.pool.TypePool;
import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.MetaPropertiesEnsemble;
import org.apache.kafka.metadata.properties.MetaPropertiesVersion;
import org.apache.kafka.metadata.storage.Formatter;
import org.junit.jupiter.api.TestInfo;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** The controller and the brokers of a test that extends QuorumTestHarness: each a process of kafkapy. */
public class HarnessQuorum extends KRaftQuorumImplementation {
    private static final AtomicInteger QUORUMS = new AtomicInteger();
    private static final String CONTROLLER = "CONTROLLER";

    private final int number;
    private final NodeProcess controller;

    /** Lets QuorumTestHarness, which is not loaded yet, make its quorum by make(). All else in it stays. */
    static void takeItsPlace() throws Exception {
        ClassFileLocator locator = ClassFileLocator.ForClassLoader.ofSystemLoader();
        TypePool types = TypePool.Default.of(locator);
        new ByteBuddy().redefine(types.describe("kafka.server.QuorumTestHarness").resolve(), locator)
            .method(named("newKRaftQuorum").and(takesArguments(2)))
            .intercept(MethodDelegation.to(types.describe(HarnessQuorum.class.getName()).resolve()))
            .make()
            .load(ClassLoader.getSystemClassLoader(), ClassLoadingStrategy.UsingLookup.of(
                MethodHandles.privateLookupIn(KafkaConfig.class, MethodHandles.lookup())));
    }

    /** What QuorumTestHarness gives its controller, with a port that is known before it starts. */
    public static KRaftQuorumImplementation make(@This QuorumTestHarness harness, @Argument(0) TestInfo test, @Argument(1) Properties overriding)
            throws Exception {
        Map<String, String> all = new HashMap<>();
        for (Properties each : List.of(CollectionConverters.asJava(harness.kraftControllerConfigs(test)).get(0), overriding))
            each.forEach((key, value) -> all.put(key.toString(), textOf(value)));
        all.putIfAbsent("node.id", "1000");
        int id = Integer.parseInt(all.get("node.id"));
        List<String> protocols = CollectionConverters.asJava(harness.extraControllerSecurityProtocols()).stream().map(SecurityProtocol::toString).toList();
        List<String> listeners = new ArrayList<>(List.of(CONTROLLER));
        listeners.addAll(protocols);
        String directory = TestUtils.tempDirectory().getAbsolutePath();
        int number = QUORUMS.incrementAndGet();
        NodeProcess controller = new NodeProcess(new Node(id, directory), number, listeners);
        all.put("process.roles", "controller");
        all.put("unstable.feature.versions.enable", "true");
        all.put("metadata.log.dir", directory);
        all.put("log.dirs", directory);
        all.put("listener.security.protocol.map", CONTROLLER + ":" + harness.controllerListenerSecurityProtocol()
            + protocols.stream().map(each -> ",%s:%s".formatted(each, each)).collect(Collectors.joining()));
        all.put("listeners", listeners.stream().map(each -> each + "://localhost:" + controller.port(each)).collect(Collectors.joining(",")));
        all.put("controller.listener.names", String.join(",", listeners));
        all.put("controller.quorum.voters", id + "@localhost:" + controller.port(CONTROLLER));
        all.put("log.segment.delete.delay.ms", "1000");
        controller.setProperties(all);
        controller.writeProperties();

        Formatter formatter = new Formatter().setClusterId(Uuid.randomUuid().toString()).setNodeId(id)
            .setReleaseVersion(harness.metadataVersion()).setControllerListenerName(CONTROLLER);
        formatter.setFeatureLevel("transaction.version", (short) (TestInfoUtils.isTransactionV2Enabled(test) ? 2 : 1));
        harness.addFormatterSettings(formatter);
        formatter.setDirectories(List.of(directory)).setMetadataLogDirectory(directory);
        NodeProcess.run(formatter);
        controller.start();
        controller.waitUntilItAnswers(CONTROLLER);
        return new HarnessQuorum(harness, number, controller, formatter.clusterId());
    }

    private HarnessQuorum(QuorumTestHarness harness, int number, NodeProcess controller, String clusterId) {
        super(SeenController.of(controller), harness.faultHandlerFactory(), new File(controller.node.metadataDirectory()),
            CompletableFuture.completedFuture(Map.of(controller.node.id(), new InetSocketAddress("localhost", controller.port(CONTROLLER)))),
            clusterId, harness, harness.faultHandler());
        this.number = number;
        this.controller = controller;
    }

    @Override
    public KafkaBroker createBroker(KafkaConfig config, Time time, boolean startup, Option<String> threadNamePrefix) {
        writeMetaProperties(config);
        Map<String, String> all = new HashMap<>();
        config.originals().forEach((key, value) -> all.put(key, textOf(value)));
        String listeners = all.get("listeners");
        NodeProcess node = new NodeProcess(new Node(config.nodeId(), config.metadataLogDir()), number, List.of());
        Arrays.stream(listeners.split(",")).forEach(node::addListener);
        all.put("listeners", node.withPorts(listeners));
        all.computeIfPresent("advertised.listeners", (key, advertised) -> node.withPorts(advertised));
        all.put("log.dirs", String.join(",", config.logDirs()));
        all.put("metadata.log.dir", config.metadataLogDir());
        all.put("controller.quorum.voters", controller.property("controller.quorum.voters"));
        node.setProperties(all);
        node.writeProperties();
        KafkaBroker broker = SeenBroker.of(node, clusterId(), () -> start(node), node::stop);
        if (startup)
            broker.startup();
        return broker;
    }

    /** As Apache Kafka's does it: a directory that has been used stays what it is. */
    private void writeMetaProperties(KafkaConfig config) {
        try {
            MetaPropertiesEnsemble ensemble = new MetaPropertiesEnsemble.Loader().addLogDirs(config.logDirs())
                .addMetadataLogDir(config.metadataLogDir()).load();
            MetaPropertiesEnsemble.Copier copier = new MetaPropertiesEnsemble.Copier(ensemble);
            for (String each : ensemble.emptyLogDirs())
                copier.setLogDirProps(each, new MetaProperties.Builder().setVersion(MetaPropertiesVersion.V1).setClusterId(clusterId())
                    .setNodeId(config.nodeId()).setDirectoryId(DirectoryId.random()).build());
            copier.setPreWriteHandler((directory, unused, none) -> Files.createDirectories(Path.of(directory)));
            copier.writeLogDirChanges();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Of a value that a test has set: as a file of properties has it. */
    private static String textOf(Object value) {
        if (value instanceof Collection<?> several)
            return several.stream().map(HarnessQuorum::textOf).collect(Collectors.joining(","));
        return value instanceof Password password ? password.value() : value.toString();
    }

    private static void start(NodeProcess node) {
        node.start();
        node.listeners().forEach(node::waitUntilItAnswers);
        node.waitUntilRegistered();
    }

    @Override
    public void shutdown() {
        controller.stop();
        try {
            Utils.delete(metadataDir());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private record Node(int id, String metadataDirectory) implements TestKitNode {
        @Override
        public MetaPropertiesEnsemble initialMetaPropertiesEnsemble() {
            throw new UnsupportedOperationException();
        }

        @Override
        public Map<String, String> propertyOverrides() {
            return Map.of();
        }
    }
}
