// Nodes of the cluster and their links; one node, with the queues that its loss would stop.

import { get, path, post, put, remove } from "../lib/api.js";
import * as format from "../lib/format.js";
import { link, useLive } from "../lib/live.js";
import { LiveCharts } from "../lib/chart.js";
import { Bar, Confirm, Facts, Failure, FormButton, html, LongTable, Mark, Page, Panel, Table, tell, Tile, Tiles, useEffect, useLast, usePerson, useRef, useState } from "../lib/ui.js";

export function Nodes() {
  const person = usePerson();
  const { data, error, again } = useLive((signal) => get("/api/nodes", {}, signal), 3, []);
  const causes = useLive((signal) => get("/api/incidents", {}, signal), 5, []);
  const running = data?.filter((one) => one.running) ?? [];
  const workers = data?.flatMap((one) => one.workers) ?? [];
  const most = Math.max(1, ...workers.map((one) => one.queues));
  const counts = workers.filter((one) => one.running).map((one) => one.queues);
  return html`<${Page} title="Nodes" about="nodes" actions=${person.may("administrator") && workers.length > 1 && html`<${Rebalance} counts=${counts} again=${again} />`}>
    <${Failure} error=${error} />
    ${data?.length > 1 && html`<${Picture} nodes=${data} causes=${causes.data ?? []} />`}
    <div class="cluster">${data?.map((node) => html`<${Box} key=${node.name} node=${node} running=${running} most=${most} again=${again}
      causes=${causes.data?.filter((one) => one.object === "node" && one.name === node.name) ?? []} />`)}</div>
    ${data?.length > 1 && html`<${LaterCopies} />`}
  <//>`;
}

/** Copies of homes, whose module is loaded in a cluster only. */
function LaterCopies() {
  const [loaded, setLoaded] = useState(null);
  useEffect(() => { import("./copies.js").then(setLoaded, () => {}); }, []);
  return loaded && html`<${loaded.Copies} />`;
}

const WIDE = 720;

/** Diagram of the nodes and their present traffic: links with a width by octets per second. */
function Picture({ nodes, causes }) {
  const height = Math.max(150, 75 * nodes.length);
  const at = new Map(nodes.map((one, place) => {
    const turn = Math.PI + (2 * Math.PI * place) / nodes.length;
    return [one.name, [WIDE / 2 + Math.cos(turn) * (WIDE / 2 - 110), height / 2 + Math.sin(turn) * (height / 2 - 26)]];
  }));
  const running = nodes.filter((one) => one.running);
  const links = running.flatMap((one) => running.filter((other) => other !== one).map((other) => ({ from: one.name, to: other.name, ...one.cluster_links?.find((each) => each.name === other.name), isUp: one.cluster_links?.some((each) => each.name === other.name) })));
  const most = Math.max(1, ...links.map((one) => one.send_oct_details?.rate ?? 0));
  const alarm = (name) => causes.some((one) => one.object === "node" && one.name === name && one.severity === "alarm");
  return html`<section class="panel flow" aria-label="Between the nodes">
    <header><h2>Between the nodes</h2><p class="note">as wide as the octets a second; red waits or has no link</p></header>
    <svg viewBox=${`0 0 ${WIDE} ${height}`} style=${`width:100%;max-width:${WIDE}px`} role="group" aria-label=${`${format.plural(nodes.length, "node")}, ${running.length} of them running`}>
      ${links.map(({ from, to, unsent = 0, send_oct_details: sent, isUp }) => {
        const [[x, y], [u, v]] = [at.get(from), at.get(to)];
        const length = Math.hypot(u - x, v - y) || 1;
        const aside = 26 + (60 * Math.abs(v - y)) / length; // figures beside each other have room
        const [over, under] = [(x + u) / 2 - ((v - y) / length) * aside, (y + v) / 2 + ((u - x) / length) * aside];
        const d = `M${x},${y} Q${over},${under} ${u},${v}`;
        const rate = sent?.rate ?? 0;
        const title = isUp ? `${from} to ${to}: ${format.octets(rate)} a second, ${format.octets(unsent)} wait` : `${from} has no link to ${to}`;
        return html`<g key=${from + to}><path class=${`link ${rate ? "" : "still"} ${!isUp || unsent > 1e6 ? "excess" : ""}`} d=${d} style=${`stroke-width:${1.5 + 7 * Math.sqrt(rate / most)}px`}><title>${title}</title></path>
          ${rate > 0 && html`<path class="moving" d=${d} />`}
          ${(rate > 0 || unsent > 0) && html`<text class=${`figures ${unsent > 1e6 ? "excess" : ""}`} x=${(x + u + 2 * over) / 4} y=${(y + v + 2 * under) / 4 + 4} text-anchor="middle">${unsent > 1e6 ? `${format.octets(unsent)} wait` : `${format.octets(rate)}/s`}</text>`}</g>`;
      })}
      ${nodes.map((one) => { const [x, y] = at.get(one.name); return html`<svg key=${one.name} x=${x - 100} y=${y - 21} width="200" height="42"><a href=${link("nodes", one.name)}><title>${one.name}</title>
        <rect class=${`box ${(!one.running && !one.keeps_copies) || alarm(one.name) ? "excess" : ""}`} x="0.5" y="0.5" width="199" height="41" rx="6" />
        <text class="name" x="10" y="17">${one.name}</text>
        <text class=${`figures ${one.running || one.keeps_copies ? "" : "excess"}`} x="10" y="32">${one.running ? `${format.plural(one.workers.reduce((sum, each) => sum + each.queues, 0), "queue")} · ${format.short(one.workers.reduce((sum, each) => sum + each.messages, 0))} messages` : one.keeps_copies ? "only keeps copies" : "down"}</text></a></svg>`; })}
    </svg>
  </section>`;
}

