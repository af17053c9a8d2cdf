import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.feature.SupportedVersionRange;
import org.apache.kafka.common.message.FetchRequestData;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.UnalignedMemoryRecords;
import org.apache.kafka.raft.Endpoints;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.raft.RaftUtil;
import org.apache.kafka.raft.ReplicaKey;
import org.apache.kafka.server.common.OffsetAndEpoch;

/**
 * Builds the messages of Raft as Kafka's own Raft does, with its RaftUtil. Each line of the input is one of them in
 * JSON; each answer is a line with its bytes in hex.
 */
public class RaftMessages {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final TopicPartition LOG = new TopicPartition("__cluster_metadata", 0);
    private static final ListenerName LISTENER = new ListenerName("CONTROLLER");

    private final JsonNode given;
    private final short version;

    private RaftMessages(JsonNode given) {
        this.given = given;
        this.version = (short) given.get("version").asInt();
    }

    private int number(String name) {
        return given.get(name).asInt();
    }

    private String clusterId() {
        return given.get("cluster_id").isNull() ? null : given.get("cluster_id").asText();
    }

    private static ReplicaKey key(JsonNode key) {
        return ReplicaKey.of(key.get(0).asInt(), Uuid.fromString(key.get(1).asText()));
    }

    /** Of the leader; there may be none. */
    private Endpoints endpoints() {
        Map<ListenerName, InetSocketAddress> found = new LinkedHashMap<>();
        given.get("listeners").properties().forEach(each -> found.put(new ListenerName(each.getKey()),
            InetSocketAddress.createUnresolved(each.getValue().get(0).asText(), each.getValue().get(1).asInt())));
        return Endpoints.fromInetSocketAddresses(found);
    }

    private OffsetAndEpoch offsetAndEpoch(String name) {
        return new OffsetAndEpoch(given.get(name).get(0).asLong(), given.get(name).get(1).asInt());
    }

    private Errors error() {
        return Errors.valueOf(given.get("error").asText());
    }

