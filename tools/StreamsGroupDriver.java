package org.apache.kafka.coordinator.group;

import java.io.*;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.*;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
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
import org.apache.kafka.timeline.SnapshotRegistry;

/** Plays the scripts of tools/record_streams_groups.py, which tells the format. */
public class StreamsGroupDriver {
  static final String GROUP = "g";
  static final PrintStream OUT = new PrintStream(new FileOutputStream(FileDescriptor.out), false);
  static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();

  static final String NOTHING = "{\"activeTasks\":[],\"standbyTasks\":[],\"warmupTasks\":[]}";
  static final String DEFAULTS = """
      {"endpointInformationEpoch":0,"instanceId":null,"rackId":null,"rebalanceTimeoutMs":-1,"topology":null,
       "activeTasks":null,"standbyTasks":null,"warmupTasks":null,"processId":null,"userEndpoint":null,
       "clientTags":null,"taskOffsets":null,"taskEndOffsets":null,"shutdownApplication":false}
      """;

  final Map<String, ObjectNode> owned = new HashMap<>();
  final Map<String, Scheduled> timers = new LinkedHashMap<>();
  final Map<String, Integer> epochs = new HashMap<>();
  int requestVersion = 1;
  final SnapshotRegistry registry = new SnapshotRegistry(new LogContext());
  final GroupMetadataManager manager;
  final GroupConfigManager configs;
  long nowMs = 1_700_000_001_000L;
  long snapshot = 0;
  Image image = new Image(Map.of());

  record Scheduled(long deadlineMs, CoordinatorTimer.TimeoutOperation<CoordinatorRecord> operation) {}

