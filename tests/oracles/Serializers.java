import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import java.util.Scanner;
import java.util.UUID;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/**
 * What Kafka's serializers write and its deserializers read. For each line `NAME HEX TEXT` it prints the bytes that TEXT
 * serializes to, and the text of what HEX, our bytes for the same, is read as.
 */
public final class Serializers {
    private record Kind<T>(Serde<T> serde, Function<String, T> parse, Function<T, String> show) {
        String compare(String text, byte[] ours) {
            String written = HexFormat.of().formatHex(serde.serializer().serialize("t", parse.apply(text)));
            return written + " " + show.apply(serde.deserializer().deserialize("t", ours));
        }
    }

    private static final Map<String, Kind<?>> KINDS = Map.of(
        "short", new Kind<>(Serdes.Short(), Short::parseShort, String::valueOf),
        "integer", new Kind<>(Serdes.Integer(), Integer::parseInt, String::valueOf),
        "long", new Kind<>(Serdes.Long(), Long::parseLong, String::valueOf),
        "float", new Kind<>(Serdes.Float(), Float::parseFloat, Float::toHexString),
        "double", new Kind<>(Serdes.Double(), Double::parseDouble, Double::toHexString),
        "boolean", new Kind<>(Serdes.Boolean(), Boolean::parseBoolean, String::valueOf),
        "uuid", new Kind<>(Serdes.UUID(), UUID::fromString, String::valueOf),
        "string", new Kind<>(Serdes.String(), Serializers::unhex, Serializers::hex));

    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ", -1);
            System.out.println(KINDS.get(words[0]).compare(words[2], HexFormat.of().parseHex(words[1])));
        }
    }

    /** Text travels as the hexadecimal UTF-16 of its characters, so that neither side's encoding plays a part. */
    private static String unhex(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_16BE);
    }

    private static String hex(String text) {
        return HexFormat.of().formatHex(text.getBytes(StandardCharsets.UTF_16BE));
    }
}
