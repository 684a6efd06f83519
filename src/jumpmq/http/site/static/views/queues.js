// Queues: the list; one queue with rates, bindings, consumers and actions.

import { get, path, post, put, remove } from "../lib/api.js";
import { LiveCharts } from "../lib/chart.js";
import * as format from "../lib/format.js";
import { link, useLive } from "../lib/live.js";
import { Confirm, Empty, Facts, Failure, FormButton, html, jsonOf, LongTable, Mark, Page, Panel, ServerTable, several, SortedTable, Spark, tell, Tile, Tiles, useLast, usePerson, useState } from "../lib/ui.js";
import { FencesOf } from "./fences.js";
import { Bindings } from "./bindings.js";
import { IncidentsOf } from "./incidents.js";
import { closing, columns as consumerColumns, compared, keyOf as keyOfConsumer } from "./consumers.js";
import { Move } from "./moving.js";
import { publishing } from "./publishing.js";
import { KINDS, samplesOf, useHosts } from "./hosts.js";

/** A figure of a queue; unknown while the queue's node is down. */
const known = (queue, shown) => (queue.state === "down" ? html`<span class="note">–</span>` : shown);

export const limitsOf = (queue) => html`${queue.state === "down" && html`<${Mark} state="alarm">down<//> `}${!queue.durable && html`<${Mark}>transient<//> `}${queue.exclusive && html`<${Mark}>exclusive<//> `}${queue.auto_delete && html`<${Mark}>auto-delete<//> `}${queue.policy && html`<${Mark} state="accent">${queue.policy}<//> `}${(queue.moving_from || queue.moving_to) && html`<${Mark} state="accent">moving<//>`}${queue.move_failed && html`<${Mark} state="warning">not moved<//>`}`;

/** Return a text with the source or destination of a moving queue, or the reason of a failed move. */
function moveOf({ moving_from: from, moving_to: to, move_failed: failed }) {
  if (from) return `from ${from}: messages are on their way`;
  if (to) return `to ${to}: its files are copied`;
  return failed ? `not ${failed}` : null;
}

/** The worst cause per queue, by the queue's key; null for a user who may not see causes. */
const keyOf = (one) => `${one.vhost}\n${one.name}`;

/** Short names of causes, for rows. */
const SHORT = { "queue-without-consumer": "no consumer", "dead-letters-wait": "dead letters", "queue-full": "full" };

/** Seconds for which the next message of a queue has waited. */
const ageOf = ({ head_published_at: at, messages_ready: ready, state }) => (state !== "down" && ready && at ? Math.max(0, Date.now() / 1000 - at) : null);

