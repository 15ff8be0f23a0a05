package kafka.server.share;
import java.io.*; import java.nio.ByteBuffer; import java.util.*; import java.util.concurrent.*;
import org.apache.kafka.common.*; import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.FetchResponseData.AbortedTransaction;
import org.apache.kafka.common.message.ShareFetchResponseData.AcquiredRecords;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.group.ShareGroupAutoOffsetResetStrategy;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfigProvider;
import org.apache.kafka.server.share.acknowledge.ShareAcknowledgementBatch;
import org.apache.kafka.server.share.dlq.*; import org.apache.kafka.server.share.fetch.*;
import org.apache.kafka.server.share.persister.*;
import org.apache.kafka.server.storage.log.*;
import org.apache.kafka.clients.consumer.internals.ShareAcquireMode;
import org.apache.kafka.server.util.timer.TimerTask; import org.apache.kafka.server.util.timer.TimerTaskEntry;

public class SharePartitionDriver {
  static long nowMs; static int limit, locks, lockMs; static boolean dlq, renew;
  static final Uuid TOPIC = Uuid.randomUuid();
  static final Time TIME = new Time() {
    public long milliseconds() { return nowMs; }
    public long nanoseconds() { return nowMs * 1000000; }
    public void sleep(long ms) { throw new AssertionError(); }
  };
  static class Tasks implements org.apache.kafka.server.util.timer.Timer {
    record Due(long at, long number, TimerTask task) { }
    final PriorityQueue<Due> due =
        new PriorityQueue<>(Comparator.comparingLong(Due::at).thenComparingLong(Due::number));
    long number = 0;

