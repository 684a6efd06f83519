// Shares the queues of a consistent hash exchange: start it several times, stop some, start more.
// Every key's messages come to one process at a time, in order.
//
//     java -cp amqp-client.jar:slf4j-api.jar ConsumerGroup.java amqp://guest:guest@127.0.0.1:5672/%2F [MESSAGES [IDLE SECONDS]]

import com.rabbitmq.client.*;
import java.util.Map;
import java.util.concurrent.*;

public class ConsumerGroup {
    public static void main(String[] arguments) throws Exception {
        int publish = arguments.length > 1 ? Integer.parseInt(arguments[1]) : 0;
        long idle = arguments.length > 2 ? Long.parseLong(arguments[2]) : Long.MAX_VALUE;
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(arguments[0]);
        try (Connection connection = factory.newConnection(); Channel channel = connection.createChannel()) {
            channel.exchangeDeclare("orders", "x-consistent-hash", true);
            for (int number = 0; number < 4; number++) {
                channel.queueDeclare("orders-" + number, true, false, false, null);
                channel.queueBind("orders-" + number, "orders", "1");
            }
            for (int number = 0; number < publish; number++) {
                channel.basicPublish("orders", "customer " + number % 20, null, ("order " + number).getBytes());
            }

            channel.basicQos(20); // over all the queues that this member is given
            BlockingQueue<String> came = new LinkedBlockingQueue<>();
            channel.basicConsume("orders", false, Map.of("x-consumer-group", "billing"), (tag, delivery) -> {
                Envelope envelope = delivery.getEnvelope();
                came.add(ProcessHandle.current().pid() + " " + delivery.getProperties().getHeaders().get("x-queue") + " "
                    + envelope.getRoutingKey() + " " + new String(delivery.getBody()));
                channel.basicAck(envelope.getDeliveryTag(), false);
            }, tag -> System.err.println("cancelled"));
            for (String line; (line = came.poll(idle, TimeUnit.SECONDS)) != null; ) {
                System.out.println(line);
            }
        }
    }
}
