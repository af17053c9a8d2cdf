import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * What Kafka makes of a partition and a wish: each line has both, each answer is the change or "nothing".
 * Lists are numbers with commas between them, "-" if they are empty; directories are numbers, too.
 */
public class PartitionChanges {
    private static List<Integer> list(String text) {
        return text.equals("-") ? List.of() : Arrays.stream(text.split(",")).map(Integer::valueOf).toList();
    }

    private static int[] array(String text) {
        return list(text).stream().mapToInt(Integer::intValue).toArray();
    }

    private static String show(String name, List<Integer> numbers) {
        if (numbers == null) {
            return "";
        }
        return " " + name + "=" + numbers.stream().map(String::valueOf).collect(Collectors.joining(","));
    }

    private static Uuid directory(int number) {
        return new Uuid(1, number);
    }

    private static String answer(String[] part) {
        PartitionRegistration partition = new PartitionRegistration.Builder()
            .setReplicas(array(part[0]))
            .setIsr(array(part[1]))
            .setRemovingReplicas(array(part[2]))
            .setAddingReplicas(array(part[3]))
            .setElr(array(part[4]))
            .setLastKnownElr(array(part[5]))
            .setLeader(Integer.valueOf(part[6]))
            .setLeaderRecoveryState(LeaderRecoveryState.of(Byte.parseByte(part[7])))
            .setDirectories(list(part[8]).stream().map(PartitionChanges::directory).toArray(Uuid[]::new))
            .setLeaderEpoch(4)
            .setPartitionEpoch(9)
            .build();
        List<Integer> mayLead = list(part[9]);
        PartitionChangeBuilder builder = new PartitionChangeBuilder(partition, Uuid.ONE_UUID, 0, mayLead::contains,
            MetadataVersion.fromFeatureLevel(Short.parseShort(part[10])), Integer.parseInt(part[11]), part[12].equals("1"));
        builder.setElection(PartitionChangeBuilder.Election.valueOf(part[13]));
        builder.setTargetIsr(list(part[14]));
        builder.setTargetLeaderRecoveryState(LeaderRecoveryState.of(Byte.parseByte(part[15])));
        builder.setUncleanShutdownReplicas(list(part[16]));
        List<Integer> moved = list(part[17]);
        if (!moved.isEmpty()) {
            builder.setDirectory(moved.get(0), directory(moved.get(1)));
        }
        builder.setDefaultDirProvider(brokerId -> directory(0));
        var built = builder.build();
        if (built.isEmpty()) {
            return "nothing";
        }
        PartitionChangeRecord record = (PartitionChangeRecord) built.get().message();
        List<Integer> elr = record.eligibleLeaderReplicas();
        return built.get().version() + show("isr", record.isr()) + " leader=" + record.leader()
            + show("elr", elr == null ? null : elr.stream().sorted().toList())
            + show("known", record.lastKnownElr()) + show("replicas", record.replicas())
            + show("removing", record.removingReplicas()) + show("adding", record.addingReplicas())
            + " recovery=" + record.leaderRecoveryState()
            + show("directories", record.directories() == null ? null
                : record.directories().stream().map(id -> (int) id.getLeastSignificantBits()).toList());
    }

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        List<String> out = new ArrayList<>();
        for (String line; (line = lines.readLine()) != null; ) {
            out.add(answer(line.split(" ", -1)));
        }
        System.out.write((String.join("\n", out) + "\n").getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }
}
