import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;
import kafka.server.KafkaConfig;

/**
 * Says of settings whether a Kafka node would take them. Each line of input is an object of names and values; each is
 * answered with a line: nothing if they are taken, or else what is wrong with them.
 */
public final class NodeSettings {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Properties given = new Properties();
            given.putAll(json.readValue(line, Map.class));
            String problem = "";
            try {
                KafkaConfig.fromProps(given, false);
            } catch (RuntimeException failure) {
                problem = String.valueOf(failure.getMessage()).replace("\n", " ");
            }
            System.out.println(problem);
        }
    }
}
