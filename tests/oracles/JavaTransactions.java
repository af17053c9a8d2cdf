// Java's producer and consumer in transactions: bootstrap servers, a topic of three partitions, a prefix of ids.
// Prints one line for each fact: a name, a tab, a value.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

@SuppressWarnings("removal")
public class JavaTransactions {
    static String bootstrap;
    static String topic;

    static void tell(String name, Object value) {
        System.out.println(name + "\t" + value);
    }

    static KafkaProducer<String, String> producer(String id) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("linger.ms", 0);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String group) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", false);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    static List<TopicPartition> partitions() {
        List<TopicPartition> all = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            all.add(new TopicPartition(topic, number));
        }
        return all;
    }

    static void transactions(String id, String group) {
        TopicPartition read = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = producer(id)) {
            producer.initTransactions();
            for (int number = 0; number < 20; number++) {
                producer.beginTransaction();
                for (int each = 0; each < 6; each++) {
                    producer.send(new ProducerRecord<>(topic, each % 3, "k", id + " " + number + " " + each));
                }
                producer.sendOffsetsToTransaction(
                    Map.of(read, new OffsetAndMetadata(number)), new ConsumerGroupMetadata(group));
                if (number % 2 == 1) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
            producer.beginTransaction();
            producer.commitTransaction();
        }
    }

    static void fencing(String id) {
        try (KafkaProducer<String, String> old = producer(id); KafkaProducer<String, String> other = producer(id)) {
            old.initTransactions();
            old.beginTransaction();
            old.send(new ProducerRecord<>(topic, 0, "k", "of the fenced"));
            old.flush();
            other.initTransactions();
            try {
                old.send(new ProducerRecord<>(topic, 1, "k", "of the fenced"));
                old.commitTransaction();
                tell("fenced", "no");
            } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
                tell("fenced", "yes");
            }
            other.beginTransaction();
            other.send(new ProducerRecord<>(topic, 0, "k", "of the other"));
            other.commitTransaction();
        }
    }

    public static void main(String[] arguments) {
        bootstrap = arguments[0];
        topic = arguments[1];
        String id = arguments[2];
        transactions(id, id + "-group");
        fencing(id + "-fenced");
        try (KafkaConsumer<String, String> consumer = consumer(id + "-group")) {
            consumer.assign(partitions());
            consumer.seekToBeginning(partitions());
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions());
            Set<Integer> seen = new TreeSet<>();
            int count = 0;
            int odd = 0;
            while (partitions().stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    if (record.value().startsWith(id + " ")) {
                        seen.add(Integer.parseInt(record.value().split(" ")[1]));
                        count++;
                    } else if (record.value().startsWith("of ")) {
                        odd += record.value().equals("of the other") ? 1 : 100;
                    }
                }
            }
            tell("count", count);
            tell("seen", seen);
            tell("after fencing", odd);
            TopicPartition read = new TopicPartition(topic, 0);
            tell("offset", consumer.committed(Set.of(read)).get(read).offset());
        }
    }
}
