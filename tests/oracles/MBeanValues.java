import java.util.Set;
import java.util.TreeSet;
import javax.management.InstanceNotFoundException;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * `MBeanValues PORT SECONDS PATTERN ATTRIBUTE` prints once a second, for so many of them, an attribute of the MBeans of a
 * running Kafka: the second, the name of one, a tab, its value.
 */
public final class MBeanValues {
    public static void main(String[] arguments) throws Exception {
        String url = "service:jmx:rmi:///jndi/rmi://127.0.0.1:" + arguments[0] + "/jmxrmi";
        int seconds = Integer.parseInt(arguments[1]);
        ObjectName pattern = new ObjectName(arguments[2]);
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(url))) {
            MBeanServerConnection beans = connector.getMBeanServerConnection();
            long beganMs = System.currentTimeMillis();
            for (int second = 0; second < seconds; second++) {
                Thread.sleep(Math.max(0, beganMs + second * 1000L - System.currentTimeMillis()));
                Set<ObjectName> names = new TreeSet<>(beans.queryNames(pattern, null));
                for (ObjectName name : names) {
                    try {
                        System.out.println(second + " " + name + "\t" + beans.getAttribute(name, arguments[3]));
                    } catch (InstanceNotFoundException gone) {
                        continue;
                    }
                }
            }
        }
    }
}
