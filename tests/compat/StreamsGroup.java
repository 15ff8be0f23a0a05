import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/** Copies a topic as a member of a streams group (KIP-1071): bootstrap, group, topic, copy, state directory. */
class StreamsGroup {
    public static void main(String[] args) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[2]).to(args[3]);
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("application.id", args[1]);
        config.put("state.dir", args[4]);
        config.put("group.protocol", "streams");
        config.put("commit.interval.ms", "100");
        config.put("default.key.serde", Serdes.ByteArray().getClass());
        config.put("default.value.serde", Serdes.ByteArray().getClass());
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.start();
        Thread.currentThread().join();
    }
}
