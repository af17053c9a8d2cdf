import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Timer;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaEntity.ConfigEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ControllerMutationQuota;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaType;

/**
 * Kafka's own quotas: each line is something that happens, the answers are what Kafka makes of it. Names are "-" where
 * there is none and "*" for the default; "empty" is the empty client id.
 */
public class Quotas {
    private static long nowMs;

    private static final Time TIME = new Time() {
        public long milliseconds() { return nowMs; }
        public long hiResClockMs() { return nowMs; }
        public long nanoseconds() { return nowMs * 1_000_000; }
        public void sleep(long ms) { throw new UnsupportedOperationException(); }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
        public Timer timer(long timeoutMs) { throw new UnsupportedOperationException(); }
    };

    private static ClientQuotaManager manager(String[] part) {
        ClientQuotaManagerConfig config =
            new ClientQuotaManagerConfig(Integer.parseInt(part[2]), Integer.parseInt(part[3]));
        return switch (part[1]) {
            case "bytes" -> new ClientQuotaManager(config, new Metrics(TIME), QuotaType.PRODUCE, TIME, "");
            case "time" -> new kafka.server.ClientRequestQuotaManager(config, new Metrics(TIME), TIME, "", Optional.empty());
            default -> new ControllerMutationQuotaManager(config, new Metrics(TIME), TIME, "", Optional.empty());
        };
    }

    private static Optional<ConfigEntity> user(String name) {
        return name.equals("-") ? Optional.empty() : Optional.of(
            name.equals("*") ? ClientQuotaManager.DEFAULT_USER_ENTITY : new ClientQuotaManager.UserEntity(name));
    }

    private static Optional<ConfigEntity> client(String name) {
        return name.equals("-") ? Optional.empty() : Optional.of(
            name.equals("*") ? ClientQuotaManager.DEFAULT_USER_CLIENT_ID : new ClientQuotaManager.ClientIdEntity(name));
    }

    private static String changed(ControllerMutationQuota quota, double permits) {
        try {
            quota.record(permits);
            return "done " + quota.throttleTime();
        } catch (ThrottlingQuotaExceededException refusal) {
            return "refused " + quota.throttleTime();
        }
    }

    private static String answer(ClientQuotaManager manager, String[] part) throws Exception {
        Session session = new Session(new KafkaPrincipal("User", part[1]), InetAddress.getLoopbackAddress());
        String clientId = part[2].equals("empty") ? "" : part[2];
        double value = Double.parseDouble(part[3]);
        nowMs = Long.parseLong(part[4]);
        switch (part[0]) {
            case "record": {
                int throttleMs = manager.recordAndGetThrottleTimeMs(session, clientId, value, nowMs);
                Map<String, String> tags = manager.getOrCreateQuotaSensors(session, clientId).metricTags();
                double bound = manager.quota(session.principal, clientId).bound();
                return tags.get("user") + " " + tags.get("client-id") + " " + bound + " " + throttleMs;
            }
            case "unrecord":
                manager.unrecordQuotaSensor(session, clientId, value, nowMs);
                return "done";
            case "most":
                return String.valueOf(manager.maxValueInQuotaWindow(session, clientId));
            case "strict":
                return changed(((ControllerMutationQuotaManager) manager).newStrictQuotaFor(session, clientId), value);
            default:
                return changed(((ControllerMutationQuotaManager) manager).newPermissiveQuotaFor(session, clientId), value);
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StringBuilder answers = new StringBuilder();
        ClientQuotaManager manager = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] part = line.split(" ");
            if (part[0].equals("new")) {
                if (manager != null) {
                    manager.initiateShutdown();
                }
                manager = manager(part);
            } else if (part[0].equals("set")) {
                manager.updateQuota(user(part[1]), client(part[2]),
                    part[3].equals("-") ? Optional.empty() : Optional.of(new Quota(Double.parseDouble(part[3]), true)));
            } else {
                answers.append(answer(manager, part)).append('\n');
            }
        }
        System.out.print(answers);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
