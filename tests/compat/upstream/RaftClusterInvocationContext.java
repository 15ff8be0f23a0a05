package org.apache.kafka.common.test.junit;

import java.util.List;
import org.apache.kafka.common.test.ProcessCluster;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.extension.AfterTestExecutionCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

/**
 * Takes the place of Apache Kafka's class of this name, first on the class path: a test that asks for a cluster gets
 * processes of kafkapy, where Apache Kafka's class starts brokers in the test's own process.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    /** "combined" or "isolated": of a test for both, the others are left out of this run. Empty: none is. */
    private static final String ONLY = System.getProperty("upstream.only", "");

    private final String method;
    private final ClusterConfig config;
    private final boolean isCombined;

    public RaftClusterInvocationContext(String method, ClusterConfig config, boolean isCombined) {
        this.method = method;
        this.config = config;
        this.isCombined = isCombined;
    }

    /** The same for each run: what a list of invocations may name. */
    @Override
    public String getDisplayName(int index) {
        return "%s [%d] %s".formatted(method, index, kind());
    }

    private String kind() {
        return isCombined ? "combined" : "isolated";
    }

    private boolean isAskedFor() {
        return ONLY.isEmpty() || ONLY.equals(kind()) || config.clusterTypes().size() == 1;
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        ProcessCluster cluster = new ProcessCluster(config, isCombined);
        return List.of(
            (BeforeEachCallback) context -> {
                Assumptions.assumeTrue(isAskedFor(), "not asked for");
                cluster.format();
                if (config.isAutoStart())
                    cluster.start();
            },
            (AfterTestExecutionCallback) context -> cluster.stop(),
            new ClusterInstanceParameterResolver(cluster));
    }
}
