package org.apache.kafka.common.test;

import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.TreeSet;
import org.junit.platform.engine.FilterResult;
import org.junit.platform.engine.TestDescriptor;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.UniqueId;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.PostDiscoveryFilter;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs JUnit classes of Apache Kafka, and prints a line of each invocation: outcome, class, method, the invocation's
 * name, seconds, message; separated by tabs. Arguments: the classes, each alone or as CLASS#METHOD,METHOD.
 */
public class UpstreamTests {
    private static final String TIMEOUT = "180 s";

    public static void main(String[] arguments) throws Exception {
        HarnessQuorum.takeItsPlace();
        Set<String> methods = new HashSet<>();
        Set<String> whole = new HashSet<>();
        Set<String> classes = new TreeSet<>();
        for (String each : arguments) {
            String[] parts = each.split("#");
            classes.add(parts[0]);
            if (parts.length == 1)
                whole.add(parts[0]);
            else
                Arrays.stream(parts[1].split(",")).forEach(method -> methods.add(parts[0] + "#" + method));
        }
        PostDiscoveryFilter filter = descriptor -> FilterResult.includedIf(isWanted(descriptor, whole, methods));
        LauncherDiscoveryRequest request = LauncherDiscoveryRequestBuilder.request()
            .selectors(classes.stream().map(name -> selectClass(name)).toList())
            .filters(filter)
            .configurationParameter("junit.jupiter.extensions.autodetection.enabled", "true")
            .configurationParameter("junit.jupiter.execution.timeout.testable.method.default", TIMEOUT)
            .configurationParameter("junit.jupiter.execution.timeout.thread.mode.default", "SEPARATE_THREAD")
            .build();
        LauncherFactory.create().execute(request, new Report());
        System.exit(0);
    }

    private static boolean isWanted(TestDescriptor descriptor, Set<String> whole, Set<String> methods) {
        if (descriptor.getSource().orElse(null) instanceof MethodSource source)
            return whole.contains(source.getClassName()) || methods.contains(source.getClassName() + "#" + source.getMethodName());
        return true;
    }

    private static class Report implements TestExecutionListener {
        private long startedAt;

        @Override
        public void executionStarted(TestIdentifier test) {
            if (test.isTest())
                startedAt = System.currentTimeMillis();
        }

        @Override
        public void executionSkipped(TestIdentifier test, String reason) {
            print("skipped", test, reason);
        }

        @Override
        public void executionFinished(TestIdentifier test, TestExecutionResult result) {
            boolean isPassed = result.getStatus() == TestExecutionResult.Status.SUCCESSFUL;
            if (isPassed && !test.isTest())
                return;
            Throwable error = result.getThrowable().orElse(null);
            print(result.getStatus().toString().toLowerCase(), test, error == null ? "" : messageOf(error));
            if (error != null)
                error.printStackTrace();
        }

        private void print(String outcome, TestIdentifier test, String message) {
            MethodSource source = test.getSource().filter(MethodSource.class::isInstance).map(MethodSource.class::cast).orElse(null);
            String inClass = source == null ? test.getLegacyReportingName() : source.getClassName();
            String method = source == null ? "" : source.getMethodName();
            double seconds = (System.currentTimeMillis() - startedAt) / 1000.0;
            System.out.println(String.join("\t", outcome, inClass, method, nameOf(test, method), "%.1f".formatted(seconds), message));
        }

        /** Of an invocation of a harness: as RaftClusterInvocationContext names its own. */
        private static String nameOf(TestIdentifier test, String method) {
            if (test.getDisplayName().startsWith(method + " ["))
                return test.getDisplayName();
            UniqueId.Segment last = test.getUniqueIdObject().getLastSegment();
            String number = last.getType().equals("test-template-invocation") ? last.getValue().substring(1) : "1";
            return "%s [%s] isolated".formatted(method, number);
        }

        /** The causes, too: an assertion often says less than they. */
        private static String messageOf(Throwable error) {
            StringBuilder text = new StringBuilder();
            for (Throwable each = error; each != null; each = each.getCause())
                text.append(text.isEmpty() ? "" : " <- ").append(each);
            return text.toString().replaceAll("\\s+", " ");
        }
    }
}
