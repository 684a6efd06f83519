// The programme of `programmes.py` with the RabbitMQ Java client. Arguments: port, prefix of all names, number of messages.

import com.rabbitmq.client.*;
import java.io.*;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.*;
import java.util.concurrent.*;
import javax.net.ssl.*;

public class JavaClient {
    public static void main(String[] arguments) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setHost("127.0.0.1");
        factory.setPort(Integer.parseInt(arguments[0]));
        factory.setAutomaticRecoveryEnabled(false);
        if (System.getenv("TLS_CA") != null) encrypt(factory, System.getenv("TLS_CA"), System.getenv("TLS_CLIENT"));
        if (System.getenv("TLS_CLIENT") != null) factory.setSaslConfig(DefaultSaslConfig.EXTERNAL);
        String prefix = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        List<String> queues = List.of(prefix + "-1", prefix + "-2");

        try (Connection connection = factory.newConnection()) {
            Channel channel = connection.createChannel();
            channel.exchangeDeclare(prefix, "x-consistent-hash", true);
            for (int i = 0; i < queues.size(); i++) {
                channel.queueDeclare(queues.get(i), true, false, false, null);
                channel.queueBind(queues.get(i), prefix, String.valueOf(i + 1));
            }
            publish(channel, prefix, count);
            returned(channel);
            consume(connection.createChannel(), queues, count);
            missing(connection.createChannel());
            for (String queue : queues) channel.queueDelete(queue);
            channel.exchangeDelete(prefix);
        }

        factory.setSaslConfig(DefaultSaslConfig.PLAIN);
        factory.setPassword("sesame");
        try {
            factory.newConnection();
        } catch (AuthenticationFailureException refused) {
            System.out.println("password: refused");
        }
    }

    /** Trust an authority, and show the certificate of a PKCS 12 file with the password `till`, unless that is null. */
    static void encrypt(ConnectionFactory factory, String authority, String shown) throws Exception {
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null);
        try (InputStream file = new FileInputStream(authority)) {
            trusted.setCertificateEntry("authority", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        SSLContext context = SSLContext.getInstance("TLSv1.3");
        context.init(shown == null ? null : keys(shown), trust.getTrustManagers(), null);
        factory.useSslProtocol(context);
    }

    static KeyManager[] keys(String file) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (InputStream octets = new FileInputStream(file)) {
            store.load(octets, "till".toCharArray());
        }
        KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        factory.init(store, "till".toCharArray());
        return factory.getKeyManagers();
    }

    static void publish(Channel channel, String exchange, int count) throws Exception {
        channel.confirmSelect();
        for (int i = 0; i < count; i++) {
            AMQP.BasicProperties properties =
                new AMQP.BasicProperties.Builder().deliveryMode(2).headers(Map.of("number", i)).build();
            channel.basicPublish(exchange, String.valueOf(i), properties, octets("order " + i));
        }
        channel.waitForConfirmsOrDie(10_000);
        System.out.println("confirmed: " + count);
    }

    static void returned(Channel channel) throws Exception {
        BlockingQueue<String> returns = new LinkedBlockingQueue<>();
        channel.addReturnListener(message -> returns.add(message.getReplyCode() + " " + message.getReplyText()));
        channel.basicPublish("amq.direct", "nowhere", true, null, octets("lost"));
        System.out.println("returned: " + returns.poll(10, TimeUnit.SECONDS));
    }

    static void consume(Channel channel, List<String> queues, int count) throws Exception {
        BlockingQueue<Delivery> arrived = new LinkedBlockingQueue<>();
        channel.basicQos(10);
        for (String queue : queues) {
            channel.basicConsume(queue, false, (tag, delivery) -> arrived.add(delivery), tag -> {});
        }
        Set<String> bodies = new HashSet<>();
        int redelivered = 0;
        boolean rejected = false;
        while (bodies.size() < count) {
            Delivery delivery = arrived.poll(10, TimeUnit.SECONDS);
            Envelope envelope = delivery.getEnvelope();
            if (envelope.isRedeliver()) redelivered++;
            if (rejected) {
                channel.basicAck(envelope.getDeliveryTag(), false);
                bodies.add(new String(delivery.getBody(), StandardCharsets.UTF_8));
            } else {
                channel.basicReject(envelope.getDeliveryTag(), true);
                rejected = true;
            }
        }
        System.out.println("consumed: " + bodies.size());
        System.out.println("redelivered: " + redelivered);
    }

    static void missing(Channel channel) throws Exception {
        try {
            channel.queueDeclarePassive("ghost");
        } catch (java.io.IOException error) {
            AMQP.Channel.Close close = (AMQP.Channel.Close) ((ShutdownSignalException) error.getCause()).getReason();
            System.out.println("missing: " + close.getReplyCode() + " " + close.getReplyText());
        }
    }

    static byte[] octets(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
