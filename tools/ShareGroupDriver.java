package org.apache.kafka.coordinator.group;

import java.io.*;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.security.auth.*;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Timer;
import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.coordinator.common.runtime.*;
import org.apache.kafka.coordinator.group.generated.*;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.share.persister.*;
import org.apache.kafka.timeline.SnapshotRegistry;

/** Plays the scripts of tools/record_share_groups.py, which tells the format. */
public class ShareGroupDriver {
  static final String GROUP = "g";
  static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), false);
  static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();

  final Map<String, Scheduled> timers = new LinkedHashMap<>();
  final Map<String, Integer> epochs = new HashMap<>();
  final SnapshotRegistry registry = new SnapshotRegistry(new LogContext());
  final GroupMetadataManager manager;
  long nowMs = 1_700_000_001_000L;
  long snapshot = 0;
  Image image = new Image(Map.of());
  Map<Uuid, Set<Integer>> pending = Map.of();

  record Scheduled(long deadlineMs, CoordinatorTimer.TimeoutOperation<CoordinatorRecord> operation) {}

  ShareGroupDriver(Map<String, String> keys) {
    GroupCoordinatorConfig config = GroupCoordinatorConfig.fromProps(keys);
    manager = new GroupMetadataManager.Builder()
        .withSnapshotRegistry(registry)
        .withTime(new Clock())
        .withTimer(new Timers())
        .withExecutor(new NoExecutor())
        .withConfig(config)
        .withGroupConfigManager(new GroupConfigManager(config, ShareGroupConfig.fromProps(keys)))
        .withGroupCoordinatorMetricsShard(
            new GroupCoordinatorMetrics().newMetricsShard(registry, new TopicPartition("__consumer_offsets", 0)))
        .build();
  }

  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    ShareGroupDriver world = null;
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      OUT.println(line);
      if (line.startsWith("#")) {
        Map<String, String> keys = new HashMap<>();
        for (String key : line.substring(2).split(" "))
          keys.put(("group.share." + key.split("=")[0]).replace("interval", "interval.ms"), key.split("=")[1]);
        world = new ShareGroupDriver(keys);
      } else {
        world.play(line.split(" "));
      }
    }
    OUT.flush();
    System.exit(0);
  }

  void play(String[] words) {
    nowMs++;
    snapshot++;
    registry.idempotentCreateSnapshot(snapshot);
    try {
      apply(words);
    } catch (ApiException error) {
      registry.revertToSnapshot(snapshot);
      OUT.println("  error " + Errors.forException(error).code() + " " + error.getMessage());
    }
  }

  void apply(String[] words) {
    switch (words[0]) {
      case "topics" -> changeTopics(words[1]);
      case "heartbeat" -> heartbeat(words);
      case "initialized" -> { write(manager.initializeShareGroupState(GROUP, pending).records()); pending = Map.of(); }
      case "refused" -> { write(manager.uninitializeShareGroupState(GROUP, pending).records()); pending = Map.of(); }
      case "advance" -> advance(Long.parseLong(words[1]));
      case "alter" -> alter(words[1]);
      case "delete" -> delete(words[1]);
      case "deleted" -> {
        List<CoordinatorRecord> records = new ArrayList<>();
        Map<Uuid, String> topics = new HashMap<>();
        for (String name : words[1].split(",")) topics.put(id(name), name);
        manager.completeDeleteShareGroupOffsets(GROUP, topics, records);
        write(records);
      }
      case "forget" -> write(manager.maybeCleanupShareGroupState(Set.of(id(words[1]))).records());
      case "remove" -> {
        List<CoordinatorRecord> records = new ArrayList<>();
        manager.shareGroup(GROUP).validateDeleteGroup();
        manager.shareGroupBuildPartitionDeleteRequest(GROUP, records).ifPresent(states ->
            OUT.println("  states " + partitions(states.groupTopicPartitionData())));
        write(records);
        records.clear();
        manager.createGroupTombstoneRecordsAndCancelTimers(GROUP, records);
        write(records);
        pending = Map.of();
      }
      default -> throw new IllegalArgumentException(words[0]);
    }
  }

  void changeTopics(String text) {
    Map<String, Integer> counts = new TreeMap<>();
    for (String topic : text.split(","))
      if (!topic.equals("-")) counts.put(topic.split(":")[0], Integer.parseInt(topic.split(":")[1]));
    Image before = image;
    image = new Image(counts);
    Set<Uuid> deleted = new HashSet<>(before.topicIds());
    deleted.removeAll(image.topicIds());
    Set<Uuid> created = new HashSet<>(image.topicIds());
    created.removeAll(before.topicIds());
    Set<Uuid> changed = image.topicIds().stream().filter(topic ->
        !before.topicMetadata(topic).map(each -> each.partitionCount()).equals(
            image.topicMetadata(topic).map(each -> each.partitionCount()))).collect(Collectors.toSet());
    manager.onMetadataUpdate(new Delta(created, changed, deleted, before), image);
  }

  void heartbeat(String[] words) {
    int last = epochs.getOrDefault(words[1], 0);
    int epoch = switch (words[2]) {
      case "=" -> last;
      case "<" -> Math.max(last - 1, 1);
      case ">" -> last + 5;
      default -> Integer.parseInt(words[2]);
    };
    ShareGroupHeartbeatRequestData request = new ShareGroupHeartbeatRequestData()
        .setGroupId(GROUP).setMemberId(words[1]).setMemberEpoch(epoch)
        .setRackId(words[3].equals("-") ? null : words[3])
        .setSubscribedTopicNames(words[4].equals("-") ? null : List.of(words[4].split(",")));
    if (epoch == 0 && request.subscribedTopicNames() == null) return;
    var result = manager.shareGroupHeartbeat(new Client(), request);
    ShareGroupHeartbeatResponseData answer = result.response().getKey();
    epochs.put(words[1], Math.max(answer.memberEpoch(), 0));
    OUT.println("  answer " + answer.memberId() + " " + answer.memberEpoch() + " " + answer.heartbeatIntervalMs()
        + " " + assignment(answer.assignment()));
    write(result.records());
    result.response().getValue().ifPresent(this::initialize);
  }

  void initialize(InitializeShareGroupStateParameters states) {
    pending = new HashMap<>();
    List<String> texts = new ArrayList<>();
    int epoch = -1;
    for (TopicData<PartitionStateData> topic : states.groupTopicPartitionData().topicsData())
      for (PartitionStateData partition : topic.partitions()) {
        pending.computeIfAbsent(topic.topicId(), key -> new HashSet<>()).add(partition.partition());
        texts.add(name(topic.topicId()) + ":" + partition.partition() + ":" + partition.startOffset());
        epoch = partition.stateEpoch();
      }
    Collections.sort(texts);
    if (!texts.isEmpty()) OUT.println("  initialize " + epoch + " " + String.join(",", texts));
  }

  void advance(long durationMs) {
    long endMs = nowMs + durationMs;
    while (true) {
      Optional<Map.Entry<String, Scheduled>> next = timers.entrySet().stream()
          .filter(each -> each.getValue().deadlineMs <= endMs)
          .min(Comparator.comparingLong(each -> each.getValue().deadlineMs));
      if (next.isEmpty()) break;
      timers.remove(next.get().getKey());
      nowMs = next.get().getValue().deadlineMs;
      write(next.get().getValue().operation.generateRecords().records());
    }
    nowMs = endMs;
  }

  void alter(String text) {
    var topics = new AlterShareGroupOffsetsRequestData.AlterShareGroupOffsetsRequestTopicCollection();
    for (String each : text.split(",")) {
      String[] parts = each.split(":");
      topics.add(new AlterShareGroupOffsetsRequestData.AlterShareGroupOffsetsRequestTopic().setTopicName(parts[0])
          .setPartitions(List.of(new AlterShareGroupOffsetsRequestData.AlterShareGroupOffsetsRequestPartition()
              .setPartitionIndex(Integer.parseInt(parts[1])).setStartOffset(Long.parseLong(parts[2])))));
    }
    var result = manager.alterShareGroupOffsets(GROUP, topics);
    OUT.println("  answer " + result.response().getKey().responses().stream().flatMap(topic ->
        topic.partitions().stream().map(each -> topic.topicName() + ":" + each.partitionIndex() + ":"
            + each.errorCode())).collect(Collectors.joining(",")));
    write(result.records());
    initialize(result.response().getValue());
  }

  void delete(String text) {
    manager.shareGroup(GROUP).validateDeleteGroup();
    List<CoordinatorRecord> records = new ArrayList<>();
    List<DeleteShareGroupOffsetsResponseData.DeleteShareGroupOffsetsResponseTopic> errors = new ArrayList<>();
    var request = new DeleteShareGroupOffsetsRequestData().setGroupId(GROUP).setTopics(Stream.of(text.split(","))
        .map(name -> new DeleteShareGroupOffsetsRequestData.DeleteShareGroupOffsetsRequestTopic().setTopicName(name))
        .toList());
    var states = manager.sharePartitionsEligibleForOffsetDeletion(GROUP, request, errors, records);
    OUT.println("  answer " + (errors.isEmpty() ? "-" : errors.stream().map(topic ->
        topic.topicName() + ":" + topic.errorCode()).collect(Collectors.joining(","))));
    write(records);
    String wanted = states.stream().flatMap(topic -> topic.partitions().stream().map(each ->
        name(topic.topicId()) + ":" + each.partition())).sorted().collect(Collectors.joining(","));
    if (!wanted.isEmpty()) OUT.println("  states " + wanted);
  }

  String partitions(GroupTopicPartitionData<PartitionIdData> data) {
    return data.topicsData().stream().flatMap(topic -> topic.partitions().stream().map(each ->
        name(topic.topicId()) + ":" + each.partition())).sorted().collect(Collectors.joining(","));
  }

  String assignment(ShareGroupHeartbeatResponseData.Assignment assignment) {
    if (assignment == null) return "-";
    return "[" + assignment.topicPartitions().stream().flatMap(topic -> topic.partitions().isEmpty()
        ? Stream.of(name(topic.topicId()) + ":-")
        : topic.partitions().stream().sorted().map(each -> name(topic.topicId()) + ":" + each))
        .sorted().collect(Collectors.joining(",")) + "]";
  }

  void write(List<CoordinatorRecord> records) {
    for (CoordinatorRecord record : records) {
      byte[] value = SERDE.serializeValue(record);
      OUT.println("  record " + HexFormat.of().formatHex(SERDE.serializeKey(record))
          + (value == null ? "" : " " + HexFormat.of().formatHex(value)));
      replay(record);
    }
  }

  void replay(CoordinatorRecord record) {
    Object value = record.value() == null ? null : record.value().message();
    if (record.key() instanceof ShareGroupMemberMetadataKey key)
      manager.replay(key, (ShareGroupMemberMetadataValue) value);
    else if (record.key() instanceof ShareGroupMetadataKey key)
      manager.replay(key, (ShareGroupMetadataValue) value);
    else if (record.key() instanceof ShareGroupTargetAssignmentMetadataKey key)
      manager.replay(key, (ShareGroupTargetAssignmentMetadataValue) value);
    else if (record.key() instanceof ShareGroupTargetAssignmentMemberKey key)
      manager.replay(key, (ShareGroupTargetAssignmentMemberValue) value);
    else if (record.key() instanceof ShareGroupCurrentMemberAssignmentKey key)
      manager.replay(key, (ShareGroupCurrentMemberAssignmentValue) value);
    else
      manager.replay((ShareGroupStatePartitionMetadataKey) record.key(), (ShareGroupStatePartitionMetadataValue) value);
  }

  static Uuid id(String name) {
    ByteBuffer bytes = ByteBuffer.allocate(16).put(name.getBytes(StandardCharsets.UTF_8)).rewind();
    return new Uuid(bytes.getLong(), bytes.getLong());
  }

  static String name(Uuid id) {
    byte[] bytes = ByteBuffer.allocate(16).putLong(id.getMostSignificantBits()).putLong(id.getLeastSignificantBits()).array();
    return new String(bytes, StandardCharsets.UTF_8).replace("\0", "");
  }

  record Topic(String name, int partitionCount) implements CoordinatorMetadataImage.TopicMetadata {
    public Uuid id() { return ShareGroupDriver.id(name); }
    public List<String> partitionRacks(int partition) { return new ArrayList<>(); }
  }

  record Image(Map<String, Integer> counts) implements CoordinatorMetadataImage {
    public Set<Uuid> topicIds() { return counts.keySet().stream().map(ShareGroupDriver::id).collect(Collectors.toSet()); }
    public Set<String> topicNames() { return counts.keySet(); }
    public Optional<TopicMetadata> topicMetadata(String name) {
      return Optional.ofNullable(counts.get(name)).map(count -> new Topic(name, count));
    }
    public Optional<TopicMetadata> topicMetadata(Uuid id) { return topicMetadata(ShareGroupDriver.name(id)); }
    public CoordinatorMetadataDelta emptyDelta() { return CoordinatorMetadataDelta.EMPTY; }
    public long version() { return 1; }
    public boolean isEmpty() { return counts.isEmpty(); }
  }

  record Delta(Set<Uuid> createdTopicIds, Set<Uuid> changedTopicIds, Set<Uuid> deletedTopicIds,
      CoordinatorMetadataImage image) implements CoordinatorMetadataDelta {}

  class Clock implements Time {
    public long milliseconds() { return nowMs; }
    public long nanoseconds() { return nowMs * 1_000_000; }
    public void sleep(long ms) { throw new UnsupportedOperationException(); }
    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
      throw new UnsupportedOperationException();
    }
  }

  class Timers implements CoordinatorTimer<CoordinatorRecord> {
    public void schedule(String key, long delay, TimeUnit unit, boolean retry, TimeoutOperation<CoordinatorRecord> operation) {
      timers.put(key, new Scheduled(nowMs + unit.toMillis(delay), operation));
    }
    public void schedule(String key, long delay, TimeUnit unit, boolean retry, long backoff,
        TimeoutOperation<CoordinatorRecord> operation) {
      schedule(key, delay, unit, retry, operation);
    }
    public void scheduleIfAbsent(String key, long delay, TimeUnit unit, boolean retry,
        TimeoutOperation<CoordinatorRecord> operation) {
      if (!timers.containsKey(key)) schedule(key, delay, unit, retry, operation);
    }
    public void cancel(String key) { timers.remove(key); }
    public boolean isScheduled(String key) { return timers.containsKey(key); }
  }

  static class NoExecutor implements CoordinatorExecutor<CoordinatorRecord> {
    public <R> boolean schedule(String key, TaskRunnable<R> task, TaskOperation<CoordinatorRecord, R> operation) {
      throw new UnsupportedOperationException();
    }
    public boolean isScheduled(String key) { return false; }
    public void cancel(String key) {}
  }

  static class Client implements AuthorizableRequestContext {
    public String listenerName() { return "PLAINTEXT"; }
    public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
    public KafkaPrincipal principal() { return KafkaPrincipal.ANONYMOUS; }
    public InetAddress clientAddress() { return InetAddress.getLoopbackAddress(); }
    public int requestType() { return 76; }
    public int requestVersion() { return 1; }
    public String clientId() { return "client"; }
    public int correlationId() { return 1; }
  }
}
