import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeReplicaLogDirsResult.ReplicaLogDirInfo;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Has Java's admin client move partition 0 of a topic on broker 1: bootstrap, topic, target directory.
 * Prints where the replica was at first, once the move had begun, and at its end, and what is refused. Once it has
 * begun, the throttle is taken away.
 */
class LogDirMoves {
    public static void main(String[] args) throws Exception {
        String target = args[2];
        TopicPartitionReplica replica = new TopicPartitionReplica(args[1], 0, 1);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            System.out.println("at first: " + describe(admin, replica));
            admin.alterReplicaLogDirs(Map.of(replica, target)).all().get();
            System.out.println("begun: " + describe(admin, replica));
            unthrottle(admin);
            ReplicaLogDirInfo info = find(admin, replica);
            while (info.getFutureReplicaLogDir() != null || !target.equals(info.getCurrentReplicaLogDir())) {
                Thread.sleep(50);
                info = find(admin, replica);
            }
            System.out.println("moved: " + describe(admin, replica));
            refused(admin, replica, "/nowhere");
            refused(admin, new TopicPartitionReplica("no-such-topic", 0, 1), target);
        }
    }

    private static void unthrottle(Admin admin) throws Exception {
        ConfigEntry throttle = new ConfigEntry("replica.alter.log.dirs.io.max.bytes.per.second", "");
        AlterConfigOp deletion = new AlterConfigOp(throttle, AlterConfigOp.OpType.DELETE);
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        admin.incrementalAlterConfigs(Map.of(broker, List.of(deletion))).all().get();
    }

    private static ReplicaLogDirInfo find(Admin admin, TopicPartitionReplica replica) throws Exception {
        return admin.describeReplicaLogDirs(List.of(replica)).values().get(replica).get();
    }

    private static String describe(Admin admin, TopicPartitionReplica replica) throws Exception {
        ReplicaLogDirInfo info = find(admin, replica);
        return info.getCurrentReplicaLogDir() + " lag " + info.getCurrentReplicaOffsetLag() + ", future "
            + info.getFutureReplicaLogDir();
    }

    private static void refused(Admin admin, TopicPartitionReplica replica, String target) throws Exception {
        try {
            admin.alterReplicaLogDirs(Map.of(replica, target)).all().get();
            System.out.println("refused: nothing");
        } catch (ExecutionException error) {
            System.out.println("refused: " + error.getCause().getClass().getSimpleName());
        }
    }
}
