// Exchanges: the list, and one with its bindings.

import { get, path, put, remove } from "../lib/api.js";
import { LiveCharts } from "../lib/chart.js";
import * as format from "../lib/format.js";
import { link, useLive } from "../lib/live.js";
import { Confirm, Facts, Failure, FormButton, html, jsonOf, Mark, Page, Panel, ServerTable, tell, useLast, usePerson, useState } from "../lib/ui.js";
import { Bindings } from "./bindings.js";
import { publishing } from "./publishing.js";
import { useHosts } from "./hosts.js";

const TYPES = ["x-consistent-hash", "x-modulus-hash", "direct", "fanout", "topic", "headers", "x-random", "x-local-random", "x-delayed-message", "x-message-deduplication"];
/** Exchange types that hold messages; not allowed as the type of a delayed exchange. */
const HOLDING = ["x-delayed-message", "x-message-deduplication"];
/** Choices of the hashed value; the other choices are properties. */
const KEY = "the routing key", HEADER = "a header";
const hashes = ({ type }) => type.endsWith("-hash");
const hashing = ({ property, header, ordered }) => ({ ...(property === HEADER ? { "hash-header": header } : property !== KEY && { "hash-property": property }), ...(ordered && { "ordered-scaling": true }) });

const pathName = (name) => name || "amq.default";
const shownName = (name) => (name === "" || name === "amq.default" ? "(default)" : name);

