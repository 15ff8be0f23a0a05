package org.apache.kafka.common.test;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.Arrays;
import org.apache.kafka.common.metadata.BeginTransactionRecord;
import org.apache.kafka.common.metadata.EndTransactionRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.internals.RecordsIterator;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.KRaftVersion;

/** What Apache Kafka's own classes make of a node's metadata log as it is now. A short test needs no snapshot of it. */
record MetadataOnDisk(long offset, KRaftMetadataCache cache) {
    private static final int MAX_BATCH_BYTES = 8 * 1024 * 1024;

    static MetadataOnDisk read(NodeProcess node) {
        File directory = new File(node.node.metadataDirectory(), "__cluster_metadata-0");
        File[] segments = directory.listFiles((unused, name) -> name.endsWith(".log"));
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        long offset = -1;
        if (segments != null) {
            Arrays.sort(segments);
            for (File each : segments)
                offset = replay(each, delta, offset);
        }
        KRaftMetadataCache cache = new KRaftMetadataCache(node.node.id(), () -> KRaftVersion.KRAFT_VERSION_0);
        cache.setImage(delta.apply(new MetadataProvenance(offset, 1, 0, true)));
        return new MetadataOnDisk(offset, cache);
    }

    private static long replay(File segment, MetadataDelta delta, long offset) {
        long last = offset;
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytesOf(segment)));
        try (RecordsIterator<ApiMessageAndVersion> batches = new RecordsIterator<>(records, MetadataRecordSerde.INSTANCE,
                 BufferSupplier.NO_CACHING, MAX_BATCH_BYTES, true, new LogContext())) {
            while (batches.hasNext()) {
                Batch<ApiMessageAndVersion> batch = batches.next();
                batch.records().stream().map(ApiMessageAndVersion::message).filter(each -> !isOfTransaction(each)).forEach(delta::replay);
                last = batch.lastOffset();
            }
        }
        return last;
    }

    private static byte[] bytesOf(File segment) {
        try {
            return Files.readAllBytes(segment.toPath());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** These frame what they hold, and are nothing that an image has. */
    private static boolean isOfTransaction(ApiMessage message) {
        return message instanceof BeginTransactionRecord || message instanceof EndTransactionRecord;
    }
}
