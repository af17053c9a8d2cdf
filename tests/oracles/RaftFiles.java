import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.message.SnapshotHeaderRecord;
import org.apache.kafka.common.message.VotersRecord;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.ElectionState;
import org.apache.kafka.raft.FileQuorumStateStore;
import org.apache.kafka.raft.MetadataLogConfig;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.raft.ReplicaKey;
import org.apache.kafka.raft.VoterSet;
import org.apache.kafka.raft.internals.KafkaRaftLog;
import org.apache.kafka.raft.internals.StringSerde;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.snapshot.FileRawSnapshotReader;
import org.apache.kafka.snapshot.FileRawSnapshotWriter;
import org.apache.kafka.snapshot.RecordsSnapshotReader;
import org.apache.kafka.snapshot.RecordsSnapshotWriter;
import org.apache.kafka.snapshot.Snapshots;

/**
 * The files of Kafka's own Raft: quorum-state, control records, snapshots, the log. Each line of the input is a command
 * in JSON, which "do" names; each answer is one line of JSON.
 */
public class RaftFiles {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();
    private static final int MAX_BATCH_BYTES = 8 * 1024 * 1024;

    private static ByteBufferAccessor message(JsonNode hex) {
        return new ByteBufferAccessor(ByteBuffer.wrap(HEX.parseHex(hex.asText())));
    }

    private static String hex(ByteBuffer bytes) {
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return HEX.formatHex(copy);
    }

    private static String hex(Message message, int version) {
        return hex(MessageUtil.toByteBufferAccessor(message, (short) version).buffer());
    }

    private static KRaftVersion kraftVersion(JsonNode command) {
        return KRaftVersion.fromFeatureLevel((short) command.get("kraft_version").asInt());
    }

    private static OffsetAndEpoch snapshotId(JsonNode command) {
        return new OffsetAndEpoch(command.get("snapshot_id").get(0).asLong(), command.get("snapshot_id").get(1).asInt());
    }

    // quorum-state

    private static FileQuorumStateStore quorumState(JsonNode command) {
        return new FileQuorumStateStore(new File(command.get("directory").asText(), "quorum-state"));
    }

    private static Object readElection(JsonNode command) {
        ElectionState state = quorumState(command).readElectionState().orElseThrow();
        List<Integer> voters = new ArrayList<>();
        // Voters are known to version 0, the directory of whom it voted for to version 1.
        state.toQuorumStateData((short) 0).currentVoters().forEach(each -> voters.add(each.voterId()));
        List<Object> voted = state.hasVoted()
            ? List.of(state.votedKey().id(), state.votedKey().directoryId().orElse(Uuid.ZERO_UUID).toString()) : List.of();
        return List.of(state.epoch(), state.leaderIdOrSentinel(), voted, voters);
    }

    private static Object writeElection(JsonNode command) {
        int epoch = command.get("epoch").asInt(), leaderId = command.get("leader_id").asInt();
        Set<Integer> voters = new HashSet<>();
        command.get("voters").forEach(each -> voters.add(each.asInt()));
        JsonNode key = command.get("voted");
        Optional<ReplicaKey> voted = key.isEmpty() ? Optional.empty()
            : Optional.of(ReplicaKey.of(key.get(0).asInt(), Uuid.fromString(key.get(1).asText())));
        ElectionState state = leaderId >= 0 ? ElectionState.withElectedLeader(epoch, leaderId, voted, voters)
            : voted.isPresent() ? ElectionState.withVotedCandidate(epoch, voted.get(), voters)
            : ElectionState.withUnknownLeader(epoch, voters);
        quorumState(command).writeElectionState(state, kraftVersion(command));
        return "written";
    }

    // Control records

    /** What Kafka makes of a set of voters that it was given. */
    private static Object voters(JsonNode command) {
        VoterSet voters = VoterSet.fromVotersRecord(new VotersRecord(message(command.get("hex")), (short) 0));
        return List.of(voters.voterIds().stream().sorted().toList(), hex(voters.toVotersRecord((short) 0), 0));
    }

    /** A batch with one control record, as Kafka builds it. */
    private static Object control(JsonNode command) {
        long offset = command.get("offset").asLong(), timeMs = command.get("timestamp_ms").asLong();
        int epoch = command.get("epoch").asInt();
        short version = (short) command.get("version").asInt();
        ByteBufferAccessor data = message(command.get("hex"));
        ByteBuffer buffer = ByteBuffer.allocate(4096);
        MemoryRecords records;
        switch (command.get("kind").asText()) {
            case "LEADER_CHANGE":
                records = MemoryRecords.withLeaderChangeMessage(offset, timeMs, epoch, buffer,
                    new LeaderChangeMessage(data, version));
                break;
            case "SNAPSHOT_HEADER":
                records = MemoryRecords.withSnapshotHeaderRecord(offset, timeMs, epoch, buffer,
                    new SnapshotHeaderRecord(data, version));
                break;
            case "SNAPSHOT_FOOTER":
                records = MemoryRecords.withSnapshotFooterRecord(offset, timeMs, epoch, buffer,
                    new SnapshotFooterRecord(data, version));
                break;
            case "KRAFT_VERSION":
                records = MemoryRecords.withKRaftVersionRecord(offset, timeMs, epoch, buffer,
                    new KRaftVersionRecord(data, version));
                break;
            default:
                records = MemoryRecords.withVotersRecord(offset, timeMs, epoch, buffer, new VotersRecord(data, version));
        }
        return hex(records.buffer());
    }

