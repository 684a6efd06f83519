// A member of a consumer group, until killed: node member.js URL NAME LOG

const amqplib = require("amqplib");
const fs = require("node:fs");

(async () => {
  const [url, name, log] = process.argv.slice(2);
  const file = fs.openSync(log, "a");
  const connection = await amqplib.connect(url);
  connection.on("close", () => process.exit(1));
  connection.on("error", () => process.exit(1));
  const channel = await connection.createChannel();
  await channel.prefetch(20);
  await channel.consume("orders", (message) => {
    if (message === null) process.exit(1);
    const { deliveryTag, redelivered } = message.fields;
    fs.writeSync(file, `got ${name} ${deliveryTag} ${message.content} ${redelivered ? 1 : 0} ${message.properties.headers["x-owner-epoch"]}\n`);
    fs.writeSync(file, `ack ${name} ${deliveryTag}\n`);
    channel.ack(message);
  }, { arguments: { "x-consumer-group": "g", "x-rebalance-delay": 50, "x-stream-offset": "first" } });
})().catch(() => process.exit(1));
