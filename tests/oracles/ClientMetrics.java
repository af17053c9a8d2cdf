import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.stats.Avg;
import org.apache.kafka.common.metrics.stats.CumulativeCount;
import org.apache.kafka.common.metrics.stats.CumulativeSum;
import org.apache.kafka.common.metrics.stats.Max;
import org.apache.kafka.common.metrics.stats.Min;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.WindowedCount;

/**
 * Kafka's metrics. `ClientMetrics stats` measures stories from the standard input, one in a line: samples, window, time of
 * reading, and then pairs of time and value; it prints average, largest, smallest, rate, rate of recordings, sum, count.
 * `ClientMetrics names BOOTSTRAP LEVEL` lets each kind of client work and prints what metrics it has.
 */
public final class ClientMetrics {
    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("stats")) {
            Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
            while (lines.hasNextLine()) {
                System.out.println(measure(lines.nextLine().split(" ")));
            }
        } else {
            names(arguments[1], arguments[2]);
        }
    }

    private static String measure(String[] story) {
        MetricConfig config = new MetricConfig()
            .samples(Integer.parseInt(story[0]))
            .timeWindow(Long.parseLong(story[1]), TimeUnit.MILLISECONDS);
        long readAt = Long.parseLong(story[2]);
        List<MeasurableStat> stats = List.of(
            new Avg(), new Max(), new Min(), new Rate(), new Rate(new WindowedCount()), new CumulativeSum(),
            new CumulativeCount());
        for (int at = 3; at < story.length; at += 2) {
            long now = Long.parseLong(story[at]);
            double value = Double.parseDouble(story[at + 1]);
            stats.forEach(stat -> stat.record(config, value, now));
        }
        return stats.stream().map(stat -> "" + stat.measure(config, readAt)).collect(Collectors.joining(" "));
    }

    private static void names(String bootstrap, String level) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", "me");
        settings.put("enable.metrics.push", "false");
        settings.put("metrics.recording.level", level);
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic("t", 1, (short) 1))).all().get();
            print("admin", admin.metrics());
        }
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.send(new ProducerRecord<>("t", "key", "value")).get();
            print("producer", producer.metrics());
        }
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("group.id", "g");
        settings.put("group.protocol", "classic");
        settings.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of("t"));
            int records = 0;
            for (int polls = 0; polls < 200 && records == 0; polls++) {
                records += consumer.poll(Duration.ofMillis(100)).count();
            }
            consumer.commitSync();
            print("consumer", consumer.metrics());
        }
    }

    private static void print(String client, Map<MetricName, ? extends Metric> metrics) {
        TreeSet<String> lines = new TreeSet<>();
        for (MetricName name : metrics.keySet()) {
            TreeSet<String> tags = new TreeSet<>(name.tags().keySet());
            tags.remove("client-id");
            lines.add(client + " " + name.group() + " " + name.name() + " " + String.join(",", tags));
        }
        lines.forEach(System.out::println);
    }
}
