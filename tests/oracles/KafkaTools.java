import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools in one process. Each line of input names a tool's class, its arguments and what it
 * reads; each is answered with a line that has its exit code and what it printed.
 */
public final class KafkaTools {
    private static Integer exitCode;

    private static final class Exited extends RuntimeException {
        Exited(int code) {
            super("exit " + code, null, false, false);
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        ObjectMapper json = new ObjectMapper();
        Exit.Procedure exit = (code, message) -> {
            // Some tools catch what is thrown here, and leave once more.
            if (exitCode == null) exitCode = code;
            throw new Exited(code);
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Exit.setShutdownHookAdder((name, hook) -> {});
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JsonNode command = json.readTree(line);
            List<String> given = new ArrayList<>();
            command.get("arguments").forEach(each -> given.add(each.asText()));
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(command.get("input").asText().getBytes(StandardCharsets.UTF_8)));
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            int code = run(command.get("tool").asText(), given.toArray(new String[0]));
            System.out.flush();
            System.err.flush();
            answers.println(json.writeValueAsString(Map.of("code", code, "out", out.toString(StandardCharsets.UTF_8),
                    "err", err.toString(StandardCharsets.UTF_8))));
            answers.flush();
        }
    }

    private static int run(String tool, String[] arguments) throws Exception {
        exitCode = null;
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failure) {
            if (exitCode == null) {
                failure.getCause().printStackTrace();
                return 1;
            }
        }
        return exitCode == null ? 0 : exitCode;
    }
}
