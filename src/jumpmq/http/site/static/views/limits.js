// Limits of virtual hosts and users, and of memory and disk.

import { get, path, put, remove } from "../lib/api.js";
import * as format from "../lib/format.js";
import { useLive } from "../lib/live.js";
import { Confirm, Failure, FormButton, html, Page, Panel, Table, tell, useHosted, usePerson } from "../lib/ui.js";

const NAMES = { vhost: ["max-connections", "max-queues"], user: ["max-connections", "max-channels"] };

export const Limits = () => html`<${Page} title="Limits">
  <${Kind} title="Virtual hosts" kind="vhost" />
  <${Kind} title="Users" kind="user" />
  <${Node} />
<//>`;

function Kind({ title, kind }) {
  const person = usePerson();
  const { data, error, again } = useLive((signal) => get(`/api/${kind}-limits`, {}, signal), 5, [kind]);
  const rows = useHosted(data, kind === "vhost" ? "vhost" : null)?.flatMap((one) => Object.entries(one.value).map(([limit, value]) => ({ of: one[kind], limit, value })));
  const place = (of, limit) => path(`${kind}-limits`, of, limit);
  return html`<${Panel} title=${title} actions=${person.may("administrator") && html`<${FormButton} label=${`Limit a ${kind === "vhost" ? "virtual host" : "user"}`} send="Set" submit=${({ of, limit, value }) => put(place(of, limit), { value: Number(value) })} done=${() => { again(); tell("Limit set"); }} fields=${[
      { name: "of", label: "Name", required: true },
      { name: "limit", label: "Limit", type: "select", options: NAMES[kind], value: NAMES[kind][0] },
      { name: "value", label: "At most", type: "number", required: true },
    ]} />`}>
    <${Failure} error=${error} />
    ${rows && html`<${Table} caption=${`Limits of ${title.toLowerCase()}`} rows=${rows} empty="None is limited." columns=${[
      { label: "Name", class: "name", key: "of" },
      { label: "Limit", key: "limit" },
      { label: "At most", num: true, render: (one) => format.count(one.value) },
      { label: "", class: "end", render: (one) => person.may("administrator") && html`<${Confirm} quiet label="Clear" title="Clear this limit?" text=${`${one.of} may then have any number.`} submit=${() => remove(place(one.of, one.limit))} done=${() => { again(); tell("Limit cleared"); }} />` },
    ]} />`}
  <//>`;
}

function Node() {
  const person = usePerson();
  const { data } = useLive((signal) => (person.may("monitoring") ? get("/api/nodes", {}, signal) : []), 5, []);
  const [node] = data ?? [];
  return node && html`<${Panel} title="Memory and disk" note="publishers are blocked beyond these limits">
    <${Table} caption="Limits of the node" rows=${[
      ["Memory held for messages", format.octets(node.mem_messages), format.octets(node.mem_limit)],
      ["Free disk", format.octets(node.disk_free), format.octets(node.disk_free_limit)],
      ["Open files", format.count(node.fd_used), format.count(node.fd_total)],
    ]} columns=${[
      { label: "What", render: (row) => row[0] },
      { label: "Now", num: true, render: (row) => row[1] },
      { label: "Limit", num: true, render: (row) => row[2] },
    ]} />
  <//>`;
}
