// Groups of readers, such as Spark's queries, by queue; and streams.

import { get, path, remove } from "../lib/api.js";
import * as format from "../lib/format.js";
import { link, useLive } from "../lib/live.js";
import { Bar, Confirm, Failure, html, Mark, Page, Panel, Table, tell, useHosted } from "../lib/ui.js";

export const Readers = () => html`<${Page} title="Readers and streams"><${Groups} /><${Streams} /><//>`;

function Groups() {
  const { data, error, again } = useLive((signal) => get("/api/readers", {}, signal), 1, []);
  const rows = useHosted(data);
  const state = (one) => one.lapsed ? html`<${Mark} state="warning">lapsed<//>` : one.alive ? html`<${Mark} state="good">reading<//>` : html`<${Mark}>silent<//>`;
  return html`<${Panel} title="Spark readers" note="a group of readers reserves messages, reads them as often as it must, and acknowledges them">
    <${Failure} error=${error} />
    ${rows && html`<${Table} caption="Groups of readers" rows=${rows} empty="No group of readers has a place in a queue." rowKey=${(one) => [one.vhost, one.name, one.queue].join("\n")} columns=${[
      { label: "Group", class: "name", key: "name" },
      { label: "Queue", class: "name", render: (one) => html`<a href=${link("queues", one.vhost, one.queue)}>${one.queue}</a>` },
      { label: "", render: state },
      { label: "Reserved", num: true, render: (one) => format.count(one.reserved) },
      { label: "Behind", num: true, render: (one) => format.count(one.ready) },
      { label: "Oldest", num: true, render: (one) => format.span(one.age) },
      { label: "Lease left", num: true, render: (one) => format.span(one.lease_left) },
      { label: "", class: "wide-cell", render: (one) => one.lease_left != null && html`<${Bar} share=${one.lease_left / one.lease} state=${one.lease_left < one.lease / 4 ? "warning" : ""} label=${`${format.span(one.lease_left)} of ${format.span(one.lease)} left`} />` },
      { label: "", class: "end", render: (one) => html`<${Confirm} quiet label="Release" title=${`Release ${one.name}?`} text="Everything that the group has reserved, in all queues, goes back to them, and the group is forgotten. A query that still reads for it fails." submit=${() => remove(path("readers", one.vhost, one.name))} done=${() => { again(); tell("The group is released."); }} />` },
    ]} />`}
  <//>`;
}

function Streams() {
  const { data, error } = useLive((signal) => get("/api/queues", { type: "stream", columns: "name,vhost,type,messages,first_offset,last_seq,segments,consumers,arguments,effective_policy_definition" }, signal), 5, []);
  const rows = useHosted(data);
  const retention = (one) => ["max-age", "max-length-bytes"].map((key) => [key, one.arguments[`x-${key}`] ?? one.effective_policy_definition[key]]).filter(([, value]) => value != null).map(([key, value]) => `${key} ${key === "max-age" ? value : format.octets(value)}`).join(", ");
  return html`<${Panel} title="Streams">
    <${Failure} error=${error} />
    ${rows && html`<${Table} caption="Streams" rows=${rows} rowKey=${(one) => one.vhost + "\n" + one.name} empty="No stream is declared." columns=${[
      { label: "Stream", class: "name", render: (one) => html`<a href=${link("queues", one.vhost, one.name)}>${one.name}</a>` },
      { label: "Virtual host", key: "vhost" },
      { label: "Messages", num: true, render: (one) => format.count(one.messages) },
      { label: "First offset", num: true, render: (one) => format.count(one.first_offset) },
      { label: "Last", num: true, render: (one) => format.count(one.last_seq) },
      { label: "Segments", num: true, render: (one) => format.count(one.segments) },
      { label: "Kept", render: (one) => retention(one) || "for ever" },
      { label: "Readers", num: true, render: (one) => format.count(one.consumers) },
    ]} />`}
  <//>`;
}
