// Groups of readers, such as Spark's queries, by queue; and streams.

import { get, path, remove } from "../lib/api.js";
import * as format from "../lib/format.js";
import { link, useLive } from "../lib/live.js";
import { Bar, Confirm, Empty, Failure, html, Mark, Page, Panel, Table, tell, Tile, Tiles, useHosted } from "../lib/ui.js";

export const Readers = () => html`<${Page} title="Readers and streams" about="readers"><${Groups} /><${Streams} /><//>`;

function Groups() {
  const { data, error, again } = useLive((signal) => get("/api/readers", {}, signal), 2, []);
  const rows = useHosted(data);
  const flow = useLive((signal) => (data?.length ? get("/api/queues", { columns: "name,vhost,message_stats.publish_details,message_stats.ack_details" }, signal) : []), 5, [Boolean(data?.length)]);
  const groups = new Map();
  for (const one of rows ?? []) groups.set(one.vhost + "\n" + one.name, [...(groups.get(one.vhost + "\n" + one.name) ?? []), one]);
  const rates = new Map((flow.data ?? []).map((one) => [one.vhost + "\n" + one.name, one.message_stats]));
  return html`<${Failure} error=${error} />
    ${rows && !groups.size && html`<${Panel} title="Spark queries reading from queues"><${Empty}>No Spark query is reading. <a href="#/help?about=readers">How to read a queue from Spark</a><//><//>`}
    ${[...groups.values()].map((places) => html`<${Group} key=${places[0].vhost + "\n" + places[0].name} places=${places} rates=${rates} again=${again} />`)}`;
}

/** A reader group: the query, its lag over all queues, and the queues. */
function Group({ places, rates, again }) {
  const [{ vhost, name, query, user, lease, lease_left: left }] = places;
  const sum = (what) => places.reduce((total, one) => total + (one[what] ?? 0), 0);
  const rate = (what) => places.reduce((total, one) => total + (rates.get(one.vhost + "\n" + one.queue)?.[`${what}_details`].rate ?? 0), 0);
  const behind = sum("ready");
  const oldest = Math.max(...places.map((one) => one.age ?? -1));
  const gains = rate("ack") - rate("publish");
  const state = places.some((one) => one.lapsed) ? ["warning", "lapsed"] : places.some((one) => one.alive) ? ["good", "reading"] : ["", "silent"];
  return html`<${Panel} title=${name} note=${[vhost !== "/" && `in ${vhost}`, user && `of ${user}`, query && `query ${query}`].filter(Boolean).join(", ")}
    actions=${html`<${Confirm} quiet label="Release" title=${`Release ${name}?`} text="All messages reserved by the group return to their queues, and the group is deleted. A query that still reads for the group fails." submit=${() => remove(path("readers", vhost, name))} done=${() => { again(); tell("Group released"); }} />`}>
    <${Tiles}>
      <${Tile} label="State" value=${html`<${Mark} state=${state[0]}>${state[1]}<//>`} />
      <${Tile} label="Behind" value=${format.short(behind)} unit=${format.octets(sum("ready_octets"))} />
      <${Tile} label="Reserved" value=${format.short(sum("reserved"))} />
      <${Tile} label="Read" value=${format.rate(rate("ack"))} unit="/s" />
      <${Tile} label="Caught up in" value=${!behind ? "–" : gains > 0.5 ? `≈ ${format.about(behind / gains)}` : "not at this rate"} state=${behind && gains <= 0.5 ? "text" : ""} />
      <${Tile} label="Oldest reserved" value=${oldest < 0 ? "–" : format.span(oldest)} />
      <${Tile} label="Lease left" value=${format.span(left)} unit=${left == null ? "" : `of ${format.span(lease)}`} state=${left != null && left < lease / 4 ? "warning" : ""} />
    <//>
    <${Table} caption=${`Queues of ${name}`} rows=${places} rowKey=${(one) => one.queue} columns=${[
      { label: "Queue", class: "name", render: (one) => html`<a href=${link("queues", one.vhost, one.queue)}>${format.name(one.queue)}</a>` },
      { label: "Behind", num: true, render: (one) => format.count(one.ready) },
      { label: "", class: "wide-cell", render: (one) => html`<${Bar} share=${behind ? one.ready / Math.max(...places.map((each) => each.ready), 1) : 0} label=${`${format.count(one.ready)} behind`} />` },
      { label: "Reserved", num: true, render: (one) => format.count(one.reserved) },
      { label: "Oldest", num: true, render: (one) => format.span(one.age) },
      { label: "Owner epoch", num: true, render: (one) => one.owner_epoch ?? "" },
    ]} />
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
