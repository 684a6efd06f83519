// Consumers.

import * as format from "../lib/format.js";
import { link } from "../lib/live.js";
import { html, Mark, Page, ServerTable } from "../lib/ui.js";

export const keyOf = (one) => [one.channel_details?.name, one.consumer_tag, one.queue.vhost, one.queue.name].join("\n");

export const columns = [
  { key: "queue", label: "Queue", sort: "queue.name", class: "name", render: (one) => html`<a href=${link("queues", one.queue.vhost, one.queue.name)}>${format.name(one.queue.name)}</a>` },
  { label: "Virtual host", sort: "queue.vhost", minor: true, render: (one) => one.queue.vhost },
  { label: "Tag", sort: "consumer_tag", class: "name", render: (one) => html`<code>${one.consumer_tag}</code>` },
  { label: "Client", sort: "channel_details.user_provided_name", class: "name", render: (one) => one.channel_details && html`<a href=${link("channels", one.channel_details.name)}>${format.channel(one.channel_details, one.channel_details)}</a>` },
  { label: "User", sort: "channel_details.user", render: (one) => one.channel_details?.user },
  { label: "", render: (one) => html`${!one.ack_required && html`<${Mark} state="warning">auto-ack<//> `}${one.exclusive && html`<${Mark}>exclusive<//> `}${one.activity_status !== "up" && html`<${Mark}>${one.activity_status.replace("_", " ")}<//>`}` },
  { label: "Prefetch", sort: "prefetch_count", num: true, render: (one) => (one.prefetch_count ? format.count(one.prefetch_count) : "any") },
  { label: "Unacked", sort: "messages_unacknowledged", num: true, render: (one) => (one.ack_required ? format.count(one.messages_unacknowledged) : "–") },
  { label: "Delivered", sort: "messages_delivered", num: true, render: (one) => format.count(one.messages_delivered) },
  { label: "Delivered /s", sort: "messages_delivered_details.rate", num: true, render: (one) => format.rate(one.messages_delivered_details.rate) },
];

export const Consumers = () => html`<${Page} title="Consumers">
  <${ServerTable} url="/api/consumers" columns=${columns} caption="Consumers" order="messages_unacknowledged" reverse empty="There are no consumers." />
<//>`;
