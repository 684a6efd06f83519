// A member of a consumer group, until killed: java -cp ... Member URL NAME LOG

import com.rabbitmq.client.*;
import java.io.FileOutputStream;
import java.util.Map;

public class Member {
    public static void main(String[] arguments) throws Exception {
        FileOutputStream log = new FileOutputStream(arguments[2], true);
        String name = arguments[1];
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(arguments[0]);
        factory.setAutomaticRecoveryEnabled(false);
        Connection connection = factory.newConnection();
        connection.addShutdownListener(cause -> System.exit(1));
        Channel channel = connection.createChannel();
        channel.basicQos(20);
        Map<String, Object> group = Map.of("x-consumer-group", "g", "x-rebalance-delay", 50, "x-stream-offset", "first");
        channel.basicConsume("orders", false, group, (tag, delivery) -> {
            Envelope envelope = delivery.getEnvelope();
            long number = envelope.getDeliveryTag();
            String body = new String(delivery.getBody());
            Object epoch = delivery.getProperties().getHeaders().get("x-owner-epoch");
            String again = envelope.isRedeliver() ? " 1 " : " 0 ";
            log.write(("got " + name + " " + number + " " + body + again + epoch + "\n").getBytes());
            log.write(("ack " + name + " " + number + "\n").getBytes());
            channel.basicAck(number, false);
        }, tag -> System.exit(1));
    }
}
