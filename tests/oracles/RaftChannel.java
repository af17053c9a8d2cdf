import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.ApiVersions;
import org.apache.kafka.clients.ManualMetadataUpdater;
import org.apache.kafka.clients.MetadataRecoveryStrategy;
import org.apache.kafka.clients.NetworkClient;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.feature.SupportedVersionRange;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.network.PlaintextChannelBuilder;
import org.apache.kafka.common.network.Selector;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.raft.Endpoints;
import org.apache.kafka.raft.KafkaNetworkChannel;
import org.apache.kafka.raft.RaftRequest;
import org.apache.kafka.raft.RaftUtil;
import org.apache.kafka.raft.ReplicaKey;
import org.apache.kafka.server.common.OffsetAndEpoch;

/**
 * Asks a replica at a port of this machine what controllers ask each other, through the network channel of Kafka's
 * own Raft, and prints each answer.
 */
public class RaftChannel {
    private static final TopicPartition LOG = new TopicPartition("__cluster_metadata", 0);
    private static final int TIMEOUT_MS = 10_000;

    private static List<ApiMessage> requests() {
        ReplicaKey us = ReplicaKey.of(3, new Uuid(0, 77));
        ReplicaKey them = ReplicaKey.of(2, new Uuid(0, 78));
        Endpoints endpoints = Endpoints.fromInetSocketAddresses(
            Map.of(new ListenerName("CONTROLLER"), InetSocketAddress.createUnresolved("localhost", 9093)));
        var requests = new ArrayList<ApiMessage>();
        requests.add(RaftUtil.singletonVoteRequest(LOG, "cluster", 5, us, them, 4, 1234, true));
        requests.add(RaftUtil.singletonVoteRequest(LOG, "cluster", 6, us, them, 4, 1234, false));
        requests.add(RaftUtil.singletonBeginQuorumEpochRequest(LOG, "cluster", 6, 3, endpoints, them));
        requests.add(RaftUtil.singletonEndQuorumEpochRequest(LOG, "cluster", 6, 3, List.of(them)));
        requests.add(RaftUtil.singletonFetchRequest(LOG, Uuid.METADATA_TOPIC_ID, partition -> partition
            .setCurrentLeaderEpoch(6)
            .setLastFetchedEpoch(4)
            .setFetchOffset(1234)
            .setReplicaDirectoryId(us.directoryId().get())
            .setHighWatermark(1000))
            .setClusterId("cluster")
            .setMaxWaitMs(500));
        requests.add(RaftUtil.singletonFetchSnapshotRequest("cluster", us, LOG, 6, new OffsetAndEpoch(1234, 4), 1000, 17));
        requests.add(RaftUtil.updateVoterRequest("cluster", us, 6, new SupportedVersionRange((short) 0, (short) 1), endpoints));
        return requests;
    }

    public static void main(String[] arguments) throws Exception {
        Node node = new Node(2, "127.0.0.1", Integer.parseInt(arguments[0]));
        var log = new LogContext();
        var builder = new PlaintextChannelBuilder(null);
        builder.configure(Map.of());
        var selector = new Selector(600_000, new Metrics(), Time.SYSTEM, "raft", builder, log);
        var client = new NetworkClient(
            selector, new ManualMetadataUpdater(), "raft-client-3", 1, 50, 50, -1, 65536, TIMEOUT_MS, TIMEOUT_MS, TIMEOUT_MS,
            Time.SYSTEM, true, new ApiVersions(), log, MetadataRecoveryStrategy.NONE);
        var channel = new KafkaNetworkChannel(Time.SYSTEM, new ListenerName("CONTROLLER"), client, TIMEOUT_MS, "raft");
        channel.start();
        for (ApiMessage request : requests()) {
            var outbound = new RaftRequest.Outbound(channel.newCorrelationId(), request, node, Time.SYSTEM.milliseconds());
            channel.send(outbound);
            System.out.println(outbound.completion.get(TIMEOUT_MS, TimeUnit.MILLISECONDS).data());
        }
        channel.close();
    }
}
