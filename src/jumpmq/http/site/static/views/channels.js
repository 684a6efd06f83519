// Channels: the list, and one with its consumers.

import { get, path } from "../lib/api.js";
import { LiveCharts } from "../lib/chart.js";
import * as format from "../lib/format.js";
import { link, useLive } from "../lib/live.js";
import { Facts, Failure, html, Mark, Page, Panel, ServerTable, SortedTable, Tile, Tiles, useLast, usePerson } from "../lib/ui.js";
import { columns as consumerColumns, keyOf as keyOfConsumer } from "./consumers.js";
import { IncidentsOf } from "./incidents.js";

const mode = (one) => (one.confirm || one.transactional ? html`${one.confirm && html`<${Mark}>confirms<//> `}${one.transactional && html`<${Mark}>transactions<//>`}` : null);

export const columns = [
  { label: "Channel", sort: "name", class: "name", render: (one) => html`<a href=${link("channels", one.name)}>${format.channel(one, one.connection_details)}</a>` },
  { label: "User", sort: "user", key: "user" },
  { label: "Virtual host", sort: "vhost", key: "vhost", minor: true },
  { label: "Mode", render: mode },
  { label: "Consumers", sort: "consumer_count", num: true, render: (one) => format.count(one.consumer_count) },
  { label: "Prefetch", sort: "prefetch_count", num: true, render: (one) => one.prefetch_count || "any" },
  { label: "Unacked", sort: "messages_unacknowledged", num: true, render: (one) => format.count(one.messages_unacknowledged) },
];

export const Channels = () => html`<${Page} title="Channels">
  <${ServerTable} url="/api/channels" columns=${columns} caption="Channels" order="messages_unacknowledged" reverse empty="No channel is open." />
<//>`;

/** Counters of a channel that are in no chart. */
const COUNTED = [["confirm", "Confirmed"], ["return_unroutable", "Returned: no queue", "warning"], ["drop_unroutable", "Dropped: no queue", "warning"], ["redeliver", "Redelivered"]];

/** Maximum number of a channel's queues whose causes are shown. */
const TOLD = 5;

export function Channel({ name }) {
  const person = usePerson();
  const { data, error } = useLive((signal) => get(path("channels", name), {}, signal), 2, [name]);
  const one = useLast(data);
  if (!one) return html`<${Page} title=${name} kind="Channel"><${Failure} error=${error} /><//>`;
  const queues = [...new Set(one.consumer_details.map(({ queue }) => queue.name))].slice(0, TOLD);
  return html`<${Page} title=${format.channel(one, one.connection_details)} kind="Channel" actions=${html`<a class="button" href=${link("connections", one.connection_details.name)}>Connection</a>`}>
    <${Failure} error=${error} />
    ${person.may("monitoring") && queues.map((queue) => html`<${IncidentsOf} key=${queue} vhost=${one.vhost} name=${queue} queue elsewhere />`)}
    <${Tiles}>
      <${Tile} label="Unacknowledged" value=${format.count(one.messages_unacknowledged)} />
      <${Tile} label="Consumers" value=${format.count(one.consumer_count)} />
      <${Tile} label="Prefetch" value=${one.prefetch_count || "any"} />
      ${COUNTED.filter(([what]) => one.message_stats?.[what]).map(([what, label, state]) => html`<${Tile} key=${what} label=${label} value=${format.short(one.message_stats[what])} unit=${`${format.rate(one.message_stats[`${what}_details`].rate)}/s`} state=${state} />`)}
    <//>
    <${LiveCharts} url=${path("history", "channels", name)} which=${["rates", "unanswered"]} />
    <${Panel} title="Facts"><${Facts} facts=${[["Name", name], ["User", one.user], ["Virtual host", one.vhost], ["Mode", mode(one)], ["Prefetch of the channel", one.global_prefetch_count || null]]} /><//>
    <${Panel} title="Consumers"><${SortedTable} caption="Consumers of this channel" order="messages_unacknowledged" rowKey=${keyOfConsumer} columns=${consumerColumns} rows=${one.consumer_details} empty="This channel does not consume." /><//>
  <//>`;
}