    public void add(TimerTask task) { due.add(new Due(nowMs + task.delayMs, number++, task)); new TimerTaskEntry(task, 0); }
    public boolean advanceClock(long ms) {
      long until = nowMs + ms;
      while (!due.isEmpty() && due.peek().at <= until) {
        Due next = due.poll();
        if (next.task.isCancelled()) continue;
        nowMs = Math.max(nowMs, next.at); next.task.run();
      }
      nowMs = until;
      return true;
    }
    public int size() { return due.size(); }
    public void close() { }
  }
  record Written(PartitionStateBatchData data, CompletableFuture<WriteShareGroupStateResult> future) { }
  record Letter(long first, long last, int count, String cause, CompletableFuture<Void> future) { }
  static List<List<Written>> groups; static List<List<Letter>> letters;
  static List<Written> writes; static List<Letter> dead;
  static long loadStart; static List<PersisterStateBatch> loaded;
  static final Persister PERSISTER = new NoOpStatePersister() {
    public CompletableFuture<ReadShareGroupStateResult> readState(ReadShareGroupStateParameters p) {
      return CompletableFuture.completedFuture(new ReadShareGroupStateResult.Builder().setTopicsData(List.of(
          new TopicData<>(TOPIC, List.of(PartitionFactory.newPartitionAllData(0, 3, loadStart, (short) 0, "", loaded))))).build());
    }
    public CompletableFuture<WriteShareGroupStateResult> writeState(WriteShareGroupStateParameters p) {
      CompletableFuture<WriteShareGroupStateResult> future = new CompletableFuture<>();
      writes.add(new Written(p.groupTopicPartitionData().topicsData().get(0).partitions().get(0), future));
      return future;
    }
  };
  static final ShareGroupConfigProvider CONFIG = new ShareGroupConfigProvider(null) {
    public int recordLockDurationMsOrDefault(String g, int d) { return lockMs; }
    public int deliveryCountLimitOrDefault(String g, int d) { return limit; }
    public int partitionMaxRecordLocksOrDefault(String g, int d) { return locks; }
    public boolean isRenewAcknowledgeEnabled(String g) { return renew; }
    public Optional<String> errorsDLQTopicName(String g) { return dlq ? Optional.of("dead") : Optional.empty(); }
  };
  static final ShareGroupDLQManager DLQ = new ShareGroupDLQManager() {
    public CompletableFuture<Void> enqueue(ShareGroupDLQRecordParameter p) {
      CompletableFuture<Void> future = new CompletableFuture<>();
      String cause = p.cause().map(c -> c == CLIENT_REJECT ? "reject" : "count").orElse("-");
      dead.add(new Letter(p.firstOffset(), p.lastOffset(), p.deliveryCount().get(), cause, future));
      return future;
    }
    public void stop() { }
  };
  static Tasks tasks;

  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    SharePartition partition = null;
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] f = line.split(" ");
      writes = new ArrayList<>(); dead = new ArrayList<>();
      String result = "-";
      try {
        if (f[0].equals("#")) {
          settings(f);
          nowMs = 0; tasks = new Tasks(); groups = new ArrayList<>(); letters = new ArrayList<>();
          loadStart = Long.parseLong(f[6]); loaded = new ArrayList<>();
          if (!f[7].equals("-")) for (String b : f[7].split(",")) {
            String[] p = b.split("[-:]");
            loaded.add(new PersisterStateBatch(Long.parseLong(p[0]), Long.parseLong(p[1]), Byte.parseByte(p[2]), Short.parseShort(p[3])));
          }
          if (partition != null) { partition.markFenced(); partition.close(); }
          partition = new SharePartition("g", new TopicIdPartition(TOPIC, 0, "t"), 0, 1, 1, 1, tasks, TIME, PERSISTER, null,
              key -> { }, CONFIG, null, () -> true, DLQ);
          partition.maybeInitialize().get();
        } else if (f[0].equals("c")) settings(f);
        else {
          tasks.advanceClock(Long.parseLong(f[1]) - nowMs);
          List<InFlightBatch> changing = new ArrayList<>();
          for (InFlightBatch b : partition.cachedState().values())
            if (b.offsetState() == null && b.batchHasOngoingStateTransition()) changing.add(b);
          result = step(partition, f);
          if (changing.stream().anyMatch(b -> b.offsetState() != null)) result = "! forgets a write that is under way";
        }
      } catch (Throwable e) { result = "!" + e; }
      groups.add(writes);
      System.out.println(result + " | " + written() + " | " + lettered() + " | " + state(partition));
      System.out.flush();
    }
    System.exit(0);
  }

  static void settings(String[] f) {
    limit = Integer.parseInt(f[1]); locks = Integer.parseInt(f[2]); lockMs = Integer.parseInt(f[3]);
    dlq = f[4].equals("1"); renew = f[5].equals("1");
  }

  static String step(SharePartition partition, String[] f) throws Exception {
    switch (f[0]) {
      case "a": return acquire(partition, f);
      case "k": {
        List<ShareAcknowledgementBatch> batches = new ArrayList<>();
        for (String b : f[3].split(";")) {
          String[] p = b.split("[-:]");
          List<Byte> types = new ArrayList<>();
          for (String t : p[2].split(",")) types.add(Byte.parseByte(t));
          batches.add(new ShareAcknowledgementBatch(Long.parseLong(p[0]), Long.parseLong(p[1]), types));
        }
        return outcome(partition.acknowledge(f[2], batches));
      }
      case "r": return outcome(partition.releaseAcquiredRecords(f[2]));
      case "w":
        for (Written w : groups.get(Integer.parseInt(f[2])))
          w.future.complete(new WriteShareGroupStateResult.Builder().setTopicsData(List.of(new TopicData<>(TOPIC,
              List.of(PartitionFactory.newPartitionErrorData(0, Short.parseShort(f[3]), "")))) ).build());
        return "-";
      case "l": partition.updateCacheAndOffsets(Long.parseLong(f[2])); return "-";
      case "d": for (Letter letter : letters.get(Integer.parseInt(f[2]))) letter.future.complete(null); return "-";
      default: return "-";
    }
  }

  static String outcome(CompletableFuture<Void> future) {
    if (!future.isDone()) return "wait";
    try { future.get(); return "ok"; }
    catch (Exception e) { return Errors.forException(e.getCause()).name() + ":" + e.getCause().getMessage(); }
  }

  static String acquire(SharePartition partition, String[] f) throws Exception {
    ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
    for (String b : f[7].split(",")) {
      String[] p = b.split("[-/]");
      long first = Long.parseLong(p[0]), last = Long.parseLong(p[1]);
      char kind = p.length > 2 ? p[2].charAt(p[2].length() - 1) : ' ';
      long producer = p.length > 2 ? Long.parseLong(p[2].substring(0, p[2].length() - 1)) : -1;
      if (kind == 'x' || kind == 'c') {
        MemoryRecords.writeEndTransactionalMarker(buffer, first, 0, 0, producer, (short) 0,
            new EndTransactionMarker(kind == 'x' ? ControlRecordType.ABORT : ControlRecordType.COMMIT, 0));
        continue;
      }
      MemoryRecordsBuilder builder = MemoryRecords.builder(buffer, (byte) 2, Compression.NONE, TimestampType.CREATE_TIME, first,
          0L, producer, producer < 0 ? (short) -1 : (short) 0, producer < 0 ? -1 : 0, producer >= 0, -1);
      builder.appendWithOffset(first, 0L, null, new byte[] {1});
      if (last > first) builder.appendWithOffset(last, 0L, null, new byte[] {1});
      builder.close();
    }
    buffer.flip();
    List<AbortedTransaction> aborted = new ArrayList<>();
    if (!f[8].equals("-")) for (String t : f[8].split(","))
      aborted.add(new AbortedTransaction().setProducerId(Long.parseLong(t.split("@")[0])).setFirstOffset(Long.parseLong(t.split("@")[1])));
    FetchPartitionData data = new FetchPartitionData(Errors.NONE, 0, 0, MemoryRecords.readableRecords(buffer), Optional.empty(),
        OptionalLong.empty(), Optional.of(aborted), OptionalInt.empty(), false);
    ShareAcquiredRecords acquired = partition.acquire(f[2], f[3].equals("R") ? ShareAcquireMode.RECORD_LIMIT : ShareAcquireMode.BATCH_OPTIMIZED,
        Integer.parseInt(f[5]), Integer.parseInt(f[4]), Long.parseLong(f[6]), data, FetchIsolation.TXN_COMMITTED);
    StringJoiner text = new StringJoiner(",");
    for (AcquiredRecords r : acquired.acquiredRecords()) text.add(r.firstOffset() + "-" + r.lastOffset() + ":" + r.deliveryCount());
    return text.length() == 0 ? "-" : text.toString();
  }

  static String written() {
    if (writes.isEmpty()) return "-";
    List<PersisterStateBatch> all = new ArrayList<>();
    for (Written w : writes) all.addAll(w.data.stateBatches());
    Collections.sort(all);
    StringJoiner text = new StringJoiner(",");
    for (int i = 0; i < all.size();) {
      PersisterStateBatch a = all.get(i);
      long last = a.lastOffset();
      for (i++; i < all.size() && all.get(i).firstOffset() == last + 1 && all.get(i).deliveryState() == a.deliveryState()
          && all.get(i).deliveryCount() == a.deliveryCount(); i++) last = all.get(i).lastOffset();
      text.add(a.firstOffset() + "-" + last + ":" + a.deliveryState() + ":" + a.deliveryCount());
    }
    PartitionStateBatchData data = writes.get(writes.size() - 1).data;
    return data.startOffset() + "/" + data.deliveryCompleteCount() + ":" + text;
  }

  static String lettered() {
    if (dead.isEmpty()) return "-";
    dead.sort(Comparator.comparingLong(Letter::first));
    StringJoiner text = new StringJoiner(",");
    for (int i = 0; i < dead.size();) {
      Letter a = dead.get(i);
      List<Letter> group = new ArrayList<>(List.of(a));
      long last = a.last;
      for (i++; i < dead.size() && dead.get(i).first == last + 1 && dead.get(i).count == a.count && dead.get(i).cause.equals(a.cause); i++) {
        last = dead.get(i).last; group.add(dead.get(i));
      }
      letters.add(group);
      text.add(a.first + "-" + last + ":" + a.count + ":" + a.cause);
    }
    return text.toString();
  }

  static String run(InFlightState s) {
    String text = s.state().id + ":" + s.deliveryCount() + ":" + s.memberId() + (s.hasOngoingStateTransition() ? "!" : "");
    return s.state() == RecordState.ACQUIRED && s.acquisitionLockTimeoutTask() != null
        ? text + "@" + s.acquisitionLockTimeoutTask().expirationMs() : text;
  }

  static String whole(InFlightBatch b) {
    String text = b.batchState().id + ":" + b.batchDeliveryCount() + ":" + b.batchMemberId() + (b.batchHasOngoingStateTransition() ? "!" : "");
    return b.batchState() == RecordState.ACQUIRED && b.batchAcquisitionLockTimeoutTask() != null
        ? text + "@" + b.batchAcquisitionLockTimeoutTask().expirationMs() : text;
  }

  static String state(SharePartition partition) {
    StringBuilder text = new StringBuilder();
    long gap = partition.persisterReadResultGapWindow() == null ? -1 : partition.persisterReadResultGapWindow().gapStartOffset();
    text.append(partition.startOffset() + " " + partition.endOffset() + " " + partition.nextFetchOffset() + " "
        + partition.deliveryCompleteCount() + " " + gap);
    for (InFlightBatch b : partition.cachedState().values()) {
      text.append(" ");
      if (b.offsetState() == null) { text.append(b.firstOffset() + "-" + b.lastOffset() + "=" + whole(b)); continue; }
      text.append("{");
      long first = -1, last = -1; String before = null;
      for (Map.Entry<Long, InFlightState> e : b.offsetState().entrySet()) {
        String now = run(e.getValue());
        if (!now.equals(before)) {
          if (before != null) text.append(first + "-" + last + "=" + before + ";");
          first = e.getKey(); before = now;
        }
        last = e.getKey();
      }
      text.append(first + "-" + last + "=" + before + "}");
    }
    return text.toString();
  }
}
