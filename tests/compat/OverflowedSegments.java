import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Writes logs with segments that span more offsets than an index can hold, and loads copies of them, with Apache Kafka's
 * classes: DIR/written/CASE/t-0 becomes DIR/stopped/CASE/t-0 and DIR/killed/CASE/t-0.
 */
public class OverflowedSegments {
    static final long FAR = 1L << 31;
    static final long TIME = System.currentTimeMillis() - 60_000;
    static Path root;

    public static void main(String[] arguments) throws Exception {
        root = Path.of(arguments[0]);
        long[] three = {0, 3, 6, FAR - 9, FAR, FAR + 7, 2 * FAR - 9, 3 * FAR, 3 * FAR + 3};
        write("three-parts", 0, (byte) 2, Compression.NONE, three);
        write("three-parts", 3 * FAR + 16, (byte) 2, Compression.NONE, 3 * FAR + 16, 3 * FAR + 19);
        write("starts-late", 0, (byte) 2, Compression.NONE, 9, 12, FAR + 5, FAR + 8, FAR + 100);
        write("across-the-limit", 0, (byte) 2, Compression.zstd().build(), 0, 3, FAR - 2, FAR + 1);
        write("far-apart", 3, (byte) 2, Compression.NONE, 3, 5 * FAR);
        write("old-gzip", 0, (byte) 1, Compression.gzip().build(), 0, 3, FAR - 2, FAR + 1, 2 * FAR + 1, 2 * FAR + 4);
        write("old-plain", 0, (byte) 0, Compression.NONE, 0, 3, FAR - 2, FAR + 1, 2 * FAR + 1, 2 * FAR + 4);
        writeTransactions();
        try (Stream<Path> cases = Files.list(root.resolve("written"))) {
            for (Path each : cases.toList()) {
                load(each, "stopped", true);
                load(each, "killed", false);
            }
        }
    }

    static FileRecords open(String name, long baseOffset) throws IOException {
        File file = root.resolve(String.format("written/%s/t-0/%020d.log", name, baseOffset)).toFile();
        file.getParentFile().mkdirs();
        return FileRecords.open(file, false, 0, false);
    }

    /** Write batches of three records. */
    static void write(String name, long baseOffset, byte magic, Compression compression, long... offsets)
        throws IOException {
        try (FileRecords log = open(name, baseOffset)) {
            for (int i = 0; i < offsets.length; i++)
                log.append(MemoryRecords.withRecords(magic, offsets[i], compression, records(i)));
        }
    }

    static SimpleRecord[] records(int number) {
        SimpleRecord[] records = new SimpleRecord[3];
        for (int i = 0; i < records.length; i++) {
            byte[] value = ("value " + number + " " + i + " ".repeat(50)).getBytes();
            records[i] = new SimpleRecord(TIME + 1000L * number + i, ("key " + number).getBytes(), value);
        }
        return records;
    }

    /** Two producers' transactions overlap, far apart; of six each, three and none are committed. */
    static void writeTransactions() throws IOException {
        try (FileRecords log = open("transactions", 0)) {
            long offset = 0;
            for (int i = 0; i < 6; i++) {
                for (long producer = 7; producer < 9; producer++, offset += 3)
                    log.append(MemoryRecords.withTransactionalRecords(
                        offset, Compression.NONE, producer, (short) 0, 3 * i, i, records(i)));
                end(log, offset++, i, 7, i % 2 == 0 ? ControlRecordType.ABORT : ControlRecordType.COMMIT);
                offset += 3 * FAR / 4;
                end(log, offset++, i, 8, ControlRecordType.ABORT);
            }
        }
    }

    static void end(FileRecords log, long offset, int epoch, long producer, ControlRecordType type) throws IOException {
        EndTransactionMarker marker = new EndTransactionMarker(type, 0);
        log.append(MemoryRecords.withEndTransactionMarker(offset, TIME, epoch, producer, (short) 0, marker));
    }

    static void load(Path written, String how, boolean isClean) throws Exception {
        Path target = root.resolve(how).resolve(written.getFileName()).resolve("t-0");
        Files.createDirectories(target);
        try (Stream<Path> files = Files.list(written.resolve("t-0"))) {
            for (Path file : files.toList())
                Files.copy(file, target.resolve(file.getFileName()));
        }
        LogConfig config = new LogConfig(Map.of("index.interval.bytes", "200", "segment.bytes", "1048576",
            "segment.index.bytes", "4096", "cleanup.policy", "compact", "retention.ms", "-1"));
        KafkaScheduler scheduler = new KafkaScheduler(1, true);
        scheduler.startup();
        UnifiedLog log = UnifiedLog.create(target.toFile(), config, 0, 0, scheduler, new BrokerTopicStats(), Time.SYSTEM,
            900000, new ProducerStateManagerConfig(86400000, false), 600000, new LogDirFailureChannel(1), isClean,
            Optional.empty());
        System.out.printf("%s %s %d %d%n", how, written.getFileName(), log.logStartOffset(), log.logEndOffset());
        log.close();
        scheduler.shutdown();
    }
}
