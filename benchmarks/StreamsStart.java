import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;

/**
 * Starts an application that counts by another key, so that it has internal topics, and ends once it is RUNNING with its
 * tasks: bootstrap, application id, topic, state directory, group protocol. Prints the milliseconds from start() on.
 */
class StreamsStart {
    public static void main(String[] args) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(args[2]).groupBy((key, word) -> word, Grouped.as("by-word")).count();
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("application.id", args[1]);
        config.put("state.dir", args[3]);
        config.put("group.protocol", args[4]);
        config.put("default.key.serde", Serdes.String().getClass());
        config.put("default.value.serde", Serdes.String().getClass());
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        long startedAt = System.nanoTime();
        streams.start();
        while (streams.state() != KafkaStreams.State.RUNNING
                || streams.metadataForLocalThreads().stream().allMatch(thread -> thread.activeTasks().isEmpty())) {
            Thread.sleep(1);
        }
        System.out.println("RUNNING " + (System.nanoTime() - startedAt) / 1000000);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
