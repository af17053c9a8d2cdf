import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What Java's clients see of a broker. `JavaClient BOOTSTRAP PREFIX STORY…` plays the stories one after the other and
 * prints a line of JSON for each: what happened, or the error that ended it. Every name that a story creates begins with
 * PREFIX.
 */
public final class JavaClient {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(50);
    private static final long PATIENCE_MS = 20_000;
    private static String bootstrap;
    private static String prefix;
    private static Admin admin;

    private interface Story {
        Object play() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        prefix = arguments[1];
        admin = Admin.create(Map.of(
                "bootstrap.servers", bootstrap, "request.timeout.ms", 10000, "default.api.timeout.ms", 20000));
        Map<String, Story> stories = new LinkedHashMap<>();
        stories.put("admin", JavaClient::adminStory);
        stories.put("errors", JavaClient::errors);
        stories.put("records", JavaClient::records);
        stories.put("many", JavaClient::many);
        stories.put("eager", () -> rebalance("org.apache.kafka.clients.consumer.RangeAssignor"));
        stories.put("cooperative", () -> rebalance("org.apache.kafka.clients.consumer.CooperativeStickyAssignor"));
        stories.put("static", JavaClient::staticMember);
        stories.put("manual", JavaClient::manual);
        stories.put("groups", JavaClient::groups);
        stories.put("unbuilt", JavaClient::unbuilt);
        for (int i = 2; i < arguments.length; i++) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("story", arguments[i]);
            long start = System.nanoTime();
            try {
                line.put("facts", stories.get(arguments[i]).play());
            } catch (Throwable failure) {
                java.io.StringWriter trace = new java.io.StringWriter();
                failure.printStackTrace(new java.io.PrintWriter(trace));
                line.put("error", trace.toString());
            }
            line.put("seconds", (System.nanoTime() - start) / 1e9);
            System.out.println(JSON.writeValueAsString(line));
        }
        admin.close(Duration.ofSeconds(1));
    }

    // Admin

    private static Object adminStory() throws Exception {
        Map<String, Object> facts = new LinkedHashMap<>();
        String topic = prefix + "admin";
        NewTopic wanted = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "123456"));
        admin.createTopics(List.of(wanted), new CreateTopicsOptions().validateOnly(true)).all().get();
        facts.put("listedAfterDryRun", admin.listTopics().names().get().contains(topic));
        var created = admin.createTopics(List.of(wanted));
        created.all().get();
        facts.put("partitionsCreated", created.numPartitions(topic).get());
        facts.put("replicationCreated", created.replicationFactor(topic).get());
        facts.put("retentionCreated", created.config(topic).get().get("retention.ms").value());
        facts.put("listed", admin.listTopics().names().get().contains(topic));
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();

        TopicDescription description = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        facts.put("sameTopicId", description.topicId().equals(created.topicId(topic).get()));
        facts.put("describedById", admin.describeTopics(TopicCollection.ofTopicIds(List.of(description.topicId())))
                .allTopicIds().get().get(description.topicId()).name().equals(topic));
        List<Object> partitions = new ArrayList<>();
        description.partitions().forEach(each -> partitions.add(
                List.of(each.partition(), each.leader().id(), each.replicas().size(), each.isr().size())));
        facts.put("partitions", partitions);

        var cluster = admin.describeCluster();
        facts.put("nodes", cluster.nodes().get().stream().map(each -> each.host() + ":" + each.port()).toList());
        facts.put("controller", cluster.controller().get().id());
        facts.put("clusterIdLength", cluster.clusterId().get().length());

        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        alter(resource, AlterConfigOp.OpType.SET, "max.message.bytes", "2000000");
        alter(resource, AlterConfigOp.OpType.APPEND, "cleanup.policy", "compact");
        facts.put("configsChanged", config(resource, "retention.ms", "cleanup.policy", "max.message.bytes"));
        alter(resource, AlterConfigOp.OpType.SUBTRACT, "cleanup.policy", "delete");
        alter(resource, AlterConfigOp.OpType.DELETE, "retention.ms", null);
        facts.put("configsAgain", config(resource, "retention.ms", "cleanup.policy", "max.message.bytes"));
        String nodeId = String.valueOf(cluster.nodes().get().iterator().next().id());
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, nodeId);
        facts.put("brokerConfigs", config(broker, "node.id", "log.retention.hours", "num.partitions"));
        alter(broker, AlterConfigOp.OpType.SET, "log.retention.ms", "86400000");
        facts.put("brokerConfigChanged", config(broker, "log.retention.ms"));
        facts.put("inherited", config(resource, "retention.ms"));
        alter(broker, AlterConfigOp.OpType.DELETE, "log.retention.ms", null);

        alter(resource, AlterConfigOp.OpType.SET, "cleanup.policy", "delete");
        send(topic, 0, 10);
        facts.put("offsets", List.of(
                offset(topic, OffsetSpec.earliest()), offset(topic, OffsetSpec.latest()),
                offset(topic, OffsetSpec.forTimestamp(1_700_000_004_500L)), offset(topic, OffsetSpec.maxTimestamp()),
                offset(topic, OffsetSpec.forTimestamp(1_800_000_000_000L))));
        TopicPartition first = new TopicPartition(topic, 0);
        var deleted = admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(6)));
        facts.put("lowWatermark", deleted.lowWatermarks().get(first).get().lowWatermark());
        facts.put("earliestAfterDeletion", offset(topic, OffsetSpec.earliest()));
        facts.put("deletedTooFar",
                errorOf(admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(99))).all()));

        var directories = admin.describeLogDirs(List.of(Integer.valueOf(nodeId))).allDescriptions().get()
                .get(Integer.valueOf(nodeId));
        facts.put("logDirectories", directories.size());
        facts.put("replicaHasSize", directories.values().stream()
                .anyMatch(each -> each.replicaInfos().containsKey(first) && each.replicaInfos().get(first).size() > 0));
        var quorum = admin.describeMetadataQuorum().quorumInfo().get();
        facts.put("quorum", List.of(String.valueOf(quorum.leaderId()).equals(nodeId), quorum.voters().size(),
                quorum.observers().size(), quorum.highWatermark() > 0));
        var features = admin.describeFeatures().featureMetadata().get().finalizedFeatures();
        facts.put("metadataVersion", (int) features.get("metadata.version").maxVersionLevel());

        admin.deleteTopics(List.of(topic)).all().get();
        String second = prefix + "admin-2";
        var other = admin.createTopics(List.of(new NewTopic(second, Optional.empty(), Optional.empty())));
        other.all().get();
        admin.deleteTopics(TopicCollection.ofTopicIds(List.of(other.topicId(second).get()))).all().get();
        Set<String> left = admin.listTopics().names().get();
        facts.put("leftAfterDeletion", left.contains(topic) || left.contains(second));
        return facts;
    }

    private static void alter(ConfigResource resource, AlterConfigOp.OpType how, String name, String value)
            throws Exception {
        AlterConfigOp operation = new AlterConfigOp(new ConfigEntry(name, value), how);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(operation))).all().get();
        // What was written is visible once the broker has applied it.
        ConfigEntry.ConfigSource wanted = resource.type() == ConfigResource.Type.BROKER
                ? ConfigEntry.ConfigSource.DYNAMIC_BROKER_CONFIG : ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG;
        until("the change of " + name, () -> {
            ConfigEntry entry = described(resource).get(name);
            boolean isSet = entry.source() == wanted;
            return switch (how) {
                case SET -> isSet && value.equals(entry.value());
                case DELETE -> !isSet;
                case APPEND -> entry.value().contains(value);
                case SUBTRACT -> !entry.value().contains(value);
            };
        });
    }

    private static Config described(ConfigResource resource) {
        try {
            return admin.describeConfigs(List.of(resource)).all().get().get(resource);
        } catch (Exception failure) {
            throw new RuntimeException(failure);
        }
    }

    private static Map<String, Object> config(ConfigResource resource, String... names) {
        var entries = described(resource);
        Map<String, Object> found = new TreeMap<>();
        for (String name : names) {
            ConfigEntry entry = entries.get(name);
            found.put(name, List.of(entry.value(), entry.source().name(), entry.isReadOnly(), entry.type().name()));
        }
        return found;
    }

    private static long offset(String topic, OffsetSpec which) throws Exception {
        TopicPartition first = new TopicPartition(topic, 0);
        return admin.listOffsets(Map.of(first, which)).partitionResult(first).get().offset();
    }

    private static Object errors() throws Exception {
        Map<String, Object> facts = new LinkedHashMap<>();
        String topic = prefix + "errors";
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        facts.put("exists", createError(new NewTopic(topic, 1, (short) 1)));
        facts.put("badName", createError(new NewTopic("no spaces", 1, (short) 1)));
        facts.put("tooManyReplicas", createError(new NewTopic(prefix + "x", 1, (short) 9)));
        facts.put("noPartitions", createError(new NewTopic(prefix + "x", 0, (short) 1)));
        facts.put("badConfig",
                createError(new NewTopic(prefix + "x", 1, (short) 1).configs(Map.of("retention.ms", "soon"))));
        facts.put("unknownConfig",
                createError(new NewTopic(prefix + "x", 1, (short) 1).configs(Map.of("no.such", "1"))));
        facts.put("unknownBroker", createError(new NewTopic(prefix + "x", Map.of(0, List.of(77)))));
        facts.put("assigned", createError(new NewTopic(prefix + "assigned", Map.of(0, List.of(brokerId())))));
        facts.put("describeUnknown", errorOf(admin.describeTopics(List.of(prefix + "none")).allTopicNames()));
        facts.put("deleteUnknown", errorOf(admin.deleteTopics(List.of(prefix + "none")).all()));
        facts.put("fewerPartitions",
                errorOf(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(1))).all()));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        AlterConfigOp bad = new AlterConfigOp(new ConfigEntry("segment.bytes", "-1"), AlterConfigOp.OpType.SET);
        facts.put("badAlteration", errorOf(admin.incrementalAlterConfigs(Map.of(resource, List.of(bad))).all()));
        facts.put("deleteUnknownGroup", errorOf(admin.deleteConsumerGroups(List.of(prefix + "none")).all()));
        facts.put("unknownPartition", errorOf(admin.listOffsets(Map.of(new TopicPartition(topic, 7),
                OffsetSpec.latest()), new ListOffsetsOptions().timeoutMs(1000)).all()));
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("max.request.size", 2_000_000))) {
            facts.put("tooLarge", errorOf(producer.send(new ProducerRecord<>(topic, new byte[1_100_000]))));
            facts.put("goesOn", errorOf(producer.send(new ProducerRecord<>(topic, new byte[10]))));
        }
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("max.block.ms", 1000))) {
            facts.put("unknownProducePartition",
                    errorOf(producer.send(new ProducerRecord<>(topic, 5, null, new byte[10]))));
            facts.put("badTopicName", errorOf(producer.send(new ProducerRecord<>("no spaces", new byte[10]))));
        }
        return facts;
    }

    private static int brokerId() throws Exception {
        return admin.describeCluster().nodes().get().iterator().next().id();
    }

    private static String createError(NewTopic topic) {
        return errorOf(admin.createTopics(List.of(topic)).all());
    }

    // What a cluster may not have

    private static Object unbuilt() throws Exception {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("acls", errorOf(admin.describeAcls(AclBindingFilter.ANY).values()));
        facts.put("tokens", errorOf(admin.describeDelegationToken().delegationTokens()));
        facts.put("moves", admin.listPartitionReassignments().reassignments().get().size());
        facts.put("unknownBroker", errorOf(admin.unregisterBroker(77).all()));
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("transactional.id", prefix + "transactional"))) {
            producer.initTransactions();
            facts.put("transactions", "are there");
        } catch (KafkaException failure) {
            facts.put("transactions", failure.getMessage());
        }
        return facts;
    }

    private static String errorOf(Future<?> future) {
        try {
            future.get();
            return null;
        } catch (ExecutionException failure) {
            return failure.getCause().getClass().getSimpleName();
        } catch (InterruptedException failure) {
            throw new IllegalStateException(failure);
        }
    }

    // Records

    private static KafkaProducer<byte[], byte[]> producer(Map<String, Object> settings) {
        Map<String, Object> all = new LinkedHashMap<>(Map.of("bootstrap.servers", bootstrap));
        all.putAll(settings);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> settings) {
        Map<String, Object> all = new LinkedHashMap<>(Map.of("bootstrap.servers", bootstrap,
                "auto.offset.reset", "earliest", "enable.auto.commit", false, "fetch.max.wait.ms", 100,
                "session.timeout.ms", 10000, "heartbeat.interval.ms", 200));
        all.putAll(settings);
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Ten and more records with the numbers as values, a second apart, into one partition. */
    private static void send(String topic, int from, int to) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = from; i < to; i++) {
                long time = 1_700_000_000_000L + i * 1000;
                sent.add(producer.send(new ProducerRecord<>(topic, 0, time, null, bytes(String.valueOf(i)))));
            }
            for (Future<RecordMetadata> each : sent) each.get();
        }
    }

    private static Object records() throws Exception {
        Map<String, Object> facts = new TreeMap<>();
        byte[] big = new byte[900_000];
        new java.util.Random(1).nextBytes(big);
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String topic = prefix + "records-" + codec;
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            List<Object> acknowledged = new ArrayList<>();
            try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("compression.type", codec))) {
                List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
                records.add(new ProducerRecord<>(topic, 0, 1_700_000_000_123L, bytes("k"), bytes("plain")));
                ProducerRecord<byte[], byte[]> headers = new ProducerRecord<>(topic, bytes("with headers"));
                headers.headers().add("one", bytes("eins")).add("none", null).add("one", bytes("zwei")).add("", bytes(""));
                records.add(headers);
                records.add(new ProducerRecord<>(topic, bytes("tombstone"), null));
                records.add(new ProducerRecord<>(topic, bytes(""), bytes("")));
                records.add(new ProducerRecord<>(topic, bytes("big"), big));
                List<Future<RecordMetadata>> sent = new ArrayList<>();
                for (ProducerRecord<byte[], byte[]> each : records) sent.add(producer.send(each));
                for (Future<RecordMetadata> each : sent) {
                    RecordMetadata told = each.get();
                    acknowledged.add(List.of(told.partition(), told.offset()));
                }
            }
            List<Object> read = new ArrayList<>();
            for (ConsumerRecord<byte[], byte[]> each : readAll(topic, 5)) {
                List<Object> headers = new ArrayList<>();
                for (Header header : each.headers()) {
                    List<Object> pair = new ArrayList<>();
                    pair.add(header.key());
                    pair.add(text(header.value()));
                    headers.add(pair);
                }
                List<Object> record = new ArrayList<>();
                record.add(each.offset());
                record.add(text(each.key()));
                boolean isBig = each.value() != null && each.value().length == big.length;
                record.add(isBig ? String.valueOf(java.util.Arrays.equals(big, each.value())) : text(each.value()));
                record.add(headers);
                record.add(each.timestampType().name());
                record.add(each.timestamp());
                read.add(record);
            }
            facts.put(codec, Map.of("acknowledged", acknowledged, "read", read));
        }
        return facts;
    }

    /** Many records over several partitions with acks of every kind; idempotent where the acks allow it. */
    private static Object many() throws Exception {
        Map<String, Object> facts = new LinkedHashMap<>();
        for (String acks : List.of("0", "1", "all")) {
            String topic = prefix + "many-" + acks;
            admin.createTopics(List.of(new NewTopic(topic, 3, (short) 1))).all().get();
            Map<String, Object> settings = Map.of("acks", acks, "enable.idempotence", acks.equals("all"),
                    "batch.size", 500, "linger.ms", 0);
            int count = 3000;
            try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
                for (int i = 0; i < count; i++)
                    producer.send(new ProducerRecord<>(topic, bytes("k" + i % 11), bytes(String.valueOf(i))));
                producer.flush();
            }
            Map<String, Integer> last = new TreeMap<>();
            boolean ordered = true;
            Set<Integer> distinct = new TreeSet<>();
            List<ConsumerRecord<byte[], byte[]>> read = readAll(topic, count);
            for (ConsumerRecord<byte[], byte[]> each : read) {
                int number = Integer.parseInt(text(each.value()));
                Integer before = last.put(text(each.key()), number);
                ordered &= before == null || before < number;
                distinct.add(number);
            }
            facts.put(acks, List.of(read.size(), distinct.size(), ordered));
        }
        return facts;
    }

    private static List<ConsumerRecord<byte[], byte[]>> readAll(String topic, int count) {
        List<ConsumerRecord<byte[], byte[]>> read = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            consumer.assign(consumer.partitionsFor(topic).stream()
                    .map(each -> new TopicPartition(topic, each.partition())).toList());
            consumer.seekToBeginning(consumer.assignment());
            until(count + " records of " + topic, () -> {
                consumer.poll(POLL).forEach(read::add);
                return read.size() >= count;
            });
        }
        return read;
    }

    // Groups

    /** A consumer with what it was told by its group. */
    private static final class Member implements ConsumerRebalanceListener {
        final KafkaConsumer<byte[], byte[]> consumer;
        final List<String> read = new ArrayList<>();
        final List<Integer> revoked = new ArrayList<>();
        int assignments;

        Member(String topic, Map<String, Object> settings) {
            consumer = consumer(settings);
            consumer.subscribe(List.of(topic), this);
        }

        @Override public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            assignments++;
        }

        @Override public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            revoked.add(partitions.size());
            consumer.commitSync();
        }

        void poll() {
            consumer.poll(POLL).forEach(each -> read.add(text(each.value())));
        }

        /** Without a word to the group, of which it may be no member any more. */
        void abandon() {
            thrownBy(() -> consumer.close(CloseOptions.timeout(Duration.ZERO)));
        }

        int owned() {
            return consumer.assignment().size();
        }
    }

    /** Two members share four partitions; one leaves, the other takes over; nothing is lost or repeated. */
    private static Object rebalance(String assignor) throws Exception {
        String name = assignor.substring(assignor.lastIndexOf('.') + 1);
        String topic = prefix + name;
        Map<String, Object> settings =
                Map.of("group.id", topic, "partition.assignment.strategy", assignor, "client.id", "one");
        admin.createTopics(List.of(new NewTopic(topic, 4, (short) 1))).all().get();
        Map<String, Object> facts = new LinkedHashMap<>();
        Member one = new Member(topic, settings);
        until("one owns all", () -> {
            one.poll();
            return one.owned() == 4;
        });
        sendSpread(topic, 0, 100);
        until("the first hundred", () -> {
            one.poll();
            return one.read.size() == 100;
        });
        Member two = new Member(topic, settings);
        until("two share", () -> {
            one.poll();
            two.poll();
            return one.owned() == 2 && two.owned() == 2;
        });
        facts.put("revoked", List.copyOf(one.revoked));
        ConsumerGroupDescription group = admin.describeConsumerGroups(List.of(topic)).all().get().get(topic);
        facts.put("state", group.groupState().toString());
        facts.put("assignor", group.partitionAssignor());
        facts.put("members", group.members().stream().map(each -> each.assignment().topicPartitions().size()).toList());
        facts.put("deletion", errorOf(admin.deleteConsumerGroups(List.of(topic)).all()));
        sendSpread(topic, 100, 200);
        until("the second hundred", () -> {
            one.poll();
            two.poll();
            return one.read.size() + two.read.size() == 200;
        });
        one.consumer.close();
        sendSpread(topic, 200, 300);
        until("two takes over", () -> {
            two.poll();
            return two.owned() == 4 && one.read.size() + two.read.size() == 300;
        });
        two.consumer.close();
        Set<String> all = new TreeSet<>(one.read);
        all.addAll(two.read);
        facts.put("distinct", all.size());
        facts.put("count", one.read.size() + two.read.size());
        return facts;
    }

    private static void sendSpread(String topic, int from, int to) {
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            for (int i = from; i < to; i++)
                producer.send(new ProducerRecord<>(topic, i % 4, null, bytes(String.valueOf(i))));
        }
    }

    /** A static member that comes back keeps its partitions, and the other one hears nothing of it. */
    private static Object staticMember() throws Exception {
        String topic = prefix + "static";
        admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get();
        Map<String, Object> settings = Map.of("group.id", topic, "group.instance.id", "instance-1");
        Member one = new Member(topic, settings);
        Member other = new Member(topic, Map.of("group.id", topic, "group.instance.id", "instance-2"));
        until("two share", () -> {
            one.poll();
            other.poll();
            return one.owned() == 1 && other.owned() == 1;
        });
        int before = other.assignments;
        Set<TopicPartition> owned = one.consumer.assignment();
        one.consumer.close();
        Member again = new Member(topic, settings);
        until("it comes back", () -> {
            again.poll();
            other.poll();
            return again.owned() == 1;
        });
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("samePartition", again.consumer.assignment().equals(owned));
        facts.put("otherWasDisturbed", other.assignments != before);
        Member thief = new Member(topic, settings);
        facts.put("fenced", thrownBy(() -> until("one of them is fenced", () -> {
            thief.poll();
            again.poll();
            other.poll();
            return false;
        })));
        admin.removeMembersFromConsumerGroup(topic, new RemoveMembersFromConsumerGroupOptions(
                List.of(new MemberToRemove("instance-2")))).all().get();
        facts.put("membersLeft", admin.describeConsumerGroups(List.of(topic)).all().get().get(topic).members().stream()
                .map(each -> each.groupInstanceId().orElse("")).toList());
        for (Member each : List.of(again, thief, other)) each.abandon();
        return facts;
    }

    private static Object manual() throws Exception {
        Map<String, Object> facts = new LinkedHashMap<>();
        String topic = prefix + "manual";
        TopicPartition first = new TopicPartition(topic, 0);
        TopicPartition second = new TopicPartition(topic, 1);
        admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get();
        send(topic, 0, 10);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("group.id", topic))) {
            consumer.assign(List.of(first, second));
            facts.put("beginning", consumer.beginningOffsets(List.of(first)).get(first));
            facts.put("end", consumer.endOffsets(List.of(first)).get(first));
            var found = consumer.offsetsForTimes(Map.of(first, 1_700_000_004_500L, second, 0L));
            facts.put("byTime", List.of(found.get(first).offset(), found.get(first).timestamp(), found.get(second) == null));
            consumer.seek(first, found.get(first).offset());
            facts.put("sought", read(consumer, 5));
            consumer.pause(List.of(first));
            consumer.seekToBeginning(List.of(first));
            facts.put("whilePaused", consumer.poll(Duration.ofMillis(300)).count());
            consumer.resume(List.of(first));
            facts.put("resumed", read(consumer, 10));
            facts.put("lag", consumer.currentLag(first).orElse(-1));
            consumer.commitSync(Map.of(first, new OffsetAndMetadata(7, Optional.of(0), "seven")));
            OffsetAndMetadata committed = consumer.committed(Set.of(first)).get(first);
            facts.put("committed", List.of(committed.offset(), committed.metadata(), committed.leaderEpoch().orElse(-1)));
            facts.put("notCommitted", consumer.committed(Set.of(second)).get(second) == null);
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("group.id", topic, "max.poll.records", 2))) {
            consumer.assign(List.of(first));
            facts.put("afterCommit", read(consumer, 3));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("auto.offset.reset", "none"))) {
            consumer.assign(List.of(first));
            consumer.seek(first, 99);
            facts.put("outOfRange", thrownBy(() -> until("an error", () -> {
                consumer.poll(POLL);
                return false;
            })));
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("isolation.level", "read_committed",
                "max.partition.fetch.bytes", 1))) {
            consumer.assign(List.of(first));
            facts.put("committedOnlyInSmallSteps", read(consumer, 10));
        }
        return facts;
    }

    private static Object groups() throws Exception {
        Map<String, Object> facts = new LinkedHashMap<>();
        String topic = prefix + "groups";
        TopicPartition first = new TopicPartition(topic, 0);
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        send(topic, 0, 10);
        admin.alterConsumerGroupOffsets(topic, Map.of(first, new OffsetAndMetadata(4))).all().get();
        facts.put("altered", admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get().get(first).offset());
        facts.put("listed", admin.listGroups().all().get().stream()
                .filter(each -> each.groupId().equals(topic))
                .map(each -> List.of(each.groupState().get().toString(), each.protocol())).toList());
        Member member = new Member(topic, Map.of("group.id", topic));
        until("records", () -> {
            member.poll();
            return member.read.size() == 6;
        });
        facts.put("read", member.read);
        facts.put("deleteOffsetsInUse", errorOf(admin.deleteConsumerGroupOffsets(topic, Set.of(first)).partitionResult(first)));
        facts.put("alterInUse",
                errorOf(admin.alterConsumerGroupOffsets(topic, Map.of(first, new OffsetAndMetadata(1))).partitionResult(first)));
        member.consumer.close();
        facts.put("deleteOffsets", errorOf(admin.deleteConsumerGroupOffsets(topic, Set.of(first)).partitionResult(first)));
        facts.put("offsetsLeft", admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get().size());
        facts.put("deleteGroup", errorOf(admin.deleteConsumerGroups(List.of(topic)).all()));
        facts.put("describeDeleted", errorOf(admin.describeConsumerGroups(List.of(topic)).all()));
        return facts;
    }

    private static List<String> read(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<String> read = new ArrayList<>();
        until(count + " records", () -> {
            consumer.poll(POLL).forEach(each -> read.add(text(each.value())));
            return read.size() >= count;
        });
        return read;
    }

    // Tools

    private static void until(String what, BooleanSupplier condition) {
        long deadline = System.nanoTime() + PATIENCE_MS * 1_000_000;
        while (!condition.getAsBoolean())
            if (System.nanoTime() > deadline) throw new IllegalStateException("timed out: " + what);
    }

    private static String thrownBy(Runnable action) {
        try {
            action.run();
            return null;
        } catch (RuntimeException failure) {
            return failure.getClass().getSimpleName();
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }
}