/** Nodes that serve the homes of a stopped node. */
const heirsOf = (node) => [...new Set(node.workers.map((one) => one.served_by).filter(Boolean))];

const served = (queues, heirs) => `${format.plural(queues, "queue")} served by ${heirs.join(", ")}`;

/** A node as a box, coloured by health: workers with their queues and messages, links, actions. */
function Box({ node, running, most, causes, again }) {
  const person = usePerson();
  const down = !node.running;
  const heirs = heirsOf(node);
  const state = (down && !heirs.length) || causes.some((one) => one.severity === "alarm") ? "alarm" : causes.length || node.workers.some((one) => !one.running) ? "warning" : "good";
  const since = node.workers.map((one) => one.down_since).filter(Boolean).sort()[0];
  const queues = node.workers.reduce((sum, one) => sum + one.queues, 0);
  return html`<section class=${`panel box ${state}`} aria-label=${node.name}>
    <header><h2><a href=${link("nodes", node.name)}>${node.name}</a></h2> <${State} node=${node} />
      <p class="note">${heirs.length ? served(queues, heirs) : down ? `${format.plural(queues, "queue")} down${since ? ` since ${format.since(since)}` : ""}` : html`up ${format.span((node.uptime ?? 0) / 1000)}`}</p></header>
    ${causes.map((one) => html`<p key=${one.kind} class=${one.severity === "alarm" ? "failure" : "caution"}>${one.text}</p>`)}
    ${node.workers.length > 0 && html`<${Table} caption=${`Workers of ${node.name}`} rows=${node.workers} rowKey=${(one) => one.home} columns=${[
      { label: "Worker", render: (one) => html`${one.worker}${one.served_by ? html` <${Mark} state="warning">at ${one.served_by}<//>` : !one.running && html` <${Mark} state="alarm">down<//>`}${one.leaves && html` <${Mark}>leaves<//>`}` },
      { label: "Queues", num: true, render: (one) => format.count(one.queues) },
      { label: "", class: "wide-cell", render: (one) => html`<${Bar} share=${one.queues / most} state=${one.running || one.served_by ? "" : "alarm"} label=${format.plural(one.queues, "queue")} />` },
      { label: "Messages", num: true, render: (one) => (one.running || one.served_by ? format.short(one.messages) : one.messages ? html`${format.short(one.messages)} <span class="note">then</span>` : "–") },
      { label: "CPU", num: true, render: (one) => told(one.cpu, format.percent) },
      { label: "Memory", num: true, render: (one) => told(one.mem_used, format.octets) },
      { label: "Clients", num: true, render: (one) => told(one.connections, format.count) },
    ]} />`}
    ${!down && html`<p class="note">${format.plural(node.sockets_used, "connection")} · ${format.octets(node.mem_used)} of memory · ${node.disk_free == null ? "nothing on disk" : `${format.octets(node.disk_free)} of disk free`}</p>
    ${running.length > 1 && html`<p class="note links">Links: <${Links} node=${node} running=${running} /></p>`}`}
    ${person.may("administrator") && html`<div class="buttons">
      ${(heirs.length ? queues > 0 : !down && running.length > 1) && html`<${Drain} node=${node.name} again=${again} />`}
      ${!down && html`<${Listeners} node=${node.name} clients=${node.sockets_used} />`}
      ${down && !node.keeps_copies && (!heirs.length || !queues) && html`<${Forget} node=${node} queues=${queues} again=${again} />`}
      ${!down && node.name === person.node && node.workers.length > 1 && html`<${FewerWorkers} node=${node} again=${again} />`}
    </div>`}
  </section>`;
}

/** Return a text with the messages, octets and consumers of a node's queues. */
async function inside(node) {
  const found = await get("/api/queues", { node, columns: "name,vhost,messages,message_bytes,consumers,exclusive" });
  const sum = (what) => found.reduce((total, one) => total + (one[what] ?? 0), 0);
  return `${format.plural(found.length, "queue")}, ${format.plural(sum("messages"), "message")} (${format.octets(sum("message_bytes"))}); ${format.plural(sum("consumers"), "consumer")} ${sum("consumers") === 1 ? "is" : "are"} cancelled`;
}

/** Maximum number of concurrent moves. */
const AT_ONCE = 20;

/** Move the queues of a node to other nodes, as `jumpmqctl drain`, and show the progress. */
async function drain(node, say, stopped) {
  const stay = new Map();
  const asked = new Set();
  for (;;) {
    const all = await get("/api/queues", { columns: "name,vhost,node,moving_from,moving_to,move_failed" });
    const key = (one) => `${one.vhost}\n${one.name}`;
    for (const one of all) if (asked.has(key(one)) && one.move_failed) stay.set(key(one), `${one.name}: ${one.move_failed}`);
    const left = all.filter((one) => one.node === node && !stay.has(key(one)));
    const here = left.filter((one) => !one.moving_to);
    const moving = left.length - here.length + all.filter((one) => one.moving_from === node).length;
    say(`${format.plural(here.length + moving, "queue")} to go${moving ? `, ${format.count(moving)} on their way` : ""}.`);
    if (stopped() || (!here.length && !moving)) return [...stay.values()];
    for (const one of here.slice(0, Math.max(0, AT_ONCE - moving))) {
      try {
        await post(path("queues", one.vhost, one.name, "actions"), { action: "move" });
        asked.add(key(one));
      } catch (error) {
        if (!error.message.includes("is on its way already")) stay.set(key(one), `${one.name}: ${error.message}`);
      }
    }
    await new Promise((done) => setTimeout(done, 500));
  }
}

function Drain({ node, again }) {
  const [preview, setPreview] = useState("");
  const [said, setSaid] = useState("");
  const open = useRef(false);
  const go = async () => {
    open.current = true;
    const stay = await drain(node, setSaid, () => !open.current);
    setSaid(stay.length ? `${format.plural(stay.length, "queue")} ${stay.length === 1 ? "stays" : "stay"}: ${stay.slice(0, 5).join("; ")}` : open.current ? "No queue is left on the node." : "Stopped.");
    again();
  };
  useEffect(() => () => { open.current = false; }, []);
  return html`<${FormButton} label="Drain" title=${`Drain ${node}?`} send="Drain" stay danger fields=${[]} submit=${go} opened=${() => { setSaid(""); inside(node).then(setPreview, (error) => setPreview(error.message)); }} closed=${() => { open.current = false; }}>
    <p>Its queues move to the other nodes: ${preview || "..."}. Nothing is lost; closing this dialog stops it after those on their way.</p>
    ${said && html`<p class="note" role="status">${said}</p>`}
  <//>`;
}

/** Suspend or resume a node's acceptance of new clients. */
function Listeners({ node, clients }) {
  const { data, again } = useLive((signal) => get("/api/overview", { columns: "listeners" }, signal), 5, []);
  if (!data?.listeners) return null;
  const listens = data.listeners.some((one) => one.node === node && one.protocol.startsWith("amqp"));
  const set = (suspended) => put(path("nodes", node, "listeners"), { suspended });
  if (!listens) return html`<${Mark} state="warning">takes no new clients<//> <button type="button" onClick=${() => set(false).then(() => { again(); tell("Clients are taken again"); }, (error) => tell(error.message))}>Resume</button>`;
  return html`<${Confirm} label="Suspend" title=${`Take no new clients at ${node}?`} text=${`Its ports for AMQP are closed; the ${format.plural(clients, "connection")} that it has ${clients === 1 ? "stays" : "stay"}. Its management port goes on.`} submit=${() => set(true)} done=${() => { again(); tell("No new clients are taken"); }} />`;
}

const Forget = ({ node, queues, again }) => html`<${FormButton} label="Forget" title=${`Forget ${node.name}?`} send="Forget this node" danger
  fields=${[{ name: "typed", label: "Name of the node, to be sure", required: true }]}
  submit=${({ typed }) => {
    if (typed !== node.name) throw new Error(`Type ${node.name} to forget it.`);
    return remove(path("nodes", node.name), { "accept-loss": "true" });
  }} done=${() => { again(); tell("Node forgotten"); }}>
  <p>For a node that will not return: its ${format.plural(queues, "queue")} and their messages are deleted, and its shards leave their rings.</p>
<//>`;

const FewerWorkers = ({ node, again }) => html`<${FormButton} label="Workers" title=${`Workers of ${node.name}`} send="Set"
  fields=${[{ name: "count", label: "Workers that stay", type: "number", min: 1, value: node.workers.length, required: true }]}
  warn=${({ count }) => Number(count) < node.workers.length && `${format.plural(node.workers.slice(Number(count)).reduce((sum, one) => sum + one.queues, 0), "queue")} of ${format.plural(node.workers.length - Number(count), "worker")} move to those that stay. More workers again take a start with --workers.`}
  submit=${({ count }) => put("/api/workers", { count: Number(count) })} done=${() => { again(); tell("Workers are leaving"); }} />`;

function Rebalance({ counts, again }) {
  const mean = counts.reduce((sum, one) => sum + one, 0) / counts.length;
  const moved = counts.reduce((sum, one) => sum + Math.max(0, Math.floor(one - mean)), 0);
  return html`<${Confirm} label="Rebalance" title="Rebalance queues?" text=${`Workers have ${counts.map(format.count).join(", ")} queues. About ${format.plural(moved, "queue")} ${moved === 1 ? "moves" : "move"} to those that have fewer; their consumers are cancelled and connect again.`}
    submit=${() => post("/api/rebalance/queues")} done=${() => { again(); tell("Queues are moving"); }} />`;
}

export function Node({ name }) {
  const url = path("nodes", name);
  const { data, error } = useLive((signal) => get(url, {}, signal), 3, [url]);
  const inside = useLive((signal) => get(path("nodes", name, "contents"), {}, signal), 5, [url]);
  const fullest = useLive((signal) => get("/api/queues", { node: name, page: 1, page_size: 100, sort: "messages", sort_reverse: true }, signal), 5, [url]);
  const node = useLast(data);
  const contents = useLast(inside.data);
  const heirs = node ? heirsOf(node) : [];
  if (!node || !contents) return html`<${Page} title=${name} kind="Node"><${Failure} error=${error ?? inside.error} /><//>`;
  return html`<${Page} title=${name} kind="Node">
    <${Failure} error=${error} />
    <${Tiles}>
      <${Tile} label="State" value=${node.running ? "runs" : node.keeps_copies ? "only keeps copies" : "down"} state=${node.running ? "" : node.keeps_copies ? "warning" : "alarm"} />
      <${Tile} label="Queues" value=${format.count(contents.queues)} />
      <${Tile} label="Messages" value=${node.running || heirs.length ? format.count(contents.messages) : "–"} />
      <${Tile} label="Connections" value=${told(node.sockets_used, format.count)} />
      ${node.running && html`<${Tile} label="Up" value=${format.span((node.uptime ?? 0) / 1000)} state="text" />
      <${Tile} label="Memory" value=${format.octets(node.mem_used)} />
      <${Tile} label="Disk free" value=${told(node.disk_free, format.octets)} state=${node.disk_free_alarm ? "alarm" : ""} />
      <${Tile} label="CPU" value=${told(node.cpu, format.percent)} unit=${`of ${format.plural(node.processors ?? 1, "processor")}`} />
      <${Tile} label="Files" value=${format.count(node.fd_used)} unit=${`of ${format.short(node.fd_total)}`} />`}
    <//>
    ${node.running && html`<${LiveCharts} url=${path("history", "nodes", name)} which=${["cpu", "memory", "connections", ...(node.disk_free == null ? [] : ["disk"])]} />`}
    <p class="note">${heirs.length ? html`${node.keeps_copies ? "This node keeps copies, and serves its queues again about 30 seconds after its copies are in the set." : "This node does not run."} ${heirs.map((one) => html`<a key=${one} href=${link("nodes", one)}>${one}</a> `)}serves its queues, whose messages ${heirs.length > 1 ? "they have" : "it has"} copies of.` : node.running && node.copies_led ? "If this node fails, another one with a copy serves its durable queues." : node.running ? `If this node fails, its ${format.plural(contents.queues, "queue")} ${contents.queues === 1 ? "is" : "are"} unavailable until it returns.` : "Its queues are down; their messages are on its disk."}</p>
    <div class="columns">
      ${node.running && html`<${About} node=${node} />`}
      ${node.running && html`<${Logins} node=${name} />`}
      <${Panel} title="Shards here"><${Table} caption="Shards here" rows=${contents.shards} empty="No shards are here." rowKey=${(one) => one.vhost + "\n" + one.exchange} columns=${[
        { label: "Exchange", class: "name", render: (one) => html`<a href=${link("exchanges", one.vhost, one.exchange)}>${one.exchange}</a>` },
        { label: "Virtual host", key: "vhost", minor: true },
        { label: "Shards", num: true, render: (one) => format.count(one.shards) },
        { label: "Messages", num: true, render: (one) => (node.running || heirs.length ? format.count(one.messages) : "–") },
      ]} /><//>
      ${node.cluster_links?.length > 0 && html`<${Panel} title="Links"><${Facts} facts=${node.cluster_links.map((one) => [one.name, `${format.octets(one.send_oct_details.rate)}/s, ${format.octets(one.unsent)} wait`])} /><//>`}
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

/** Properties of a node: its listeners, its data directory, its settings. */
function About({ node }) {
  const person = usePerson();
  const { data: overview } = useLive((signal) => get("/api/overview", { columns: "listeners,product_version" }, signal), 15, []);
  const { data: settings } = useLive((signal) => (person.may("administrator") ? get(path("nodes", node.name, "environment"), {}, signal) : null), 60, [node.name]);
  const rows = Object.entries(settings ?? {}).filter(([, value]) => value != null && value !== "");
  return html`<${Panel} title="About" actions=${person.may("administrator") && html`<${FormButton} button="quiet" label="Log level" title=${`Log of ${node.name}`} send="Set" fields=${[{ name: "level", label: "Log from this level on, until the node stops", type: "select", options: LEVELS, value: "info" }]} submit=${(values) => put(path("nodes", node.name, "log-level"), values)} done=${() => tell("Log level set")} />`}>
    <${Facts} facts=${[
      ["Version", node.name === person.node && overview ? `JumpMQ ${overview.product_version}` : null], ["Process", node.os_pid],
      ["Listens at", overview?.listeners?.filter((one) => one.node === node.name).map((one) => html`<div key=${one.protocol + one.ip_address + one.port}><code>${one.ip_address}:${one.port}</code> <span class="note">${one.protocol}</span></div>`)],
      ["Data directory", settings?.["data-dir"] ?? (node.type === "ram" ? "none: all is kept in memory" : null)],
      ["Connections at most", format.count(node.sockets_total)],
    ]} />
    ${rows.length > 0 && html`<details><summary>${format.plural(rows.length, "setting")}</summary><${LongTable} caption="Settings" rows=${rows} few=${20} text=${([key]) => key} columns=${[{ label: "Setting", class: "name", render: ([key]) => key }, { label: "Value", render: ([, value]) => html`<code>${format.plain(value)}</code>` }]} /></details>`}
  <//>`;
}

/** Attempted logins at the node, by protocol, since its start or the last reset. */
function Logins({ node }) {
  const { data, error, again } = useLive((signal) => get(path("auth", "attempts", node), {}, signal), 10, [node]);
  const counted = (data ?? []).filter((one) => one.auth_attempts);
  return html`<${Panel} title="Logins" note="over HTTP every request counts; the log has the address of each refused request"
    actions=${counted.length > 0 && html`<${Confirm} quiet label="Reset" title="Reset the counts of logins?" text=${`Those of ${node} begin at 0, in its metrics, too.`} submit=${() => remove(path("auth", "attempts", node))} done=${() => { again(); tell("Counts reset"); }} />`}>
    <${Failure} error=${error} />
    ${data && html`<${Table} caption="Logins" rows=${counted} empty="No login was tried." rowKey=${(one) => one.protocol} columns=${[
      { label: "Protocol", key: "protocol" },
      { label: "Accepted", num: true, render: (one) => format.count(one.auth_attempts_succeeded) },
      { label: "Refused", num: true, render: (one) => (one.auth_attempts_failed ? html`<${Mark} state="warning">${format.count(one.auth_attempts_failed)}<//>` : "0") },
    ]} />`}
  <//>`;
}

const LEVELS = ["debug", "info", "warning", "error", "critical", "none"];

/** A figure of a node; unknown for a stopped node. */
const told = (value, show) => (value == null ? "–" : show(value));

function State({ node }) {
  if (!node.running && node.keeps_copies) return html`<${Mark} state="warning">only keeps copies<//>`;
  if (!node.running) return html`<${Mark} state="alarm">down<//>`;
  if (node.mem_alarm || node.disk_free_alarm) return html`<${Mark} state="alarm">${node.mem_alarm ? "memory" : "disk"} alarm<//>`;
  return "runs";
}

/** Text with the running nodes to which a node has no link; if none, the number of links. */
function Links({ node, running }) {
  if (!node.cluster_links || running.length < 2) return "–";
  const linked = new Set(node.cluster_links.map((one) => one.name));
  const missing = running.filter((one) => one.name !== node.name && !linked.has(one.name));
  if (missing.length) return html`<${Mark} state="warning">none to ${missing.map((one) => one.name).join(", ")}<//>`;
  return html`${node.cluster_links.map((one) => html`<span key=${one.name} class="link-of">${one.name}${one.unsent > 0 && html` <b>${format.octets(one.unsent)} wait</b>`}</span>`)}`;
}
