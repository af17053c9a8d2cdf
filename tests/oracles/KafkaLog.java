import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import java.util.stream.StreamSupport;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import org.apache.kafka.tools.DumpLogSegments;

/**
 * Lets Kafka open, read and write the log of a partition with its own UnifiedLog, and dump its files.
 * Each line of the input is a command in JSON, which "do" names; each answer is one line of JSON.
 */
public class KafkaLog {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();
    private static final int DAY_MS = 24 * 60 * 60 * 1000;

    private final BrokerTopicStats stats = new BrokerTopicStats();
    private long nowMs;
    private UnifiedLog log;

    /** The time is told by the commands. */
    private final Time time = new Time() {
        public long milliseconds() {
            return nowMs;
        }

        public long nanoseconds() {
            return nowMs * 1_000_000;
        }

        public void sleep(long ms) {
            nowMs += ms;
        }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    };

    /** Does at once what Kafka would do in the background; what it would do again and again is left out. */
    private static class AtOnce implements Scheduler {
        public void startup() { }

        public void shutdown() { }

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs <= 0) {
                task.run();
            }
            return (ScheduledFuture<?>) Proxy.newProxyInstance(KafkaLog.class.getClassLoader(),
                new Class<?>[] {ScheduledFuture.class},
                (self, method, arguments) -> method.getReturnType() == boolean.class ? true : null);
        }

        public void resizeThreadPool(int size) { }
    }

    private Object open(JsonNode command) throws Exception {
        Map<String, String> settings = new HashMap<>();
        command.get("settings").properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
        log = UnifiedLog.create(new File(command.get("directory").asText()), new LogConfig(settings),
            command.get("log_start_offset").asLong(), command.get("recovery_point").asLong(), new AtOnce(), stats, time,
            60_000, new ProducerStateManagerConfig(DAY_MS, false), 600_000, new LogDirFailureChannel(1),
            command.get("was_clean").asBoolean(), Optional.empty(), new ConcurrentHashMap<>(), false,
            LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        return "open";
    }

    private static byte[] bytes(JsonNode hex) {
        return hex.isNull() ? null : HEX.parseHex(hex.asText());
    }

    private static SimpleRecord record(JsonNode record) {
        List<Header> headers = new ArrayList<>();
        record.get(3).forEach(each -> headers.add(new RecordHeader(each.get(0).asText(), bytes(each.get(1)))));
        return new SimpleRecord(record.get(0).asLong(), bytes(record.get(1)), bytes(record.get(2)),
            headers.toArray(new Header[0]));
    }

    /** A batch that Kafka's own builder makes. */
    private static MemoryRecords build(JsonNode command) {
        SimpleRecord[] records = StreamSupport.stream(command.get("records").spliterator(), false)
            .map(KafkaLog::record).toArray(SimpleRecord[]::new);
        return MemoryRecords.withRecords(RecordBatch.CURRENT_MAGIC_VALUE, 0,
            Compression.of(CompressionType.forName(command.get("codec").asText())).build(), TimestampType.CREATE_TIME,
            command.get("producer_id").asLong(), (short) command.get("producer_epoch").asInt(),
            command.get("base_sequence").asInt(), RecordBatch.NO_PARTITION_LEADER_EPOCH,
            command.get("transactional").asBoolean(), records);
    }

    private MemoryRecords marker(JsonNode command) {
        return MemoryRecords.withEndTransactionMarker(0, nowMs, RecordBatch.NO_PARTITION_LEADER_EPOCH,
            command.get("producer_id").asLong(), (short) command.get("producer_epoch").asInt(),
            new EndTransactionMarker(command.get("committed").asBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT,
                command.get("coordinator_epoch").asInt()));
    }

    private Object append(MemoryRecords records, JsonNode command, AppendOrigin origin) throws Exception {
        int epoch = command.get("leader_epoch").asInt();
        LogAppendInfo info = origin == AppendOrigin.REPLICATION
            ? log.appendAsFollower(records, epoch)
            : log.appendAsLeader(records, epoch, origin, RequestLocal.noCaching(), VerificationGuard.SENTINEL, (short) 0);
        return List.of(info.firstOffset(), info.lastOffset(), info.logAppendTime());
    }

    private static List<Object> segment(LogSegment segment) {
        try {
            return List.of(segment.baseOffset(), segment.size(), segment.offsetIndex().entries(),
                segment.timeIndex().entries(), segment.maxTimestampSoFar());
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    private Object state() {
        Map<String, Object> state = new LinkedHashMap<>();
        state.put("log_start_offset", log.logStartOffset());
        state.put("next_offset", log.logEndOffset());
        state.put("high_watermark", log.highWatermark());
        // If the log starts within an open transaction, Kafka gives the beginning of the batch, which may lie before it.
        state.put("last_stable_offset", Math.max(log.lastStableOffset(), log.logStartOffset()));
        state.put("segments", log.logSegments().stream().map(KafkaLog::segment).toList());
        state.put("epochs", log.leaderEpochCache().epochEntries().stream()
            .map(each -> List.of(each.epoch(), each.startOffset())).toList());
        state.put("producers", log.producerStateManager().activeProducers().values().stream()
            .sorted(Comparator.comparing(each -> each.producerId()))
            .map(KafkaLog::producer).toList());
        return state;
    }

    private static List<Object> producer(ProducerStateEntry entry) {
        BatchMetadata last = null;
        for (BatchMetadata each : entry.batchMetadata()) {
            last = each;
        }
        return List.of(entry.producerId(), entry.producerEpoch(), last == null ? -1 : last.lastSeq(),
            entry.lastDataOffset(), last == null ? 0 : last.offsetDelta(), entry.lastTimestamp(),
            entry.coordinatorEpoch(), entry.currentTxnFirstOffset().orElse(-1));
    }

    /**
     * What each read gives: the first byte in which segment, how many, and the aborted transactions to know of. Those that
     * begin behind the batches read are left out: how many of them are told is chance.
     */
    private Object read(JsonNode command) throws Exception {
        FetchIsolation isolation = FetchIsolation.valueOf(command.get("isolation").asText());
        List<Object> answers = new ArrayList<>();
        for (JsonNode each : command.get("reads")) {
            var data = log.read(each.get(0).asLong(), each.get(1).asInt(), isolation, true);
            long end = 0;
            for (RecordBatch batch : data.records.batches()) {
                end = batch.nextOffset();
            }
            final long endOffset = end;
            var aborted = data.abortedTransactions.orElse(List.of()).stream()
                .filter(txn -> txn.firstOffset() < endOffset)
                .map(txn -> List.of(txn.producerId(), txn.firstOffset())).toList();
            answers.add(data.records.sizeInBytes() == 0 ? List.of() : List.of(data.fetchOffsetMetadata.segmentBaseOffset,
                data.fetchOffsetMetadata.relativePositionInSegment, data.records.sizeInBytes(), aborted));
        }
        return answers;
    }

    private Object times(JsonNode command) {
        List<Object> answers = new ArrayList<>();
        for (JsonNode each : command.get("timestamps")) {
            var found = log.fetchOffsetByTimestamp(each.asLong(), Optional.empty()).timestampAndOffsetOpt();
            answers.add(found.isEmpty() ? List.of()
                : List.of(found.get().timestamp, found.get().offset, found.get().leaderEpoch.orElse(-1)));
        }
        return answers;
    }

    private Object epochEnds(JsonNode command) {
        List<Object> answers = new ArrayList<>();
        for (JsonNode each : command.get("epochs")) {
            var found = log.leaderEpochCache().endOffsetFor(each.asInt(), log.logEndOffset());
            answers.add(List.of(found.getKey(), found.getValue()));
        }
        return answers;
    }

    /** From the batch that holds the offset on: in the middle of one Kafka would leave a gap. */
    private Object truncate(long offset) throws Exception {
        if (offset < log.logStartOffset() || offset >= log.logEndOffset()) {
            return false;
        }
        long start = log.read(offset, 1, FetchIsolation.LOG_END, true).records.batches().iterator().next().baseOffset();
        return start >= log.logStartOffset() && log.truncateTo(start);
    }

    /** What the tool prints, to both of its streams. */
    private static Object dump(JsonNode command) throws Exception {
        String[] arguments = StreamSupport.stream(command.get("arguments").spliterator(), false)
            .map(JsonNode::asText).toArray(String[]::new);
        PrintStream out = System.out, err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream both = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(both);
        System.setErr(both);
        try {
            DumpLogSegments.main(arguments);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }

    private Object answer(JsonNode command) throws Exception {
        if (command.has("now_ms")) {
            nowMs = command.get("now_ms").asLong();
        }
        switch (command.get("do").asText()) {
            case "open":
                return open(command);
            case "client":
            case "coordinator":
            case "replication": {
                var origin = AppendOrigin.valueOf(command.get("do").asText().toUpperCase());
                return append(MemoryRecords.readableRecords(ByteBuffer.wrap(bytes(command.get("hex")))), command, origin);
            }
            case "build":
                return append(build(command), command, AppendOrigin.CLIENT);
            case "marker":
                return append(marker(command), command, AppendOrigin.COORDINATOR);
            case "watermark":
                return log.updateHighWatermark(command.get("offset").asLong());
            case "log_start":
                return log.maybeIncrementLogStartOffset(command.get("offset").asLong(),
                    LogStartOffsetIncrementReason.ClientRecordDeletion);
            case "truncate":
                return truncate(command.get("offset").asLong());
            case "roll":
                return log.roll().baseOffset();
            case "delete_old":
                return log.deleteOldSegments();
            case "flush":
                log.flush(false);
                return log.recoveryPoint();
            case "state":
                return state();
            case "read":
                return read(command);
            case "times":
                return times(command);
            case "epoch_ends":
                return epochEnds(command);
            case "close":
                log.close();
                return "closed";
            case "abandon":
                log.closeHandlers();
                return "abandoned";
            case "dump":
                return dump(command);
            default:
                throw new IllegalArgumentException("no such command: " + command);
        }
    }

    public static void main(String[] arguments) throws Exception {
        var kafka = new KafkaLog();
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line; (line = lines.readLine()) != null; ) {
            Object answer;
            try {
                answer = kafka.answer(JSON.readTree(line));
            } catch (Exception e) {
                Errors code = Errors.forException(e);
                answer = Map.of("error", code == Errors.UNKNOWN_SERVER_ERROR ? e.toString() : code.name());
            }
            out.print(JSON.writeValueAsString(answer) + "\n");
            out.flush();
        }
    }
}
