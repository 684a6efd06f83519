// Flow through an exchange, as a diagram: publishers, the exchange, its queues, and their consumers.

import { below, get, path } from "../lib/api.js";
import * as format from "../lib/format.js";
import { link, useLive } from "../lib/live.js";
import { layOut, ROW } from "../lib/flow_layout.js";
import { Empty, Failure, html, Mark, Page, Panel, ServerTable, Table, Tile, Tiles, useEffect, useLast, useRef, useState } from "../lib/ui.js";
import { IncidentsOf } from "./incidents.js";

/** Padding of the panel, left and right, in pixels. */
const PADDING = 32;

/** Number of queues drawn if the middle is folded, and if it is not. */
const FEW = 16;
const MANY = 64;

const COLUMNS = [
  { label: "Exchange", sort: "name", class: "name", render: (one) => html`<a href=${link("flow", one.vhost, one.name || "amq.default")}>${one.name || "(default)"}</a>` },
  { label: "Virtual host", sort: "vhost", key: "vhost", minor: true },
  { label: "Type", sort: "type", render: (one) => html`<${Mark} state=${one.type.includes("hash") ? "accent" : ""}>${one.type}<//>` },
  { label: "Published /s", sort: "message_stats.publish_in_details.rate", num: true, render: (one) => format.rate(one.message_stats.publish_in_details.rate) },
  { label: "To queues /s", sort: "message_stats.publish_out_details.rate", num: true, render: (one) => format.rate(one.message_stats.publish_out_details.rate) },
];

export const Flows = () => html`<${Page} title="Flow" about="flow"><${ServerTable} url="/api/exchanges" columns=${COLUMNS} caption="Exchanges" order="name" /><//>`;

/** The diagram alone, for another view. */
export function LiveFlow({ vhost, name }) {
  const { data } = useLive((signal) => get(below(path("exchanges", vhost, name), "flow"), {}, signal), 2, [vhost, name]);
  const told = useLast(data);
  const rates = useRates(told);
  return told?.queues.length > 0 && html`<${Picture} told=${told} rates=${rates} vhost=${vhost} name=${name} />`;
}

export function Flow({ vhost, name }) {
  const [queues, setQueues] = useState(FEW);
  const url = below(path("exchanges", vhost, name), "flow");
  const { data, error } = useLive((signal) => get(url, { queues }, signal), 2, [url, queues]);
  const told = useLast(data);
  const rates = useRates(told);
  if (!told) return html`<${Page} title=${name} kind="Flow"><${Failure} error=${error} /><//>`;
  const all = [...told.queues, told.folded];
  const sum = (what) => all.reduce((total, one) => total + one[what], 0);
  const many = told.queues.length + told.folded.queues;
  return html`<${Page} title=${name} kind="Flow" about="flow" actions=${html`
      <a class="button" href=${link("exchanges", vhost, name)}>Exchange</a>
      ${told.type === "x-consistent-hash" && html`<a class="button" href=${link("rings", vhost, name)}>Ring</a>`}
      ${many > FEW && html`<button type="button" aria-pressed=${String(queues === MANY)} onClick=${() => setQueues(queues === FEW ? MANY : FEW)}>${queues === FEW ? `Show up to ${MANY} queues` : "Fold the middle"}</button>`}`}>
    <${Failure} error=${error} />
    <${IncidentsOf} vhost=${vhost} name=${name} />
    <${Tiles}>
      <${Tile} label="Published" value=${format.rate(told.in_rate)} unit="/s" />
      <${Tile} label="To queues" value=${format.rate(told.out_rate)} unit="/s" />
      <${Tile} label="Settled" value=${format.rate(sum("settle_rate"))} unit="/s" />
      <${Tile} label="Grows by" value=${format.rate(sum("excess_rate"))} unit="/s" state=${sum("excess_rate") >= 1 ? "alarm" : ""} />
      <${Tile} label="Waiting" value=${format.short(sum("messages_ready"))} />
      <${Tile} label="Queues" value=${format.count(many)} />
    <//>
    ${many ? html`<${Picture} told=${told} rates=${rates} vhost=${vhost} name=${name} />` : html`<${Empty}>Nothing is bound to this exchange.<//>`}
    <${Panel} title="In figures" note="messages a second, over the last five">
      <${Table} caption="Queues of this exchange" rows=${told.queues} rowKey=${(one) => one.name} empty="Nothing is bound to this exchange." columns=${[
        { label: "Queue", class: "name", render: (one) => html`<a href=${link("queues", vhost, one.name)}>${one.name}</a>` },
        { label: "Published", num: true, render: (one) => format.rate(one.publish_rate) },
        { label: "Delivered", num: true, render: (one) => format.rate(one.deliver_rate) },
        { label: "Settled", num: true, render: (one) => format.rate(one.settle_rate) },
        { label: "Grows by", num: true, render: (one) => html`<span class=${exceeds(one) ? "alarm" : ""}>${format.rate(one.excess_rate)}</span>` },
        { label: "Ready", num: true, render: (one) => format.count(one.messages_ready) },
        { label: "Consumers", num: true, render: (one) => format.count(one.consumers) },
      ]} />
      ${told.folded.queues > 0 && html`<p class="note">and ${format.plural(told.folded.queues, "queue")} between the fullest and the idlest, with ${format.short(told.folded.messages_ready)} ready.</p>`}
    <//>
  <//>`;
}

/** Return true if a queue's publish rate clearly exceeds its settlement rate. */
const exceeds = (one) => one.excess_rate >= Math.max(1, one.publish_rate / 20);

