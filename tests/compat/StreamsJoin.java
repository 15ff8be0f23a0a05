import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * Joins the stream "orders" (customer: amount) with the table "customers" (customer: region), and sums the amounts by
 * region and minute into "sums" (region@start of the minute: sum so far). The join needs both topics copartitioned and
 * a changelog, the sum a repartition topic and another changelog. Arguments: bootstrap, application id, state directory,
 * then NAME=VALUE of configuration. Prints each state it comes to with the milliseconds since its start; ends with 1 if
 * it cannot go on.
 */
class StreamsJoin {
    public static void main(String[] args) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, String> customers = builder.table("customers", Materialized.as("regions"));
        KStream<String, String> orders = builder.stream("orders");
        orders.join(customers, (amount, region) -> region + ":" + amount)
            .map((customer, found) -> KeyValue.pair(found.split(":")[0], found.split(":")[1]))
            .groupByKey(Grouped.as("by-region"))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofDays(1)))
            .reduce((sum, amount) -> Long.toString(Long.parseLong(sum) + Long.parseLong(amount)), Materialized.as("sums"))
            .toStream()
            .map((window, sum) -> KeyValue.pair(window.key() + "@" + window.window().start(), sum))
            .to("sums");
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("application.id", args[1]);
        config.put("state.dir", args[2]);
        config.put("commit.interval.ms", "100");
        config.put("statestore.cache.max.bytes", "0");
        config.put("default.key.serde", Serdes.String().getClass());
        config.put("default.value.serde", Serdes.String().getClass());
        config.put("producer.transaction.timeout.ms", "10000");
        config.put("reconnect.backoff.max.ms", "200");
        for (int index = 3; index < args.length; index++) {
            config.put(args[index].split("=")[0], args[index].split("=")[1]);
        }
        long startedAt = System.currentTimeMillis();
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        CountDownLatch ended = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            System.out.println(now + " " + (System.currentTimeMillis() - startedAt));
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
