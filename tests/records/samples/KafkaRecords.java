// Apache Kafka's own code as an oracle for batches. Run with Kafka's jars on the class path:
//   java -cp '<kafka>/libs/*' KafkaRecords.java write          prints one sample a line (see kafka.jsonl)
//   java -cp '<kafka>/libs/*' KafkaRecords.java read           reads hexadecimal batches, one a line, from standard
//                                                              input and prints what Kafka sees in each
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.Utils;

public class KafkaRecords {
    static final long NOW = 1700000000000L;

    public static void main(String[] args) throws Exception {
        if (args[0].equals("write")) {
            write();
            return;
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine())
            System.out.println(describe("read", ByteBuffer.wrap(HexFormat.of().parseHex(line))));
    }

    static void write() throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            for (TimestampType type : List.of(TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME))
                print("v2-" + codec + "-" + type.name, build((byte) 2, codec, type, varied(true)));
            if (!codec.equals("none"))
                print("v2-" + codec + "-large", build((byte) 2, codec, TimestampType.CREATE_TIME, large()));
            if (codec.equals("zstd"))
                continue;
            for (byte magic = 0; magic < 2; magic++)
                print("v" + magic + "-" + codec, build(magic, codec, TimestampType.CREATE_TIME, varied(false)));
            print("v1-" + codec + "-append", build((byte) 1, codec, TimestampType.LOG_APPEND_TIME, varied(false)));
        }
        SimpleRecord[] some = varied(true);
        print("v2-idempotent", MemoryRecords.withIdempotentRecords(
            (byte) 2, 77L, Compression.NONE, 4711L, (short) 3, Integer.MAX_VALUE - 1, 5, some).buffer());
        print("v2-transactional", MemoryRecords.withTransactionalRecords(
            (byte) 2, 99L, Compression.of("zstd").build(), 4711L, (short) 3, 0, 5, some).buffer());
        for (ControlRecordType type : List.of(ControlRecordType.COMMIT, ControlRecordType.ABORT))
            print("v2-marker-" + type.name().toLowerCase(), MemoryRecords.withEndTransactionMarker(
                123L, NOW, 6, 4711L, (short) 3, new EndTransactionMarker(type, 42)).buffer());
        print("v2-leader-change", MemoryRecords.withLeaderChangeMessage(
            7L, NOW, 9, ByteBuffer.allocate(256), new LeaderChangeMessage().setLeaderId(1)).buffer());
        print("v2-compacted", compacted());
    }

    /** Null, empty and full keys, values and headers; timestamps that go back. */
    static SimpleRecord[] varied(boolean headers) {
        Header[] none = {};
        Header[] some = {
            new RecordHeader("plain", bytes("text")), new RecordHeader("", new byte[0]),
            new RecordHeader("null", null), new RecordHeader("größe", bytes("ü")),
            new RecordHeader("plain", bytes("again")),
        };
        return new SimpleRecord[] {
            new SimpleRecord(NOW, bytes("key"), bytes("value"), headers ? some : none),
            new SimpleRecord(NOW + 3600_000, null, bytes("no key"), none),
            new SimpleRecord(NOW - 1, bytes("tombstone"), null, none),
            new SimpleRecord(NOW - 86400_000, new byte[0], new byte[0], headers ? new Header[] {some[2]} : none),
            new SimpleRecord(0, (byte[]) null, null, none),
            new SimpleRecord(NOW, bytes("long"), bytes("Gehilfe ".repeat(60)), none),
        };
    }

    /** More than one block or chunk of every codec. */
    static SimpleRecord[] large() {
        byte[] noise = new byte[300];
        new Random(1).nextBytes(noise);
        return new SimpleRecord[] {
            new SimpleRecord(NOW, bytes("k"), bytes("abcdefghijklmnop".repeat(12_000))),
            new SimpleRecord(NOW + 1, null, noise),
        };
    }

    static ByteBuffer build(byte magic, String codec, TimestampType type, SimpleRecord... records) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(512 * 1024), magic, Compression.of(codec).build(), type, 1000L, NOW + 5);
        for (SimpleRecord record : records)
            builder.append(record);
        return builder.build().buffer();
    }

    /** One batch with gaps, one without records but kept for its producer, one whose tombstone has a delete horizon. */
    static ByteBuffer compacted() {
        ByteBuffer from = ByteBuffer.allocate(64 * 1024);
        from.put(MemoryRecords.withRecords(10L, Compression.of("lz4").build(), 2, varied(true)).buffer());
        from.put(MemoryRecords.withIdempotentRecords(
            (byte) 2, 20L, Compression.of("gzip").build(), 4711L, (short) 3, 8, 2,
            new SimpleRecord(NOW, bytes("gone"), bytes("gone"))).buffer());
        from.flip();
        ByteBuffer to = ByteBuffer.allocate(64 * 1024);
        MemoryRecords.readableRecords(from).filterTo(new MemoryRecords.RecordFilter(NOW, 86400_000) {
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(BatchRetention.RETAIN_EMPTY, false);
            }
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                return record.offset() == 11 || record.offset() == 12 || record.offset() == 14;
            }
        }, to, BufferSupplier.NO_CACHING);
        to.flip();
        return to;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static void print(String name, ByteBuffer data) throws Exception {
        System.out.println(describe(name, data));
    }

    static String describe(String name, ByteBuffer data) throws Exception {
        byte[] raw = new byte[data.remaining()];
        data.duplicate().get(raw);
        List<String> batches = new ArrayList<>();
        for (RecordBatch batch : MemoryRecords.readableRecords(data).batches()) {
            batch.ensureValid();
            List<String> records = new ArrayList<>();
            for (Record record : batch) {
                List<String> headers = new ArrayList<>();
                for (Header header : record.headers())
                    headers.add("[" + quoted(header.key()) + "," + shown(header.value()) + "]");
                records.add("{\"offset\":" + record.offset() + ",\"timestamp_ms\":" + record.timestamp()
                    + ",\"key\":" + shown(record.hasKey() ? Utils.toArray(record.key()) : null)
                    + ",\"value\":" + shown(record.hasValue() ? Utils.toArray(record.value()) : null)
                    + ",\"headers\":[" + String.join(",", headers) + "]}");
            }
            boolean modern = batch.magic() == 2;
            batches.add("{\"magic\":" + batch.magic() + ",\"codec\":" + batch.compressionType().id
                + ",\"timestamp_type\":" + batch.timestampType().id + ",\"last_offset\":" + batch.lastOffset()
                + ",\"leader_epoch\":" + batch.partitionLeaderEpoch() + ",\"max_timestamp_ms\":" + batch.maxTimestamp()
                + ",\"producer_id\":" + batch.producerId() + ",\"producer_epoch\":" + batch.producerEpoch()
                + ",\"base_sequence\":" + batch.baseSequence()
                + ",\"last_sequence\":" + (modern ? batch.lastSequence() : -1)
                + ",\"transactional\":" + batch.isTransactional() + ",\"control\":" + batch.isControlBatch()
                + ",\"delete_horizon_ms\":"
                + (batch.deleteHorizonMs().isPresent() ? batch.deleteHorizonMs().getAsLong() : null)
                + ",\"records\":[" + String.join(",", records) + "]}");
        }
        return "{\"name\":" + quoted(name) + ",\"hex\":\"" + (name.equals("read") ? "" : HexFormat.of().formatHex(raw))
            + "\",\"batches\":[" + String.join(",", batches) + "]}";
    }

    static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
    }

    /** Bytes as hexadecimal digits; long ones as their digest. */
    static String shown(byte[] data) throws Exception {
        if (data == null)
            return "null";
        if (data.length > 1000)
            return quoted("sha256:" + HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data)));
        return quoted(HexFormat.of().formatHex(data));
    }
}
