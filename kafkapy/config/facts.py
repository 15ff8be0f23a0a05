"""The definition of every configuration key, extracted from Apache Kafka 4.4.0; parsed by kafkapy.config.definitions.

Columns: key | type | default (null, <required>) | valid values | importance | internal (| the broker key that a topic
key inherits from). `tests/unit/config/test_facts.py` compares them with tests/golden/*_configs.tsv.
"""

from typing import Final

BROKER: Final = """
add.partitions.to.txn.retry.backoff.max.ms | INT | 100 | [0,...] | HIGH | false
add.partitions.to.txn.retry.backoff.ms | INT | 20 | [1,...] | HIGH | false
advertised.listeners | LIST | null |  | HIGH | false
alter.config.policy.class.name | CLASS | null |  | LOW | false
alter.log.dirs.replication.quota.window.num | INT | 11 | [1,...] | LOW | false
alter.log.dirs.replication.quota.window.size.seconds | INT | 1 | [1,...] | LOW | false
authorizer.class.name | STRING |  | non-null string | LOW | false
auto.create.topics.enable | BOOLEAN | true |  | HIGH | false
auto.leader.rebalance.enable | BOOLEAN | true |  | HIGH | false
background.threads | INT | 10 | [1,...] | HIGH | false
broker.heartbeat.interval.ms | INT | 2000 |  | MEDIUM | false
broker.id | INT | -1 |  | HIGH | false
broker.rack | STRING | null |  | MEDIUM | false
broker.session.timeout.ms | INT | 9000 |  | MEDIUM | false
client.quota.callback.class | CLASS | null |  | LOW | false
compression.gzip.level | INT | -1 | [1,...,9] or -1 | MEDIUM | false
compression.lz4.level | INT | 9 | [1,...,17] | MEDIUM | false
compression.type | STRING | producer | [uncompressed, zstd, lz4, snappy, gzip, producer] | HIGH | false
compression.zstd.level | INT | 3 | [-131072,...,22] | MEDIUM | false
config.providers | LIST | [] |  | LOW | false
connection.failed.authentication.delay.ms | INT | 100 | [0,...] | LOW | false
connections.max.idle.ms | LONG | 600000 |  | MEDIUM | false
connections.max.reauth.ms | LONG | 0 |  | MEDIUM | false
controlled.shutdown.enable | BOOLEAN | true |  | MEDIUM | false
controller.listener.names | LIST | <required> |  | HIGH | false
controller.performance.always.log.threshold.ms | LONG | 2000 | [0,...] | MEDIUM | true
controller.performance.sample.period.ms | LONG | 60000 | [100,...] | MEDIUM | true
controller.quorum.append.linger.ms | INT | 25 | [0,...] | MEDIUM | false
controller.quorum.auto.join.enable | BOOLEAN | false |  | LOW | false
controller.quorum.bootstrap.servers | LIST | [] | non-empty list | HIGH | false
controller.quorum.election.backoff.max.ms | INT | 1000 | [0,...] | HIGH | false
controller.quorum.election.timeout.ms | INT | 1000 | [0,...] | HIGH | false
controller.quorum.fetch.max.bytes | INT | 1048576 | [1,...] | LOW | false
controller.quorum.fetch.snapshot.max.bytes | INT | 1048576 | [1,...] | LOW | false
controller.quorum.fetch.timeout.ms | INT | 2000 | [0,...] | HIGH | false
controller.quorum.request.timeout.ms | INT | 2000 | [0,...] | MEDIUM | false
controller.quorum.retry.backoff.ms | INT | 20 | [0,...] | LOW | false
controller.quorum.voters | LIST | [] | non-empty list | HIGH | false
controller.quota.window.num | INT | 11 | [1,...] | LOW | false
controller.quota.window.size.seconds | INT | 1 | [1,...] | LOW | false
controller.socket.timeout.ms | INT | 30000 |  | MEDIUM | false
cordoned.log.dirs | LIST | [] |  | MEDIUM | false
create.topic.policy.class.name | CLASS | null |  | LOW | false
default.replication.factor | INT | 1 |  | MEDIUM | false
delegation.token.expiry.check.interval.ms | LONG | 3600000 | [1,...] | LOW | false
delegation.token.expiry.time.ms | LONG | 86400000 | [1,...] | MEDIUM | false
delegation.token.max.lifetime.ms | LONG | 604800000 | [1,...] | MEDIUM | false
delegation.token.secret.key | PASSWORD | null |  | MEDIUM | false
delete.records.purgatory.purge.interval.requests | INT | 1 |  | MEDIUM | false
delete.topic.enable | BOOLEAN | true |  | HIGH | false
early.start.listeners | LIST | null |  | HIGH | false
errors.deadletterqueue.auto.create.topics.enable | BOOLEAN | false |  | MEDIUM | false
errors.deadletterqueue.topic.name.prefix | STRING | dlq. |  | MEDIUM | false
fetch.max.bytes | INT | 57671680 | [1024,...] | MEDIUM | false
fetch.purgatory.purge.interval.requests | INT | 1000 |  | MEDIUM | false
follower.fetch.last.tiered.offset.enable | BOOLEAN | false |  | MEDIUM | false
group.consumer.assignment.interval.ms | INT | 1000 | [0,...] | MEDIUM | false
group.consumer.assignor.offload.enable | BOOLEAN | true |  | MEDIUM | true
group.consumer.assignors | LIST | [uniform, range] |  | MEDIUM | false
group.consumer.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM | false
group.consumer.max.assignment.interval.ms | INT | 15000 | [0,...] | MEDIUM | false
group.consumer.max.heartbeat.interval.ms | INT | 15000 | [1,...] | MEDIUM | false
group.consumer.max.session.timeout.ms | INT | 60000 | [1,...] | MEDIUM | false
group.consumer.max.size | INT | 2147483647 | [1,...] | MEDIUM | false
group.consumer.migration.policy | STRING | bidirectional | (case insensitive) [DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL] | MEDIUM | false
group.consumer.min.assignment.interval.ms | INT | 0 | [0,...] | MEDIUM | false
group.consumer.min.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM | false
group.consumer.min.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM | false
group.consumer.regex.refresh.interval.ms | INT | 600000 | [10000,...] | MEDIUM | true
group.consumer.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM | false
group.coordinator.append.linger.ms | INT | -1 | [-1,...] | MEDIUM | false
group.coordinator.background.threads | INT | 2 | [1,...] | HIGH | false
group.coordinator.cached.buffer.max.bytes | INT | 1048588 | [524288,...] | MEDIUM | false
group.coordinator.rebalance.protocols | LIST | [classic, consumer, streams] | [consumer, classic, share, streams] | MEDIUM | false
group.coordinator.threads | INT | 4 | [1,...] | HIGH | false
group.initial.rebalance.delay.ms | INT | 3000 |  | MEDIUM | false
group.max.session.timeout.ms | INT | 1800000 |  | MEDIUM | false
group.max.size | INT | 2147483647 | [1,...] | MEDIUM | false
group.min.session.timeout.ms | INT | 6000 |  | MEDIUM | false
group.share.assignment.interval.ms | INT | 1000 | [0,...] | MEDIUM | false
group.share.assignor.offload.enable | BOOLEAN | true |  | MEDIUM | true
group.share.assignors | LIST | [simple] |  | MEDIUM | false
group.share.delivery.count.limit | INT | 5 | [2,...,10] | MEDIUM | false
group.share.dlq.manager.class.name | STRING | org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager |  | MEDIUM | true
group.share.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM | false
group.share.initialize.retry.interval.ms | INT | 30000 | [1,...] | LOW | true
group.share.max.assignment.interval.ms | INT | 15000 | [0,...] | MEDIUM | false
group.share.max.delivery.count.limit | INT | 10 | [5,...,25] | MEDIUM | false
group.share.max.heartbeat.interval.ms | INT | 15000 | [1,...] | MEDIUM | false
group.share.max.partition.max.record.locks | INT | 4000 | [2000,...,10000] | MEDIUM | false
group.share.max.record.lock.duration.ms | INT | 60000 | [30000,...,3600000] | MEDIUM | false
group.share.max.session.timeout.ms | INT | 60000 | [1,...] | MEDIUM | false
group.share.max.share.sessions | INT | 2000 | [1,...] | MEDIUM | false
group.share.max.size | INT | 200 | [1,...,1000] | MEDIUM | false
group.share.min.assignment.interval.ms | INT | 0 | [0,...] | MEDIUM | false
group.share.min.delivery.count.limit | INT | 2 | [2,...,5] | MEDIUM | false
group.share.min.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM | false
group.share.min.partition.max.record.locks | INT | 100 | [100,...,2000] | MEDIUM | false
group.share.min.record.lock.duration.ms | INT | 15000 | [1000,...,30000] | MEDIUM | false
group.share.min.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM | false
group.share.partition.max.record.locks | INT | 2000 | [100,...,10000] | MEDIUM | false
group.share.persister.class.name | STRING | org.apache.kafka.server.share.persister.DefaultStatePersister |  | MEDIUM | true
group.share.record.lock.duration.ms | INT | 30000 | [1000,...,3600000] | MEDIUM | false
group.share.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM | false
group.streams.acceptable.recovery.lag | LONG | 10000 | [0,...] | MEDIUM | true
group.streams.assignment.interval.ms | INT | 1000 | [0,...] | MEDIUM | false
group.streams.assignor.offload.enable | BOOLEAN | true |  | MEDIUM | true
group.streams.assignors | LIST | [sticky] |  | MEDIUM | false
group.streams.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM | false
group.streams.initial.rebalance.delay.ms | INT | 3000 | [0,...] | MEDIUM | false
group.streams.max.assignment.interval.ms | INT | 15000 | [0,...] | MEDIUM | false
group.streams.max.heartbeat.interval.ms | INT | 15000 | [1,...] | MEDIUM | false
group.streams.max.session.timeout.ms | INT | 60000 | [1,...] | MEDIUM | false
group.streams.max.size | INT | 2147483647 | [1,...] | MEDIUM | false
group.streams.max.standby.replicas | INT | 2 | [0,...] | MEDIUM | false
group.streams.max.warmup.replicas | INT | 20 | [0,...] | MEDIUM | true
group.streams.min.assignment.interval.ms | INT | 0 | [0,...] | MEDIUM | false
group.streams.min.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM | false
group.streams.min.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM | false
group.streams.min.task.offset.interval.ms | INT | 15000 | [1,...] | MEDIUM | true
group.streams.num.standby.replicas | INT | 0 | [0,...] | MEDIUM | false
group.streams.num.warmup.replicas | INT | 2 | [0,...] | MEDIUM | true
group.streams.rack.aware.assignment.tags | LIST | [] |  | LOW | false
group.streams.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM | false
group.streams.task.offset.interval.ms | INT | 60000 | [1,...] | MEDIUM | true
group.streams.topology.description.plugin.class | CLASS | null |  | MEDIUM | false
initial.broker.registration.timeout.ms | INT | 60000 |  | MEDIUM | false
inter.broker.listener.name | STRING | null |  | MEDIUM | false
internal.metadata.delete.delay.millis | LONG | 60000 |  | LOW | true
internal.metadata.log.segment.bytes | INT | null |  | LOW | true
internal.metadata.max.batch.size.in.bytes | INT | 8388608 |  | LOW | true
kafka.metrics.polling.interval.secs | INT | 10 | [1,...] | LOW | false
kafka.metrics.reporters | LIST | [] |  | LOW | false
leader.imbalance.check.interval.seconds | LONG | 300 | [1,...] | HIGH | false
listener.security.protocol.map | STRING | SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT |  | LOW | false
listeners | LIST | [PLAINTEXT://:9092] |  | HIGH | false
log.cleaner.backoff.ms | LONG | 15000 | [0,...] | MEDIUM | false
log.cleaner.dedupe.buffer.size | LONG | 134217728 |  | MEDIUM | false
log.cleaner.delete.retention.ms | LONG | 86400000 | [0,...] | MEDIUM | false
log.cleaner.enable | BOOLEAN | true |  | MEDIUM | false
log.cleaner.io.buffer.load.factor | DOUBLE | 0.9 |  | MEDIUM | false
log.cleaner.io.buffer.size | INT | 524288 | [0,...] | MEDIUM | false
log.cleaner.io.max.bytes.per.second | DOUBLE | 1.7976931348623157E308 |  | MEDIUM | false
log.cleaner.max.compaction.lag.ms | LONG | 9223372036854775807 | [1,...] | MEDIUM | false
log.cleaner.min.cleanable.ratio | DOUBLE | 0.5 | [0,...,1] | MEDIUM | false
log.cleaner.min.compaction.lag.ms | LONG | 0 | [0,...] | MEDIUM | false
log.cleaner.threads | INT | 1 | [0,...] | MEDIUM | false
log.cleanup.policy | LIST | [delete] | [compact, delete] | MEDIUM | false
log.dir | LIST | [/tmp/kafka-logs] |  | HIGH | false
log.dir.failure.timeout.ms | LONG | 30000 | [1,...] | LOW | false
log.dirs | LIST | null |  | HIGH | false
log.flush.interval.messages | LONG | 9223372036854775807 | [1,...] | HIGH | false
log.flush.interval.ms | LONG | null |  | HIGH | false
log.flush.offset.checkpoint.interval.ms | INT | 60000 | [0,...] | HIGH | false
log.flush.scheduler.interval.ms | LONG | 9223372036854775807 |  | HIGH | false
log.flush.start.offset.checkpoint.interval.ms | INT | 60000 | [0,...] | HIGH | false
log.index.interval.bytes | INT | 4096 | [0,...] | MEDIUM | false
log.index.size.max.bytes | INT | 10485760 | [4,...] | MEDIUM | false
log.initial.task.delay.ms | LONG | 30000 | [0,...] | LOW | true
log.local.retention.bytes | LONG | -2 | [-2,...] | MEDIUM | false
log.local.retention.ms | LONG | -2 | [-2,...] | MEDIUM | false
log.message.timestamp.after.max.ms | LONG | 3600000 | [0,...] | MEDIUM | false
log.message.timestamp.before.max.ms | LONG | 9223372036854775807 | [0,...] | MEDIUM | false
log.message.timestamp.type | STRING | CreateTime | [CreateTime, LogAppendTime] | MEDIUM | false
log.preallocate | BOOLEAN | false |  | MEDIUM | false
log.remote.copy.lag.bytes | LONG | -1 | [-1,...] | MEDIUM | false
log.remote.copy.lag.ms | LONG | 0 | [-1,...] | MEDIUM | false
log.retention.bytes | LONG | -1 |  | HIGH | false
log.retention.check.interval.ms | LONG | 300000 | [1,...] | MEDIUM | false
log.retention.hours | INT | 168 |  | HIGH | false
log.retention.minutes | INT | null |  | HIGH | false
log.retention.ms | LONG | null |  | HIGH | false
log.roll.hours | INT | 168 | [1,...] | HIGH | false
log.roll.jitter.hours | INT | 0 | [0,...] | HIGH | false
log.roll.jitter.ms | LONG | null |  | HIGH | false
log.roll.ms | LONG | null |  | HIGH | false
log.segment.bytes | INT | 1073741824 | [1048576,...] | HIGH | false
log.segment.delete.delay.ms | LONG | 60000 | [0,...] | HIGH | false
max.connection.creation.rate | INT | 2147483647 | [0,...] | MEDIUM | false
max.connections | INT | 2147483647 | [0,...] | MEDIUM | false
max.connections.per.ip | INT | 2147483647 | [0,...] | MEDIUM | false
max.connections.per.ip.overrides | STRING |  |  | MEDIUM | false
max.decompressed.message.bytes | INT | 2147483639 | [1,...,2147483639] | MEDIUM | false
max.incremental.fetch.session.cache.slots | INT | 1000 | [0,...] | MEDIUM | false
max.request.partition.size.limit | INT | 2000 | [1,...] | MEDIUM | false
message.max.bytes | INT | 1048588 | [0,...] | HIGH | false
metadata.log.dir | STRING | null |  | HIGH | false
metadata.log.max.record.bytes.between.snapshots | LONG | 20971520 | [1,...] | HIGH | false
metadata.log.max.snapshot.interval.ms | LONG | 3600000 | [0,...] | HIGH | false
metadata.log.segment.bytes | INT | 1073741824 | [8388608,...] | HIGH | false
metadata.log.segment.ms | LONG | 604800000 |  | HIGH | false
metadata.max.idle.interval.ms | INT | 500 | [0,...] | LOW | false
metadata.max.retention.bytes | LONG | 104857600 |  | HIGH | false
metadata.max.retention.ms | LONG | 604800000 |  | HIGH | false
metric.reporters | LIST | [org.apache.kafka.common.metrics.JmxReporter] |  | LOW | false
metrics.num.samples | INT | 2 | [1,...] | LOW | false
metrics.recording.level | STRING | INFO |  | LOW | false
metrics.sample.window.ms | LONG | 30000 | [1,...] | LOW | false
min.insync.replicas | INT | 1 | [1,...] | HIGH | false
node.id | INT | <required> | [0,...] | HIGH | false
num.io.threads | INT | 8 | [1,...] | HIGH | false
num.network.threads | INT | 3 | [1,...] | HIGH | false
num.partitions | INT | 1 | [1,...] | MEDIUM | false
num.recovery.threads.per.data.dir | INT | 2 | [1,...] | HIGH | false
num.replica.alter.log.dirs.threads | INT | null |  | HIGH | false
num.replica.fetchers | INT | 1 | [1,...] | HIGH | false
offset.metadata.max.bytes | INT | 4096 |  | HIGH | false
offsets.commit.timeout.ms | INT | 5000 | [1,...] | HIGH | false
offsets.load.buffer.size | INT | 5242880 | [1,...] | HIGH | false
offsets.retention.check.interval.ms | LONG | 600000 | [1,...] | HIGH | false
offsets.retention.minutes | INT | 10080 | [1,...] | HIGH | false
offsets.topic.compression.codec | INT | 0 |  | HIGH | false
offsets.topic.num.partitions | INT | 50 | [1,...] | HIGH | false
offsets.topic.replication.factor | SHORT | 3 | [1,...] | HIGH | false
offsets.topic.segment.bytes | INT | 104857600 | [1,...] | HIGH | false
principal.builder.class | CLASS | class org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder |  | MEDIUM | false
process.roles | LIST | <required> | [broker, controller] | HIGH | false
producer.id.expiration.check.interval.ms | INT | 600000 | [1,...] | LOW | true
producer.id.expiration.ms | INT | 86400000 | [1,...] | LOW | false
producer.purgatory.purge.interval.requests | INT | 1000 |  | MEDIUM | false
queued.max.request.bytes | LONG | -1 |  | MEDIUM | false
queued.max.requests | INT | 500 | [1,...] | HIGH | false
quota.window.num | INT | 11 | [1,...] | LOW | false
quota.window.size.seconds | INT | 1 | [1,...] | LOW | false
remote.fetch.max.wait.ms | INT | 500 | [1,...] | MEDIUM | false
remote.list.offsets.request.timeout.ms | LONG | 30000 | [1,...] | MEDIUM | false
remote.log.index.file.cache.total.size.bytes | LONG | 1073741824 | [1,...] | LOW | false
remote.log.index.file.cache.ttl.ms | LONG | 900000 | [-1,...] | LOW | true
remote.log.manager.copier.thread.pool.size | INT | 10 | [1,...] | MEDIUM | false
remote.log.manager.copy.max.bytes.per.second | LONG | 9223372036854775807 | [1,...] | MEDIUM | false
remote.log.manager.copy.quota.window.num | INT | 11 | [1,...] | MEDIUM | false
remote.log.manager.copy.quota.window.size.seconds | INT | 1 | [1,...] | MEDIUM | false
remote.log.manager.expiration.thread.pool.size | INT | 10 | [1,...] | MEDIUM | false
remote.log.manager.fetch.max.bytes.per.second | LONG | 9223372036854775807 | [1,...] | MEDIUM | false
remote.log.manager.fetch.quota.window.num | INT | 11 | [1,...] | MEDIUM | false
remote.log.manager.fetch.quota.window.size.seconds | INT | 1 | [1,...] | MEDIUM | false
remote.log.manager.follower.thread.pool.size | INT | 2 | [1,...] | MEDIUM | false
remote.log.manager.task.interval.ms | LONG | 30000 | [1,...] | LOW | false
remote.log.manager.task.retry.backoff.max.ms | LONG | 30000 | [1,...] | LOW | true
remote.log.manager.task.retry.backoff.ms | LONG | 500 | [1,...] | LOW | true
remote.log.manager.task.retry.jitter | DOUBLE | 0.2 | [0,...,0.5] | LOW | true
remote.log.manager.thread.pool.size | INT | 2 | [1,...] | MEDIUM | false
remote.log.metadata.custom.metadata.max.bytes | INT | 128 | [0,...] | LOW | false
remote.log.metadata.manager.class.name | STRING | org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager | non-empty string | MEDIUM | false
remote.log.metadata.manager.class.path | STRING | null |  | MEDIUM | false
remote.log.metadata.manager.impl.prefix | STRING | rlmm.config. | non-empty string | MEDIUM | false
remote.log.metadata.manager.listener.name | STRING | null | non-empty string | MEDIUM | false
remote.log.reader.max.pending.tasks | INT | 100 | [1,...] | MEDIUM | false
remote.log.reader.threads | INT | 10 | [1,...] | MEDIUM | false
remote.log.storage.manager.class.name | STRING | null | non-empty string | MEDIUM | false
remote.log.storage.manager.class.path | STRING | null |  | MEDIUM | false
remote.log.storage.manager.impl.prefix | STRING | rsm.config. | non-empty string | MEDIUM | false
remote.log.storage.system.enable | BOOLEAN | false |  | MEDIUM | false
replica.fetch.backoff.ms | INT | 1000 | [0,...] | MEDIUM | false
replica.fetch.max.bytes | INT | 1048576 | [0,...] | MEDIUM | false
replica.fetch.min.bytes | INT | 1 |  | HIGH | false
replica.fetch.response.max.bytes | INT | 10485760 | [0,...] | MEDIUM | false
replica.fetch.wait.max.ms | INT | 500 |  | HIGH | false
replica.high.watermark.checkpoint.interval.ms | LONG | 5000 |  | HIGH | false
replica.lag.time.max.ms | LONG | 30000 |  | HIGH | false
replica.selector.class | STRING | null |  | MEDIUM | false
replica.socket.receive.buffer.bytes | INT | 65536 |  | HIGH | false
replica.socket.timeout.ms | INT | 30000 |  | HIGH | false
replication.quota.window.num | INT | 11 | [1,...] | LOW | false
replication.quota.window.size.seconds | INT | 1 | [1,...] | LOW | false
request.timeout.ms | INT | 30000 |  | HIGH | false
sasl.client.callback.handler.class | CLASS | null |  | MEDIUM | false
sasl.enabled.mechanisms | LIST | [GSSAPI] |  | MEDIUM | false
sasl.jaas.config | PASSWORD | null |  | MEDIUM | false
sasl.kerberos.kinit.cmd | STRING | /usr/bin/kinit |  | MEDIUM | false
sasl.kerberos.min.time.before.relogin | LONG | 60000 |  | MEDIUM | false
sasl.kerberos.principal.to.local.rules | LIST | [DEFAULT] |  | MEDIUM | false
sasl.kerberos.service.name | STRING | null |  | MEDIUM | false
sasl.kerberos.ticket.renew.jitter | DOUBLE | 0.05 |  | MEDIUM | false
sasl.kerberos.ticket.renew.window.factor | DOUBLE | 0.8 |  | MEDIUM | false
sasl.login.callback.handler.class | CLASS | null |  | MEDIUM | false
sasl.login.class | CLASS | null |  | MEDIUM | false
sasl.login.connect.timeout.ms | INT | null |  | LOW | false
sasl.login.read.timeout.ms | INT | null |  | LOW | false
sasl.login.refresh.buffer.seconds | SHORT | 300 |  | MEDIUM | false
sasl.login.refresh.min.period.seconds | SHORT | 60 |  | MEDIUM | false
sasl.login.refresh.window.factor | DOUBLE | 0.8 |  | MEDIUM | false
sasl.login.refresh.window.jitter | DOUBLE | 0.05 |  | MEDIUM | false
sasl.login.retry.backoff.max.ms | LONG | 10000 |  | LOW | false
sasl.login.retry.backoff.ms | LONG | 100 |  | LOW | false
sasl.mechanism.controller.protocol | STRING | GSSAPI |  | HIGH | false
sasl.mechanism.inter.broker.protocol | STRING | GSSAPI |  | MEDIUM | false
sasl.oauthbearer.allow.unverified.audience | BOOLEAN | false |  | MEDIUM | false
sasl.oauthbearer.allow.unverified.issuer | BOOLEAN | false |  | MEDIUM | false
sasl.oauthbearer.assertion.algorithm | STRING | RS256 | (case insensitive) [ES256, RS256] | MEDIUM | false
sasl.oauthbearer.assertion.claim.aud | STRING | null |  | MEDIUM | false
sasl.oauthbearer.assertion.claim.exp.seconds | INT | 300 | [0,...,86400] | LOW | false
sasl.oauthbearer.assertion.claim.iss | STRING | null |  | MEDIUM | false
sasl.oauthbearer.assertion.claim.jti.include | BOOLEAN | false |  | MEDIUM | false
sasl.oauthbearer.assertion.claim.nbf.seconds | INT | 60 | [0,...,3600] | LOW | false
sasl.oauthbearer.assertion.claim.sub | STRING | null |  | MEDIUM | false
sasl.oauthbearer.assertion.file | STRING | null |  | MEDIUM | false
sasl.oauthbearer.assertion.private.key.file | STRING | null |  | MEDIUM | false
sasl.oauthbearer.assertion.private.key.passphrase | PASSWORD | null |  | MEDIUM | false
sasl.oauthbearer.assertion.template.file | STRING | null |  | MEDIUM | false
sasl.oauthbearer.client.credentials.client.id | STRING | null |  | MEDIUM | false
sasl.oauthbearer.client.credentials.client.secret | PASSWORD | null |  | MEDIUM | false
sasl.oauthbearer.clock.skew.seconds | INT | 30 |  | LOW | false
sasl.oauthbearer.expected.audience | LIST | [] |  | HIGH | false
sasl.oauthbearer.expected.issuer | STRING | null |  | HIGH | false
sasl.oauthbearer.jwks.endpoint.refresh.ms | LONG | 3600000 |  | LOW | false
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms | LONG | 10000 |  | LOW | false
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms | LONG | 100 |  | LOW | false
sasl.oauthbearer.jwks.endpoint.url | STRING | null |  | MEDIUM | false
sasl.oauthbearer.jwt.retriever.class | CLASS | class org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever |  | MEDIUM | false
sasl.oauthbearer.jwt.validator.class | CLASS | class org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator |  | MEDIUM | false
sasl.oauthbearer.scope | STRING | null |  | MEDIUM | false
sasl.oauthbearer.scope.claim.name | STRING | scope |  | LOW | false
sasl.oauthbearer.sub.claim.name | STRING | sub |  | LOW | false
sasl.oauthbearer.token.endpoint.url | STRING | null |  | MEDIUM | false
sasl.server.callback.handler.class | CLASS | null |  | MEDIUM | false
sasl.server.max.receive.size | INT | 524288 |  | MEDIUM | false
security.inter.broker.protocol | STRING | PLAINTEXT | [PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL] | MEDIUM | false
security.providers | STRING | null |  | LOW | false
server.max.startup.time.ms | LONG | 9223372036854775807 | [0,...] | MEDIUM | true
share.coordinator.append.linger.ms | INT | -1 | [-1,...] | MEDIUM | false
share.coordinator.cached.buffer.max.bytes | INT | 1048588 | [524288,...] | MEDIUM | false
share.coordinator.cold.partition.snapshot.interval.ms | INT | 300000 | [1,...] | LOW | true
share.coordinator.load.buffer.size | INT | 5242880 | [1,...] | HIGH | false
share.coordinator.snapshot.update.records.per.snapshot | INT | 500 | [0,...,500] | MEDIUM | false
share.coordinator.state.topic.compression.codec | INT | 0 |  | HIGH | false
share.coordinator.state.topic.min.isr | SHORT | 2 | [1,...] | HIGH | false
share.coordinator.state.topic.num.partitions | INT | 50 | [1,...] | HIGH | false
share.coordinator.state.topic.prune.interval.ms | INT | 300000 | [1,...] | LOW | true
share.coordinator.state.topic.replication.factor | SHORT | 3 | [1,...] | HIGH | false
share.coordinator.state.topic.segment.bytes | INT | 104857600 | [1,...] | HIGH | false
share.coordinator.threads | INT | 1 | [1,...] | MEDIUM | false
share.coordinator.write.timeout.ms | INT | 5000 | [1,...] | HIGH | false
share.fetch.purgatory.purge.interval.requests | INT | 1000 |  | MEDIUM | false
socket.connection.setup.timeout.max.ms | LONG | 30000 |  | MEDIUM | false
socket.connection.setup.timeout.ms | LONG | 10000 |  | MEDIUM | false
socket.listen.backlog.size | INT | 50 | [1,...] | MEDIUM | false
socket.receive.buffer.bytes | INT | 102400 |  | HIGH | false
socket.request.max.bytes | INT | 104857600 | [1,...] | HIGH | false
socket.send.buffer.bytes | INT | 102400 |  | HIGH | false
ssl.allow.dn.changes | BOOLEAN | false |  | LOW | false
ssl.allow.san.changes | BOOLEAN | false |  | LOW | false
ssl.cipher.suites | LIST | [] |  | MEDIUM | false
ssl.client.auth | STRING | none | [required, requested, none] | MEDIUM | false
ssl.enabled.protocols | LIST | [TLSv1.2, TLSv1.3] |  | MEDIUM | false
ssl.endpoint.identification.algorithm | STRING | https |  | LOW | false
ssl.engine.factory.class | CLASS | null |  | LOW | false
ssl.key.password | PASSWORD | null |  | MEDIUM | false
ssl.keymanager.algorithm | STRING | SunX509 |  | MEDIUM | false
ssl.keystore.certificate.chain | PASSWORD | null |  | MEDIUM | false
ssl.keystore.key | PASSWORD | null |  | MEDIUM | false
ssl.keystore.location | STRING | null |  | MEDIUM | false
ssl.keystore.password | PASSWORD | null |  | MEDIUM | false
ssl.keystore.type | STRING | JKS |  | MEDIUM | false
ssl.principal.mapping.rules | STRING | DEFAULT |  | LOW | false
ssl.protocol | STRING | TLSv1.3 |  | MEDIUM | false
ssl.provider | STRING | null |  | MEDIUM | false
ssl.secure.random.implementation | STRING | null |  | LOW | false
ssl.trustmanager.algorithm | STRING | PKIX |  | MEDIUM | false
ssl.truststore.certificates | PASSWORD | null |  | MEDIUM | false
ssl.truststore.location | STRING | null |  | MEDIUM | false
ssl.truststore.password | PASSWORD | null |  | MEDIUM | false
ssl.truststore.type | STRING | JKS |  | MEDIUM | false
telemetry.max.bytes | INT | 1048576 | [1,...] | LOW | false
transaction.abort.timed.out.transaction.cleanup.interval.ms | INT | 10000 | [1,...] | LOW | false
transaction.max.timeout.ms | INT | 900000 | [1,...] | HIGH | false
transaction.partition.verification.enable | BOOLEAN | true |  | LOW | false
transaction.remove.expired.transaction.cleanup.interval.ms | INT | 3600000 | [1,...] | LOW | false
transaction.state.log.load.buffer.size | INT | 5242880 | [1,...] | HIGH | false
transaction.state.log.min.isr | INT | 2 | [1,...] | HIGH | false
transaction.state.log.num.partitions | INT | 50 | [1,...] | HIGH | false
transaction.state.log.replication.factor | SHORT | 3 | [1,...] | HIGH | false
transaction.state.log.segment.bytes | INT | 104857600 | [1,...] | HIGH | false
transaction.two.phase.commit.enable | BOOLEAN | false |  | LOW | false
transactional.id.expiration.ms | INT | 604800000 | [1,...] | HIGH | false
unclean.leader.election.enable | BOOLEAN | false |  | HIGH | false
unclean.leader.election.interval.ms | LONG | 300000 | [1,...] | MEDIUM | true
unstable.api.versions.enable | BOOLEAN | false |  | HIGH | true
unstable.feature.versions.enable | BOOLEAN | false |  | HIGH | true
super.users | STRING |  | semicolon-separated principals; read by the authorizer | MEDIUM | false
allow.everyone.if.no.acl.found | BOOLEAN | false | read by the authorizer | MEDIUM | false
"""  # noqa: E501

