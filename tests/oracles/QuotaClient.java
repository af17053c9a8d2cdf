import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A client that does as much as it may, and tells how much that was in bytes in each second, and errors. */
public class QuotaClient {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String mode = arguments[1];
        String clientId = arguments[2];
        int seconds = Integer.parseInt(arguments[3]);
        long beganMs = System.currentTimeMillis();
        AtomicLong[] done = new AtomicLong[seconds];
        for (int i = 0; i < seconds; i++) {
            done[i] = new AtomicLong();
        }
        AtomicLong errors = new AtomicLong();
        Map<String, Object> common = Map.of("bootstrap.servers", bootstrap, "client.id", clientId);
        if (mode.equals("produce")) {
            produce(common, beganMs, done, errors);
        } else {
            fetch(common, beganMs, done);
        }
        StringBuilder told = new StringBuilder();
        for (AtomicLong each : done) {
            told.append(each.get()).append(' ');
        }
        System.out.println(told + "errors " + errors.get());
        Runtime.getRuntime().halt(0);
    }

    private static void add(long beganMs, AtomicLong[] done, long value) {
        int second = (int) ((System.currentTimeMillis() - beganMs) / 1000);
        if (second < done.length) {
            done[second].addAndGet(value);
        }
    }

    private static boolean goesOn(long beganMs, AtomicLong[] done) {
        return System.currentTimeMillis() - beganMs < done.length * 1000L;
    }

    private static void produce(Map<String, Object> common, long beganMs, AtomicLong[] done, AtomicLong errors) {
        Map<String, Object> settings = new java.util.HashMap<>(common);
        settings.put("buffer.memory", 262144);
        settings.put("max.block.ms", 60000);
        byte[] value = new byte[10000];
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        while (goesOn(beganMs, done)) {
            producer.send(new ProducerRecord<>("quotas", value), (metadata, failure) -> {
                if (failure != null) {
                    errors.incrementAndGet();
                } else {
                    add(beganMs, done, value.length);
                }
            });
        }
    }

    private static void fetch(Map<String, Object> common, long beganMs, AtomicLong[] done) {
        Map<String, Object> settings = new java.util.HashMap<>(common);
        settings.put("max.partition.fetch.bytes", 30000);
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.assign(List.of(new TopicPartition("filled", 0)));
        consumer.seekToBeginning(consumer.assignment());
        while (goesOn(beganMs, done)) {
            for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(200))) {
                add(beganMs, done, each.value().length);
            }
        }
    }
}
