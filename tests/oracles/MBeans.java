import java.util.Arrays;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/** `MBeans PORT` prints the MBeans of a Kafka that runs, one in a line: its name, a tab, the names of its attributes. */
public final class MBeans {
    public static void main(String[] arguments) throws Exception {
        String url = "service:jmx:rmi:///jndi/rmi://127.0.0.1:" + arguments[0] + "/jmxrmi";
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(url))) {
            MBeanServerConnection beans = connector.getMBeanServerConnection();
            Set<ObjectName> names = new TreeSet<>(beans.queryNames(new ObjectName("kafka.*:*"), null));
            for (ObjectName name : names) {
                String attributes = Arrays.stream(beans.getMBeanInfo(name).getAttributes())
                    .map(MBeanAttributeInfo::getName)
                    .sorted()
                    .collect(Collectors.joining(","));
                System.out.println(name + "\t" + attributes);
            }
        }
    }
}
