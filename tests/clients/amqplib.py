"""A program of amqplib, the client for Node, with every kind of queue."""

import shutil
import subprocess

AMQPLIB = """
process.argv.splice(1, 0, '');
const amqplib = require('amqplib');
(async () => {
  const connection = await amqplib.connect(process.argv[2]);
  const kinds = [{'x-queue-type': 'quorum'}, {'x-max-priority': 5}, {'x-queue-type': 'stream'}];
  for (const [i, args] of kinds.entries()) {
    const channel = await connection.createConfirmChannel();
    const queue = `${process.argv[3]}-${i}`;
    await channel.assertQueue(queue, {durable: true, arguments: args});
    for (const priority of [1, 3]) channel.sendToQueue(queue, Buffer.from(`${priority}`), {priority});
    await channel.waitForConfirms();
    await channel.prefetch(10);
    const bodies = [];
    await new Promise(resolve => channel.consume(queue, message => {
      if (message === null) return;  // the queue is gone
      channel.ack(message);
      if (bodies.push(message.content.toString()) === 2) resolve();
    }, args['x-queue-type'] === 'stream' ? {arguments: {'x-stream-offset': 'first'}} : {}));
    console.log(bodies.join(' '));
    await channel.deleteQueue(queue);
    await channel.close();
  }
  await connection.close();
})();
"""
"""The program for `node -e`; its arguments are the URL of a broker and the name of a queue."""


def global_modules() -> str:
    """Folder of npm's global modules, which Node does not search by default."""
    if shutil.which("npm") is None:
        return ""
    return subprocess.run(["npm", "root", "--global"], capture_output=True, text=True, check=True).stdout.strip()
