// Spreads messages over four queues of different weight, by routing key, header or property: 100,000 unless told.
//
//     java -cp amqp-client.jar:slf4j-api.jar Spreading.java amqp://guest:guest@127.0.0.1:5672/%2F [routing-key | header | property] [COUNT]

import com.rabbitmq.client.*;
import java.util.Map;
import java.util.TreeMap;

public class Spreading {
    static final Map<String, String> WEIGHTS = new TreeMap<>(Map.of("q1", "1", "q2", "1", "q3", "2", "q4", "2"));
    static final Map<String, Map<String, Object>> ARGUMENTS = Map.of(
        "routing-key", Map.of(),
        "header", Map.of("hash-header", "hash-on"),
        "property", Map.of("hash-property", "message_id"));

    public static void main(String[] arguments) throws Exception {
        String way = arguments.length > 1 ? arguments[1] : "routing-key";
        int count = arguments.length > 2 ? Integer.parseInt(arguments[2]) : 100_000;
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(arguments[0]);
        try (Connection connection = factory.newConnection(); Channel channel = connection.createChannel()) {
            String exchange = "java-" + way;
            channel.exchangeDeclare(exchange, "x-consistent-hash", true, false, ARGUMENTS.get(way));
            for (var queue : WEIGHTS.entrySet()) {
                channel.queueDeclare(queue.getKey(), true, false, false, null);
                channel.queuePurge(queue.getKey());
                channel.queueBind(queue.getKey(), exchange, queue.getValue()); // the binding key is the weight
            }
            channel.confirmSelect();
            for (int number = 0; number < count; number++) {
                String key = Integer.toString(number);
                AMQP.BasicProperties.Builder properties = new AMQP.BasicProperties.Builder();
                if (way.equals("header")) properties.headers(Map.of("hash-on", key));
                if (way.equals("property")) properties.messageId(key);
                channel.basicPublish(exchange, way.equals("routing-key") ? key : "", properties.build(), new byte[0]);
                if (number % 2000 == 0) channel.waitForConfirmsOrDie(60_000);
            }
            channel.waitForConfirmsOrDie(60_000);
            for (String queue : WEIGHTS.keySet()) {
                System.out.println(queue + " " + channel.messageCount(queue));
            }
        }
    }
}
