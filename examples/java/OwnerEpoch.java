// Keeps balances in PostgreSQL that a member of a consumer group cannot spoil which was stopped, and lost its share.
// Shares its queue and group with examples/python/owner_epoch_postgresql.py.
//
//     java -cp amqp-client.jar:slf4j-api.jar:postgresql.jar OwnerEpoch.java amqp://guest:guest@127.0.0.1:5672/%2F
//         jdbc:postgresql:balances [MILLISECONDS OF WORK [IDLE SECONDS]]

import com.rabbitmq.client.*;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.Map;
import java.util.concurrent.*;

public class OwnerEpoch {
    static final String CLAIM = "INSERT INTO balances (account, epoch) VALUES (?, ?) ON CONFLICT (account) "
        + "DO UPDATE SET epoch = excluded.epoch WHERE balances.epoch <= excluded.epoch";
    static final String BOOK = "UPDATE balances SET balance = balance + ?, last = ? WHERE account = ? AND last < ?";

    // Adds an amount to an account, as the account's owner only. Returns whether it still is.
    static boolean book(java.sql.Connection database, String account, long number, long epoch, long amount)
            throws SQLException {
        try (PreparedStatement claim = database.prepareStatement(CLAIM);
                PreparedStatement book = database.prepareStatement(BOOK)) {
            claim.setString(1, account);
            claim.setLong(2, epoch);
            if (claim.executeUpdate() == 0) {
                database.rollback();
                return false;
            }
            book.setLong(1, amount);
            book.setLong(2, number);
            book.setString(3, account);
            book.setLong(4, number); // nothing where the message was booked before: it may be delivered twice
            book.executeUpdate();
            database.commit();
            return true;
        }
    }

    public static void main(String[] arguments) throws Exception {
        long work = arguments.length > 2 ? Long.parseLong(arguments[2]) : 0;
        long idle = arguments.length > 3 ? Long.parseLong(arguments[3]) : Long.MAX_VALUE;
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(arguments[0]);
        try (java.sql.Connection database = DriverManager.getConnection(arguments[1]);
                Connection connection = factory.newConnection(); Channel channel = connection.createChannel()) {
            database.setAutoCommit(false);
            channel.queueDeclare("bookings", true, false, false, Map.of("x-slots", 16, "x-in-flight-per-slot", 1));
            channel.basicQos(20);
            BlockingQueue<Delivery> came = new LinkedBlockingQueue<>();
            Map<String, Object> member = Map.of("x-consumer-group", "accounts", "x-rebalance-delay", 200, "x-handover-timeout", 500);
            channel.basicConsume("bookings", false, member, (tag, delivery) -> came.add(delivery), tag -> { });
            for (Delivery delivery; (delivery = came.poll(idle, TimeUnit.SECONDS)) != null; ) {
                String account = delivery.getEnvelope().getRoutingKey();
                String number = delivery.getProperties().getMessageId();
                long epoch = (Long) delivery.getProperties().getHeaders().get("x-owner-epoch");
                System.out.println("java works on " + account + " " + number);
                Thread.sleep(work);
                if (!book(database, account, Long.parseLong(number), epoch, Long.parseLong(new String(delivery.getBody())))) {
                    System.out.println("java refused " + account + " " + number);
                    break; // what this member holds is another's: it was cancelled
                }
                System.out.println("java booked " + account + " " + number);
                channel.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
            }
        }
    }
}
