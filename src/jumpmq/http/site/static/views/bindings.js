// Bindings of a queue or an exchange; new ones, and unbinding.

import { get, path, post, remove } from "../lib/api.js";
import * as format from "../lib/format.js";
import { link, useLive } from "../lib/live.js";
import { Confirm, Failure, FormButton, html, jsonOf, LongTable, tell } from "../lib/ui.js";

/** The path of a binding, or of all bindings between two objects. */
const between = (vhost, source, kind, destination, ...rest) => path("bindings", vhost, "e", source, kind === "exchange" ? "e" : "q", destination, ...rest);

/** The bindings listed at `url`: to `queue`, or from `exchange`. */
export function Bindings({ url, vhost, queue, exchange }) {
  const { data, error, again } = useLive((signal) => get(url, {}, signal), 5, [url]);
  const rows = data?.filter((one) => one.source !== "");
  const bind = ({ source, destination, kind, routing_key, arguments: text }) =>
    post(between(vhost, source ?? exchange, kind, destination ?? queue), { routing_key, arguments: jsonOf(text, "Arguments") });
  const fields = [
    queue ? { name: "source", label: "From exchange", required: true } : { name: "destination", label: "To", required: true },
    ...(queue ? [] : [{ name: "kind", label: "which is", type: "select", options: ["queue", "exchange"], value: "queue" }]),
    { name: "routing_key", label: "Binding key", hint: "of a consistent hash exchange: the weight" },
    { name: "arguments", label: "Arguments", type: "textarea", rows: 2, hint: `JSON; of a headers exchange such as {"x-match": "all", "kind": "invoice"}` },
  ];
  return html`
    <${Failure} error=${error} />
    <${FormButton} label="Bind" fields=${fields} submit=${bind} done=${() => { again(); tell("Binding added"); }} />
    ${rows && html`<${LongTable} caption="Bindings" rows=${rows} text=${(one) => `${one.source} ${one.destination} ${one.routing_key}`} empty="Only the default exchange leads here." columns=${[
      queue
        ? { label: "From", class: "name", render: (one) => html`<a href=${link("exchanges", vhost, one.source)}>${one.source}</a>` }
        : { label: "To", class: "name", render: (one) => html`<a href=${link(one.destination_type === "queue" ? "queues" : "exchanges", vhost, one.destination)}>${one.destination}</a>` },
      { label: "Key", render: (one) => html`<code>${one.routing_key}</code>` },
      { label: "Arguments", render: (one) => Object.keys(one.arguments).length ? html`<code>${format.plain(one.arguments)}</code>` : "" },
      { label: "", class: "end", render: (one) => html`<${Confirm} quiet label="Unbind" title="Unbind?" text=${`Messages from ${one.source} do not come to ${one.destination} any more.`} submit=${() => remove(between(vhost, one.source, one.destination_type, one.destination, one.properties_key))} done=${() => { again(); tell("Binding removed"); }} />` },
    ]} />`}`;
}
