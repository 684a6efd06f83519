// Reasons for undelivered messages of a queue, a key, a slot or a number; and the slots of a queue.

import { get, path } from "../lib/api.js";
import * as format from "../lib/format.js";
import { link, useLive } from "../lib/live.js";
import { Failure, Form, html, Mark, Page, Panel, Table, useState } from "../lib/ui.js";
import { FencesOf } from "./fences.js";

const STATES = { waiting: "good", blocked: "warning", withheld: "warning" };

/** Subjects of a request, each with its parameter. */
const ABOUT = { "a key": "key", "a slot": "slot", "a message": "message" };

export function Why({ vhost, name }) {
  const { data: queue, error } = useLive((signal) => get(path("queues", vhost, name, "explain"), {}, signal), 2, [vhost, name]);
  const { data: slots } = useLive((signal) => get(path("queues", vhost, name, "slots"), {}, signal), 2, [vhost, name]);
  return html`<${Page} title=${name} kind="Deliveries of queue" actions=${html`<a href=${link("queues", vhost, name)}>The queue</a>`}>
    <${Failure} error=${error} />
    ${queue && html`<${Panel} title="Why are messages not delivered?"><p role="status" class="reason">${format.sentence(queue.reason)}</p><//>`}
    <${Ask} vhost=${vhost} name=${name} slotted=${slots?.length > 0} />
    <${FencesOf} vhost=${vhost} names=${[name]} />
    ${slots?.length > 0 && html`<${Slots} rows=${slots} />`}
  <//>`;
}

function Ask({ vhost, name, slotted }) {
  const [found, setFound] = useState(null);
  const fields = [
    { name: "about", label: "About", type: "select", options: Object.keys(ABOUT), value: slotted ? "a key" : "a message", hint: "a key of a queue with x-slots, or of a queue that waits for another queue; a slot of a queue with x-slots; a message by its number in the queue, or its offset in a stream" },
    { name: "value", label: "Which", required: true },
  ];
  const ask = ({ about, value }) => get(path("queues", vhost, name, "explain"), { [ABOUT[about]]: value }).then((answer) => setFound({ about, value, ...answer }));
  return html`<${Panel} title="Why is this message not delivered?">
    <${Form} label="Explain" fields=${fields} submit=${ask} />
    ${found && html`<p role="status" class="reason">${found.about.replace(/^an? /, "").replace(/^./, (first) => first.toUpperCase())} ${found.value}: ${found.reason}</p>`}
  <//>`;
}

const Slots = ({ rows }) => html`<${Panel} title="Slots" note="that have messages">
  <${Table} caption="Slots of this queue" rows=${rows} rowKey=${(slot) => slot.slot} columns=${[
    { label: "Slot", num: true, key: "slot" },
    { label: "", render: (slot) => html`<${Mark} state=${STATES[slot.state]}>${slot.state}<//>` },
    { label: "Ready", num: true, render: (slot) => format.count(slot.messages_ready) },
    { label: "Unacked", num: true, render: (slot) => format.count(slot.messages_unacknowledged) },
    { label: "Oldest published", render: (slot) => slot.oldest_published_at == null ? "" : format.moment(slot.oldest_published_at) },
  ]} />
<//>`;
