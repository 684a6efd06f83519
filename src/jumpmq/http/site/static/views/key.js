// Path of a key: hash, bucket, queue, node, consumers; its messages in all queues of the ring; a preview of other rings.

import { get, path } from "../lib/api.js";
import * as format from "../lib/format.js";
import { link, setQuery, useAddress, useLive } from "../lib/live.js";
import { Empty, Failure, html, Mark, Page, Panel, Table, Tile, Tiles, useEffect, useLast, useState } from "../lib/ui.js";
import { AskKey, Picture } from "./rings.js";

/** Maximum number of queues searched for messages of a key, and of shown messages per queue. */
const SEARCHED = 64, EACH = 5;

export function Key({ vhost, name }) {
  const { query } = useAddress();
  const key = query.key ?? "";
  const url = path("exchanges", vhost, name, "key");
  const { data, error } = useLive((signal) => ("key" in query ? get(`${url}?${new URLSearchParams({ key })}`, {}, signal) : null), 3, [url, key]);
  const found = useLast(data);
  const current = found?.key === key ? found : null;
  return html`<${Page} title=${name} kind="A key on the ring" actions=${html`<a class="button" href=${link("rings", vhost, name)}>Ring</a>`}>
    <${AskKey} key=${key} value=${key} onAsk=${(asked) => setQuery({ key: asked })} />
    <${Failure} error=${error} />
    ${current && html`<${Found} vhost=${vhost} name=${name} found=${current} />`}
    ${!("key" in query) && html`<${Empty}>Type what the exchange hashes: a routing key, or the value of the header.<//>`}
  <//>`;
}

function Found({ vhost, name, found }) {
  const { queue, traffic } = found;
  return html`
    <ol class="chain" aria-label="The way of the key">
      <li><span class="note">${found.hashed}</span><b>${format.name(found.key)}</b></li>
      <li><span class="note">hash</span><b>${found.hash}</b></li>
      ${found.hops.map((hop) => html`<li key=${hop.exchange}><span class="note">bucket of ${hop.exchange}</span><b>${hop.bucket} of ${format.count(hop.buckets)}</b>${hop.retired && html` <${Mark}>retired<//>`}</li>`)}
      ${queue ? html`
        <li><span class="note">queue</span><b><a href=${link("queues", vhost, queue.name)}>${format.name(queue.name)}</a></b>${queue.state === "down" && html` <${Mark} state="alarm">down<//>`}</li>
        <li><span class="note">node${queue.workers > 1 ? ", worker" : ""}</span><b><a href=${link("nodes", queue.node)}>${queue.node}</a>${queue.workers > 1 ? `, ${queue.worker}` : ""}</b></li>
        <li><span class="note">read by</span><b>${readBy(queue)}</b></li>` : html`<li><span class="note">destination</span><b>${found.hops.at(-1).destination ?? "none: nothing is bound"}</b></li>`}
    </ol>
    <${Tiles}>
      <${Tile} label="Share of the messages" value=${traffic ? format.percent(traffic.share) : "–"} unit=${traffic ? "lately" : "not among the frequent keys"} />
      <${Tile} label="Messages" value=${traffic ? format.count(traffic.messages) : "–"} unit=${traffic?.since ? `since ${format.since(traffic.since)}` : ""} />
      ${queue && queue.state !== "down" && html`
        <${Tile} label="Ready in its queue" value=${format.count(queue.messages_ready)} />
        <${Tile} label="Unacknowledged" value=${format.count(queue.messages_unacknowledged)} />
        <${Tile} label="Consumers" value=${format.count(queue.consumers)} state=${queue.consumers || queue.readers.length ? "" : "warning"} />`}
    <//>
    ${queue && queue.state !== "down" && html`<${Waits} vhost=${vhost} queue=${queue} />`}
    <div class="columns">
      ${found.type === "x-consistent-hash" && html`<${Lit} vhost=${vhost} name=${name} found=${found} />`}
      <${Then} vhost=${vhost} name=${name} found=${found} />
    </div>
    <${OfKey} vhost=${vhost} name=${name} found=${found} />`;
}

const readBy = ({ consumer_details: consumers, consumers: count, readers }) => {
  const names = [...consumers.map((one) => one.channel_details?.user_provided_name ?? one.channel_details?.name ?? one.consumer_tag), ...readers.map((one) => `Spark: ${one.group}`)];
  if (!names.length) return html`<${Mark} state="warning">no consumer<//>`;
  return names.slice(0, 3).join(", ") + (count + readers.length > 3 ? ` and ${format.count(count + readers.length - 3)} more` : "");
};

/** The broker's reason why messages of the queue are not delivered. */
function Waits({ vhost, queue }) {
  const { data } = useLive((signal) => get(path("queues", vhost, queue.name, "explain"), {}, signal), 5, [vhost, queue.name]);
  return data && html`<p class="reason" role="status">Deliveries of ${queue.name}: ${data.reason}. <a href=${link("why", vhost, queue.name)}>More</a></p>`;
}