    // Snapshots

    private static Object readSnapshot(JsonNode command) throws Exception {
        Path directory = Path.of(command.get("directory").asText());
        OffsetAndEpoch id = snapshotId(command);
        List<Object> batches = new ArrayList<>();
        long lastContainedMs = Snapshots.lastContainedLogTimestamp(directory, id, new LogContext());
        try (FileRawSnapshotReader raw = FileRawSnapshotReader.open(directory, id);
             RecordsSnapshotReader<String> reader = RecordsSnapshotReader.of(raw, new StringSerde(),
                 BufferSupplier.create(), MAX_BATCH_BYTES, true, new LogContext())) {
            while (reader.hasNext()) {
                Batch<String> batch = reader.next();
                List<String> controls = batch.controlRecords().stream().map(each -> each.type().name()).toList();
                batches.add(List.of(batch.baseOffset(), batch.lastOffset(), batch.epoch(), controls, batch.records()));
            }
        }
        return List.of(lastContainedMs, batches);
    }

    /** A clock that stands still. */
    private static Time at(long nowMs) {
        return new Time() {
            public long milliseconds() {
                return nowMs;
            }

            public long nanoseconds() {
                return nowMs * 1_000_000;
            }

            public void sleep(long ms) { }

            public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
                throw new UnsupportedOperationException();
            }
        };
    }

    private static Object writeSnapshot(JsonNode command) {
        VoterSet voters = command.get("voters").isNull() ? null
            : VoterSet.fromVotersRecord(new VotersRecord(message(command.get("voters")), (short) 0));
        List<String> values = new ArrayList<>();
        command.get("values").forEach(each -> values.add(each.asText()));
        try (RecordsSnapshotWriter<String> writer = new RecordsSnapshotWriter.Builder()
            .setTime(at(command.get("now_ms").asLong()))
            .setLastContainedLogTimestamp(command.get("last_contained_ms").asLong())
            .setMaxBatchSizeBytes(MAX_BATCH_BYTES)
            .setKraftVersion(kraftVersion(command))
            .setVoterSet(Optional.ofNullable(voters))
            .setRawSnapshotWriter(FileRawSnapshotWriter.create(Path.of(command.get("directory").asText()),
                snapshotId(command)))
            .build(new StringSerde())) {
            writer.append(values);
            writer.freeze();
        }
        return "written";
    }

    // The log

    /** Nothing is done in the background. */
    private static Scheduler never() {
        InvocationHandler nothing = (self, method, arguments) -> method.getReturnType() == boolean.class ? true : null;
        return (Scheduler) Proxy.newProxyInstance(RaftFiles.class.getClassLoader(), new Class<?>[] {Scheduler.class},
            (self, method, arguments) -> method.getReturnType() == ScheduledFuture.class
                ? Proxy.newProxyInstance(RaftFiles.class.getClassLoader(), new Class<?>[] {ScheduledFuture.class}, nothing)
                : null);
    }

    /** What a log says of ends: of each epoch, of replicas that ask, and of leaders that have another history. */
    private static Object ends(JsonNode command) throws Exception {
        KafkaRaftLog log = KafkaRaftLog.createLog(new TopicPartition("__cluster_metadata", 0), Uuid.METADATA_TOPIC_ID,
            new File(command.get("directory").asText()), Time.SYSTEM, never(),
            new MetadataLogConfig(new AbstractConfig(MetadataLogConfig.CONFIG_DEF, Map.of())), 1);
        // Its own decision where to cut, without the cut.
        RaftLog uncut = (RaftLog) Proxy.newProxyInstance(RaftFiles.class.getClassLoader(), new Class<?>[] {RaftLog.class},
            (self, method, arguments) -> method.getName().equals("truncateTo") ? null
                : method.getName().equals("truncateToEndOffset") ? InvocationHandler.invokeDefault(self, method, arguments)
                : method.invoke(log, arguments));
        List<Object> epochs = new ArrayList<>(), validated = new ArrayList<>(), cuts = new ArrayList<>();
        for (int epoch = 0; epoch < command.get("epochs").asInt(); epoch++) {
            OffsetAndEpoch end = log.endOffsetForEpoch(epoch);
            epochs.add(List.of(end.offset(), end.epoch()));
            for (long offset = 0; offset < command.get("offsets").asLong(); offset++) {
                var found = log.validateOffsetAndEpoch(offset, epoch);
                validated.add(List.of(found.kind().name(), found.offsetAndEpoch().offset(), found.offsetAndEpoch().epoch()));
                cuts.add(uncut.truncateToEndOffset(new OffsetAndEpoch(offset, epoch)));
            }
        }
        var answer = List.of(log.startOffset(), log.endOffset().offset(), log.lastFetchedEpoch(), epochs, validated, cuts);
        log.close();
        return answer;
    }

    private static Object answer(JsonNode command) throws Exception {
        switch (command.get("do").asText()) {
            case "read_election":
                return readElection(command);
            case "write_election":
                return writeElection(command);
            case "voters":
                return voters(command);
            case "control":
                return control(command);
            case "read_snapshot":
                return readSnapshot(command);
            case "write_snapshot":
                return writeSnapshot(command);
            case "ends":
                return ends(command);
            default:
                throw new IllegalArgumentException("no such command: " + command);
        }
    }

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            try {
                System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            } catch (Exception e) {
                e.printStackTrace();
                System.exit(1);
            }
        }
    }
}
