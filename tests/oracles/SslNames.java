import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * How Java spells names of certificates, and what Kafka's mapping rules make of names. Each line is a question, fields
 * in base64 behind the word: "name DER", or "rule RULES NAME". The answer is a line in base64, or "!" and the kind of
 * failure.
 */
public class SslNames {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split(" ", -1);
            String answer;
            try {
                answer = fields[0].equals("name")
                    ? new X500Principal(new ByteArrayInputStream(bytes(fields[1]))).getName()
                    : SslPrincipalMapper.fromRules(text(fields[1])).getName(text(fields[2]));
                System.out.println(Base64.getEncoder().encodeToString(answer.getBytes(StandardCharsets.UTF_8)));
            } catch (IllegalArgumentException | java.io.IOException failure) {
                System.out.println("!" + failure.getClass().getSimpleName());
            }
        }
    }

    private static byte[] bytes(String field) {
        return Base64.getDecoder().decode(field);
    }

    private static String text(String field) {
        return new String(bytes(field), StandardCharsets.UTF_8);
    }
}
