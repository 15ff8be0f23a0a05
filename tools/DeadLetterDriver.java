package org.apache.kafka.server.share.dlq;
import java.io.*; import java.lang.reflect.Field; import java.lang.reflect.Proxy; import java.nio.ByteBuffer; import java.util.*;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.clients.KafkaClient;
import org.apache.kafka.common.*; import org.apache.kafka.common.message.ProduceRequestData; import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.*; import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.share.LogReader; import org.apache.kafka.server.share.metrics.ShareGroupMetrics;
import org.apache.kafka.server.storage.log.*; import org.apache.kafka.server.util.timer.TimerTask;
import org.apache.kafka.storage.internals.log.*;

/** Prints the batches that Apache Kafka's ShareGroupDLQStateManager makes of dead letters (record_dead_letters.py). */
public class DeadLetterDriver {
  static final Uuid TOPIC = Uuid.randomUuid();
  static long nowMs; static int max, partitions; static boolean copies; static List<byte[]> batches;
  static final Time TIME = new Time() {
    public long milliseconds() { return nowMs; }
    public long nanoseconds() { return nowMs * 1000000; }
    public void sleep(long ms) { throw new AssertionError(); }
  };
  static final ShareGroupDLQMetadataCacheHelper HELPER = new ShareGroupDLQMetadataCacheHelper() {
    public Optional<String> shareGroupDlqTopic(String g) { return Optional.of("dlq.dead"); }
    public boolean isDlqEnabledOnTopic(String t) { return true; }
    public boolean isDlqAutoTopicCreateEnabled() { return false; }
    public Optional<String> shareGroupDlqTopicPrefix() { return Optional.of("dlq."); }
    public boolean isShareGroupDlqCopyRecordEnabled(String g) { return copies; }
    public boolean containsTopic(String t) { return true; }
    public int dlqTopicMaxMessageBytes(String t) { return max; }
    public List<Node> getClusterNodes() { return List.of(new Node(1, "h", 9092)); }
    public Optional<String> topicName(Uuid id) { return Optional.of("orders"); }
    public TopicPartitionData topicPartitionData(String t) {
      return new TopicPartitionData(t, Optional.of(partitions), Optional.of(TOPIC), Collections.nCopies(partitions, new Node(1, "h", 9092)));
    }
  };
  static final LogReader READER = (params, tps, offsets, bytes, minOne) -> {
    LinkedHashMap<TopicIdPartition, LogReadResult> found = new LinkedHashMap<>();
    for (TopicIdPartition tp : tps) {
      ByteArrayOutputStream out = new ByteArrayOutputStream();
      for (byte[] each : batches)
        if (MemoryRecords.readableRecords(ByteBuffer.wrap(each)).batches().iterator().next().lastOffset() >= offsets.get(tp))
          out.writeBytes(each);
      MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(out.toByteArray()));
      found.put(tp, new LogReadResult(new FetchDataInfo(new LogOffsetMetadata(offsets.get(tp)), records), Optional.empty(),
          0, 0, 0, 0, 0, OptionalLong.empty(), Errors.NONE));
    }
    return CompletableFuture.completedFuture(found);
  };

  public static void main(String[] arguments) throws Exception {
    KafkaClient client = (KafkaClient) Proxy.newProxyInstance(KafkaClient.class.getClassLoader(), new Class<?>[] {KafkaClient.class},
        (proxy, method, given) -> { throw new AssertionError(method); });
    org.apache.kafka.server.util.timer.Timer timer = new org.apache.kafka.server.util.timer.Timer() {
      public void add(TimerTask task) { }
      public boolean advanceClock(long ms) { return false; }
      public int size() { return 0; }
      public void close() { }
    };
    ShareGroupDLQStateManager manager =
        new ShareGroupDLQStateManager(client, HELPER, TIME, timer, new ShareGroupMetrics(TIME), READER);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] f = line.split(" ");
      nowMs = Long.parseLong(f[0]); max = Integer.parseInt(f[1]); partitions = Integer.parseInt(f[2]); copies = f[3].equals("1");
      long first = Long.parseLong(f[5]), last = Long.parseLong(f[6]);
      batches = new ArrayList<>();
      for (String hex : f[9].split(",")) batches.add(HexFormat.of().parseHex(hex));
      Throwable cause = f[8].equals("reject") ? ShareGroupDLQManager.CLIENT_REJECT : ShareGroupDLQManager.DELIVERY_COUNT_EXCEEDED;
      ShareGroupDLQRecordParameter letter = new ShareGroupDLQRecordParameter("g",
          new TopicIdPartition(TOPIC, Integer.parseInt(f[4]), "orders"), first, last, Optional.of(Short.parseShort(f[7])), Optional.of(cause));
      ShareGroupDLQStateManager.ProduceRequestHandler handler =
          manager.new ProduceRequestHandler(letter, new CompletableFuture<>(), 1000, 30000, 5);
      handler.populateDLQTopicData();
      Field next = field("nextOffsetToSend"), included = field("lastOffsetIncludedThisRound");
      StringJoiner made = new StringJoiner(";");
      int partition = -1;
      while (next.getLong(handler) <= last) {
        if (copies) handler.resolveRound().get();
        ProduceRequestData.PartitionProduceData data = handler.topicProduceData().partitionData().get(0);
        partition = data.index();
        ByteBuffer buffer = ((MemoryRecords) data.records()).buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        made.add(HexFormat.of().formatHex(bytes));
        next.setLong(handler, included.getLong(handler) + 1);
      }
      System.out.println(partition + " " + made);
    }
    System.out.flush();
    System.exit(0);
  }

  static Field field(String name) throws Exception {
    Field found = ShareGroupDLQStateManager.ProduceRequestHandler.class.getDeclaredField(name);
    found.setAccessible(true);
    return found;
  }
}
