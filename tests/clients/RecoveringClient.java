// Recovers over a list of addresses with the RabbitMQ Java client. Arguments: name of a queue, ports of the nodes.
// Prints the port that it is connected to, again after each recovery, and what it has then received.

import com.rabbitmq.client.*;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;

public class RecoveringClient {
    public static void main(String[] arguments) {
        try {
            run(arguments);
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);  // threads of the client would go on
        }
    }

    static void run(String[] arguments) throws Exception {
        String queue = arguments[0];
        List<Address> addresses = new ArrayList<>();
        for (int i = 1; i < arguments.length; i++) addresses.add(new Address("127.0.0.1", Integer.parseInt(arguments[i])));
        ConnectionFactory factory = new ConnectionFactory();
        factory.setNetworkRecoveryInterval(500);
        CountDownLatch recovered = new CountDownLatch(1);
        BlockingQueue<String> received = new LinkedBlockingQueue<>();

        Connection connection = factory.newConnection(addresses);
        ((Recoverable) connection).addRecoveryListener(new RecoveryListener() {
            public void handleRecovery(Recoverable recoverable) { recovered.countDown(); }
            public void handleRecoveryStarted(Recoverable recoverable) { }
        });
        Channel channel = connection.createChannel();
        channel.basicConsume(queue, true, (tag, delivery) -> received.add(text(delivery)), tag -> { });
        String own = channel.queueDeclare().getQueue();
        channel.queueBind(own, "amq.fanout", "");
        channel.basicConsume(own, true, (tag, delivery) -> received.add("fanout " + text(delivery)), tag -> { });
        System.out.println("connected: " + connection.getPort());

        if (!recovered.await(90, TimeUnit.SECONDS)) throw new TimeoutException("not recovered");
        System.out.println("recovered: " + connection.getPort());
        Channel publisher = connection.createChannel();
        publisher.confirmSelect();
        publish(publisher, "", queue, "durable");
        publish(publisher, "amq.fanout", "", "message");
        Set<String> all = new TreeSet<>();
        while (all.size() < 2) all.add(String.valueOf(received.poll(30, TimeUnit.SECONDS)));
        System.out.println("received: " + all);
        connection.close();
    }

    /** Publish until that is confirmed: what goes to a dead node's queue, too, is refused for some seconds. */
    static void publish(Channel channel, String exchange, String key, String body) throws Exception {
        for (int i = 0; i < 60; i++) {
            channel.basicPublish(exchange, key, MessageProperties.PERSISTENT_BASIC, body.getBytes());
            if (channel.waitForConfirms(30_000)) return;
            Thread.sleep(500);
        }
        throw new IOException("never confirmed");
    }

    static String text(Delivery delivery) {
        return new String(delivery.getBody(), StandardCharsets.UTF_8);
    }
}