const COLUMNS = [
  { label: "Name", sort: "name", class: "name", render: (one) => html`<a href=${link("exchanges", one.vhost, pathName(one.name))}>${shownName(one.name)}</a>` },
  { label: "Virtual host", sort: "vhost", key: "vhost", minor: true },
  { label: "Type", sort: "type", render: (one) => html`<${Mark} state=${one.type.includes("hash") ? "accent" : ""}>${one.type}<//>` },
  { label: "State", render: (one) => html`${!one.durable && html`<${Mark}>transient<//> `}${one.internal && html`<${Mark}>internal<//> `}${one.auto_delete && html`<${Mark}>auto-delete<//>`}` },
  { label: "Policy", sort: "policy", render: (one) => one.policy ?? "" },
  { label: "Published /s", sort: "message_stats.publish_in_details.rate", num: true, render: (one) => format.rate(one.message_stats?.publish_in_details.rate) },
  { label: "", class: "end", render: (one) => "shards-per-node" in (one.effective_policy_definition ?? {}) ? html`<a href=${link("shards", one.vhost, one.name)}>Shards</a>` : one.type === "x-consistent-hash" && html`<a href=${link("rings", one.vhost, one.name)}>Ring</a>` },
];

export function Exchanges() {
  const hosts = useHosts();
  const [version, setVersion] = useState(0);
  const declare = ({ vhost, name, type, durable, alternate, delayed, size, persistence, arguments: text, ...given }) =>
    put(path("exchanges", vhost, name), { type, durable, arguments: { ...(hashes({ type }) && hashing(given)), ...(type === "x-delayed-message" && { "x-delayed-type": delayed }), ...(type === "x-message-deduplication" && { "x-cache-size": Number(size), "x-cache-persistence": persistence }), ...(alternate && { "alternate-exchange": alternate }), ...jsonOf(text, "Arguments") } });
  return html`<${Page} title="Exchanges" actions=${html`<${FormButton} label="Declare an exchange" button="primary" send="Declare" submit=${declare}
      done=${() => { setVersion(version + 1); tell("Exchange declared"); }} fields=${[
        { name: "vhost", label: "Virtual host", type: "select", options: hosts, value: hosts[0] },
        { name: "name", label: "Name", required: true },
        { name: "type", label: "Type", type: "select", options: TYPES, value: TYPES[0] },
        { name: "property", label: "Hash", type: "select", options: [KEY, HEADER, "message_id", "correlation_id", "timestamp"], value: KEY, when: hashes },
        { name: "header", label: "Header to hash", required: true, when: (values) => hashes(values) && values.property === HEADER },
        { name: "ordered", label: "Keep the order of keys while the ring changes", type: "checkbox", hint: "ordered-scaling", when: hashes },
        { name: "alternate", label: "Alternate exchange", hint: "gets unroutable messages; alternate-exchange" },
        { name: "durable", label: "Durable", type: "checkbox", value: true },
        { name: "delayed", label: "Routes as", type: "select", options: TYPES.filter((type) => !HOLDING.includes(type)), value: "direct", hint: "x-delayed-type", when: ({ type }) => type === "x-delayed-message" },
        { name: "size", label: "Messages to remember", type: "number", min: 1, value: 1000000, hint: "x-cache-size", when: ({ type }) => type === "x-message-deduplication" },
        { name: "persistence", label: "Remember on", type: "select", options: ["disk", "memory"], value: "disk", hint: "x-cache-persistence", when: ({ type }) => type === "x-message-deduplication" },
        { name: "arguments", label: "Arguments", type: "textarea", rows: 2, hint: "others, as JSON" },
      ]} />`}>
    <${ServerTable} url="/api/exchanges" columns=${COLUMNS} caption="Exchanges" order="name" version=${version} />
  <//>`;
}

export function Exchange({ vhost, name }) {
  const person = usePerson();
  const url = path("exchanges", vhost, name);
  const { data, error } = useLive((signal) => get(url, {}, signal), 5, [url]);
  const exchange = useLast(data);
  const named = name !== "amq.default";
  if (!exchange) return html`<${Page} title=${shownName(name)} kind="Exchange"><${Failure} error=${error} /><//>`;
  return html`<${Page} title=${shownName(name)} kind="Exchange" actions=${html`
      ${named && person.may("monitoring") && html`<a class="button" href=${link("flow", vhost, name)}>Flow</a>`}
      ${(exchange.type === "x-consistent-hash" || exchange.arguments["x-delayed-type"] === "x-consistent-hash") && person.may("monitoring") && html`<a class="button" href=${link("rings", vhost, name)}>Ring</a><a class="button" href=${link("what-if", vhost, name)}>What if</a>`}
      ${"shards-per-node" in exchange.effective_policy_definition && html`<a class="button" href=${link("shards", vhost, name)}>Shards</a>`}
      <${FormButton} label="Publish" ...${publishing(vhost, name)} />
      ${named && !name.startsWith("amq.") && html`<${Confirm} label="Delete" title=${`Delete ${name}?`} text="The exchange goes with its bindings; queues and their messages stay." submit=${() => remove(url)} done=${() => { location.hash = link("exchanges"); tell("Exchange deleted"); }} />`}`}>
    <${Failure} error=${error} />
    <${LiveCharts} url=${path("history", "exchanges", vhost, name)} which=${["published"]} />
    <div class="columns">
      <${Panel} title="Facts"><${Facts} facts=${[
        ["Virtual host", exchange.vhost], ["Type", exchange.type], ["Durable", exchange.durable ? null : "no"], ["Internal", exchange.internal ? "yes" : null], ["Policy", exchange.policy],
        ["Seen messages", exchange.cache_queue && html`<a href=${link("queues", vhost, exchange.cache_queue)}>${exchange.cache_info == null ? "unknown" : `${format.count(exchange.cache_info.entries)} of ${format.count(exchange.cache_info.size)}, ${format.count(exchange.cache_info.duplicates)} duplicates dropped`}</a>`],
        ["Delayed messages", exchange.delayed_queue && html`<a href=${link("queues", vhost, exchange.delayed_queue)}>${exchange.messages_delayed == null ? "unknown" : format.count(exchange.messages_delayed)}</a>`],
        ...Object.entries(exchange.arguments).map(([key, value]) => [key, html`<code>${format.plain(value)}</code>`]),
      ]} /><//>
      ${named && html`<${Panel} title="Bindings" note="from this exchange"><${Bindings} url=${path("exchanges", vhost, name, "bindings", "source")} vhost=${vhost} exchange=${name} /><//>`}
    </div>
  <//>`;
}
