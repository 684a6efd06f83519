// Policies, with a preview of the matches.

import { below, get, path, post, put, remove } from "../lib/api.js";
import * as format from "../lib/format.js";
import { useLive } from "../lib/live.js";
import { Confirm, Failure, FormButton, html, jsonOf, Mark, Page, Panel, Table, tell, useState, useHosted, usePerson } from "../lib/ui.js";
import { useHosts } from "./hosts.js";

export const Policies = () => html`<${Page} title="Policies" about="policies">
  <${Kind} title="Policies" kind="policies" may="policymaker" />
  <${Kind} title="Operator policies" kind="operator-policies" may="administrator" />
  <${Parameters} />
<//>`;

/** Global parameter with the cluster's name; set by administrators only. */
const CLUSTER_NAME = "cluster_name";

/** Global parameters of the broker, for users that may set policies. */
function Parameters() {
  const person = usePerson();
  const may = person.may("policymaker");
  const { data, error, again } = useLive((signal) => (may ? get("/api/global-parameters", {}, signal) : []), 10, [may]);
  if (!may) return null;
  const set = ({ name, value }) => {
    let parsed;
    try {
      parsed = JSON.parse(value);
    } catch {
      throw new Error('The value must be JSON, such as "text", 12 or {"a": 1}.');
    }
    return put(path("global-parameters", name), { value: parsed });
  };
  const field = (value) => ({ name: "value", label: "Value", type: "textarea", required: true, value, hint: 'JSON, such as "text" or {"a": 1}' });
  const done = () => { again(); tell("Parameter set"); };
  const mayChange = (one) => one.name !== CLUSTER_NAME || person.may("administrator");
  return html`<${Panel} title="Global parameters" note="kept by the broker for tools, and the cluster's name, which clients are told"
    actions=${html`<${FormButton} label="Set a parameter" send="Set" submit=${set} done=${done} fields=${[{ name: "name", label: "Name", required: true, hint: person.may("administrator") ? `${CLUSTER_NAME} is the cluster's` : "" }, field("")]} />`}>
    <${Failure} error=${error} />
    ${data && html`<${Table} caption="Global parameters" rows=${data} empty="There is none." rowKey=${(one) => one.name} columns=${[
      { label: "Name", class: "name", key: "name" },
      { label: "Value", class: "name", render: (one) => html`<code>${JSON.stringify(one.value)}</code>` },
      { label: "", class: "end", render: (one) => mayChange(one) && html`
        <${FormButton} button="quiet" label="Change" title=${`Change ${one.name}`} send="Set" fields=${[field(JSON.stringify(one.value, null, 1))]} submit=${({ value }) => set({ name: one.name, value })} done=${done} />
        <${Confirm} quiet label="Delete" title=${`Delete ${one.name}?`} text="Tools that read it find nothing then." submit=${() => remove(path("global-parameters", one.name))} done=${() => { again(); tell("Parameter deleted"); }} />` },
    ]} />`}
  <//>`;
}

/** Return a text with the messages and queues that a policy would delete at once; null without losses. */
function losses({ queues, messages, octets, streams, expiring, uncounted }) {
  const lost = [messages && format.plural(messages, "message"), octets && `${format.octets(octets)} of messages`].filter(Boolean);
  const found = [
    lost.length && `${lost.join(" and ")} of ${format.plural(queues, "queue")} will be gone for good.`,
    streams && `${format.plural(streams, "stream")} will keep less: the oldest messages may go.`,
    expiring && `${format.plural(expiring, "queue")} without a consumer will be deleted when that time is over.`,
    uncounted.length && `What queues at ${uncounted.join(", ")} would lose is not known: ${uncounted.length === 1 ? "it does" : "they do"} not answer.`,
  ].filter(Boolean);
  return found.length ? found.join(" ") : null;
}

/** Edit distance of two names, to suggest a similar name. */
function distance(one, other) {
  let row = [...Array(other.length + 1).keys()];
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++) next[j] = Math.min(next[j - 1] + 1, row[j] + 1, row[j - 1] + (one[i - 1] === other[j - 1] ? 0 : 1));
    row = next;
  }
  return row[other.length];
}

const SETTINGS = ["max-length", "max-length-bytes", "message-ttl", "expires", "overflow", "dead-letter-exchange", "dead-letter-routing-key", "dead-letter-strategy", "delivery-limit", "delayed-retry-type", "delayed-retry-min", "delayed-retry-max", "delayed-retry-multiplier", "max-age", "stream-max-segment-size-bytes", "shards-per-node", "routing-key", "alternate-exchange", "max-priority", "consumer-timeout", "queue-mode", "queue-version", "queue-leader-locator"];

