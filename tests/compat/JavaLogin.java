import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Reads settings of clients, one set after the other with a line of dashes between them, each with a `topic`. With each it
 * sends a record and reads it again. Prints a line for each: what it read, or what went wrong.
 */
public final class JavaLogin {
    public static void main(String[] arguments) throws Exception {
        String text = new String(System.in.readAllBytes(), StandardCharsets.UTF_8);
        for (String part : text.split("\n----\n")) {
            Properties given = new Properties();
            given.load(new StringReader(part));
            try {
                System.out.println(sentAndRead(given));
            } catch (Exception problem) {
                System.out.println(problem);
            }
        }
    }

    private static String sentAndRead(Properties given) throws Exception {
        String topic = given.remove("topic").toString();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(given, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, "from java")).get();
        }
        given.put("group.id", topic);
        given.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(given, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            for (int look = 0; look < 60; look++) {
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(500))) {
                    return each.value();
                }
            }
        }
        return "nothing";
    }
}
