package kafka.security.minikdc;

import java.io.File;
import java.util.List;
import java.util.Properties;

/** Takes the place of Apache Kafka's class of this name, which all tests with SASL load: its KDC is not among the jars. */
public class MiniKdc {
    public MiniKdc(Properties config, File directory) {
        throw new UnsupportedOperationException("A KDC is not among the jars");
    }

    public static Properties createConfig() {
        return new Properties();
    }

    public void start() {}

    public void stop() {}

    public void createPrincipal(File keytab, List<String> principals) {}
}
