import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * tests/support/share_worker.py, by Java's share consumer: SERVERS NAME GROUP LOCK_S.
 *
 * It renews nothing: if a connection ends while a renewal is on its way, KafkaShareConsumer 4.4.0 may wait for that
 * for ever, and lets the locks of all that it fetches meanwhile time out, until those records are out of attempts.
 */
public class ShareWorker {
    private static final Random DICE = new Random();
    private static String name;

    public static void main(String[] args) throws Exception {
        name = args[1];
        String group = args[2];
        long lockMs = (long) (Double.parseDouble(args[3]) * 1000);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", group);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("max.poll.records", "100");
        settings.put("default.api.timeout.ms", "20000");
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(group));
            while (true) {
                poll(consumer, lockMs);
            }
        }
    }

    private static void poll(KafkaShareConsumer<byte[], byte[]> consumer, long lockMs) throws InterruptedException {
        double asked = seconds();
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        consumer.poll(Duration.ofMillis(200)).forEach(records::add);
        double got = seconds();
        for (ConsumerRecord<byte[], byte[]> each : records) {
            say(asked, got, "delivered", each);
        }
        if (records.isEmpty()) {
            return;
        }
        if (DICE.nextInt(20) == 0) {
            Thread.sleep(lockMs * 3 / 2);
        }
        Map<ConsumerRecord<byte[], byte[]>, AcknowledgeType> chosen = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> each : records) {
            AcknowledgeType type = choice();
            consumer.acknowledge(each, type);
            chosen.put(each, type);
        }
        double sent = seconds();
        Map<TopicIdPartition, Optional<KafkaException>> outcomes;
        try {
            outcomes = consumer.commitSync();
        } catch (KafkaException error) {
            outcomes = Map.of();
        }
        Map<Integer, Boolean> isDone = new HashMap<>();
        outcomes.forEach((partition, error) -> isDone.put(partition.partition(), error.isEmpty()));
        double ended = seconds();
        for (ConsumerRecord<byte[], byte[]> each : records) {
            boolean done = isDone.getOrDefault(each.partition(), false);
            say(sent, ended, done ? chosen.get(each).name().toLowerCase() : "unknown", each);
        }
        System.out.flush();
    }

    private static AcknowledgeType choice() {
        int number = DICE.nextInt(10);
        return number < 8 ? AcknowledgeType.ACCEPT : number == 8 ? AcknowledgeType.RELEASE : AcknowledgeType.REJECT;
    }

    private static double seconds() {
        return System.nanoTime() / 1e9;
    }

    private static void say(double begin, double end, String act, ConsumerRecord<byte[], byte[]> each) {
        int count = act.equals("delivered") ? each.deliveryCount().orElse((short) 0) : 0;
        System.out.println("{\"begin_s\": " + begin + ", \"end_s\": " + end + ", \"member\": \"" + name
            + "\", \"act\": \"" + act + "\", \"place\": [" + each.partition() + ", " + each.offset()
            + "], \"delivery_count\": " + count + "}");
    }
}
