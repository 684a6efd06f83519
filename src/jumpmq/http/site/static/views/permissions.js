// Permissions: who may do what in which virtual host, and what somebody would be allowed to do.

import { get, path, put, remove } from "../lib/api.js";
import { useLive } from "../lib/live.js";
import { Confirm, Failure, Form, FormButton, html, Mark, Page, Panel, Table, tell, useHosted, useState } from "../lib/ui.js";
import { useHosts } from "./hosts.js";

/** What a user may usually be given, all else being asked for in regular expressions. */
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
    <${Allowed} hosts=${hosts} />
  <//>`;
}

function Allowed({ hosts }) {
  const [answer, setAnswer] = useState(null);
  const ask = async ({ user, vhost, name }) => setAnswer({ user, name, found: await get(path("users", user, "allowed", vhost, name)) });
  return html`<${Panel} title="What would this user be allowed to do?">
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
