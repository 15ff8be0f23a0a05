import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Java's producers commit transactions one after the other: bootstrap, topic, producers, records of a transaction,
 * bytes of a record, seconds of warm-up, seconds that count, "transactional" or "idempotent".
 *
 * Each producer has a thread and a partition. Records are flushed before the commit, so that what is timed as a commit
 * is that alone; an idempotent producer only flushes. Prints how many were committed in all, how many a second of those
 * that count, and in a line the microseconds of each of their commits.
 */
class TransactionLoad {
    record Found(int count, double seconds, List<Long> commitsUs) {}

    private static final int MIN_COMMITS = 2;

    public static void main(String[] args) throws Exception {
        int producers = Integer.parseInt(args[2]);
        ExecutorService threads = Executors.newFixedThreadPool(producers);
        List<Callable<Found>> loads = new ArrayList<>();
        for (int number = 0; number < producers; number++) {
            int partition = number;
            loads.add(() -> run(args, partition));
        }
        List<Long> commitsUs = new ArrayList<>();
        int count = 0;
        double perSecond = 0;
        for (Future<Found> future : threads.invokeAll(loads)) {
            Found found = future.get();
            count += found.count;
            perSecond += found.commitsUs.size() / found.seconds;
            commitsUs.addAll(found.commitsUs);
        }
        threads.shutdown();
        System.out.println(count);
        System.out.println(perSecond);
        StringBuilder line = new StringBuilder();
        commitsUs.forEach(us -> line.append(us).append(' '));
        System.out.println(line);
    }

    private static Found run(String[] args, int partition) {
        boolean isTransactional = args[7].equals("transactional");
        int records = Integer.parseInt(args[3]);
        long warmUpNs = (long) (Double.parseDouble(args[5]) * 1e9);
        long countedNs = (long) (Double.parseDouble(args[6]) * 1e9);
        byte[] value = new byte[Integer.parseInt(args[4])];
        new java.util.Random(partition).nextBytes(value);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config(args, partition, isTransactional))) {
            if (isTransactional) {
                producer.initTransactions();
            }
            List<Long> commitsUs = new ArrayList<>();
            int count = 0;
            long start = System.nanoTime();
            long counted = 0;
            long now = start;
            while (counted == 0 || now - counted < countedNs || commitsUs.size() < MIN_COMMITS) {
                count++;
                if (isTransactional) {
                    producer.beginTransaction();
                }
                for (int number = 0; number < records; number++) {
                    producer.send(new ProducerRecord<>(args[1], partition, null, value));
                }
                producer.flush();
                long flushed = System.nanoTime();
                if (isTransactional) {
                    producer.commitTransaction();
                }
                now = System.nanoTime();
                if (counted != 0) {
                    commitsUs.add((now - flushed) / 1000);
                } else if (now - start >= warmUpNs) {
                    counted = now;
                }
            }
            return new Found(count, (now - counted) / 1e9, commitsUs);
        }
    }

    private static Properties config(String[] args, int partition, boolean isTransactional) {
        Properties config = new Properties();
        config.putAll(Map.of(
            "bootstrap.servers", args[0],
            "key.serializer", ByteArraySerializer.class,
            "value.serializer", ByteArraySerializer.class,
            "linger.ms", "0",
            "acks", "all"));
        if (isTransactional) {
            config.put("transactional.id", args[1] + "-" + partition);
        }
        return config;
    }
}