TOPIC: Final = """
cleanup.policy | LIST | [delete] | [compact, delete] | MEDIUM | false | log.cleanup.policy
compression.gzip.level | INT | -1 | [1,...,9] or -1 | MEDIUM | false | compression.gzip.level
compression.lz4.level | INT | 9 | [1,...,17] | MEDIUM | false | compression.lz4.level
compression.type | STRING | producer | [uncompressed, zstd, lz4, snappy, gzip, producer] | MEDIUM | false | compression.type
compression.zstd.level | INT | 3 | [-131072,...,22] | MEDIUM | false | compression.zstd.level
delete.retention.ms | LONG | 86400000 | [0,...] | MEDIUM | false | log.cleaner.delete.retention.ms
errors.deadletterqueue.group.enable | BOOLEAN | false |  | MEDIUM | false |
file.delete.delay.ms | LONG | 60000 | [0,...] | MEDIUM | false | log.segment.delete.delay.ms
flush.messages | LONG | 9223372036854775807 | [1,...] | MEDIUM | false | log.flush.interval.messages
flush.ms | LONG | 9223372036854775807 | [0,...] | MEDIUM | false | log.flush.interval.ms
follower.replication.throttled.replicas | LIST | [] | [partitionId]:[brokerId],[partitionId]:[brokerId],... | MEDIUM | false |
index.interval.bytes | INT | 4096 | [0,...] | MEDIUM | false | log.index.interval.bytes
internal.segment.bytes | INT | null |  | MEDIUM | true |
leader.replication.throttled.replicas | LIST | [] | [partitionId]:[brokerId],[partitionId]:[brokerId],... | MEDIUM | false |
local.retention.bytes | LONG | -2 | [-2,...] | MEDIUM | false | log.local.retention.bytes
local.retention.ms | LONG | -2 | [-2,...] | MEDIUM | false | log.local.retention.ms
max.compaction.lag.ms | LONG | 9223372036854775807 | [1,...] | MEDIUM | false | log.cleaner.max.compaction.lag.ms
max.decompressed.message.bytes | INT | 2147483639 | [1,...,2147483639] | MEDIUM | false | max.decompressed.message.bytes
max.message.bytes | INT | 1048588 | [0,...] | MEDIUM | false | message.max.bytes
message.timestamp.after.max.ms | LONG | 3600000 | [0,...] | MEDIUM | false | log.message.timestamp.after.max.ms
message.timestamp.before.max.ms | LONG | 9223372036854775807 | [0,...] | MEDIUM | false | log.message.timestamp.before.max.ms
message.timestamp.type | STRING | CreateTime | [CreateTime, LogAppendTime] | MEDIUM | false | log.message.timestamp.type
min.cleanable.dirty.ratio | DOUBLE | 0.5 | [0,...,1] | MEDIUM | false | log.cleaner.min.cleanable.ratio
min.compaction.lag.ms | LONG | 0 | [0,...] | MEDIUM | false | log.cleaner.min.compaction.lag.ms
min.insync.replicas | INT | 1 | [1,...] | MEDIUM | false | min.insync.replicas
preallocate | BOOLEAN | false |  | MEDIUM | false | log.preallocate
remote.copy.lag.bytes | LONG | -1 | [-1,...] | MEDIUM | false | log.remote.copy.lag.bytes
remote.copy.lag.ms | LONG | 0 | [-1,...] | MEDIUM | false | log.remote.copy.lag.ms
remote.log.copy.disable | BOOLEAN | false |  | MEDIUM | false |
remote.log.delete.on.disable | BOOLEAN | false |  | MEDIUM | false |
remote.storage.enable | BOOLEAN | false |  | MEDIUM | false |
retention.bytes | LONG | -1 |  | MEDIUM | false | log.retention.bytes
retention.ms | LONG | 604800000 | [-1,...] | MEDIUM | false | log.retention.ms
segment.bytes | INT | 1073741824 | [1048576,...] | MEDIUM | false | log.segment.bytes
segment.index.bytes | INT | 10485760 | [4,...] | MEDIUM | false | log.index.size.max.bytes
segment.jitter.ms | LONG | 0 | [0,...] | MEDIUM | false | log.roll.jitter.ms
segment.ms | LONG | 604800000 | [1,...] | MEDIUM | false | log.roll.ms
unclean.leader.election.enable | BOOLEAN | false |  | MEDIUM | false | unclean.leader.election.enable
"""  # noqa: E501

