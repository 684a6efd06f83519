// The nodes of the cluster and the links between them, and one with what its loss would stop.

import { get, path } from "../lib/api.js";
import * as format from "../lib/format.js";
import { link, useLive } from "../lib/live.js";
import { Facts, Failure, html, Mark, Page, Panel, Table, Tile, Tiles, useLast } from "../lib/ui.js";

export function Nodes() {
  const { data, error } = useLive((signal) => get("/api/nodes", {}, signal), 3, []);
  const running = data?.filter((one) => one.running) ?? [];
  return html`<${Page} title="Nodes">
    <${Failure} error=${error} />
    ${data && html`<${Table} caption="Nodes" rows=${data} rowKey=${(one) => one.name} columns=${[
      { label: "Node", class: "name", render: (one) => html`<a href=${link("nodes", one.name)}>${one.name}</a>` },
      { label: "State", render: (one) => html`<${State} node=${one} />` },
      { label: "Links", render: (one) => html`<${Links} node=${one} running=${running} />` },
      { label: "Connections", num: true, render: (one) => told(one.sockets_used, format.count) },
      { label: "Memory", num: true, render: (one) => told(one.mem_used, format.octets) },
      { label: "Disk free", num: true, render: (one) => told(one.disk_free, format.octets) },
    ]} />`}
  <//>`;
}

export function Node({ name }) {
  const url = path("nodes", name);
  const { data, error } = useLive((signal) => get(url, {}, signal), 3, [url]);
  const inside = useLive((signal) => get(path("nodes", name, "contents"), {}, signal), 5, [url]);
  const fullest = useLive((signal) => get("/api/queues", { node: name, page: 1, page_size: 100, sort: "messages", sort_reverse: true }, signal), 5, [url]);
  const node = useLast(data);
  const contents = useLast(inside.data);
  if (!node || !contents) return html`<${Page} title=${name} kind="Node"><${Failure} error=${error ?? inside.error} /><//>`;
  return html`<${Page} title=${name} kind="Node">
    <${Failure} error=${error} />
    <${Tiles}>
      <${Tile} label="State" value=${node.running ? "runs" : "down"} state=${node.running ? "" : "alarm"} />
      <${Tile} label="Queues" value=${format.count(contents.queues)} />
      <${Tile} label="Messages" value=${node.running ? format.count(contents.messages) : "–"} />
      <${Tile} label="Connections" value=${told(node.sockets_used, format.count)} />
    <//>
    <p class="note">${node.running ? `If this node fails, its ${format.plural(contents.queues, "queue")} ${contents.queues === 1 ? "is" : "are"} unavailable until it returns.` : "Its queues are down; their messages are on its disk."}</p>
    <div class="columns">
      <${Panel} title="Shards here"><${Table} caption="Shards here" rows=${contents.shards} empty="No shards are here." rowKey=${(one) => one.vhost + "\n" + one.exchange} columns=${[
        { label: "Exchange", class: "name", render: (one) => html`<a href=${link("exchanges", one.vhost, one.exchange)}>${one.exchange}</a>` },
        { label: "Virtual host", key: "vhost", minor: true },
        { label: "Shards", num: true, render: (one) => format.count(one.shards) },
        { label: "Messages", num: true, render: (one) => (node.running ? format.count(one.messages) : "–") },
      ]} /><//>
      ${node.cluster_links?.length > 0 && html`<${Panel} title="Links"><${Facts} facts=${node.cluster_links.map((one) => [one.name, `up, ${format.octets(one.unsent)} wait`])} /><//>`}
    </div>
    <${Panel} title="Fullest queues">
      <${Failure} error=${fullest.error} />
      ${fullest.data && html`<${Table} caption="Fullest queues" rows=${fullest.data.items} empty="No queues are here." rowKey=${(one) => one.vhost + "\n" + one.name} columns=${[
        { label: "Queue", class: "name", render: (one) => html`<a href=${link("queues", one.vhost, one.name)}>${one.name}</a>` },
        { label: "Virtual host", key: "vhost", minor: true },
        { label: "Type", key: "type" },
        { label: "State", render: (one) => one.state === "down" ? html`<${Mark} state="alarm">down<//>` : one.state },
        { label: "Messages", num: true, render: (one) => (one.state === "down" ? "–" : format.count(one.messages)) },
        { label: "Consumers", num: true, render: (one) => (one.state === "down" ? "–" : format.count(one.consumers)) },
      ]} />`}
    <//>
  <//>`;
}

/** A figure, which nodes that are down do not tell. */
const told = (value, show) => (value == null ? "–" : show(value));

function State({ node }) {
  if (!node.running) return html`<${Mark} state="alarm">down<//>`;
  if (node.mem_alarm || node.disk_free_alarm) return html`<${Mark} state="alarm">${node.mem_alarm ? "memory" : "disk"} alarm<//>`;
  return "runs";
}

/** To which running nodes a node has no link, which is what matters; else to how many it has. */
function Links({ node, running }) {
  if (!node.cluster_links || running.length < 2) return "–";
  const linked = new Set(node.cluster_links.map((one) => one.name));
  const missing = running.filter((one) => one.name !== node.name && !linked.has(one.name));
  if (missing.length) return html`<${Mark} state="warning">none to ${missing.map((one) => one.name).join(", ")}<//>`;
  return format.plural(linked.size, "link");
}
