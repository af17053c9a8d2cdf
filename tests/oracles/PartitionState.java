import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.CompletedTxn;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.TransactionIndex;

/**
 * Plays the state that Kafka keeps beside a log: each line is a command, each answer one line.
 * "producers", "epochs" and "aborted" begin anew, in a new directory under the one that is given as argument;
 * files come and go as hexadecimal digits.
 */
public class PartitionState {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);
    private static final HexFormat HEX = HexFormat.of();

    private final LogDirFailureChannel failures = new LogDirFailureChannel(1);
    private final Path root;
    private File directory;
    private ProducerStateManager producers;
    private LeaderEpochFileCache epochs;
    private TransactionIndex aborted;

    private PartitionState(Path root) {
        this.root = root;
    }

    /** Does at once what Kafka would do in the background. */
    private static class AtOnce implements Scheduler {
        public void startup() { }

        public void shutdown() { }

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            task.run();
            return null;
        }

        public void resizeThreadPool(int size) { }
    }

    private static RecordBatch batch(String hex) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(hex))).batches().iterator().next();
    }

    private void freshDirectory() throws Exception {
        directory = Files.createTempDirectory(root, "partition").toFile();
    }

    private String file(String name) throws Exception {
        Path path = directory.toPath().resolve(name);
        return Files.exists(path) ? HEX.formatHex(Files.readAllBytes(path)) + "." : "none";
    }

    private File put(String name, String hex) throws Exception {
        freshDirectory();
        return Files.write(directory.toPath().resolve(name), HEX.parseHex(hex)).toFile();
    }

    private ProducerStateManager openProducers(int expirationMs) throws Exception {
        var config = new ProducerStateManagerConfig(expirationMs, false);
        return new ProducerStateManager(PARTITION, directory, 60_000, config, Time.SYSTEM);
    }

    private static Optional<BatchMetadata> duplicate(ProducerStateEntry entry, RecordBatch batch) {
        if (entry.producerEpoch() != batch.producerEpoch()) {
            return Optional.empty();
        }
        return entry.batchMetadata().stream()
            .filter(each -> each.firstSeq() == batch.baseSequence() && each.lastSeq() == batch.lastSequence())
            .findFirst();
    }

    private String append(RecordBatch batch, AppendOrigin origin, short transactionVersion) {
        if (origin == AppendOrigin.CLIENT) {
            var known = producers.lastEntry(batch.producerId()).flatMap(entry -> duplicate(entry, batch));
            if (known.isPresent()) {
                return "duplicate " + known.get().firstOffset() + " " + known.get().lastOffset() + " "
                    + known.get().timestamp();
            }
        }
        ProducerAppendInfo info = producers.prepareUpdate(batch.producerId(), origin);
        Optional<CompletedTxn> completed = info.append(batch, Optional.<LogOffsetMetadata>empty(), transactionVersion);
        producers.update(info);
        String answer = "ok";
        if (completed.isPresent()) {
            CompletedTxn txn = completed.get();
            answer = "ended " + txn.producerId() + " " + txn.firstOffset() + " " + txn.lastOffset() + " "
                + (txn.isAborted() ? "aborted" : "committed") + " " + producers.lastStableOffset(txn);
            producers.completeTxn(txn);
        }
        producers.updateMapEndOffset(batch.lastOffset() + 1);
        return answer;
    }

    private String unstable() {
        return producers.firstUnstableOffset().map(offset -> String.valueOf(offset.messageOffset)).orElse("none");
    }

    private static String list(List<AbortedTxn> transactions) {
        return transactions.stream()
            .map(txn -> txn.producerId() + ":" + txn.firstOffset() + ":" + txn.lastOffset() + ":" + txn.lastStableOffset())
            .collect(Collectors.joining(","));
    }

    private String entries(List<ProducerStateEntry> entries) {
        return entries.stream()
            .map(entry -> entry.producerId() + ":" + entry.producerEpoch() + ":" + entry.coordinatorEpoch() + ":"
                + entry.lastTimestamp() + ":" + entry.currentTxnFirstOffset().orElse(-1) + ":" + entry.batchMetadata()
                    .stream().map(each -> each.firstSeq() + "-" + each.lastSeq() + "@" + each.firstOffset() + "-" + each.lastOffset())
                    .collect(Collectors.joining()))
            .collect(Collectors.joining(","));
    }

    private String answer(String[] part) throws Exception {
        switch (part[0]) {
            case "producers":
                freshDirectory();
                producers = openProducers(Integer.parseInt(part[1]));
                return "ok";
            case "client":
                return append(batch(part[1]), AppendOrigin.CLIENT, (short) 0) + " " + unstable();
            case "coordinator":
                return append(batch(part[2]), AppendOrigin.COORDINATOR, Short.parseShort(part[1])) + " " + unstable();
            case "replica":
                return append(batch(part[1]), AppendOrigin.REPLICATION, (short) 0) + " " + unstable();
            case "watermark":
                producers.onHighWatermarkUpdated(Long.parseLong(part[1]));
                return "ok " + unstable();
            case "start":
                producers.onLogStartOffsetIncremented(Long.parseLong(part[1]));
                return "ok " + unstable();
            case "expire":
                producers.removeExpiredProducers(Long.parseLong(part[1]));
                return "left " + producers.producerIdCount();
            case "snapshot":
                producers.takeSnapshot();
                return file(String.format("%020d.snapshot", producers.mapEndOffset()));
            case "reload": // log start, log end, now, expiration
                producers = openProducers(Integer.parseInt(part[4]));
                producers.truncateAndReload(Long.parseLong(part[1]), Long.parseLong(part[2]), Long.parseLong(part[3]));
                return "from " + producers.mapEndOffset() + " " + unstable();
            case "read_snapshot":
                return entries(ProducerStateManager.readSnapshot(put("00000000000000000009.snapshot", part[1])));
            case "epochs":
                freshDirectory();
                epochs = new LeaderEpochFileCache(PARTITION,
                    new LeaderEpochCheckpointFile(LeaderEpochCheckpointFile.newFile(directory), failures), new AtOnce());
                return "ok";
            case "assign":
                epochs.assign(Integer.parseInt(part[1]), Long.parseLong(part[2]));
                return file("leader-epoch-checkpoint");
            case "end_offset":
                return epochs.endOffsetFor(Integer.parseInt(part[1]), Long.parseLong(part[2])).toString();
            case "epoch_at":
                var found = epochs.epochForOffset(Long.parseLong(part[1]));
                return found.isPresent() ? String.valueOf(found.getAsInt()) : "none";
            case "cut_end":
                epochs.truncateFromEndAsyncFlush(Long.parseLong(part[1]));
                return file("leader-epoch-checkpoint");
            case "cut_start":
                epochs.truncateFromStartAsyncFlush(Long.parseLong(part[1]));
                return file("leader-epoch-checkpoint");
            case "read_epochs":
                put("leader-epoch-checkpoint", part[1]);
                return new LeaderEpochCheckpointFile(LeaderEpochCheckpointFile.newFile(directory), failures).read()
                    .stream().map(entry -> entry.epoch() + ":" + entry.startOffset()).collect(Collectors.joining(","));
            case "aborted":
                freshDirectory();
                aborted = new TransactionIndex(0, new File(directory, "00000000000000000000.txnindex"));
                return "ok";
            case "abort":
                aborted.append(new AbortedTxn(Long.parseLong(part[1]), Long.parseLong(part[2]), Long.parseLong(part[3]),
                    Long.parseLong(part[4])));
                return file("00000000000000000000.txnindex");
            case "search":
                var result = aborted.collectAbortedTxns(Long.parseLong(part[1]), Long.parseLong(part[2]));
                return (result.isComplete() ? "complete " : "more ") + list(result.abortedTransactions());
            case "cut_aborted":
                aborted.truncateTo(Long.parseLong(part[1]));
                return file("00000000000000000000.txnindex");
            case "read_aborted":
                var index = new TransactionIndex(0, put("00000000000000000000.txnindex", part[1]));
                index.sanityCheck();
                return list(index.allAbortedTxns());
            case "offsets": {
                freshDirectory();
                Map<TopicPartition, Long> offsets = new LinkedHashMap<>();
                for (int i = 1; i < part.length; i += 3) {
                    offsets.put(new TopicPartition(part[i], Integer.parseInt(part[i + 1])), Long.parseLong(part[i + 2]));
                }
                new OffsetCheckpointFile(new File(directory, "offsets"), failures).write(offsets);
                return file("offsets");
            }
            case "read_offsets":
                return new OffsetCheckpointFile(put("offsets", part[1]), failures).read().entrySet().stream()
                    .map(Object::toString).sorted().collect(Collectors.joining(","));
            case "topic_id": {
                freshDirectory();
                var metadata = new PartitionMetadataFile(PartitionMetadataFile.newFile(directory), failures);
                metadata.record(Uuid.fromString(part[1]));
                metadata.maybeFlush();
                return file("partition.metadata");
            }
            case "read_topic_id":
                return new PartitionMetadataFile(put("partition.metadata", part[1]), failures).read().topicId().toString();
            case "clean_shutdown":
                freshDirectory();
                new CleanShutdownFileHandler(directory.getPath()).write(Long.parseLong(part[1]));
                return file(".kafka_cleanshutdown");
            case "read_clean_shutdown":
                put(".kafka_cleanshutdown", part[1]);
                return String.valueOf(new CleanShutdownFileHandler(directory.getPath()).read().orElse(-1));
            default:
                throw new IllegalArgumentException("no such command: " + part[0]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        var state = new PartitionState(Path.of(arguments[0]));
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        List<String> out = new ArrayList<>();
        for (String line; (line = lines.readLine()) != null; ) {
            try {
                out.add(state.answer(line.split(" ", -1)));
            } catch (Exception e) {
                Errors code = Errors.forException(e);
                out.add("refused " + (code == Errors.UNKNOWN_SERVER_ERROR ? e.toString() : code.name()));
            }
        }
        System.out.write((String.join("\n", out) + "\n").getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }
}