/** Counters of an answer by key: of publishers `p`, of consumers by queue. */
function countersOf(told) {
  const found = new Map(told.publishers.map((one) => [`p\n${one.name}`, one.published]));
  for (const { kind, name, queues } of told.consumers) for (const [queue, count] of Object.entries(queues)) if (count != null) found.set(`${queue}\n${kind}\n${name}`, count);
  return found;
}

/**
 * Return the share of each publisher and consumer in the rate of the exchange or queue. The share follows the growth of
 * the counter since the previous answer, or the counter in the first answer. The shares add up to the whole rate.
 */
function useRates(told) {
  const kept = useRef({ told: null, counters: new Map(), grown: new Map() });
  if (told && kept.current.told !== told) {
    const { counters: before } = kept.current;
    const counters = countersOf(told);
    kept.current = { told, counters, grown: new Map([...counters].map(([key, count]) => [key, Math.max(0, count - (before.get(key) ?? 0))])) };
  }
  const { counters, grown } = kept.current;
  const part = (key, keys, rate) => {
    const weights = keys.some((one) => grown.get(one)) ? grown : counters;
    const all = keys.reduce((total, one) => total + (weights.get(one) ?? 0), 0);
    return all ? ((weights.get(key) ?? 0) / all) * rate : 0;
  };
  const publishers = told?.publishers.map((one) => `p\n${one.name}`);
  const takers = (queue) => told.consumers.filter((one) => one.queues[queue] != null).map((one) => `${queue}\n${one.kind}\n${one.name}`);
  return {
    published: (name) => part(`p\n${name}`, publishers, told.in_rate),
    delivered: (kind, name, queue, rate) => part(`${queue}\n${kind}\n${name}`, takers(queue), rate),
  };
}

/** A name without control characters, for one line of the diagram. */
const tame = (name) => name.replace(/[\p{C}\p{Z}]/gu, (found) => (found === " " ? found : "·"));

/** A name shortened to a width in pixels. The middle is cut out, because names differ at their ends. */
function elided(name, width) {
  const letters = [...tame(name)];
  const room = Math.max(4, Math.floor(width / 8));
  const head = Math.ceil((room - 1) * 0.45);
  return letters.length <= room ? letters.join("") : `${letters.slice(0, head).join("")}…${letters.slice(-(room - 1 - head)).join("")}`;
}

/** The first figures that fit into a width. Numbers are never cut. */
function fitting(figures, width) {
  const parts = figures.split(" · ");
  while (parts.length > 1 && parts.join(" · ").length * 7 > width) parts.pop();
  return parts.join(" · ");
}

const KINDS = { group: "group", reader: "reader", client: "" };

function Picture({ told, rates, vhost, name }) {
  const place = useRef();
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const resizing = new ResizeObserver(() => setWidth(place.current.clientWidth - PADDING));
    resizing.observe(place.current);
    return () => resizing.disconnect();
  }, []);
  const drawn = width > 0 && layOut(told, rates, width);
  const slow = told.queues.filter(exceeds);
  const label = `Flow through ${name}: ${format.plural(told.publishers.length, "publisher")}, ${format.plural(told.queues.length + told.folded.queues, "queue")}, ${format.plural(told.consumers.length, "consumer")}; ${slow.length ? `more comes in than goes out at ${slow.slice(0, 3).map((one) => one.name).join(", ")}` : "nothing grows"}`;
  return html`<section class="panel flow" ref=${place} aria-label="Picture of the flow">
    ${drawn && html`<svg width=${width} height=${drawn.height} role="group" aria-label=${label}>
      ${drawn.heads.map(({ x, anchor, text }) => html`<text class="head" x=${x} y="12" text-anchor=${anchor}>${text}</text>`)}
      ${drawn.links.map((one) => html`<path key=${one.key} class="link ${one.rate ? "" : "still"} ${one.state}" d=${one.d} style=${`stroke-width:${one.width}px`}><title>${one.title}</title></path>
        ${one.rate > 0 && html`<path key=${`${one.key} moving`} class="moving" d=${one.d} />`}`)}
      <rect class="exchange" x=${drawn.exchange.x} y=${drawn.exchange.y} width=${drawn.exchange.width} height=${drawn.exchange.height} rx="4" />
      ${drawn.nodes.map((one) => html`<${Node} key=${one.key} node=${one} href=${one.queue && link("queues", vhost, one.queue)} />`)}
    </svg>`}
    <p class="legend note"><i class="swatch" aria-hidden="true"></i>as wide as the rate <i class="swatch excess" aria-hidden="true"></i>more comes in than goes out <i class="swatch still" aria-hidden="true"></i>nothing at the moment</p>
  </section>`;
}

/** A box with a name and a line of figures; text that does not fit is cut off by its own small picture. */
function Node({ node, href }) {
  const inside = html`<title>${node.title}</title>
    <rect class="box ${node.state}" x="0.5" y="0.5" width=${node.width - 1} height=${ROW - 9} rx="6" />
    <text class="name" x="9" y="16">${elided(node.name, node.width - 18)}</text>
    <text class="figures ${node.state}" x="9" y="30">${fitting([KINDS[node.kind], node.figures].filter(Boolean).join(" · "), node.width - 14)}</text>`;
  return html`<svg x=${node.x} y=${node.y} width=${node.width} height=${ROW - 8}>${href ? html`<a href=${href}>${inside}</a>` : html`<g>${inside}</g>`}</svg>`;
}
