package org.apache.kafka.clients.consumer;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.fault.FaultHandlerException;

/**
 * Runs methods of Apache Kafka's own ConsumerBounceTest against brokers that are processes. Arguments: the bootstrap
 * servers, the brokers' ids separated by commas, the test's method, how often. "stop N" or "start N" on standard output
 * asks for a broker; a line of standard input says that it is done. Each run ends with "passed" or "failed".
 */
public class ConsumerBounce implements ClusterInstance {
    private final String bootstrap;
    private final Map<Integer, KafkaBroker> brokers = new LinkedHashMap<>();
    private final Set<Integer> stopped = ConcurrentHashMap.newKeySet();
    private final BufferedReader answers = new BufferedReader(new InputStreamReader(System.in));

    ConsumerBounce(String bootstrap, List<Integer> ids) {
        this.bootstrap = bootstrap;
        ids.forEach(id -> brokers.put(id, broker(id)));
    }

    public static void main(String[] arguments) throws Exception {
        List<Integer> ids = Arrays.stream(arguments[1].split(",")).map(Integer::valueOf).toList();
        ConsumerBounce cluster = new ConsumerBounce(arguments[0], ids);
        for (int run = 0; run < Integer.parseInt(arguments[3]); run++)
            System.out.println(cluster.run(arguments[2]));
        System.exit(0);
    }

    private String run(String name) throws Exception {
        ConsumerBounceTest test = new ConsumerBounceTest(this);
        try {
            test.setUp();
            Method method = ConsumerBounceTest.class.getDeclaredMethod(name);
            method.setAccessible(true);
            method.invoke(test);
            return "passed";
        } catch (InvocationTargetException thrown) {
            thrown.getCause().printStackTrace(System.err);
            return "failed " + thrown.getCause().toString().replace('\n', ' ');
        } finally {
            test.tearDown();
            for (int id : List.copyOf(stopped))
                startBroker(id);
            try (Admin admin = admin()) {
                admin.deleteTopics(List.of("topic")).all().get();
            }
        }
    }

    /** What the test calls of a broker: is it stopped, start it. */
    private KafkaBroker broker(int id) {
        return (KafkaBroker) Proxy.newProxyInstance(KafkaBroker.class.getClassLoader(), new Class<?>[] {KafkaBroker.class},
            (proxy, method, unused) -> switch (method.getName()) {
                case "isShutdown" -> stopped.contains(id);
                case "shutdown" -> {
                    shutdownBroker(id);
                    yield null;
                }
                case "startup" -> {
                    startBroker(id);
                    yield null;
                }
                case "hashCode" -> id;
                case "equals", "toString" -> null;
                default -> throw new UnsupportedOperationException(method.getName());
            });
    }

    private synchronized void ask(String what, int id) {
        System.out.println(what + " " + id);
        try {
            if (answers.readLine() == null)
                throw new IllegalStateException("nobody starts and stops brokers any more");
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    @Override
    public void shutdownBroker(int id) {
        if (stopped.add(id))
            ask("stop", id);
    }

    @Override
    public void startBroker(int id) {
        ask("start", id);
        stopped.remove(id);
    }

    @Override
    public void createTopic(String name, int partitions, short replicas, Map<String, String> configs) {
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(name, partitions, replicas).configs(configs))).all().get();
            while (!isInSync(admin, name, replicas))
                Thread.sleep(100);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    /** Whether all replicas are in sync; a broker may not know the topic yet. */
    private static boolean isInSync(Admin admin, String name, int replicas) throws Exception {
        try {
            return admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().stream()
                .allMatch(each -> each.isr().size() == replicas);
        } catch (ExecutionException error) {
            if (error.getCause() instanceof UnknownTopicOrPartitionException)
                return false;
            throw error;
        }
    }

    @Override
    public Map<Integer, KafkaBroker> brokers() {
        return brokers;
    }

    @Override
    public String bootstrapServers() {
        return bootstrap;
    }

    @Override
    public Map<String, Object> setClientSaslConfig(Map<String, Object> configs) {
        return configs;
    }

    @Override
    public Set<Integer> controllerIds() {
        return new TreeSet<>();
    }

    @Override
    public Map<Integer, ControllerServer> controllers() {
        return Map.of();
    }

    @Override
    public Type type() {
        return Type.KRAFT;
    }

    @Override
    public ClusterConfig config() {
        throw new UnsupportedOperationException();
    }

    @Override
    public ListenerName clientListener() {
        throw new UnsupportedOperationException();
    }

    @Override
    public ListenerName controllerListenerName() {
        throw new UnsupportedOperationException();
    }

    @Override
    public String bootstrapControllers() {
        throw new UnsupportedOperationException();
    }

    @Override
    public String clusterId() {
        throw new UnsupportedOperationException();
    }

    @Override
    public Optional<FaultHandlerException> firstFatalException() {
        return Optional.empty();
    }

    @Override
    public Optional<FaultHandlerException> firstNonFatalException() {
        return Optional.empty();
    }

    @Override
    public void start() {
        throw new UnsupportedOperationException();
    }

    @Override
    public boolean started() {
        return true;
    }

    @Override
    public void stop() {
        throw new UnsupportedOperationException();
    }

    @Override
    public boolean stopped() {
        return false;
    }

    @Override
    public void waitForReadyBrokers() {
        throw new UnsupportedOperationException();
    }
}