    private ByteBuffer data(String name) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(given.get(name).asText()));
    }

    private ApiMessage request() {
        switch (given.get("request").asText()) {
            case "Vote": {
                OffsetAndEpoch last = offsetAndEpoch("last");
                return RaftUtil.singletonVoteRequest(LOG, clusterId(), number("epoch"), key(given.get("candidate")),
                    key(given.get("voter")), last.epoch(), last.offset(), given.get("pre_vote").asBoolean());
            }
            case "BeginQuorumEpoch":
                return RaftUtil.singletonBeginQuorumEpochRequest(LOG, clusterId(), number("epoch"), number("leader_id"),
                    endpoints(), key(given.get("voter")));
            case "EndQuorumEpoch": {
                List<ReplicaKey> successors = new ArrayList<>();
                given.get("successors").forEach(each -> successors.add(key(each)));
                return RaftUtil.singletonEndQuorumEpochRequest(LOG, clusterId(), number("epoch"), number("leader_id"),
                    successors);
            }
            case "Fetch": {
                ReplicaKey replica = key(given.get("replica"));
                return RaftUtil.singletonFetchRequest(LOG, Uuid.METADATA_TOPIC_ID, partition -> partition
                        .setCurrentLeaderEpoch(number("epoch"))
                        .setLastFetchedEpoch(number("last_fetched_epoch"))
                        .setFetchOffset(given.get("offset").asLong())
                        .setReplicaDirectoryId(replica.directoryId().orElse(Uuid.ZERO_UUID))
                        .setHighWatermark(given.get("high_watermark").asLong()))
                    .setMaxBytes(number("max_bytes"))
                    .setMaxWaitMs(number("max_wait_ms"))
                    .setClusterId(clusterId())
                    .setReplicaState(new FetchRequestData.ReplicaState().setReplicaId(replica.id()));
            }
            case "FetchSnapshot":
                return RaftUtil.singletonFetchSnapshotRequest(clusterId(), key(given.get("replica")), LOG,
                    number("epoch"), offsetAndEpoch("snapshot_id"), number("max_bytes"),
                    given.get("position").asLong());
            case "UpdateVoter":
                return RaftUtil.updateVoterRequest(clusterId(), key(given.get("voter")), number("epoch"),
                    new SupportedVersionRange((short) number("min_kraft_version"), (short) number("max_kraft_version")),
                    endpoints());
            default:
                throw new IllegalArgumentException("no such request: " + given);
        }
    }

    private ApiMessage result() {
        int epoch = number("epoch"), leaderId = number("leader_id");
        switch (given.get("result").asText()) {
            case "Vote":
                return RaftUtil.singletonVoteResponse(LISTENER, version, Errors.NONE, LOG, error(), epoch, leaderId,
                    given.get("granted").asBoolean(), endpoints());
            case "BeginQuorumEpoch":
                return RaftUtil.singletonBeginQuorumEpochResponse(LISTENER, version, Errors.NONE, LOG, error(), epoch,
                    leaderId, endpoints());
            case "EndQuorumEpoch":
                return RaftUtil.singletonEndQuorumEpochResponse(LISTENER, version, Errors.NONE, LOG, error(), epoch,
                    leaderId, endpoints());
            case "Fetch":
                return RaftUtil.singletonFetchResponse(LISTENER, version, LOG, Uuid.METADATA_TOPIC_ID, Errors.NONE,
                    leaderId, endpoints(), partition -> {
                        partition.setRecords(MemoryRecords.readableRecords(data("records")))
                            .setErrorCode(error().code())
                            .setLogStartOffset(given.get("log_start_offset").asLong())
                            .setHighWatermark(given.get("high_watermark").asLong());
                        partition.currentLeader().setLeaderEpoch(epoch).setLeaderId(leaderId);
                        if (!given.get("diverging").isNull()) {
                            OffsetAndEpoch diverging = offsetAndEpoch("diverging");
                            partition.divergingEpoch().setEpoch(diverging.epoch()).setEndOffset(diverging.offset());
                        }
                        if (!given.get("snapshot_id").isNull()) {
                            OffsetAndEpoch id = offsetAndEpoch("snapshot_id");
                            partition.snapshotId().setEpoch(id.epoch()).setEndOffset(id.offset());
                        }
                    });
            case "FetchSnapshot":
                return RaftUtil.singletonFetchSnapshotResponse(LISTENER, version, LOG, leaderId, endpoints(),
                    partition -> {
                        OffsetAndEpoch id = offsetAndEpoch("snapshot_id");
                        partition.currentLeader().setLeaderEpoch(epoch).setLeaderId(leaderId);
                        partition.snapshotId().setEpoch(id.epoch()).setEndOffset(id.offset());
                        return partition.setErrorCode(error().code())
                            .setSize(given.get("size_bytes").asLong())
                            .setPosition(given.get("position").asLong())
                            .setUnalignedRecords(new UnalignedMemoryRecords(data("data")));
                    });
            case "UpdateVoter":
                return RaftUtil.updateVoterResponse(error(), LISTENER,
                    new LeaderAndEpoch(leaderId < 0 ? java.util.OptionalInt.empty() : java.util.OptionalInt.of(leaderId),
                        epoch), endpoints());
            default:
                throw new IllegalArgumentException("no such result: " + given);
        }
    }

    private ApiMessage message() {
        if (given.has("request")) {
            return request();
        }
        return given.has("refusal") ? RaftUtil.errorResponse(ApiKeys.forId(number("refusal")), error()) : result();
    }

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            var one = new RaftMessages(JSON.readTree(line));
            try {
                ByteBuffer bytes = MessageUtil.toByteBufferAccessor(one.message(), one.version).buffer();
                byte[] copy = new byte[bytes.remaining()];
                bytes.get(copy);
                System.out.println(HexFormat.of().formatHex(copy));
            } catch (RuntimeException e) {
                System.err.println(e + " for " + line);
                System.exit(1);
            }
        }
    }
}
