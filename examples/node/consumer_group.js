// Shares the queues of a consistent hash exchange: start it several times, stop some, start more.
// Every key's messages come to one process at a time, in order.
//
//     node consumer_group.js amqp://guest:guest@127.0.0.1:5672/ [MESSAGES [IDLE SECONDS]]
const amqp = require("amqplib");

async function main(url, publish = 0, idle = Infinity) {
  const connection = await amqp.connect(url);
  const channel = await connection.createConfirmChannel();
  await channel.assertExchange("orders", "x-consistent-hash", { durable: true });
  for (let number = 0; number < 4; number++) {
    await channel.assertQueue(`orders-${number}`, { durable: true });
    await channel.bindQueue(`orders-${number}`, "orders", "1");
  }
  for (let number = 0; number < publish; number++) {
    channel.publish("orders", `customer ${number % 20}`, Buffer.from(`order ${number}`), { persistent: true });
  }
  await channel.waitForConfirms();

  await channel.prefetch(20); // over all the queues that this member is given
  let last = Date.now();
  await channel.consume(
    "orders",
    (message) => {
      if (message === null) throw new Error("cancelled");
      last = Date.now();
      console.log(process.pid, message.properties.headers["x-queue"], message.fields.routingKey, message.content.toString());
      channel.ack(message);
    },
    { arguments: { "x-consumer-group": "billing" } },
  );
  while (Date.now() - last < idle * 1000) await new Promise((resolve) => setTimeout(resolve, 100));
  await connection.close();
}

const [url, publish, idle] = process.argv.slice(2);
main(url, Number(publish ?? 0), idle === undefined ? Infinity : Number(idle)).catch((error) => {
  console.error(error);
  process.exit(1);
});
