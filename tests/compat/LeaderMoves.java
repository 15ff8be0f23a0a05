import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Reads a partition from its first record to its last, again and again, while its leadership goes round brokers 0, 1
 * and 2, all of which live. Arguments: the bootstrap servers, how many moves. Prints how many records were read, and how
 * often each IllegalStateException was thrown. Ends with an error if a record is missing, or read twice.
 */
public class LeaderMoves {
    private static final TopicPartition PARTITION = new TopicPartition("moved", 0);
    private static final int RECORDS = 20_000;
    private static final int PAUSE_MS = 50;

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> configs = Map.of("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(configs)) {
            admin.createTopics(List.of(new NewTopic(PARTITION.topic(), Map.of(0, List.of(0, 1, 2))))).all().get();
            produce(arguments[0]);
            int moves = Integer.parseInt(arguments[1]);
            CompletableFuture<Void> moving = CompletableFuture.runAsync(() -> move(admin, moves));
            read(arguments[0], moving);
            moving.get();
        }
        System.exit(0);
    }

    private static void produce(String bootstrap) {
        Map<String, Object> configs = Map.of("bootstrap.servers", bootstrap, "acks", "all");
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(configs, bytes, bytes)) {
            for (int number = 0; number < RECORDS; number++)
                producer.send(new ProducerRecord<>(PARTITION.topic(), 0, null, new byte[100]));
        }
    }

    private static void move(Admin admin, int moves) {
        try {
            for (int move = 1; move <= moves; move++) {
                List<Integer> replicas = List.of(move % 3, (move + 1) % 3, (move + 2) % 3);
                NewPartitionReassignment order = new NewPartitionReassignment(replicas);
                admin.alterPartitionReassignments(Map.of(PARTITION, Optional.of(order))).all().get();
                admin.electLeaders(ElectionType.PREFERRED, Set.of(PARTITION)).partitions().get();
                Thread.sleep(PAUSE_MS);
            }
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private static void read(String bootstrap, CompletableFuture<Void> moving) {
        Map<String, Object> configs = Map.of("bootstrap.servers", bootstrap, "group.protocol", "consumer", "group.id", "readers",
            "enable.auto.commit", "false", "metadata.max.age.ms", "20");
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        Map<String, Integer> thrown = new TreeMap<>();
        long read = 0, next = 0;
        try (Consumer<byte[], byte[]> consumer = new KafkaConsumer<>(configs, bytes, bytes)) {
            consumer.assign(List.of(PARTITION));
            consumer.seekToBeginning(List.of(PARTITION));
            while (!moving.isDone() || next < RECORDS) {
                try {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                        if (record.offset() != next)
                            throw new AssertionError("offset " + record.offset() + " follows " + (next - 1));
                        next++;
                        read++;
                    }
                } catch (IllegalStateException error) {
                    thrown.merge(error.getMessage(), 1, Integer::sum);
                    // what this poll had collected is lost with it, so its offsets come again from the last position
                    consumer.seek(PARTITION, next);
                }
                if (next == RECORDS && !moving.isDone()) {
                    consumer.seekToBeginning(List.of(PARTITION));
                    next = 0;
                }
            }
        }
        System.out.println("read " + read + " thrown " + thrown);
    }
}
