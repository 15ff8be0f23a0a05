import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Kafka Streams counts the words of one topic into another, exactly once: bootstrap, application id, topic of words,
 * topic of counts, state directory, group.protocol, classic if it is left out, then NAME=VALUE of configuration. The words are the values, so that
 * they go through a repartition topic; the counts are a RocksDB store with a changelog topic. Without a cache each word is told of: its counts are 1, 2, 3 and so on.
 * Runs until it is killed, or ends with 1 when it cannot go on.
 */
class StreamsCount {
    public static void main(String[] args) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(args[2])
            .groupBy((key, word) -> word, Grouped.as("by-word"))
            .count(Materialized.as("counts"))
            .toStream()
            .to(args[3], Produced.with(Serdes.String(), Serdes.Long()));
        Properties config = new Properties();
        config.putAll(Map.of(
            "bootstrap.servers", args[0],
            "application.id", args[1],
            "state.dir", args[4],
            "processing.guarantee", "exactly_once_v2",
            "num.stream.threads", "2",
            "commit.interval.ms", "100",
            "statestore.cache.max.bytes", "0",
            "default.key.serde", Serdes.String().getClass(),
            "default.value.serde", Serdes.String().getClass()));
        // A killed process is missed soon, also by those that wait for its transaction to end.
        config.putAll(Map.of("producer.transaction.timeout.ms", "3000", "reconnect.backoff.max.ms", "200"));
        if (args.length > 5 && args[5].equals("streams")) {
            config.put("group.protocol", "streams"); // the broker has the time-outs then
        } else {
            config.putAll(Map.of("session.timeout.ms", "2000", "heartbeat.interval.ms", "300"));
        }
        for (int index = 6; index < args.length; index++) {
            config.put(args[index].split("=")[0], args[index].split("=")[1]);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        CountDownLatch ended = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING) {
                ended.countDown();
            }
        });
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            System.exit(1);
            return null;
        });
        streams.start();
        ended.await();
        System.exit(1);
    }
}