GROUP: Final = """
consumer.assignment.interval.ms | INT | 1000 | [0,...] | MEDIUM | false
consumer.assignor.offload.enable | BOOLEAN | true |  | MEDIUM | true
consumer.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM | false
consumer.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM | false
errors.deadletterqueue.copy.record.enable | BOOLEAN | false |  | MEDIUM | false
errors.deadletterqueue.topic.name | STRING |  |  | MEDIUM | false
share.assignment.interval.ms | INT | 1000 | [0,...] | MEDIUM | false
share.assignor.offload.enable | BOOLEAN | true |  | MEDIUM | true
share.auto.offset.reset | STRING | latest | [latest, earliest, by_duration:PnDTnHnMn.nS] | MEDIUM | false
share.delivery.count.limit | INT | 5 | [2,...] | MEDIUM | false
share.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM | false
share.isolation.level | STRING | read_uncommitted | [read_committed, read_uncommitted] | MEDIUM | false
share.partition.max.record.locks | INT | 2000 | [100,...] | MEDIUM | false
share.record.lock.duration.ms | INT | 30000 | [1000,...] | MEDIUM | false
share.renew.acknowledge.enable | BOOLEAN | true |  | MEDIUM | false
share.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM | false
streams.acceptable.recovery.lag | LONG | 10000 | [0,...] | MEDIUM | true
streams.assignment.interval.ms | INT | 1000 | [0,...] | MEDIUM | false
streams.assignor.name | STRING | null |  | MEDIUM | false
streams.assignor.offload.enable | BOOLEAN | true |  | MEDIUM | true
streams.heartbeat.interval.ms | INT | 5000 | [1,...] | MEDIUM | false
streams.initial.rebalance.delay.ms | INT | 3000 | [0,...] | MEDIUM | false
streams.num.standby.replicas | INT | 0 | [0,...] | MEDIUM | false
streams.num.warmup.replicas | INT | 2 | [0,...] | MEDIUM | true
streams.rack.aware.assignment.tags | LIST | [] |  | LOW | false
streams.session.timeout.ms | INT | 45000 | [1,...] | MEDIUM | false
streams.task.offset.interval.ms | INT | 60000 | [1,...] | MEDIUM | true
"""

