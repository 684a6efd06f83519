// Ordering barriers: queues whose messages wait for older messages of their keys in another queue, after a change of the ring.

import { get, path, remove } from "../lib/api.js";
import * as format from "../lib/format.js";
import { listOf, useHost } from "../lib/host.js";
import { link, useLive } from "../lib/live.js";
import { Confirm, Failure, html, Panel, SortedTable, tell } from "../lib/ui.js";

const queueOf = (vhost, name) => html`<a href=${link("queues", vhost, name)}>${format.name(name)}</a>`;

const COLUMNS = [
  { label: "Waits for", sort: "source", class: "name", render: (one) => queueOf(one.vhost, one.source) },
  { label: "Left there", sort: "remaining", num: true, render: (one) => format.count(one.remaining) },
  { label: "Queue", sort: "queue", class: "name", render: (one) => queueOf(one.vhost, one.queue) },
  { label: "Wait", sort: "messages_held", num: true, render: (one) => format.count(one.messages_held) },
  { label: "Exchange", sort: "exchange", class: "name", render: (one) => html`<a href=${link("exchanges", one.vhost, one.exchange)}>${format.name(one.exchange)}</a>` },
  { label: "Virtual host", sort: "vhost", key: "vhost", minor: true },
  { label: "For", sort: "seconds", num: true, render: (one) => format.span(one.seconds) },
];

function Fences({ rows, error, again, empty }) {
  const lift = { label: "", class: "end", render: (one) => html`<${Confirm} quiet label="Release" title="Deliver held messages now?"
    text=${`${one.queue} delivers them although ${format.plural(one.remaining, "message")} from before ${one.remaining === 1 ? "is" : "are"} left in ${one.source}: those of a key may be delivered out of order, or at two consumers at once.`}
    submit=${() => remove(path("fences", one.vhost, one.queue, one.source))} done=${() => { again(); tell("Released"); }} />` };
  return html`<${Panel} title="Keys that wait" note="Held back to keep order: these keys moved here, and their old queue still has earlier messages.">
    <${Failure} error=${error} />
    ${rows && html`<${SortedTable} caption="Keys that wait" order="source" reverse=${false} columns=${[...COLUMNS, lift]} rows=${rows} rowKey=${(one) => [one.vhost, one.exchange, one.queue, one.source, one.since].join("\n")} empty=${empty} />`}
  <//>`;
}

/** All ordering barriers in the page's selected virtual host. */
export function AllFences() {
  const url = listOf("/api/fences", useHost());
  const { data, error, again } = useLive((signal) => get(url, {}, signal), 2, [url]);
  return html`<${Fences} rows=${data} error=${error} again=${again} empty="No key waits for another queue." />`;
}

/** Ordering barriers of some queues, and of queues that wait for them; empty without any. */
export function FencesOf({ vhost, names }) {
  const { data, again } = useLive((signal) => get(path("fences", vhost), {}, signal), 3, [vhost]);
  const rows = data?.filter((one) => names.includes(one.queue) || names.includes(one.source)) ?? [];
  return rows.length > 0 && html`<${Fences} rows=${rows} again=${again} />`;
}
