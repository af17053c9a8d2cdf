import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.TreeMap;
import java.util.regex.Pattern;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap;
import org.apache.spark.sql.kafka010.JsonUtils;
import org.apache.spark.sql.kafka010.KafkaMicroBatchStream;
import org.apache.spark.sql.kafka010.KafkaOffsetRange;
import org.apache.spark.sql.kafka010.KafkaOffsetRangeCalculator;
import org.apache.spark.sql.kafka010.KafkaOffsetReader;
import org.apache.spark.sql.kafka010.KafkaSourceProvider;
import org.apache.spark.sql.kafka010.MockedSystemClock;
import org.apache.spark.sql.kafka010.MockedSystemClock$;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Has the decisions of Spark's own Kafka connector made by itself. Every line of the input is one case in JSON, whose
 * "what" names the decision; positions are lists of [topic, partition, offset]. Every line of the output is the answer
 * in JSON: {"answer": ...}, or {"error": its class and text}.
 */
public class SparkConnector {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Scanner lines = new Scanner(System.in, "UTF-8");
        StringBuilder output = new StringBuilder();
        while (lines.hasNextLine()) {
            JsonNode one = JSON.readTree(lines.nextLine());
            Map<String, Object> result = new LinkedHashMap<>();
            try {
                result.put("answer", answer(one));
            } catch (InvocationTargetException error) {
                result.put("error", String.valueOf(error.getCause()));
            } catch (Exception | AssertionError error) {
                result.put("error", String.valueOf(error));
            }
            output.append(JSON.writeValueAsString(result)).append('\n');
        }
        System.out.print(output);
    }

    static Object answer(JsonNode one) throws Exception {
        return switch (one.get("what").asText()) {
            case "split" -> split(one);
            case "read offsets" -> listed(JsonUtils.partitionOffsets(one.get("text").asText()));
            case "read partitions" -> assigned(one.get("text").asText());
            case "write offsets" -> JsonUtils.partitionOffsets(positions(one.get("positions")));
            case "rate limit" -> rateLimit(one);
            case "gate" -> gate(one);
            case "options" -> options(one);
            case "time" -> JavaUtils.timeStringAsMs(one.get("text").asText());
            case "size" -> JavaUtils.byteStringAsBytes(one.get("text").asText());
            case "regex" -> regex(one);
            default -> throw new IllegalArgumentException("no such case: " + one);
        };
    }

    // Between JSON, Java and Scala

    static scala.collection.immutable.Map<TopicPartition, Object> positions(JsonNode listed) {
        Map<TopicPartition, Object> map = new LinkedHashMap<>();
        for (JsonNode entry : listed) {
            map.put(new TopicPartition(entry.get(0).asText(), entry.get(1).asInt()), (Object) entry.get(2).asLong());
        }
        return immutable(map);
    }

    static <K, V> scala.collection.immutable.Map<K, V> immutable(Map<K, V> map) {
        return scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(map));
    }

    static List<List<Object>> listed(scala.collection.immutable.Map<TopicPartition, Object> positions) {
        TreeMap<String, List<Object>> sorted = new TreeMap<>();
        CollectionConverters.asJava(positions).forEach((partition, position) ->
            sorted.put(String.format("%s %010d", partition.topic(), partition.partition()),
                List.of(partition.topic(), partition.partition(), position)));
        return new ArrayList<>(sorted.values());
    }

    static Option<Object> option(JsonNode number, boolean isInt) {
        if (number == null || number.isNull()) {
            return Option.empty();
        }
        return Option.apply(isInt ? (Object) number.asInt() : (Object) number.asLong());
    }

    // The decisions

    static Object split(JsonNode one) {
        List<KafkaOffsetRange> ranges = new ArrayList<>();
        for (JsonNode range : one.get("ranges")) {
            ranges.add(new KafkaOffsetRange(new TopicPartition(range.get(0).asText(), range.get(1).asInt()),
                range.get(2).asLong(), range.get(3).asLong(), Option.empty()));
        }
        KafkaOffsetRangeCalculator calculator =
            new KafkaOffsetRangeCalculator(option(one.get("min"), true), option(one.get("max"), false));
        List<List<Object>> result = new ArrayList<>();
        List<String> nowhere = List.of();
        for (KafkaOffsetRange range : CollectionConverters.asJava(calculator.getRanges(
                CollectionConverters.asScala(ranges).toSeq(), CollectionConverters.asScala(nowhere).toSeq()))) {
            result.add(List.of(range.topic(), range.partition(), range.fromOffset(), range.untilOffset()));
        }
        return result;
    }

    static Object assigned(String text) {
        List<List<Object>> result = new ArrayList<>();
        for (TopicPartition partition : JsonUtils.partitions(text)) {
            result.add(List.of(partition.topic(), partition.partition()));
        }
        return result;
    }

    /** A stream without a cluster: only what the decisions need is set. */
    static KafkaMicroBatchStream stream(scala.collection.immutable.Map<TopicPartition, Object> earliest)
            throws Exception {
        Field unsafe = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
        unsafe.setAccessible(true);
        KafkaMicroBatchStream stream = (KafkaMicroBatchStream)
            ((sun.misc.Unsafe) unsafe.get(null)).allocateInstance(KafkaMicroBatchStream.class);
        set(stream, "clock", new MockedSystemClock());
        set(stream, "kafkaOffsetReader", Proxy.newProxyInstance(SparkConnector.class.getClassLoader(),
            new Class<?>[] {KafkaOffsetReader.class}, (proxy, method, arguments) -> {
                if (method.getName().equals("fetchEarliestOffsets")) {
                    return earliest;
                }
                throw new IllegalStateException(method.getName());
            }));
        return stream;
    }

    static void set(Object object, String name, Object value) throws Exception {
        Field field = object.getClass().getDeclaredField(name);
        field.setAccessible(true);
        field.set(object, value);
    }

    static Method method(Class<?> type, String name) {
        for (Method method : type.getDeclaredMethods()) {
            if (method.getName().equals(name) || method.getName().endsWith("$$" + name)) {
                method.setAccessible(true);
                return method;
            }
        }
        throw new IllegalStateException(name);
    }

    @SuppressWarnings("unchecked")
    static Object rateLimit(JsonNode one) throws Exception {
        return listed((scala.collection.immutable.Map<TopicPartition, Object>)
            method(KafkaMicroBatchStream.class, "rateLimit").invoke(stream(positions(one.get("new"))),
                one.get("limit").asLong(), positions(one.get("begin")), positions(one.get("end"))));
    }

    static Object gate(JsonNode one) throws Exception {
        KafkaMicroBatchStream stream = stream(positions(JSON.createArrayNode()));
        List<Boolean> result = new ArrayList<>();
        for (JsonNode step : one.get("steps")) {
            MockedSystemClock$.MODULE$.currentMockSystemTime_$eq(step.get(0).asLong());
            result.add(!(Boolean) method(KafkaMicroBatchStream.class, "delayBatch").invoke(stream,
                one.get("min").asLong(), positions(step.get(2)), positions(step.get(1)), one.get("delay").asLong()));
        }
        return result;
    }

    static Object options(JsonNode one) throws Exception {
        Map<String, String> given = new LinkedHashMap<>();
        one.get("options").fields().forEachRemaining(entry -> given.put(entry.getKey(), entry.getValue().asText()));
        CaseInsensitiveMap<String> options = new CaseInsensitiveMap<>(immutable(given));
        boolean isStreaming = one.get("streaming").asBoolean();
        KafkaSourceProvider provider = new KafkaSourceProvider();
        method(KafkaSourceProvider.class, isStreaming ? "validateStreamOptions" : "validateBatchOptions")
            .invoke(provider, options);
        Object strategy = method(KafkaSourceProvider.class, "strategy").invoke(provider, options);
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("reads", strategy.toString());
        var start = KafkaSourceProvider.getKafkaOffsetRangeLimit(options, "startingtimestamp",
            "startingoffsetsbytimestamp", "startingoffsets", null);
        result.put("start", String.valueOf(start));
        if (!isStreaming) {
            var end = KafkaSourceProvider.getKafkaOffsetRangeLimit(options, "endingtimestamp",
                "endingoffsetsbytimestamp", "endingoffsets", null);
            result.put("end", String.valueOf(end));
            if (start != null && end != null) {
                KafkaSourceProvider.checkOffsetLimitValidity(start, end);
            }
        }
        return result;
    }

    static Object regex(JsonNode one) {
        Pattern pattern = Pattern.compile(one.get("regex").asText());
        List<Boolean> result = new ArrayList<>();
        one.get("names").forEach(name -> result.add(pattern.matcher(name.asText()).find()));
        return result;
    }
}