CLUSTER_WIDE_DYNAMIC: Final = """
background.threads compression.gzip.level compression.lz4.level compression.type compression.zstd.level
config.providers errors.deadletterqueue.auto.create.topics.enable errors.deadletterqueue.topic.name.prefix
follower.fetch.last.tiered.offset.enable follower.replication.throttled.rate
group.consumer.assignment.interval.ms group.consumer.assignor.offload.enable
group.coordinator.cached.buffer.max.bytes group.share.assignment.interval.ms
group.share.assignor.offload.enable group.streams.assignment.interval.ms
group.streams.assignor.offload.enable leader.replication.throttled.rate log.cleaner.backoff.ms
log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms log.cleaner.io.buffer.load.factor
log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second log.cleaner.max.compaction.lag.ms
log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms log.cleaner.threads log.cleanup.policy
log.flush.interval.messages log.flush.interval.ms log.index.interval.bytes log.index.size.max.bytes
log.local.retention.bytes log.local.retention.ms log.message.timestamp.after.max.ms
log.message.timestamp.before.max.ms log.message.timestamp.type log.preallocate log.remote.copy.lag.bytes
log.remote.copy.lag.ms log.retention.bytes log.retention.ms log.roll.jitter.ms log.roll.ms log.segment.bytes
log.segment.delete.delay.ms max.connection.creation.rate max.connections max.connections.per.ip
max.connections.per.ip.overrides max.decompressed.message.bytes message.max.bytes metric.reporters
min.insync.replicas num.io.threads num.network.threads num.recovery.threads.per.data.dir num.replica.fetchers
producer.id.expiration.ms remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms
remote.log.index.file.cache.total.size.bytes remote.log.manager.copier.thread.pool.size
remote.log.manager.copy.max.bytes.per.second remote.log.manager.expiration.thread.pool.size
remote.log.manager.fetch.max.bytes.per.second remote.log.manager.follower.thread.pool.size
remote.log.reader.threads replica.alter.log.dirs.io.max.bytes.per.second
share.coordinator.cached.buffer.max.bytes transaction.partition.verification.enable
unclean.leader.election.enable
"""
"""Broker keys that can be changed dynamically, for one broker or for all."""