/** Rethrow a refusal. An unknown setting, which the broker names in Erlang's notation, gets a similar known name. */
function readable(error) {
  const [, unknown] = error.message.match(/\[\{<<"(.+?)">>.*not recognised/) ?? [];
  if (!unknown) throw error;
  const [best] = SETTINGS.map((one) => [distance(unknown, one), one]).sort((one, other) => one[0] - other[0]);
  throw new Error(`Unknown setting ${unknown}.${best[0] <= 3 ? ` Did you mean ${best[1]}?` : ""}`);
}

const bodyOf = ({ pattern, definition, priority, applyTo }) => ({ pattern, definition: jsonOf(definition, "The definition"), priority: Number(priority), "apply-to": applyTo });

function Kind({ title, kind, may }) {
  const person = usePerson();
  const hosts = useHosts();
  const { data, error, again } = useLive((signal) => get(`/api/${kind}`, {}, signal), 5, [kind]);
  const rows = useHosted(data);
  const mayChange = person.may(may);
  const fields = (one) => [
    ...(one ? [] : [{ name: "vhost", label: "Virtual host", type: "select", options: hosts, value: hosts[0] }, { name: "name", label: "Name", required: true }]),
    { name: "pattern", label: "Pattern", value: one?.pattern ?? "^", required: true, hint: "a regular expression, searched in names" },
    { name: "applyTo", label: "Applies to", type: "select", options: ["queues", "exchanges", "all"], value: one?.["apply-to"] ?? "queues" },
    { name: "priority", label: "Priority", type: "number", value: one?.priority ?? 0 },
    { name: "definition", label: "Definition", type: "textarea", value: one ? JSON.stringify(one.definition) : "", hint: `JSON, such as {"max-length": 1000} or {"shards-per-node": 4}` },
  ];
  const preview = (one) => (values) => html`<${Preview} kind=${kind} place=${{ vhost: values.vhost ?? one?.vhost, name: (values.name ?? one?.name) || "new" }} values=${values} />`;
  const place = (one, values = {}) => path("preview", kind, values.vhost ?? one.vhost, values.name ?? one.name);
  const warn = (one) => async (values) => losses((await post(place(one, values), bodyOf(values)).catch(readable)).discards);
  const warnCleared = (one) => async () => losses((await get(below(place(one), "cleared"))).discards);
  const save = (one) => (values) => put(path(kind, values.vhost ?? one.vhost, values.name ?? one.name), bodyOf(values)).catch(readable);
  return html`<${Panel} title=${title} actions=${mayChange && html`<${FormButton} label=${kind === "policies" ? "Add a policy" : "Add an operator policy"} button=${kind === "policies" ? "primary" : ""} send="Save" fields=${fields()} warn=${warn()} submit=${save()} done=${() => { again(); tell("Policy in force"); }}>${preview()}<//>`}>
    <${Failure} error=${error} />
    ${rows && html`<${Table} caption=${title} rows=${rows} empty="There is none." rowKey=${(one) => one.vhost + "\n" + one.name} columns=${[
      { label: "Name", class: "name", key: "name" },
      { label: "Virtual host", key: "vhost" },
      { label: "Pattern", render: (one) => html`<code>${one.pattern}</code>` },
      { label: "Applies to", key: "apply-to" },
      { label: "Definition", render: (one) => html`<code>${JSON.stringify(one.definition)}</code>` },
      { label: "Priority", num: true, key: "priority" },
      { label: "", class: "end", render: (one) => mayChange && html`
        <${FormButton} button="quiet" label="Change" title=${`Change ${one.name}`} send="Save" fields=${fields(one)} warn=${warn(one)} submit=${save(one)} done=${() => { again(); tell("Policy in force"); }}>${preview(one)}<//>
        <${Confirm} quiet label="Clear" title=${`Clear ${one.name}?`} text="What it matches then goes by its own arguments, or the policy of the next priority. Shards stay." warn=${warnCleared(one)} submit=${() => remove(path(kind, one.vhost, one.name))} done=${() => { again(); tell("Policy cleared"); }} />` },
    ]} />`}
  <//>`;
}

/** Preview of the matches of a policy that is being edited. */
function Preview({ kind, place, values }) {
  const [state, setState] = useState({ found: null, error: null });
  const look = async () => {
    try {
      setState({ found: await post(path("preview", kind, place.vhost, place.name), bodyOf(values)), error: null });
    } catch (error) {
      setState({ found: null, error });
    }
  };
  return html`<div class="preview">
    <button type="button" onClick=${look}>What would it match?</button>
    <${Failure} error=${state.error} />
    ${state.found && html`<div role="status">
      <p>${format.plural(state.found.queues, "queue")} and ${format.plural(state.found.exchanges, "exchange")}; in force for ${format.count(state.found.in_force)}.</p>
      <ul>${state.found.items.slice(0, 20).map((one) => html`<li><span class="note">${one.kind}</span> ${one.name} ${one.hidden_by && html`<${Mark} state="warning">${one.hidden_by} goes before<//>`}</li>`)}</ul>
      ${state.found.queues + state.found.exchanges > 20 && html`<p class="note">and more</p>`}
    </div>`}
  </div>`;
}
