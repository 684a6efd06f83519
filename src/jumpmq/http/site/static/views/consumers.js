// Consumers.

import * as format from "../lib/format.js";
import { link } from "../lib/live.js";
import { html, Mark, Page, ServerTable } from "../lib/ui.js";

export const columns = [
  { key: "queue", label: "Queue", sort: "queue.name", class: "name", render: (one) => html`<a href=${link("queues", one.queue.vhost, one.queue.name)}>${one.queue.name}</a>` },
  { label: "Tag", sort: "consumer_tag", render: (one) => html`<code>${one.consumer_tag}</code>` },
  { label: "Channel", sort: "channel_details.name", render: (one) => one.channel_details && html`<a href=${link("channels", one.channel_details.name)}>${one.channel_details.name}</a>` },
  { label: "User", sort: "channel_details.user", render: (one) => one.channel_details?.user },
  { label: "", render: (one) => html`${!one.ack_required && html`<${Mark} state="warning">auto-ack<//> `}${one.exclusive && html`<${Mark}>exclusive<//> `}${one.activity_status !== "up" && html`<${Mark}>${one.activity_status.replace("_", " ")}<//>`}` },
  { label: "Prefetch", sort: "prefetch_count", num: true, render: (one) => (one.prefetch_count ? format.count(one.prefetch_count) : "any") },
];

export const Consumers = () => html`<${Page} title="Consumers">
  <${ServerTable} url="/api/consumers" columns=${columns} caption="Consumers" order="queue.name" searchable=${false} empty="Nobody consumes." />
<//>`;
