// First steps on a broker without queues: addresses, programs, sample traffic.

import { get, path, post, put, remove } from "../lib/api.js";
import { link, useLive } from "../lib/live.js";
import { Failure, html, Panel, tell, useEffect, useRef, useState } from "../lib/ui.js";
import { LiveFlow } from "./flow.js";

const SNIPPETS = {
  Python: ({ host, port }) => `import pika  # pip install pika

connection = pika.BlockingConnection(pika.URLParameters("amqp://guest:guest@${host}:${port}/%2F"))
channel = connection.channel()
channel.exchange_declare("orders", "x-consistent-hash", durable=True)
for number in range(4):
    channel.queue_declare(f"orders-{number}", durable=True)
    channel.queue_bind(f"orders-{number}", "orders", routing_key="1")
channel.basic_publish("orders", routing_key="customer-3", body=b"hello")
connection.close()
`,
  Java: ({ host, port }) => `var factory = new com.rabbitmq.client.ConnectionFactory();
factory.setUri("amqp://guest:guest@${host}:${port}/%2F");
try (var connection = factory.newConnection(); var channel = connection.createChannel()) {
    channel.exchangeDeclare("orders", "x-consistent-hash", true);
    channel.queueDeclare("orders-0", true, false, false, null);
    channel.queueBind("orders-0", "orders", "1");
    channel.basicPublish("orders", "customer-3", null, "hello".getBytes());
}
`,
  Go: ({ host, port }) => `// go get github.com/rabbitmq/amqp091-go
connection, err := amqp091.Dial("amqp://guest:guest@${host}:${port}/%2F")
if err != nil { log.Fatal(err) }
channel, err := connection.Channel()
if err != nil { log.Fatal(err) }
channel.ExchangeDeclare("orders", "x-consistent-hash", true, false, false, false, nil)
channel.QueueDeclare("orders-0", true, false, false, false, nil)
channel.QueueBind("orders-0", "1", "orders", false, nil)
channel.Publish("orders", "customer-3", false, false, amqp091.Publishing{Body: []byte("hello")})
connection.Close()
`,
  curl: ({ api }) => `curl -u guest:guest -X PUT ${api}/api/queues/%2F/orders-0 -H 'Content-Type: application/json' -d '{"durable": true}'
curl -u guest:guest ${api}/api/exchanges/%2F/amq.default/publish -H 'Content-Type: application/json' \\
  -d '{"routing_key": "orders-0", "payload": "hello", "payload_encoding": "string", "properties": {}}'
`,
};

/** Exchange, queues and duration of the sample traffic. */
const SAMPLE = "sample";
const QUEUES = [1, 2, 3, 4].map((number) => `${SAMPLE}-${number}`);
const SECONDS = 60;

/** `on` is true after the sample traffic was started: the queues are then the sample's. Kept while the page is open. */
export const sampling = { on: false };

export function Start() {
  const [language, setLanguage] = useState("Python");
  const { data, error } = useLive((signal) => get("/api/overview", { columns: "listeners,product_version" }, signal), 30, []);
  const listener = data?.listeners?.find((one) => one.protocol === "amqp");
  const place = { host: location.hostname, port: listener?.port ?? 5672, api: location.origin };
  const snippet = SNIPPETS[language](place);
  const copy = () => navigator.clipboard.writeText(snippet).then(() => tell("Copied"), () => tell("This browser does not let a page copy here."));
  return html`<${Panel} title="First steps" note=${data ? `JumpMQ ${data.product_version}` : ""}>
    <${Failure} error=${error} />
    <p>Clients of AMQP 0-9-1 connect to <code>amqp://${place.host}:${place.port}</code>.</p>
    <div class="spans" role="group" aria-label="Language">${Object.keys(SNIPPETS).map((one) => html`<button key=${one} type="button" aria-pressed=${String(one === language)} onClick=${() => setLanguage(one)}>${one}</button>`)}</div>
    <pre tabindex="0" aria-label=${`A first program in ${language}`}>${snippet}</pre>
    <div class="buttons"><button type="button" onClick=${copy}>Copy</button></div>
    <${Traffic} />
  <//>`;
}

/** Publish to four queues of a hash exchange for a minute, as sample traffic. */
function Traffic() {
  const [state, setState] = useState({ sent: 0, running: false, error: null });
  const stop = useRef(() => {});
  useEffect(() => () => stop.current(), []);
  const begin = async () => {
    let stopped = false;
    stop.current = () => { stopped = true; };
    sampling.on = true;
    setState({ sent: 0, running: true, error: null });
    try {
      await put(path("exchanges", "/", SAMPLE), { type: "x-consistent-hash", durable: false, auto_delete: false });
      for (const name of QUEUES) {
        await put(path("queues", "/", name), { durable: false, arguments: { "x-max-length": 1000, "x-expires": 3600000 } });
        await post(path("bindings", "/", "e", SAMPLE, "q", name), { routing_key: "1" });
      }
      const end = Date.now() + SECONDS * 1000;
      for (let sent = 0; Date.now() < end && !stopped; sent++) {
        const key = `customer-${Math.floor(Math.random() ** 2 * 40)}`;
        await post(path("exchanges", "/", SAMPLE, "publish"), { routing_key: key, payload: JSON.stringify({ order: sent, customer: key }), payload_encoding: "string", properties: {} });
        setState({ sent: sent + 1, running: true, error: null });
        await new Promise((done) => setTimeout(done, 50));
      }
      setState((before) => ({ ...before, running: false }));
    } catch (error) {
      setState((before) => ({ ...before, running: false, error }));
    }
  };
  const clear = async () => {
    stop.current();
    await remove(path("exchanges", "/", SAMPLE)).catch(() => {});
    for (const name of QUEUES) await remove(path("queues", "/", name)).catch(() => {});
    sampling.on = false;
    setState({ sent: 0, running: false, error: null });
    tell("Sample removed");
  };
  return html`<div class="sample">
    <${Failure} error=${state.error} />
    <div class="buttons">
      ${state.running ? html`<button type="button" onClick=${() => stop.current()}>Stop</button>` : html`<button type="button" class="primary" onClick=${begin}>Send sample traffic</button>`}
      ${state.sent > 0 && html`<a class="button" href=${link("flow", "/", SAMPLE)}>See it flow</a><a class="button" href=${link("rings", "/", SAMPLE)}>Its ring</a><button type="button" onClick=${clear}>Remove the sample</button>`}
    </div>
    ${state.sent > 0 && html`<p class="note" role="status">${state.sent} messages to ${QUEUES.length} queues of the hash exchange ${SAMPLE}: every customer keeps its queue.</p><${LiveFlow} vhost="/" name=${SAMPLE} />`}
  </div>`;
}
