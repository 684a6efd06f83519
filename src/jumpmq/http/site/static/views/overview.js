// Overview of the broker: causes with actions, rates, the fullest queues.

import { get, path } from "../lib/api.js";
import { Charts, refreshed, SpanPicker, useSpan } from "../lib/chart.js";
import * as format from "../lib/format.js";
import { listOf, useHost } from "../lib/host.js";
import { link, useLive } from "../lib/live.js";
import { Bar, Empty, Failure, html, Mark, Page, Panel, Spark, Table, Tile, Tiles, useEffect, useLast, usePerson, useState } from "../lib/ui.js";
import { Incidents } from "./incidents.js";

export function Overview() {
  const person = usePerson();
  if (!person.may("monitoring")) return html`<${Page} title="Overview"><${FullestQueues} /><//>`;
  return html`<${Page} title="Overview"><${Incidents} /><${FirstSteps} /><${History} /><${FullestQueues} /><//>`;
}

/** First steps, on a broker without queues; loaded there only. */
function FirstSteps() {
  const { data } = useLive((signal) => get("/api/overview", { columns: "object_totals" }, signal), 5, []);
  const [loaded, setLoaded] = useState(null);
  const isEmpty = data?.object_totals.queues === 0;
  useEffect(() => { if (isEmpty && !loaded) import("./start.js").then(setLoaded, () => {}); }, [isEmpty]);
  return loaded && (isEmpty || loaded.sampling.on) && html`<${loaded.Start} />`;
}

/** Charts of the broker, or of the page's selected virtual host. */
function History() {
  const seconds = useSpan();
  const host = useHost();
  const url = host ? path("history", "vhosts", host) : "/api/history";
  const { data, error } = useLive((signal) => get(url, { seconds }, signal), refreshed(seconds), [url, seconds]);
  const nodes = useLive((signal) => get("/api/nodes", { columns: "name" }, signal), 30, []);
  const shown = useLast(data);
  if (!shown) return html`<${Failure} error=${error} /><div class="waiting" />`;
  const last = (name) => shown[name]?.at(-1);
  const of = nodes.data?.length > 1 ? "this node" : undefined;
  return html`
    <${Failure} error=${error} />
    <${Tiles}>
      <${Tile} label="Published" value=${format.rate(last("publish"))} unit="/s" />
      <${Tile} label="Delivered" value=${format.rate(last("deliver_get"))} unit="/s" />
      <${Tile} label="Acknowledged" value=${format.rate(last("ack"))} unit="/s" />
      <${Tile} label="Ready" value=${format.short(last("ready"))} />
      <${Tile} label="Unacknowledged" value=${format.short(last("unacknowledged"))} />
      ${!host && html`
        <${Tile} label="Memory" value=${format.octets(last("memory"))} unit=${of} />
        <${Tile} label="Disk free" value=${format.octets(last("disk_free"))} unit=${of} />
        <${Tile} label="Connections" value=${format.short(last("connections"))} unit=${of} />`}
    <//>
    <${Counts} />
    <${SpanPicker} />
    <${Charts} samples=${shown} which=${["rates", "backlog", ...(host ? [] : ["memory"]), ...(!host && last("disk_free") != null ? ["disk"] : [])]} />`;
}

/** Counters that are in no chart: confirmed, redelivered and unroutable messages. */
function Counts() {
  const host = useHost();
  const { data } = useLive((signal) => get("/api/overview", { columns: "message_stats", vhost: host }, signal), 5, [host]);
  const stats = data?.message_stats ?? {};
  const shown = COUNTED.filter(([what]) => stats[what] > 0);
  return shown.length > 0 && html`<p class="note counts">${shown.map(([what, label, isBad]) => html`<span key=${what} class=${isBad && stats[`${what}_details`].rate > 0 ? "warning" : ""}>${label} <b>${format.rate(stats[`${what}_details`].rate)}/s</b>, ${format.short(stats[what])} in all</span> `)}</p>`;
}

const COUNTED = [["confirm", "Confirmed"], ["redeliver", "Redelivered"], ["return_unroutable", "Returned, as no queue took it", true], ["drop_unroutable", "Dropped, as no queue took it", true]];

function FullestQueues() {
  const url = listOf("/api/queues", useHost());
  const ask = (signal) => get(url, { columns: "name,vhost,messages,messages_unacknowledged,consumers,message_stats.publish_details,message_stats.ack_details", type: "classic,quorum", page: 1, page_size: 10, sort: "messages", sort_reverse: true }, signal);
  const { data, error } = useLive(ask, 3, [url]);
  const rows = data?.items.filter((queue) => queue.messages);
  const most = rows?.[0]?.messages ?? 1;
  return html`<${Panel} title="Fullest queues">
    <${Failure} error=${error} />
    ${rows && !rows.length ? html`<${Empty}>All queues are empty.<//>` : html`<${Table} caption="Fullest queues" rows=${rows} rowKey=${(queue) => queue.vhost + "\n" + queue.name} columns=${[
      { label: "Queue", class: "name", render: (queue) => html`<a href=${link("queues", queue.vhost, queue.name)}>${format.name(queue.name)}</a>${queue.vhost !== "/" && html` <span class="note">${queue.vhost}</span>`}` },
      { label: "Messages", num: true, render: (queue) => format.count(queue.messages) },
      { label: "", class: "wide-cell", render: (queue) => html`<${Bar} share=${queue.messages / most} label=${`${format.percent(queue.messages / most)} of the fullest`} />` },
      { label: "Over time", render: (queue) => html`<${Backlog} vhost=${queue.vhost} name=${queue.name} />` },
      { label: "Published /s", num: true, render: (queue) => format.rate(queue.message_stats.publish_details.rate) },
      { label: "Acked /s", num: true, render: (queue) => format.rate(queue.message_stats.ack_details.rate) },
      { label: "Unacked", num: true, render: (queue) => format.count(queue.messages_unacknowledged) },
      { label: "Consumers", num: true, render: (queue) => queue.consumers ? format.count(queue.consumers) : html`<${Mark} state="warning">none<//>` },
    ]} />`}
  <//>`;
}

function Backlog({ vhost, name }) {
  const { data } = useLive((signal) => get(path("history", "queues", vhost, name), { seconds: 300 }, signal), 5, [vhost, name]);
  return html`<${Spark} values=${data?.ready.map((ready, place) => ready + data.unacknowledged[place])} label=${`Backlog of ${name} over the last minutes`} />`;
}
