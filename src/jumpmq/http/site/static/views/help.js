// Help: addresses for clients, keys of the page, terms.

import { get } from "../lib/api.js";
import { useAddress, useLive } from "../lib/live.js";
import { Facts, html, Page, Panel, Table, useEffect, usePerson } from "../lib/ui.js";

const KEYS = [
  ["Ctrl K", "go to a queue, exchange, connection, group, user, policy or view by a part of its name; follow a key; act"],
  ["/", "search the list of the view"],
  ["Enter", "in a search: open the only hit"],
  ["?", "this view"],
  ["Esc", "close a dialog"],
  ["Double click in a chart", "show all of it again, after a part was chosen with the mouse"],
];

/** Terms, by the view that links to them: the word and its explanation. */
const TERMS = {
  rings: ["Ring", "The buckets of a consistent hash exchange in order, each of one queue. A key's hash names its bucket, so that all messages of a key go to one queue. The binding key is the weight: the number of buckets."],
  "what-if": ["What if", "A preview: the share of keys moved by a change of bindings. Removed queues leave retired buckets, so that no other key moves (ring-removal: minimal)."],
  shards: ["Shard", "A queue made by a sharded exchange, several on each node. A policy with shards-per-node makes an exchange sharded; each consumer of the exchange's name gets a shard."],
  groups: ["Consumer group", "Consumers with the same argument x-consumer-group share the queues of an exchange, or the slots of a queue, each at one member at a time, so that every key is consumed in order."],
  slots: ["Slot", "A part of a queue with the argument x-slots. All messages of a key are in one slot, which one consumer has at a time."],
  fences: ["Keys that wait", "After a change of a ring, messages of moved keys wait in the new queue until the old queue has no older messages of these keys. Releasing the messages gives up the order of the keys."],
  readers: ["Reader", "A Spark query that reserves messages, reads them any number of times, and acknowledges them at the end of the batch: spark.readStream.format(\"jumpmq\").option(\"url\", \"http://...\").option(\"queue\", \"orders\").load()"],
  streams: ["Stream", "A queue that keeps consumed messages; consumers begin at an offset, a time, the first or the last message."],
  policies: ["Policy", "Settings for all queues or exchanges with a name that matches a pattern. Among several matching policies, the highest priority is in force; operator policies limit other policies."],
  vhosts: ["Virtual host", "A name space of its own for queues, exchanges, policies and permissions. A client connects to one."],
  deaths: ["Dead letter", "A rejected or expired message, or a message without room in the queue, sent to the queue's dead-letter exchange. The header x-death has the queue and the reason."],
  flow: ["Flow", "Publishers, queues and consumers as one live picture. A red link gets more messages than are settled."],
  nodes: ["Node, worker", "A node is one JumpMQ of a cluster, a worker is one process of a node. Every queue is at one worker; if the worker ends, the queue is down until the worker returns."],
};

export function Help() {
  const { query } = useAddress();
  const person = usePerson();
  const { data } = useLive((signal) => get("/api/overview", { columns: "listeners,product_version,cluster_name" }, signal), 30, []);
  useEffect(() => { document.getElementById(`term-${query.about}`)?.scrollIntoView({ block: "center" }); }, [query.about]);
  const listeners = data?.listeners?.filter((one) => one.protocol.startsWith("amqp")) ?? [];
  return html`<${Page} title="Help">
    <div class="columns">
      <${Panel} title="This broker"><${Facts} facts=${[
        ["Version", data && `JumpMQ ${data.product_version}`],
        ["Cluster", data?.cluster_name],
        ["Clients connect to", listeners.map((one) => html`<div key=${one.node + one.port + one.ip_address}><code>${one.protocol === "amqp" ? "amqp" : "amqps"}://${one.ip_address.includes(":") ? `[${one.ip_address}]` : one.ip_address}:${one.port}</code> <span class="note">${one.node}</span></div>`)],
        ["Logged in as", `${person.user} (${person.tags.join(", ")})`],
        ["API", html`<a href="/api/openapi.json">${location.origin}/api, as OpenAPI</a>`],
        ["Command line", html`<code>jumpmqctl --help</code>`],
      ]} /><//>
      <${Panel} title="Keys"><${Table} caption="Keys" rows=${KEYS} columns=${[{ label: "Key", render: ([key]) => html`<kbd>${key}</kbd>` }, { label: "Does", render: ([, does]) => does }]} /><//>
    </div>
    <${Panel} title="Terms"><dl class="terms">${Object.entries(TERMS).map(([key, [term, what]]) => html`<div key=${key} id=${`term-${key}`} class=${key === query.about ? "lit" : ""}><dt>${term}</dt><dd>${what}</dd></div>`)}</dl><//>
  <//>`;
}
