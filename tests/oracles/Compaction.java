import java.io.File;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Scanner;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.CleanedTransactionMetadata;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LastRecord;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetMap;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.utils.Throttler;

/**
 * Lets Kafka's own cleaner compact segments. Every line of the input is one:
 * segment as hexadecimal digits, first dirty offset, end offset, now, delete retention, how many keys may be noted,
 * aborted transactions (producer:first:last,... or -), newest batches of producers (producer:offset:epoch,... or -).
 * Every line of the output is what became of it: the cleaned segment, the end of what was noted, and the aborted
 * transactions that were kept in its index.
 */
public class Compaction {
    static final TopicPartition PARTITION = new TopicPartition("topic", 0);

    public static void main(String[] arguments) throws Exception {
        File directory = Files.createTempDirectory("compaction").toFile();
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            for (File file : directory.listFiles())
                file.delete();
            System.out.println(clean(directory, words));
        }
        for (File file : directory.listFiles())
            file.delete();
        directory.delete();
    }

    static String clean(File directory, String[] words) throws Exception {
        long firstDirty = Long.parseLong(words[1]), end = Long.parseLong(words[2]), now = Long.parseLong(words[3]);
        long retention = Long.parseLong(words[4]);
        int keys = Integer.parseInt(words[5]);
        List<AbortedTxn> aborted = new ArrayList<>();
        for (long[] each : numbers(words[6]))
            aborted.add(new AbortedTxn(each[0], each[1], each[2], each[2] + 1));
        Map<Long, LastRecord> last = new HashMap<>();
        for (long[] each : numbers(words[7]))
            last.put(each[0], new LastRecord(
                each[1] < 0 ? OptionalLong.empty() : OptionalLong.of(each[1]), (short) each[2]));

        Files.write(new File(directory, "00000000000000000000.log").toPath(),
            words[0].equals("-") ? new byte[0] : HexFormat.of().parseHex(words[0]));
        LogConfig config = new LogConfig(Map.of("segment.index.bytes", 4096));
        LogSegment from = LogSegment.open(directory, 0, config, Time.SYSTEM, true, 0, false, "");
        LogSegment to = LogSegment.open(directory, 0, config, Time.SYSTEM, false, 0, false, ".cleaned");
        OffsetMap map = new SkimpyOffsetMap(keys * 24);
        Cleaner cleaner = new Cleaner(0, map, 1 << 16, 1 << 22, 1.0,
            new Throttler(1e18, 300, "cleaner", "bytes", Time.SYSTEM), Time.SYSTEM, partition -> { });

        CleanedTransactionMetadata first = new CleanedTransactionMetadata();
        first.addAbortedTransactions(aborted);
        call(cleaner, "buildOffsetMapForSegment", PARTITION, from, map, firstDirty, end, 1 << 22, first,
            new CleanerStats(Time.SYSTEM));
        CleanedTransactionMetadata second = new CleanedTransactionMetadata();
        second.addAbortedTransactions(aborted);
        second.setCleanedIndex(Optional.of(to.txnIndex()));
        call(cleaner, "cleanInto", PARTITION, from.log(), to, map, false, retention, 1 << 22, second, last, end,
            new CleanerStats(Time.SYSTEM), now);
        to.flush();

        StringBuilder kept = new StringBuilder();
        for (AbortedTxn each : to.txnIndex().allAbortedTxns())
            kept.append(kept.isEmpty() ? "" : ",").append(each.producerId()).append(':').append(each.firstOffset())
                .append(':').append(each.lastOffset());
        String cleaned = HexFormat.of().formatHex(
            Files.readAllBytes(new File(directory, "00000000000000000000.log.cleaned").toPath()));
        from.close();
        to.close();
        return (cleaned.isEmpty() ? "-" : cleaned) + " " + (map.latestOffset() + 1) + " "
            + (kept.isEmpty() ? "-" : kept);
    }

    static List<long[]> numbers(String word) {
        List<long[]> found = new ArrayList<>();
        if (!word.equals("-"))
            for (String each : word.split(",")) {
                String[] parts = each.split(":");
                found.add(new long[] {Long.parseLong(parts[0]), Long.parseLong(parts[1]), Long.parseLong(parts[2])});
            }
        return found;
    }

    static void call(Cleaner cleaner, String name, Object... arguments) throws Exception {
        for (Method method : Cleaner.class.getDeclaredMethods())
            if (method.getName().equals(name)) {
                method.setAccessible(true);
                method.invoke(cleaner, arguments);
                return;
            }
        throw new NoSuchMethodException(name);
    }
}
