// Permissions of users per virtual host, with a check of one operation.

import { get, path, put, remove } from "../lib/api.js";
import { useLive } from "../lib/live.js";
import { Confirm, Failure, Form, FormButton, html, Mark, Page, Panel, Table, tell, useHosted, useState } from "../lib/ui.js";
import { useHosts } from "./hosts.js";

/** Usual permissions; all other permissions are entered as regular expressions. */
export const PRESETS = {
  "Nothing: only open the virtual host": { configure: "", write: "", read: "" },
  "Read only: consume, get, purge": { configure: "", write: "", read: ".*" },
  "Publish only": { configure: "", write: ".*", read: "" },
  "Everything": { configure: ".*", write: ".*", read: ".*" },
};
const CUSTOM = "Custom";
const HINTS = {
  configure: "declare and delete; a regular expression, searched in names; empty: nothing",
  write: "publish, bind from",
  read: "consume, get, and purge",
};

export function Permissions() {
  const hosts = useHosts();
  const { data, error, again } = useLive((signal) => get("/api/permissions", {}, signal), 5, []);
  const rows = useHosted(data);
  const users = useLive((signal) => get("/api/users", { columns: "name" }, signal), 30, []).data?.map((one) => one.name) ?? [];
  const grant = ({ user, vhost, preset, configure, write, read }) => put(path("permissions", vhost, user), PRESETS[preset] ?? { configure, write, read });
  const fields = (one = {}) => [
    ...(one.user ? [] : [{ name: "user", label: "User", type: "select", options: users, value: users[0], required: true }, { name: "vhost", label: "Virtual host", type: "select", options: hosts, value: hosts[0] }]),
    { name: "preset", label: "May", type: "select", options: [...Object.keys(PRESETS), CUSTOM], value: one.user ? CUSTOM : Object.keys(PRESETS)[0] },
    ...["configure", "write", "read"].map((name) => ({ name, label: name[0].toUpperCase() + name.slice(1), value: one[name] ?? "", hint: HINTS[name], when: ({ preset }) => preset === CUSTOM })),
  ];
  return html`<${Page} title="Permissions" actions=${html`<${FormButton} label="Grant" title="Grant permissions" button="primary" send="Grant" fields=${fields()} submit=${grant} done=${() => { again(); tell("Permissions set"); }} />`}>
    <${Failure} error=${error} />
    ${rows && html`<${Table} caption="Permissions" rows=${rows} empty="No user has permissions." rowKey=${(one) => one.user + "\n" + one.vhost} columns=${[
      { label: "User", class: "name", key: "user" },
      { label: "Virtual host", key: "vhost" },
      ...["configure", "write", "read"].map((name) => ({ label: name[0].toUpperCase() + name.slice(1), render: (one) => html`<code>${one[name] || "–"}</code>` })),
      { label: "", class: "end", render: (one) => html`
        <${FormButton} button="quiet" label="Change" title=${`${one.user} in ${one.vhost}`} send="Save" fields=${fields(one)} submit=${(values) => grant({ ...one, ...values })} done=${() => { again(); tell("Permissions set"); }} />
        <${Confirm} quiet label="Revoke" title="Revoke?" text=${`${one.user} may do nothing in ${one.vhost} any more.`} submit=${() => remove(path("permissions", one.vhost, one.user))} done=${() => { again(); tell("Permissions revoked"); }} />` },
    ]} />`}
    <${OfTopics} hosts=${hosts} users=${users} />
    <${Allowed} hosts=${hosts} />
  <//>`;
}

/** Routing keys that users may use to publish to topic exchanges, and to bind; without an entry, all keys. */
function OfTopics({ hosts, users }) {
  const { data, error, again } = useLive((signal) => get("/api/topic-permissions", {}, signal), 5, []);
  const rows = useHosted(data);
  const patterns = (one) => ["write", "read"].map((name) => ({ name, label: name === "write" ? "Publish" : "Bind and consume", value: one[name], hint: `routing keys; a regular expression${name === "write" ? ", in which {username} and {vhost} stand for the user's" : ""}` }));
  const set = ({ user, vhost, exchange, write, read }) => put(path("topic-permissions", vhost, user), { exchange, write, read });
  const done = () => { again(); tell("Topic permissions set"); };
  return html`<${Panel} title="Topic permissions" note="of users that may use a topic exchange with some routing keys alone; without an entry, with all"
    actions=${html`<${FormButton} label="Restrict" title="Restrict routing keys" send="Set" submit=${set} done=${done} fields=${[
      { name: "user", label: "User", type: "select", options: users, value: users[0] },
      { name: "vhost", label: "Virtual host", type: "select", options: hosts, value: hosts[0] },
      { name: "exchange", label: "Topic exchange", required: true, value: "amq.topic" },
      ...patterns({ write: "", read: "" }),
    ]} />`}>
    <${Failure} error=${error} />
    ${rows && html`<${Table} caption="Topic permissions" rows=${rows} empty="No user is restricted to some routing keys." rowKey=${(one) => [one.user, one.vhost, one.exchange].join("\n")} columns=${[
      { label: "User", class: "name", key: "user" },
      { label: "Virtual host", key: "vhost" },
      { label: "Exchange", class: "name", key: "exchange" },
      { label: "Publish", render: (one) => html`<code>${one.write || "–"}</code>` },
      { label: "Bind and consume", render: (one) => html`<code>${one.read || "–"}</code>` },
      { label: "", class: "end", render: (one) => html`
        <${FormButton} button="quiet" label="Change" title=${`${one.user} at ${one.exchange}`} send="Save" fields=${patterns(one)} submit=${(values) => set({ ...one, ...values })} done=${done} />
        <${Confirm} quiet label="Lift" title="Lift the restriction?" text=${`${one.user} may use ${one.exchange} with all routing keys, as far as its permissions go.`} submit=${() => remove(path("topic-permissions", one.vhost, one.user, one.exchange))} done=${() => { again(); tell("Restriction lifted"); }} />` },
    ]} />`}
  <//>`;
}

function Allowed({ hosts }) {
  const [answer, setAnswer] = useState(null);
  const ask = async ({ user, vhost, name }) => setAnswer({ user, name, found: await get(path("users", user, "allowed", vhost, name)) });
  return html`<${Panel} title="Rights of this user">
    <${Form} label="Ask" submit=${ask} fields=${[
      { name: "user", label: "User", required: true },
      { name: "vhost", label: "Virtual host", type: "select", options: hosts, value: hosts[0] },
      { name: "name", label: "Queue or exchange", required: true },
    ]} />
    ${answer && html`<div role="status"><${Table} caption="Allowed" rows=${Object.entries(answer.found)} columns=${[
      { label: "Operation", render: ([operation]) => operation },
      { label: "", render: ([, one]) => html`<${Mark} state=${one.allowed ? "good" : "alarm"}>${one.allowed ? "allowed" : "refused"}<//>` },
      { label: "because of", render: ([, one]) => one.pattern == null ? "no permissions in this virtual host" : html`<code>${one.pattern || "(empty)"}</code>` },
    ]} /></div>`}
  <//>`;
}