/** The ring, with the bucket of the key highlighted. */
function Lit({ vhost, name, found }) {
  const url = path("exchanges", vhost, name, "ring");
  const { data } = useLive((signal) => get(url, {}, signal), 30, [url, found.buckets]);
  return html`<${Panel} title="On the ring" note="the bucket of the key is marked">
    ${data && html`<${Picture} buckets=${data} lit=${found.hops[0].bucket} rows=${data.destinations.map((one) => ({ destination: one.destination, share: 0, part: 0, ratio: 0, level: one.destination === found.hops[0].destination ? "" : "dim" }))} />`}
  <//>`;
}

/** Destination of the key for another number of destinations. */
function Then({ vhost, name, found }) {
  const url = path("exchanges", vhost, name, "ring");
  const ring = useLive((signal) => (found.type === "x-consistent-hash" ? get(url, {}, signal) : null), 30, [url]);
  const now = ring.data?.destinations.length ?? found.buckets;
  const [count, setCount] = useState(null);
  const wanted = count ?? now + 1;
  const { data, error } = useLive((signal) => get(path("exchanges", vhost, name, "key"), { key: found.key, destinations: wanted }, signal), 0, [found.key, wanted]);
  const then = useLast(data?.then);
  return html`<${Panel} title="With another number of queues">
    <label class="slider">${format.plural(wanted, "queue")}
      <input type="range" min="1" max=${Math.max(16, 2 * now)} value=${wanted} aria-label="Number of queues" onInput=${(event) => setCount(Number(event.target.value))} /></label>
    <${Failure} error=${error} />
    ${then && html`<p role="status">With ${format.plural(then.destinations, "queue")} it would ${then.destination === found.hops[0].destination ? html`<b>stay in ${then.destination}</b>` : html`go to <b>${then.destination}</b>`}.</p>`}
    <p class="note">Nothing is changed here.</p>
  <//>`;
}

/** Messages of the key in all queues of the ring, including messages from before the ring changed. */
function OfKey({ vhost, name, found }) {
  const [state, setState] = useState({ rows: [], busy: false, searched: 0, refused: 0 });
  const [round, setRound] = useState(0);
  useEffect(() => {
    const aborting = new AbortController();
    search(vhost, name, found, aborting.signal, (now) => !aborting.signal.aborted && setState(now)).catch(() => {});
    return () => aborting.abort();
  }, [vhost, name, found.key, round]);
  return html`<${Panel} title="Messages of this key" note=${state.busy ? "searching ..." : `in ${format.plural(state.queues ?? 0, "queue")}, nothing is taken`} actions=${html`<button type="button" class="quiet" disabled=${state.busy} onClick=${() => setRound(round + 1)}>Search again</button>`}>
    ${state.refused > 0 && html`<p class="note">${format.plural(state.refused, "queue")} could not be searched: ${state.reason}</p>`}
    <${Table} caption="Messages of this key" rows=${state.rows} empty=${state.busy ? "..." : "No message of this key is ready in the first messages of any queue of the ring."} rowKey=${(one) => `${one.queue} ${one.seq}`} columns=${[
      { label: "Queue", class: "name", render: (one) => html`<a href=${browsed(vhost, one.queue, found)}>${one.queue}</a>` },
      { label: "Number", num: true, render: (one) => format.count(one.seq) },
      { label: "Published", class: "time", render: (one) => (one.published_at ? format.moment(one.published_at) : "") },
      { label: "Payload", class: "message", render: (one) => html`<code>${one.payload}</code>` },
    ]} />
  <//>`;
}

/** Return the parameters of `browse` that find messages of a key. */
function saidOf({ hashed, key }) {
  if (hashed === "routing key") return { key };
  const [kind, header] = [hashed.split(" ")[0], hashed.slice(hashed.indexOf(" ") + 1)];
  return { [kind]: header, value: key };
}

const browsed = (vhost, queue, found) => `${link("messages", vhost, queue)}?${new URLSearchParams(saidOf(found))}`;

async function search(vhost, name, found, signal, show) {
  const said = saidOf(found);
  const bindings = await get(path("exchanges", vhost, name, "bindings", "source"), { columns: "destination,destination_type" }, signal);
  const names = [...new Set(bindings.filter((one) => one.destination_type === "queue").map((one) => one.destination))];
  const order = [found.queue?.name, ...names].filter((one, place, all) => one && all.indexOf(one) === place).slice(0, SEARCHED);
  let now = { rows: [], busy: true, queues: 0, refused: 0 };
  show(now);
  for (const queue of order) {
    try {
      const answer = await get(path("queues", vhost, queue, "browse"), { ...said, count: EACH, truncate: 80 }, signal);
      now = { ...now, rows: [...now.rows, ...answer.messages.map((one) => ({ ...one, queue }))], queues: now.queues + 1 };
    } catch (error) {
      if (error.name === "AbortError") return;
      now = { ...now, refused: now.refused + 1, reason: error.message };
    }
    show(now);
  }
  show({ ...now, busy: false });
}
