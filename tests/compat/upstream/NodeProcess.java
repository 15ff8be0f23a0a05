package org.apache.kafka.common.test;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.security.JaasUtils;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.metadata.properties.MetaPropertiesEnsemble;
import org.apache.kafka.metadata.storage.Formatter;

/** A node of a ProcessCluster: its properties, its ports, and the process that runs it while it is not stopped. */
class NodeProcess {
    static final String PYTHON = System.getProperty("upstream.python");
    static final Path LOGS = Path.of(System.getProperty("upstream.logs"));
    private static final long STOP_S = 60;
    private static final long START_MS = 120_000;

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

    int anyPort() {
        return ports.values().iterator().next();
    }

    String property(String key) {
        return properties.get(key);
    }

    void setProperties(Map<String, String> all) {
        properties = new TreeMap<>(all);
    }

    // -- listeners

    Set<String> listeners() {
        return ports.keySet();
    }

    /** Of the form NAME://HOST:PORT. Port 0 is any that is free, the same for each process of this node. */
    void addListener(String listener) {
        int port = Integer.parseInt(listener.substring(listener.lastIndexOf(':') + 1));
        ports.put(nameOf(listener), port == 0 ? freePort() : port);
    }

    /** The same listeners, with the ports that they have here. */
    String withPorts(String listeners) {
        return Arrays.stream(listeners.split(","))
            .map(each -> each.endsWith(":0") ? each.substring(0, each.length() - 1) + port(nameOf(each)) : each)
            .collect(Collectors.joining(","));
    }

    private static String nameOf(String listener) {
        return listener.substring(0, listener.indexOf("://")).trim().toUpperCase();
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
        writeProperties();
        MetaPropertiesEnsemble ensemble = node.initialMetaPropertiesEnsemble();
        formatter.setNodeId(node.id());
        formatter.setClusterId(ensemble.clusterId().get());
        formatter.setDirectories(ensemble.logDirProps().keySet());
        formatter.setMetadataLogDirectory(ensemble.metadataLogDir().get());
        run(formatter);
    }

    static void run(Formatter formatter) throws Exception {
        formatter.setUnstableFeatureVersionsEnabled(true);
        formatter.setPrintStream(new PrintStream(OutputStream.nullOutputStream()));
        formatter.run();
    }

    void writeProperties() {
        List<String> lines = properties.entrySet().stream().map(each -> each.getKey() + "=" + escaped(each.getValue())).toList();
        try {
            Files.write(propertiesFile(), lines);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
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
            String logins = System.getProperty(JaasUtils.JAVA_LOGIN_CONFIG_PARAM);
            if (logins != null)
                builder.environment().put("KAFKA_OPTS", "'-D%s=%s'".formatted(JaasUtils.JAVA_LOGIN_CONFIG_PARAM, logins));
            process = builder.redirectOutput(ProcessBuilder.Redirect.appendTo(log.toFile())).start();
            RUNNING.add(process);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    boolean isStopped() {
        return process == null;
    }

    // -- waiting

    void waitUntilItAnswers(String listener) {
        ProcessCluster.waitFor(START_MS, () -> answers(listener), "no answer of " + node.id());
    }

    boolean answers(String listener) {
        checkAlive();
        try (Socket socket = new Socket("localhost", port(listener))) {
            return socket.isConnected();
        } catch (IOException refused) {
            return false;
        }
    }

    /** A broker that it knows itself to be alive serves clients. */
    void waitUntilRegistered() {
        ProcessCluster.waitFor(START_MS, () -> MetadataOnDisk.read(this).cache().hasAliveBroker(node.id()), node.id() + " is not registered");
    }

    private void checkAlive() {
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