  StreamsGroupDriver(Map<String, String> keys) {
    GroupCoordinatorConfig config = GroupCoordinatorConfig.fromProps(keys);
    configs = new GroupConfigManager(config, ShareGroupConfig.fromProps(keys));
    manager = new GroupMetadataManager.Builder()
        .withSnapshotRegistry(registry)
        .withTime(new Clock())
        .withTimer(new Timers())
        .withExecutor(new NoExecutor())
        .withConfig(config)
        .withGroupConfigManager(configs)
        .withGroupCoordinatorMetricsShard(
            new GroupCoordinatorMetrics().newMetricsShard(registry, new TopicPartition("__consumer_offsets", 0)))
        .build();
  }

  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    StreamsGroupDriver world = null;
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      OUT.println(line);
      if (line.startsWith("#")) {
        Map<String, String> keys = new HashMap<>();
        for (String key : line.substring(2).split(" ")) keys.put("group.streams." + key.split("=")[0], key.split("=")[1]);
        world = new StreamsGroupDriver(keys);
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
    } catch (RuntimeException error) {
      registry.revertToSnapshot(snapshot);
      OUT.println("  error -1 " + error);
    }
  }

  void apply(String[] words) {
    switch (words[0]) {
      case "topics" -> changeTopics(words[1]);
      case "heartbeat" -> heartbeat(words);
      case "config" -> configure(words[1]);
      case "advance" -> advance(Long.parseLong(words[1]));
      case "commit" -> commit(words);
      case "describe" -> OUT.println("  described " + StreamsGroupDescribeResponseDataJsonConverter.write(
          new StreamsGroupDescribeResponseData().setGroups(manager.streamsGroupDescribe(
              List.of(GROUP), Long.MAX_VALUE).describedGroups()), (short) 1));
      case "remove" -> {
        manager.streamsGroup(GROUP).validateDeleteGroup();
        List<CoordinatorRecord> records = new ArrayList<>();
        manager.createGroupTombstoneRecordsAndCancelTimers(GROUP, records);
        write(records);
      }
      default -> throw new IllegalArgumentException(words[0]);
    }
  }

  void configure(String text) {
    Properties keys = new Properties();
    for (String key : text.split(";"))
      if (!key.equals("-")) keys.put("streams." + key.split("=")[0], key.split("=")[1]);
    configs.updateGroupConfig(GROUP, keys);
  }

  void commit(String[] words) {
    int epoch = epoch(words[1], words[2]);
    var check = manager.streamsGroup(GROUP).validateOffsetCommit(words[1], null, epoch, false, 10);
    for (String each : words[3].split(",")) {
      String[] parts = each.split(":");
      check.validate(parts[0], id(parts[0]), Integer.parseInt(parts[1]));
    }
    OUT.println("  committed");
  }

  int epoch(String member, String word) {
    int last = epochs.getOrDefault(member, 0);
    return switch (word) {
      case "=" -> last;
      case "<" -> Math.max(last - 1, 1);
      case ">" -> last + 5;
      default -> Integer.parseInt(word);
    };
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
    String member = words[1];
    requestVersion = Integer.parseInt(words[3]);
    ObjectNode json = json(DEFAULTS);
    if (words[4].equals("=")) json.setAll(owned.getOrDefault(member, json(NOTHING)));
    if (words[4].equals("0")) json.setAll(json(NOTHING));
    json.setAll(json(String.join(" ", Arrays.copyOfRange(words, 5, words.length))));
    json.put("groupId", GROUP).put("memberId", member).put("memberEpoch", epoch(member, words[2]));
    if (json.get("memberEpoch").asInt() == 0 && json.get("topology").isNull()) return;
    var request = StreamsGroupHeartbeatRequestDataJsonConverter.read(json, (short) requestVersion);
    var result = manager.streamsGroupHeartbeat(new Client(requestVersion), request);
    StreamsGroupHeartbeatResponseData answer = result.response().data();
    epochs.put(member, Math.max(answer.memberEpoch(), 0));
    if (answer.activeTasks() != null) owned.put(member, tasks(answer));
    OUT.println("  answer " + StreamsGroupHeartbeatResponseDataJsonConverter.write(answer, (short) 1));
    if (!result.response().creatableTopics().isEmpty())
      OUT.println("  create " + result.response().creatableTopics().values().stream().map(topic ->
          topic.name() + ":" + topic.numPartitions() + ":" + topic.replicationFactor()).sorted()
          .collect(Collectors.joining(",")));
    write(result.records());
  }

  static ObjectNode json(String text) {
    try {
      return (ObjectNode) new ObjectMapper().readTree(text);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  static ObjectNode tasks(StreamsGroupHeartbeatResponseData answer) {
    ObjectNode all = (ObjectNode) StreamsGroupHeartbeatResponseDataJsonConverter.write(answer, (short) 1);
    return all.retain("activeTasks", "standbyTasks", "warmupTasks");
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
    if (record.key() instanceof StreamsGroupMemberMetadataKey key)
      manager.replay(key, (StreamsGroupMemberMetadataValue) value);
    else if (record.key() instanceof StreamsGroupMetadataKey key)
      manager.replay(key, (StreamsGroupMetadataValue) value);
    else if (record.key() instanceof StreamsGroupTargetAssignmentMetadataKey key)
      manager.replay(key, (StreamsGroupTargetAssignmentMetadataValue) value);
    else if (record.key() instanceof StreamsGroupTargetAssignmentMemberKey key)
      manager.replay(key, (StreamsGroupTargetAssignmentMemberValue) value);
    else if (record.key() instanceof StreamsGroupCurrentMemberAssignmentKey key)
      manager.replay(key, (StreamsGroupCurrentMemberAssignmentValue) value);
    else
      manager.replay((StreamsGroupTopologyKey) record.key(), (StreamsGroupTopologyValue) value);
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
    public Uuid id() { return StreamsGroupDriver.id(name); }
    public List<String> partitionRacks(int partition) { return new ArrayList<>(); }
  }

  record Image(Map<String, Integer> counts) implements CoordinatorMetadataImage {
    public Set<Uuid> topicIds() { return counts.keySet().stream().map(StreamsGroupDriver::id).collect(Collectors.toSet()); }
    public Set<String> topicNames() { return counts.keySet(); }
    public Optional<TopicMetadata> topicMetadata(String name) {
      return Optional.ofNullable(counts.get(name)).map(count -> new Topic(name, count));
    }
    public Optional<TopicMetadata> topicMetadata(Uuid id) { return topicMetadata(StreamsGroupDriver.name(id)); }
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

  record Client(int requestVersion) implements AuthorizableRequestContext {
    public String listenerName() { return "PLAINTEXT"; }
    public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
    public KafkaPrincipal principal() { return KafkaPrincipal.ANONYMOUS; }
    public InetAddress clientAddress() { return InetAddress.getLoopbackAddress(); }
    public int requestType() { return 88; }
    public String clientId() { return "client"; }
    public int correlationId() { return 1; }
  }
}
