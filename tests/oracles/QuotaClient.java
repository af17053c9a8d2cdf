import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * `QuotaClient BOOTSTRAP MODE CLIENT_ID SECONDS DEMAND`: a client that does as much as it may, or wants `DEMAND` a second
 * if that is not 0, and tells how much that was in each second (bytes, requests, partitions or connections), and errors.
 */
public class QuotaClient {
    private static final byte[] VALUE = new byte[5000];
    private static final int PIECE_BYTES = 5120;
    private static final int FETCH_BYTES = 5100;
    private static final int PARTITIONS = 2;

    private final long beganMs = System.currentTimeMillis();
    private final AtomicLong[] done;
    private final AtomicLong errors = new AtomicLong();
    private final Map<String, Object> common;
    private final String clientId;
    private final double demand;

    private QuotaClient(String bootstrap, String clientId, int seconds, double demand) {
        this.common = Map.of("bootstrap.servers", bootstrap, "client.id", clientId);
        this.clientId = clientId;
        this.demand = demand;
        this.done = new AtomicLong[seconds];
        for (int i = 0; i < seconds; i++) {
            done[i] = new AtomicLong();
        }
    }

    public static void main(String[] arguments) throws Exception {
        QuotaClient client = new QuotaClient(
            arguments[0], arguments[2], Integer.parseInt(arguments[3]), Double.parseDouble(arguments[4]));
        switch (arguments[1]) {
            case "produce" -> client.produce();
            case "fetch" -> client.fetch();
            case "request" -> client.request();
            case "mutations" -> client.mutations();
            default -> client.connections();
        }
        StringBuilder told = new StringBuilder();
        for (AtomicLong each : client.done) {
            told.append(each.get()).append(' ');
        }
        System.out.println(told + "errors " + client.errors.get());
        Runtime.getRuntime().halt(0);
    }

    private void add(long value) {
        int second = (int) ((System.currentTimeMillis() - beganMs) / 1000);
        if (second < done.length) {
            done[second].addAndGet(value);
        }
    }

    private boolean goesOn() {
        return System.currentTimeMillis() - beganMs < done.length * 1000L;
    }

    /** Who was made to wait longer by others does not make up for it: that would be a burst. */
    private void pace(long wanted) {
        if (demand > 0) {
            LockSupport.parkNanos((long) (wanted / demand * 1e9));
        }
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(common);
        settings.put("max.block.ms", 60000);
        settings.put("linger.ms", 0);
        settings.putAll(more);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private void produce() {
        KafkaProducer<byte[], byte[]> producer = producer(Map.of("buffer.memory", 65536, "batch.size", 0));
        while (goesOn()) {
            producer.send(new ProducerRecord<>("quotas", VALUE), (metadata, failure) -> {
                if (failure != null) {
                    errors.incrementAndGet();
                } else {
                    add(PIECE_BYTES);
                }
            });
            pace(PIECE_BYTES);
        }
    }

    private void fetch() {
        Map<String, Object> settings = new HashMap<>(common);
        settings.put("max.partition.fetch.bytes", FETCH_BYTES);
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.assign(List.of(new TopicPartition("filled", 0)));
        consumer.seekToBeginning(consumer.assignment());
        while (goesOn()) {
            for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(200))) {
                add(PIECE_BYTES);
                pace(PIECE_BYTES);
            }
        }
    }

    private void request() throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(Map.of());
        while (goesOn()) {
            producer.send(new ProducerRecord<>("quotas", new byte[1])).get();
            add(1);
        }
    }

    private void mutations() throws Exception {
        try (Admin admin = Admin.create(common)) {
            for (int number = 0; goesOn(); number++) {
                String name = clientId + "-" + number;
                admin.createTopics(List.of(new NewTopic(name, PARTITIONS, (short) 1))).all().get();
                add(PARTITIONS);
                admin.deleteTopics(List.of(name)).all().get();
                add(PARTITIONS);
            }
        }
    }

    private void connections() throws Exception {
        while (goesOn()) {
            try (Admin admin = Admin.create(common)) {
                admin.describeCluster().nodes().get();
            }
            add(1);
        }
    }
}
