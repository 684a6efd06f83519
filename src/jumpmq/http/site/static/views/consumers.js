// Consumers.

import { path, remove } from "../lib/api.js";
import * as format from "../lib/format.js";
import { link } from "../lib/live.js";
import { Confirm, html, Mark, Page, ServerTable, tell } from "../lib/ui.js";

export const keyOf = (one) => [one.channel_details?.name, one.consumer_tag, one.queue.vhost, one.queue.name].join("\n");

export const columns = [
  { key: "queue", label: "Queue", sort: "queue.name", class: "name", render: (one) => html`<a href=${link("queues", one.queue.vhost, one.queue.name)}>${format.name(one.queue.name)}</a>` },
  { label: "Virtual host", sort: "queue.vhost", minor: true, render: (one) => one.queue.vhost },
  { label: "Client", sort: "channel_details.user_provided_name", class: "name", render: (one) => one.channel_details && html`<a href=${link("channels", one.channel_details.name)}>${format.channel(one.channel_details, one.channel_details)}</a>` },
  { label: "User", sort: "channel_details.user", render: (one) => one.channel_details?.user },
  { label: "", render: (one) => html`${!one.ack_required && html`<${Mark} state="warning">auto-ack<//> `}${one.exclusive && html`<${Mark}>exclusive<//> `}${one.activity_status !== "up" && html`<${Mark}>${one.activity_status.replace("_", " ")}<//>`}` },
  { label: "Prefetch", sort: "prefetch_count", num: true, render: (one) => (one.prefetch_count ? format.count(one.prefetch_count) : "any") },
  { label: "Unacked", sort: "messages_unacknowledged", num: true, render: (one) => (one.ack_required ? format.count(one.messages_unacknowledged) : "–") },
  { label: "Delivered", sort: "messages_delivered", num: true, render: (one) => format.count(one.messages_delivered) },
  { label: "Delivered /s", sort: "messages_delivered_details.rate", num: true, render: (one) => html`${one.slow && html`<${Mark} state="warning">slow<//> `}${format.rate(one.messages_delivered_details.rate)}` },
  { label: "Tag", sort: "consumer_tag", class: "name", minor: true, render: (one) => html`<code>${one.consumer_tag}</code>` },
];

/** A consumer is slow if its rate is lower than the queue's usual rate by this factor. */
const SLOWER = 3;

/** Consumers of one queue, with `slow` for those with a much lower rate than the others. */
export function compared(rows) {
  const rates = rows.map((one) => one.messages_delivered_details.rate).sort((one, other) => one - other);
  const usual = rates[Math.ceil((rates.length - 1) / 2)] ?? 0;
  return rows.map((one) => ({ ...one, slow: rows.length > 1 && usual >= 1 && one.messages_delivered_details.rate * SLOWER <= usual }));
}

/** Close the connection of a consumer, from the consumer's row. */
export const closing = (done) => ({ label: "", class: "end", render: (one) => one.channel_details && html`<${Confirm} quiet label="Close" title="Close this client's connection?"
  text=${`${format.channel(one.channel_details, one.channel_details)} of ${one.channel_details.connection_name}: all channels and consumers end, and unacknowledged messages are delivered again.`}
  submit=${() => remove(path("connections", one.channel_details.connection_name))} done=${() => { done?.(); tell("Connection closed"); }} />` });

export const Consumers = () => html`<${Page} title="Consumers">
  <${ServerTable} url="/api/consumers" columns=${columns} caption="Consumers" order="messages_unacknowledged" reverse empty="There are no consumers." />
<//>`;
