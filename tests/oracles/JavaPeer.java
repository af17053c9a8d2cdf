import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Java's clients, to be played with from outside: every line of input is a command in JSON, answered by one line. Bytes
 * travel in base64.
 */
public final class JavaPeer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(50);
    private static final long PATIENCE_MS = 60_000;
    /** Larger values are told by their digest. */
    private static final int TOLD_BYTES = 50_000;
    private static final Map<String, Member> members = new HashMap<>();
    private static final Map<String, KafkaProducer<byte[], byte[]>> transactional = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("answer", answered(JSON.readTree(line)));
            } catch (Throwable failure) {
                StringWriter trace = new StringWriter();
                failure.printStackTrace(new PrintWriter(trace));
                answer.put("error", trace.toString());
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        System.exit(0);
    }

    private static Object answered(JsonNode command) throws Exception {
        return switch (command.get("do").asText()) {
            case "produce" -> produce(command);
            case "transact" -> transact(command);
            case "transaction" -> step(command);
            case "read" -> read(command);
            case "resume" -> resume(command);
            case "join" -> {
                members.put(command.get("name").asText(), new Member(command));
                yield true;
            }
            case "state" -> members.get(command.get("name").asText()).state();
            case "leave" -> members.remove(command.get("name").asText()).leave();
            default -> throw new IllegalArgumentException(command.toString());
        };
    }

    private static KafkaProducer<byte[], byte[]> producer(JsonNode command) {
        Map<String, Object> settings = settings(command);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static KafkaConsumer<byte[], byte[]> consumer(JsonNode command) {
        Map<String, Object> settings = new HashMap<>(Map.of("auto.offset.reset", "earliest",
                "enable.auto.commit", "false", "fetch.max.wait.ms", "100", "session.timeout.ms", "10000",
                "heartbeat.interval.ms", "200", "metadata.max.age.ms", "500"));
        settings.putAll(settings(command));
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static Map<String, Object> settings(JsonNode command) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", command.get("bootstrap").asText()));
        command.path("settings").properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
        return settings;
    }

    // Producing

    /** Answers with partition and offset of each record. */
    private static Object produce(JsonNode command) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(command)) {
            return sent(producer, command);
        }
    }

    private static List<List<Object>> sent(KafkaProducer<byte[], byte[]> producer, JsonNode command) throws Exception {
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        for (JsonNode each : command.get("records")) {
            Integer partition = each.path("partition").isNumber() ? each.get("partition").asInt() : null;
            Long timestamp = each.path("timestamp").isNumber() ? each.get("timestamp").asLong() : null;
            var record = new ProducerRecord<>(command.get("topic").asText(), partition, timestamp,
                    bytes(each.path("key")), bytes(each.path("value")));
            for (JsonNode header : each.path("headers"))
                record.headers().add(header.get(0).asText(), bytes(header.get(1)));
            futures.add(producer.send(record));
        }
        List<List<Object>> told = new ArrayList<>();
        for (Future<RecordMetadata> each : futures)
            told.add(List.of(each.get().partition(), each.get().offset()));
        return told;
    }

    /** One transaction, which ends as it is told. */
    private static Object transact(JsonNode command) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(command)) {
            producer.initTransactions();
            producer.beginTransaction();
            List<List<Object>> told = sent(producer, command);
            if (command.get("commit").asBoolean()) producer.commitTransaction();
            else producer.abortTransaction();
            return told;
        }
    }

    /**
     * One step of a transaction of a producer that has a name: "init", "begin", "send", "offsets", "commit", "abort" or
     * "close". Answers with the exception that it ended with, if it did.
     */
    private static Object step(JsonNode command) throws Exception {
        String name = command.get("name").asText();
        KafkaProducer<byte[], byte[]> producer =
                transactional.computeIfAbsent(name, each -> producer(command));
        try {
            switch (command.get("step").asText()) {
                case "init" -> producer.initTransactions();
                case "begin" -> producer.beginTransaction();
                case "send" -> sent(producer, command);
                case "offsets" -> producer.sendOffsetsToTransaction(Map.of(
                        new TopicPartition(command.get("topic").asText(), command.get("partition").asInt()),
                        new OffsetAndMetadata(command.get("offset").asLong())),
                        new ConsumerGroupMetadata(command.get("group").asText()));
                case "commit" -> producer.commitTransaction();
                case "abort" -> producer.abortTransaction();
                case "close" -> transactional.remove(name).close(Duration.ofSeconds(5));
                default -> throw new IllegalArgumentException(command.toString());
            }
            return null;
        } catch (KafkaException | ExecutionException failure) {
            Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
            // Whoever is not told at once is told with the next call, as the cause of it.
            if (cause.getClass() == KafkaException.class && cause.getCause() != null) cause = cause.getCause();
            return cause.getClass().getSimpleName() + ": " + cause.getMessage();
        }
    }

    // Consuming

    /** All partitions from the beginning, without a group. */
    private static Object read(JsonNode command) {
        String topic = command.get("topic").asText();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(command)) {
            consumer.assign(IntStream.range(0, command.get("partitions").asInt())
                    .mapToObj(number -> new TopicPartition(topic, number)).toList());
            return polled(consumer, command.get("count").asInt()).stream().map(JavaPeer::told).toList();
        }
    }

    /** The next records for a group, which are committed. */
    private static Object resume(JsonNode command) {
        int count = command.get("count").asInt();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(command)) {
            consumer.subscribe(List.of(command.get("topic").asText()));
            List<ConsumerRecord<byte[], byte[]>> records = polled(consumer, count).subList(0, count);
            ConsumerRecord<byte[], byte[]> last = records.get(count - 1);
            consumer.commitSync(Map.of(new TopicPartition(last.topic(), last.partition()),
                    new OffsetAndMetadata(last.offset() + 1, last.leaderEpoch(), "by Java")));
            return records.stream().map(JavaPeer::told).toList();
        }
    }

    private static List<ConsumerRecord<byte[], byte[]>> polled(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long deadline = System.nanoTime() + PATIENCE_MS * 1_000_000;
        while (records.size() < count) {
            if (System.nanoTime() > deadline)
                throw new IllegalStateException(records.size() + " of " + count + " records came");
            consumer.poll(POLL).forEach(records::add);
        }
        return records;
    }

    private static Map<String, Object> told(ConsumerRecord<byte[], byte[]> record) {
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("partition", record.partition());
        told.put("offset", record.offset());
        told.put("timestamp", record.timestamp());
        told.put("timestamp_type", record.timestampType().name());
        told.put("key", text(record.key()));
        told.put("value", text(record.value()));
        List<List<String>> headers = new ArrayList<>();
        for (Header each : record.headers()) {
            List<String> pair = new ArrayList<>();
            pair.add(each.key());
            pair.add(text(each.value()));
            headers.add(pair);
        }
        told.put("headers", headers);
        return told;
    }

    /** A consumer in a group, with a thread of its own. */
    private static final class Member implements Runnable {
        final KafkaConsumer<byte[], byte[]> consumer;
        final Thread thread = new Thread(this);
        final List<List<Object>> read = new ArrayList<>();
        List<Integer> assigned = List.of();
        String failure;
        volatile boolean leaving;

        Member(JsonNode command) {
            consumer = consumer(command);
            consumer.subscribe(List.of(command.get("topic").asText()));
            thread.start();
        }

        @Override public void run() {
            try (consumer) {
                while (!leaving) {
                    var records = consumer.poll(POLL);
                    synchronized (this) {
                        assigned = consumer.assignment().stream().map(TopicPartition::partition).sorted().toList();
                        records.forEach(each -> read.add(List.of(each.partition(), each.offset(),
                                Integer.parseInt(new String(each.value(), StandardCharsets.UTF_8)))));
                    }
                }
            } catch (Throwable thrown) {
                synchronized (this) {
                    failure = thrown.toString();
                }
            }
        }

        /** Its partitions, and what it has read since this was asked last. */
        synchronized Map<String, Object> state() {
            Map<String, Object> state = new LinkedHashMap<>();
            state.put("assigned", assigned);
            state.put("read", List.copyOf(read));
            state.put("failure", failure);
            read.clear();
            return state;
        }

        Map<String, Object> leave() throws InterruptedException {
            leaving = true;
            thread.join(PATIENCE_MS);
            return state();
        }
    }

    // Bytes

    private static byte[] bytes(JsonNode node) {
        return node.isTextual() ? Base64.getDecoder().decode(node.asText()) : null;
    }

    private static String text(byte[] bytes) {
        if (bytes == null) return null;
        try {
            byte[] told = bytes.length <= TOLD_BYTES ? bytes : MessageDigest.getInstance("SHA-256").digest(bytes);
            return Base64.getEncoder().encodeToString(told);
        } catch (java.security.NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
