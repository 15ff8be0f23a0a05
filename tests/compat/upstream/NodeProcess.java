package org.apache.kafka.common.test;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.metadata.properties.MetaPropertiesEnsemble;
import org.apache.kafka.metadata.storage.Formatter;

/** A node of a ProcessCluster: its properties, its ports, and the process that runs it while it is not stopped. */
class NodeProcess {
    static final String PYTHON = System.getProperty("upstream.python");
    static final Path LOGS = Path.of(System.getProperty("upstream.logs"));
    private static final long STOP_S = 60;

    private static final Set<Integer> GIVEN_PORTS = ConcurrentHashMap.newKeySet();
    private static final Set<Process> RUNNING = ConcurrentHashMap.newKeySet();

    static {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> RUNNING.forEach(Process::destroyForcibly)));
    }

    final TestKitNode node;
    private final Map<String, Integer> ports = new HashMap<>();
    private final Path log;
    private Map<String, String> properties;
    private Process process;

    NodeProcess(TestKitNode node, int cluster, List<String> listeners) {
        this.node = node;
        this.log = LOGS.resolve("%04d-node-%d.log".formatted(cluster, node.id()));
        listeners.forEach(each -> ports.put(each.toUpperCase(), freePort()));
    }

    int port(String listener) {
        return ports.get(listener.toUpperCase());
    }

    String property(String key) {
        return properties.get(key);
    }

    void setProperties(Map<String, String> all) {
        properties = new TreeMap<>(all);
    }

    /** What Apache Kafka's own class makes of the node's properties, and of what was set while it ran. */
    KafkaConfig config() {
        Map<Object, Object> all = new HashMap<>(properties);
        MetadataCache metadata = MetadataOnDisk.read(this).cache();
        for (String name : List.of("", Integer.toString(node.id())))
            all.putAll(metadata.config(new ConfigResource(ConfigResource.Type.BROKER, name)));
        return new KafkaConfig(all, false);
    }

    /** By Apache Kafka's own class, as KafkaClusterTestKit does it. */
    void format(Formatter formatter) throws Exception {
        for (String directory : directories())
            Files.createDirectories(Path.of(directory));
        List<String> lines = properties.entrySet().stream().map(each -> each.getKey() + "=" + escaped(each.getValue())).toList();
        Files.write(propertiesFile(), lines);
        MetaPropertiesEnsemble ensemble = node.initialMetaPropertiesEnsemble();
        formatter.setNodeId(node.id());
        formatter.setClusterId(ensemble.clusterId().get());
        formatter.setDirectories(ensemble.logDirProps().keySet());
        formatter.setMetadataLogDirectory(ensemble.metadataLogDir().get());
        formatter.setUnstableFeatureVersionsEnabled(true);
        formatter.setPrintStream(new PrintStream(OutputStream.nullOutputStream()));
        formatter.run();
    }

    List<String> directories() {
        List<String> all = new ArrayList<>(List.of(properties.get("log.dirs").split(",")));
        all.add(properties.get("metadata.log.dir"));
        return all;
    }

    synchronized void start() {
        if (process != null)
            return;
        try {
            List<String> command = List.of(PYTHON, "-m", "kafkapy", "start", propertiesFile().toString());
            ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
            process = builder.redirectOutput(ProcessBuilder.Redirect.appendTo(log.toFile())).start();
            RUNNING.add(process);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    boolean isStopped() {
        return process == null;
    }

    void checkAlive() {
        if (process != null && !process.isAlive())
            throw new IllegalStateException("node " + node.id() + " ended with status " + process.exitValue() + ": " + log);
    }

    /** Stop as SIGTERM does; an end that is not clean fails the test. */
    synchronized void stop() {
        Process stopping = process;
        process = null;
        if (stopping == null)
            return;
        stopping.destroy();
        try {
            if (!stopping.waitFor(STOP_S, TimeUnit.SECONDS)) {
                stopping.destroyForcibly().waitFor();
                throw new IllegalStateException("node " + node.id() + " did not stop within " + STOP_S + " s: " + log);
            }
        } catch (InterruptedException interrupted) {
            stopping.destroyForcibly();
            Thread.currentThread().interrupt();
        }
        RUNNING.remove(stopping);
        if (stopping.exitValue() != 0)
            throw new IllegalStateException("node " + node.id() + " ended with status " + stopping.exitValue() + ": " + log);
    }

    private Path propertiesFile() {
        return new File(node.metadataDirectory() + ".properties").toPath();
    }

    private static String escaped(String value) {
        return value.replace("\\", "\\\\").replace("\n", "\\n");
    }

    /** Below the ephemeral ports, which outgoing connections take; none is given twice. */
    private static int freePort() {
        while (true) {
            int port = ThreadLocalRandom.current().nextInt(10_000, 32_000);
            if (!GIVEN_PORTS.add(port))
                continue;
            try (ServerSocket socket = new ServerSocket(port, 1, InetAddress.getByName("127.0.0.1"))) {
                return socket.getLocalPort();
            } catch (IOException taken) {
                continue;
            }
        }
    }
}
