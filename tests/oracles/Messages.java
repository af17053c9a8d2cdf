import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads lines of "name version hex" and answers each with what Kafka's own class makes of the bytes:
 * "hex json" after decoding, encoding again and converting, or "unknown" or "error why".
 */
public class Messages {
    private static final String[] PLACES = {
        "org.apache.kafka.common.message.%sData",
        "org.apache.kafka.common.message.%s",
        "org.apache.kafka.common.metadata.%s",
        "org.apache.kafka.coordinator.group.generated.%s",
        "org.apache.kafka.coordinator.transaction.generated.%s",
        "org.apache.kafka.coordinator.share.generated.%s",
        "org.apache.kafka.raft.generated.%s",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.%s",
    };

    private static Class<?> find(String name) {
        for (String place : PLACES) {
            try {
                return Class.forName(String.format(place, name));
            } catch (ClassNotFoundException e) {
                continue;
            }
        }
        return null;
    }

    private static String answer(String name, short version, byte[] bytes) throws Exception {
        Class<?> type = find(name);
        if (type == null) {
            return "unknown";
        }
        Message message = (Message) type.getDeclaredConstructor().newInstance();
        if (version < message.lowestSupportedVersion() || version > message.highestSupportedVersion()) {
            return "unknown";
        }
        ByteBuffer input = ByteBuffer.wrap(bytes);
        message.read(new ByteBufferAccessor(input), version);
        if (input.hasRemaining()) {
            return "error " + input.remaining() + " bytes left";
        }
        var cache = new ObjectSerializationCache();
        byte[] encoded = new byte[message.size(cache, version)];
        message.write(new ByteBufferAccessor(ByteBuffer.wrap(encoded)), cache, version);
        String json = "-";
        try {
            Method write = Class.forName(type.getName() + "JsonConverter")
                .getMethod("write", type, short.class, boolean.class);
            json = ((JsonNode) write.invoke(null, message, version, false)).toString();
        } catch (ClassNotFoundException e) {
            json = "-";
        }
        return HexFormat.of().formatHex(encoded) + " " + json;
    }

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new StringBuilder();
        for (String line; (line = lines.readLine()) != null; ) {
            String[] parts = line.split(" ", -1);
            try {
                out.append(answer(parts[0], Short.parseShort(parts[1]), HexFormat.of().parseHex(parts[2])));
            } catch (InvocationTargetException e) {
                out.append("error ").append(e.getCause());
            } catch (Exception e) {
                out.append("error ").append(e);
            }
            out.append('\n');
        }
        System.out.write(out.toString().getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }
}