const columnsOf = (causes) => [
  { label: "Name", sort: "name", class: "name", render: (queue) => html`<a href=${link("queues", queue.vhost, queue.name)}>${format.name(queue.name)}</a>` },
  { label: "Virtual host", sort: "vhost", key: "vhost", minor: true, when: several("vhost") },
  { label: "Type", sort: "type", key: "type", minor: true },
  { label: "State", class: "name", render: (queue) => html`${causes.get(keyOf(queue)) && queue.state !== "down" && html`<${Mark} state=${causes.get(keyOf(queue)).severity}>${SHORT[causes.get(keyOf(queue)).kind] ?? causes.get(keyOf(queue)).kind.replaceAll("-", " ")}<//> `}${limitsOf(queue)}` },
  { label: "Node", minor: true, class: "time", when: several("node"), render: (queue) => queue.node },
  { label: "Ready", sort: "messages_ready", num: true, render: (queue) => known(queue, format.count(queue.messages_ready)) },
  { label: "Unacked", sort: "messages_unacknowledged", num: true, render: (queue) => known(queue, format.count(queue.messages_unacknowledged)) },
  { label: "Total", sort: "messages", num: true, render: (queue) => known(queue, format.count(queue.messages)) },
  { label: "Oldest", num: true, minor: true, render: (queue) => format.span(ageOf(queue)) },
  { label: "Over time", minor: true, render: (queue) => html`<${Spark} values=${samplesOf(queue)} label=${`Messages in ${queue.name} over the last minutes`} />` },
  { label: "Published /s", sort: "message_stats.publish_details.rate", num: true, render: (queue) => known(queue, format.rate(queue.message_stats.publish_details.rate)) },
  { label: "Delivered /s", sort: "message_stats.deliver_get_details.rate", num: true, render: (queue) => known(queue, format.rate(queue.message_stats.deliver_get_details.rate)) },
  { label: "Acked /s", sort: "message_stats.ack_details.rate", num: true, render: (queue) => known(queue, format.rate(queue.message_stats.ack_details.rate)) },
  { label: "Consumers", sort: "consumers", num: true, render: (queue) => known(queue, !queue.consumers && queue.messages_ready && queue.type !== "stream" ? html`<${Mark} state="warning">none<//>` : format.count(queue.consumers)) },
];

/** The broker's filters for queues that need attention. */
const FILTERS = [["unattended", "No consumer"], ["growing", "Growing"], ["full", "Full"]];

/** Parameters of the samples for the line beside each queue. */
const SAMPLES = { lengths_age: 300, lengths_incr: 10 };

/** Fields of a queue that the list shows. */
const DRAWN = [
  "name", "vhost", "type", "durable", "exclusive", "auto_delete", "policy", "state", "node", "moving_from", "moving_to", "move_failed", "consumers",
  "messages", "messages_ready", "messages_unacknowledged", "messages_details", "head_published_at",
  ...["publish", "deliver_get", "ack"].map((name) => `message_stats.${name}_details`),
].join();

/** Queue arguments with their own field in a form: label, hint, types of queue. */
const HELPED = [
  ["x-max-length", "Messages at most", "x-max-length; beyond, the oldest are dropped, unless x-overflow says otherwise", ["classic", "quorum"]],
  ["x-message-ttl", "Messages expire after, in ms", "x-message-ttl", ["classic", "quorum"]],
  ["x-dead-letter-exchange", "Dead letters go to exchange", "x-dead-letter-exchange", ["classic", "quorum"]],
  ["x-dead-letter-routing-key", "with the routing key", "x-dead-letter-routing-key", ["classic", "quorum"]],
  ["x-slots", "Slots", "x-slots: parts that the members of a consumer group share by key, such as 64", ["classic", "quorum"]],
  ["x-max-age", "Keep messages for", "x-max-age, such as 7D", ["stream"]],
  ["x-max-length-bytes", "Octets at most", "x-max-length-bytes"],
];

/** The arguments entered in these fields; numbers as numbers. */
const argumentsOf = (values) => Object.fromEntries(HELPED.map(([name]) => [name, values[name]]).filter(([, value]) => value).map(([name, value]) => [name, /^\d+$/.test(value) && !name.startsWith("x-dead") ? Number(value) : value]));

const sumOf = (rows, what) => rows.reduce((sum, one) => sum + (one[what] ?? 0), 0);

/** Actions for chosen queues. */
const BULK = [
  { label: "Purge", text: (rows) => `${format.plural(sumOf(rows, "messages_ready"), "ready message")} of ${format.plural(rows.length, "queue")} will be gone for good.`, run: (one) => remove(path("queues", one.vhost, one.name, "contents")) },
  { label: "Delete", text: (rows) => `${format.plural(rows.length, "queue")} go with their bindings and ${format.plural(sumOf(rows, "messages"), "message")}.`, run: (one) => remove(path("queues", one.vhost, one.name)) },
];

export function Queues() {
  const hosts = useHosts();
  const person = usePerson();
  const [version, setVersion] = useState(0);
  const incidents = useLive((signal) => (person.may("monitoring") ? get("/api/warnings", {}, signal) : []), 5, []);
  const causes = new Map((incidents.data ?? []).filter((one) => one.object === "queue").reverse().map((one) => [keyOf(one), one]));
  const declare = ({ vhost, name, type, durable, arguments: text, ...helped }) =>
    put(path("queues", vhost, name), { durable, arguments: { ...(type !== "classic" && { "x-queue-type": type }), ...argumentsOf(helped), ...jsonOf(text, "Arguments") } });
  return html`<${Page} title="Queues" actions=${html`<${FormButton} label="Declare a queue" button="primary" send="Declare" submit=${declare}
      done=${() => { setVersion(version + 1); tell("Queue declared"); }} fields=${[
        { name: "vhost", label: "Virtual host", type: "select", options: hosts, value: hosts[0] },
        { name: "name", label: "Name", required: true },
        { name: "type", label: "Type", type: "select", options: KINDS, value: "classic" },
        { name: "durable", label: "Durable", type: "checkbox", value: true },
        { name: "helped", label: "Set common arguments", type: "checkbox" },
        ...HELPED.map(([name, label, hint, of = KINDS]) => ({ name, label, hint, when: ({ helped, type }) => helped && of.includes(type) })),
        { name: "arguments", label: "Arguments", type: "textarea", rows: 2, hint: `others, as JSON, such as {"x-overflow": "reject-publish"}` },
      ]} />`}>
    <${ServerTable} url="/api/queues" columns=${columnsOf(causes)} rowKey=${keyOf} bulk=${BULK} caption="Queues" order="messages" reverse filters=${FILTERS} query=${{ ...SAMPLES, columns: DRAWN }} empty="No queue is declared yet." version=${version} />
  <//>`;
}

export function Queue({ vhost, name }) {
  const person = usePerson();
  const { data, error, again } = useLive((signal) => get(path("queues", vhost, name), {}, signal), 2, [vhost, name]);
  const queue = useLast(data);
  if (!queue) return html`<${Page} title=${name} kind="Queue"><${Failure} error=${error} /><//>`;
  const gone = error?.status === 404;
  const stats = queue.message_stats;
  const down = queue.state === "down";
  const tile = (label, value, rest = {}) => html`<${Tile} label=${label} value=${down ? "–" : value} unit=${down ? "unknown" : rest.unit} state=${down ? "" : rest.state} />`;
  return html`<${Page} title=${name} kind=${down ? html`Queue <${Mark} state="alarm">down<//>` : "Queue"} actions=${!gone && !down && html`
      <${FormButton} label="Publish" ...${publishing(vhost, "amq.default", name)} />
      <a class="button" href=${link("messages", vhost, name)}>Browse messages</a>
      ${queue.type !== "stream" && html`<${Move} vhost=${vhost} name=${name} label="Move messages" ready=${queue.messages_ready} done=${again} />`}
      ${person.may("administrator") && html`<${ToNode} queue=${queue} done=${again} />`}
      <${Messages} vhost=${vhost} name=${name} stream=${queue.type === "stream"} done=${again} />
      ${queue.messages_resting > 0 && html`<${Confirm} quiet label="Retry now" title=${`Retry ${format.plural(queue.messages_resting, "message")} now?`} text="They are delivered without waiting for their time." submit=${() => post(path("queues", vhost, name, "retries"))} done=${() => { again(); tell("Messages go on"); }} />`}
      ${queue.type !== "stream" && html`<${Confirm} label="Purge" title=${`Purge ${name}?`} text=${`${format.plural(queue.messages_ready, "ready message")} will be gone for good.`} submit=${() => remove(path("queues", vhost, name, "contents"))} done=${() => { again(); tell("Queue purged"); }} />`}
      <${Confirm} label="Delete" title=${`Delete ${name}?`} text=${`The queue goes with its bindings and ${format.plural(queue.messages, "message")}.`} submit=${() => remove(path("queues", vhost, name))} done=${() => { location.hash = link("queues"); tell("Queue deleted"); }} />`}>
    <${Failure} error=${error} />
    ${down && html`<p class="unwell" role="alert">Node <a href=${link("nodes", queue.node)}>${queue.node}</a>, which holds this queue, does not answer${queue.down_since ? ` since ${format.since(queue.down_since)}` : ""}: messages and consumers are unknown until the node returns. Publishes to the queue are refused.</p>`}
    ${person.may("monitoring") && html`<${IncidentsOf} vhost=${vhost} name=${name} queue />`}
    <${Tiles}>
      ${tile("Ready", format.count(queue.messages_ready))}
      ${tile("Unacknowledged", format.count(queue.messages_unacknowledged))}
      ${queue.messages_resting != null && tile("Waiting for a retry", format.count(queue.messages_resting))}
      ${tile("Published", format.rate(stats.publish_details.rate), { unit: "/s" })}
      ${tile("Delivered", format.rate(stats.deliver_get_details.rate), { unit: "/s" })}
      ${tile("Acknowledged", format.rate(stats.ack_details.rate), { unit: "/s" })}
      ${tile("Consumers", format.count(queue.consumers), { state: queue.messages && !queue.consumers ? "warning" : "" })}
      ${ageOf(queue) != null && tile("Oldest ready", format.span(ageOf(queue)))}
      ${stats.redeliver > 0 && tile("Redelivered", format.rate(stats.redeliver_details.rate), { unit: `/s, ${format.short(stats.redeliver)} in all` })}
      ${tile("Memory", format.octets(queue.memory))}
    <//>
    <${LiveCharts} url=${path("history", "queues", vhost, name)} which=${["rates", "backlog"]} />
    <div class="columns">
      <${Panel} title="Facts"><${Facts} facts=${[
        ["Virtual host", queue.vhost], ["Type", queue.type], ["State", queue.durable && !queue.exclusive && !queue.auto_delete && !queue.moving_from && !queue.moving_to && !queue.move_failed && !down ? "durable" : limitsOf(queue)], ["Operator policy", queue.operator_policy],
        ["Policy in force", Object.keys(queue.effective_policy_definition).length ? html`<code>${JSON.stringify(queue.effective_policy_definition)}</code>` : null],
        ...Object.entries(queue.arguments).map(([key, value]) => [key, html`<code>${format.plain(value)}</code>`]),
        ["Next retry", queue.next_retry_at && format.since(queue.next_retry_at)], ["Last message's number", format.count(queue.last_seq)], ["Deliveries", html`<a href=${link("why", vhost, name)}>why is a message not delivered?</a>`], ["First offset", queue.first_offset], ["Segments", queue.segments], ["Node", queue.node], ["Moves", moveOf(queue)],
      ]} /><//>
      <${Panel} title="Bindings" note="from exchanges to this queue"><${Bindings} url=${path("queues", vhost, name, "bindings")} vhost=${vhost} queue=${name} /><//>
    </div>
    ${!down && queue.type !== "stream" && html`<${Deaths} vhost=${vhost} name=${name} messages=${queue.messages_ready} />`}
    <${FencesOf} vhost=${vhost} names=${[name]} />
    <${Panel} title="Consumers"><${SortedTable} caption="Consumers of this queue" order="messages_unacknowledged" rowKey=${keyOfConsumer} columns=${[...consumerColumns.slice(2), ...(person.may("administrator") ? [closing(again)] : [])]} rows=${compared(queue.consumer_details)} empty=${down ? "Unknown while the node is down." : "This queue has no consumers."} /><${ReadersOf} vhost=${vhost} name=${name} /><//>
  <//>`;
}

/** Causes of the dead letters in the queue; empty without dead letters. */
function Deaths({ vhost, name, messages }) {
  const { data } = useLive((signal) => get(path("queues", vhost, name, "deaths"), {}, signal), 30, [vhost, name, Boolean(messages)]);
  if (!data?.letters) return null;
  return html`<${Panel} title="Dead letters" note=${data.whole ? `${format.plural(data.letters, "message")} died elsewhere` : `among the first ${format.count(data.searched)} messages`}>
    <${LongTable} caption="Dead letters by cause" rows=${data.deaths} few=${10} text=${(one) => one.queue + one.reason} rowKey=${(one) => [one.reason, one.queue, one.exchange].join("\n")} columns=${[
      { label: "Messages", num: true, render: (one) => format.count(one.messages) },
      { label: "Reason", key: "reason" },
      { label: "Died in", class: "name", render: (one) => html`<a href=${link("queues", vhost, one.queue)}>${format.name(one.queue)}</a>` },
      { label: "Published to", class: "name", render: (one) => one.exchange || "(default)" },
    ]} />
  <//>`;
}

/** The Spark queries that read the queue. */
function ReadersOf({ vhost, name }) {
  const { data } = useLive((signal) => get("/api/readers", {}, signal), 5, [vhost, name]);
  const rows = data?.filter((one) => one.vhost === vhost && one.queue === name) ?? [];
  return rows.map((one) => html`<p key=${one.name}><a href=${link("readers")}>Spark query ${one.name}</a> reads this queue: ${format.plural(one.reserved, "message")} reserved, ${format.count(one.ready)} behind.</p>`);
}

/** Move a queue to another node or worker, if there are several. */
function ToNode({ queue, done }) {
  const { data } = useLive((signal) => get("/api/nodes", { columns: "name,running,workers" }, signal), 30, []);
  const places = (data ?? []).filter((one) => one.running).flatMap(({ name, workers }) => (workers.length > 1
    ? workers.filter((one) => one.running).map((one) => ({ label: `${name}, worker ${one.worker}`, to: { home: one.home } }))
    : [{ label: name, to: { node: name } }])).filter(({ to }) => (to.home ? to.home !== queue.home : to.node !== queue.node));
  if (!places.length || (data ?? []).flatMap((one) => one.workers).length < 2) return null;
  const move = ({ place }) => post(path("queues", queue.vhost, queue.name, "actions"), { action: "move", ...places.find((one) => one.label === place).to });
  return html`<${FormButton} label="Move to node" title=${`Move ${queue.name}`} send="Move" submit=${move} done=${() => { done(); tell("Queue is moving"); }}
    fields=${[{ name: "place", label: "To", type: "select", options: places.map((one) => one.label), value: places[0].label }]}>
    <p>${format.plural(queue.messages, "message")} (${format.octets(queue.message_bytes ?? 0)}) ${queue.messages === 1 ? "goes" : "go"} along; ${format.plural(queue.consumers, "consumer")} ${queue.consumers === 1 ? "is" : "are"} cancelled and ${queue.consumers === 1 ? "connects" : "connect"} again.</p>
  <//>`;
}

/** Maximum number of shown octets of a payload. */
const SHOWN = 10000;

/** Return a text with the shown part of a payload, and its encoding. */
function payloadNote({ payload_bytes: size, payload_encoding: encoding }) {
  const parts = [size > SHOWN ? `the first ${format.octets(SHOWN)} of ${format.octets(size)}` : format.octets(size)];
  if (encoding === "base64") parts.push("not UTF-8: shown in base64");
  return parts.join(", ");
}

/** Get messages and show them. The messages are requeued, unless the user chooses otherwise. */
function Messages({ vhost, name, stream, done }) {
  const [messages, setMessages] = useState(null);
  const fields = [
    { name: "count", label: "How many", type: "number", value: 5, min: 1 },
    { name: "ackmode", label: "And then", type: "select", value: "put them back", options: ["put them back", "take them out"], hint: "what is put back is marked as redelivered; Browse messages leaves all as it is" },
  ];
  const fetchThem = ({ count, ackmode }) =>
    post(path("queues", vhost, name, "get"), { count: Number(count), ackmode: ackmode === "put them back" ? "ack_requeue_true" : "ack_requeue_false", encoding: "auto", truncate: SHOWN }).then(setMessages);
  if (stream) return null;
  const takesOut = ({ ackmode }) => ackmode === "take them out";
  const warn = (values) => takesOut(values) && `Up to ${format.plural(Number(values.count), "message")} will be out of the queue for good.`;
  return html`<${FormButton} label="Get messages" button="quiet" send=${(values) => (takesOut(values) ? "Take out" : "Get")} danger=${takesOut} warn=${warn} stay fields=${fields} submit=${fetchThem} done=${done}>
    ${messages && html`<div class="messages" role="status">${messages.length ? messages.map((message) => html`<article>
      <${Facts} facts=${[["Exchange", message.exchange || "(default)"], ["Routing key", message.routing_key], ["Redelivered", message.redelivered ? "yes" : null], ["Left behind it", format.count(message.message_count)], ...Object.entries(message.properties).map(([key, value]) => [key, format.plain(value)])]} />
      <p class="note">${payloadNote(message)}</p>
      <pre>${message.payload}</pre></article>`) : html`<${Empty}>The queue is empty.<//>`}</div>`}
  <//>`;
}
