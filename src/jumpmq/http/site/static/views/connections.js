// Connections: the list, and one with its channels.

import { get, path, remove } from "../lib/api.js";
import { LiveCharts } from "../lib/chart.js";
import * as format from "../lib/format.js";
import { link, useLive } from "../lib/live.js";
import { Confirm, Facts, Failure, html, Mark, Page, Panel, ServerTable, Table, tell, Tile, Tiles, useLast } from "../lib/ui.js";
import { columns as channelColumns } from "./channels.js";

const state = (one) => html`<${Mark} state=${one.state === "running" ? "good" : "alarm"}>${one.state}<//>`;
const product = ({ client_properties: properties = {} }) => [properties.product, properties.version].filter((part) => typeof part === "string").join(" ");

const COLUMNS = [
  { label: "Name", sort: "user_provided_name", class: "name", render: (one) => html`<a href=${link("connections", one.name)}>${one.user_provided_name ?? one.name}</a>` },
  { label: "Address", sort: "name", minor: true, render: (one) => `${one.peer_host}:${one.peer_port}` },
  { label: "User", sort: "user", key: "user" },
  { label: "Virtual host", sort: "vhost", key: "vhost", minor: true },
  { label: "State", sort: "state", render: state },
  { label: "Client", render: product, minor: true },
  { label: "TLS", sort: "ssl", render: (one) => (one.ssl ? one.ssl_protocol : "") },
  { label: "Channels", sort: "channels", num: true, render: (one) => format.count(one.channels) },
  { label: "From client", sort: "recv_oct", num: true, render: (one) => format.octets(one.recv_oct) },
  { label: "To client", sort: "send_oct", num: true, render: (one) => format.octets(one.send_oct) },
  { label: "Since", sort: "connected_at", num: true, render: (one) => format.span(Date.now() / 1000 - one.connected_at / 1000) },
];

export const Connections = () => html`<${Page} title="Connections">
  <${ServerTable} url="/api/connections" columns=${COLUMNS} caption="Connections" order="user_provided_name" empty="There are no connections." />
<//>`;

export function Connection({ name }) {
  const url = path("connections", name);
  const { data, error } = useLive((signal) => get(url, {}, signal), 2, [url]);
  const channels = useLive((signal) => get(path("connections", name, "channels"), {}, signal), 3, [url]);
  const one = useLast(data);
  if (!one) return html`<${Page} title=${name} kind="Connection"><${Failure} error=${error} /><//>`;
  return html`<${Page} title=${one.user_provided_name ?? name} kind="Connection" actions=${html`
      <${Confirm} label="Close" title="Close this connection?" text="The client gets the reason that an operator closed the connection, and may connect again. Unacknowledged messages return to the queues." submit=${() => remove(url)} done=${() => { location.hash = link("connections"); tell("Connection closed"); }} />`}>
    <${Failure} error=${error} />
    <${Tiles}>
      <${Tile} label="State" value=${one.state} state=${one.state === "running" ? "text" : "alarm"} />
      <${Tile} label="Channels" value=${format.count(one.channels)} />
      <${Tile} label="From client" value=${format.octets(one.recv_oct)} />
      <${Tile} label="To client" value=${format.octets(one.send_oct)} />
      <${Tile} label="Connected" value=${format.span(Date.now() / 1000 - one.connected_at / 1000)} />
    <//>
    <${LiveCharts} url=${path("history", "connections", name)} which=${["octets"]} />
    <div class="columns">
      <${Panel} title="Facts"><${Facts} facts=${[
        ["Name", one.name], ["User", one.user], ["Virtual host", one.vhost], ["Protocol", one.protocol], ["Login", one.auth_mechanism],
        ["TLS", one.ssl ? `${one.ssl_protocol}, ${one.ssl_cipher}` : "no"], ["Certificate", one.peer_cert_subject],
        ["Heartbeat", format.span(one.timeout)], ["Frame", format.octets(one.frame_max)], ["Client", product(one)],
      ]} /><//>
      <${Panel} title="Channels">${channels.data && html`<${Table} caption="Channels" columns=${channelColumns.slice(0, 1).concat(channelColumns.slice(3))} rows=${channels.data} empty="No channel is open." />`}<//>
    </div>
  <//>`;
}
