import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;

import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

/**
 * Shares partitions out with Kafka's own assignors. Every line of the input is one case: the name of the assignor, its
 * topics (name=racks/racks, racks of a partition joined by dots or -, topics joined by ;) and its members
 * (id!instance or -!the subscription as it travels, in hexadecimal digits, members joined by ;).
 * Every line of the output has what each member gets (id=topic:partition,...;...), or the exception.
 */
public class Assignors {
    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            String result;
            try {
                result = assign(words);
            } catch (RuntimeException error) {
                result = "! " + error;
            }
            System.out.println(result);
        }
    }

    static String assign(String[] words) {
        ConsumerPartitionAssignor assignor = switch (words[0]) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
        Map<String, Node> nodes = new LinkedHashMap<>();
        List<PartitionInfo> partitions = new ArrayList<>();
        for (String topic : words[1].split(";")) {
            String[] parts = topic.split("=");
            String[] racksOfPartitions = parts[1].split("/");
            for (int number = 0; number < racksOfPartitions.length; number++) {
                List<Node> replicas = new ArrayList<>();
                for (String rack : racksOfPartitions[number].split("\\."))
                    replicas.add(nodes.computeIfAbsent(rack, each ->
                        new Node(nodes.size(), "host", 9092, each.equals("-") ? null : each)));
                Node[] all = replicas.toArray(new Node[0]);
                partitions.add(new PartitionInfo(parts[0], number, all[0], all, all));
            }
        }
        Cluster cluster = new Cluster("cluster", nodes.values(), partitions, Set.of(), Set.of());

        Map<String, Subscription> subscriptions = new HashMap<>();
        for (String member : words[2].split(";")) {
            String[] parts = member.split("!");
            Subscription subscription =
                ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(HexFormat.of().parseHex(parts[2])));
            subscription.setGroupInstanceId(parts[1].equals("-") ? Optional.empty() : Optional.of(parts[1]));
            subscriptions.put(parts[0], subscription);
        }
        Map<String, String> results = new TreeMap<>();
        assignor.assign(cluster, new GroupSubscription(subscriptions)).groupAssignment().forEach((id, assignment) ->
            results.put(id, assignment.partitions().stream()
                .map(each -> each.topic() + ":" + each.partition()).collect(Collectors.joining(","))));
        return results.entrySet().stream().map(each -> each.getKey() + "=" + each.getValue())
            .collect(Collectors.joining(";"));
    }
}
