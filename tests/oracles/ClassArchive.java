import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** A broker and its clients in one JVM, which does once what tests do most, so that it has loaded their classes. */
public class ClassArchive {
    public static void main(String[] arguments) throws Exception {
        Thread broker = new Thread(() -> kafka.Kafka.main(new String[] {arguments[0]}));
        broker.setDaemon(true);
        broker.start();
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[1], "group.id", "archive",
                "auto.offset.reset", "earliest");
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic("archive", 1, (short) 1))).all().get(60, TimeUnit.SECONDS);
        }
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("archive", "key", "value")).get(60, TimeUnit.SECONDS);
        }
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("archive"));
            for (int polls = 0; polls < 60 && consumer.poll(Duration.ofSeconds(1)).isEmpty(); polls++) {
            }
        }
        System.exit(0);
    }
}