PER_BROKER_DYNAMIC: Final = """
cordoned.log.dirs listener.security.protocol.map listeners principal.builder.class sasl.enabled.mechanisms
sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
sasl.mechanism.inter.broker.protocol ssl.cipher.suites ssl.client.auth ssl.enabled.protocols
ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
"""
"""Broker keys that can be changed dynamically for one broker only."""

CLIENT_METRICS: Final = """
interval.ms | INT | 300000 |  | MEDIUM | false
match | LIST | [] |  | MEDIUM | false
metrics | LIST | [] |  | MEDIUM | false
"""
"""Keys of a client metrics subscription (KIP-714); kafkapy.config.rules checks the range of interval.ms."""

OWN: Final = """
kafkapy.admin.listener | STRING | null | host:port | MEDIUM | false
kafkapy.authentication.timeout.ms | INT | 10000 | [1,...] | MEDIUM | false
kafkapy.imitated.release | STRING | null | [2.8, 3.9, 4.1, 4.3, 4.4] | LOW | false
kafkapy.legacy.clients.enable | BOOLEAN | false |  | LOW | false
kafkapy.metrics.groups | STRING | .* |  | LOW | false
kafkapy.metrics.names | STRING | strimzi | [strimzi, confluent, both] | LOW | false
kafkapy.metrics.rules | STRING | null |  | LOW | false
kafkapy.metrics.topics | STRING | .* |  | LOW | false
kafkapy.producers.max | INT | 1048576 | [1,...] | LOW | false
kafkapy.sasl.allowed.login.modules | LIST | [] |  | LOW | false
kafkapy.sasl.oauthbearer.allowed.files | LIST | [] |  | LOW | false
kafkapy.sasl.oauthbearer.allowed.urls | LIST | [] |  | LOW | false
kafkapy.sasl.oauthbearer.unsecured.enable | BOOLEAN | false |  | LOW | false
kafkapy.telemetry.otlp.endpoint | STRING | null |  | LOW | false
"""
"""Broker keys that only kafkapy has. Deviation: Apache Kafka has none of them, and what they set by other means or not
at all. Here they are keys, because Python has no JMX and no system properties: the host:port that serves /metrics,
/livez, /readyz and /buildinfo (Apache Kafka has JMX, and third-party agents for Prometheus); the timeout of a TLS
handshake, and then of a login (Apache Kafka waits for connections.max.idle.ms); whether to serve the versions that
KIP-896 removed, for clients from 0.9 on; the names of the metrics, and which topics and groups have series of their
own; the login modules that may be named, the URLs from which bearer tokens and their keys may be read, and the files
from which client assertions may (in Apache Kafka system properties, which are supported, too); whether unsigned bearer
tokens are accepted (in Apache Kafka they are without a JWKS); where clients' own metrics are sent (in Apache Kafka by a
metrics reporter that implements ClientTelemetry)."""

DYNAMIC_ONLY: Final = """
follower.replication.throttled.rate | LONG | 9223372036854775807 | [0,...] | MEDIUM | false
leader.replication.throttled.rate | LONG | 9223372036854775807 | [0,...] | MEDIUM | false
replica.alter.log.dirs.io.max.bytes.per.second | LONG | 9223372036854775807 | [0,...] | MEDIUM | false
"""
"""Broker keys that are not valid in server.properties, but can only be set dynamically."""
