// Hash rings: the list, and one ring with its recent traffic.

import { below, get, path } from "../lib/api.js";
import * as format from "../lib/format.js";
import { link, useLive } from "../lib/live.js";
import { Bar, Empty, Failure, html, LongTable, Mark, Page, Panel, ServerTable, Table, Tile, Tiles, useLast, useState } from "../lib/ui.js";
import { IncidentsOf } from "./incidents.js";

/** Messages below which no key is called hot. */
const ENOUGH = 200;

/** Maximum number of destinations for a picture of arcs. */
const MOST_ARCS = 600;

const COLUMNS = [
  { label: "Exchange", sort: "name", class: "name", render: (one) => html`<a href=${link("rings", one.vhost, one.name)}>${one.name}</a>` },
  { label: "Virtual host", sort: "vhost", key: "vhost", minor: true },
  { label: "Hashes", render: (one) => hashed(one.arguments) },
  { label: "Function", render: (one) => one.arguments["hash-function"] ?? "phash2" },
  { label: "Removal", render: (one) => one.arguments["ring-removal"] ?? "minimal" },
  { label: "Policy", render: (one) => one.policy ?? "" },
  { label: "", class: "end", render: (one) => html`<a href=${link("what-if", one.vhost, one.name)}>What if</a>` },
];

const hashed = (given) => given["hash-header"] ? `header ${given["hash-header"]}` : given["hash-property"] ? `property ${given["hash-property"]}` : "routing key";

export const RingList = ({ columns = COLUMNS }) => html`<${ServerTable} url="/api/exchanges" query=${{ type: "x-consistent-hash" }} columns=${columns} caption="Consistent hash exchanges" order="name" empty="No consistent hash exchange is declared." />`;

export const Rings = () => html`<${Page} title="Rings" about="rings"><${RingList} /><//>`;

/** Probability, over all destinations together, below which a share is not attributed to chance. */
const UNLIKELY = 0.001;

/**
 * Return the state of a destination with more messages than its weight allows, as a word for the colour; empty if chance
 * explains the excess. All `count` destinations are tested, each with its part of the probability (Bonferroni).
 */
function stateOf(ratio, share, total, count) {
  const deviation = Math.sqrt(total * share * (1 - share));
  if (!(ratio >= 1.25) || !deviation || total * share < 5) return "";
  const z = (total * share * (ratio - 1)) / deviation;
  const chance = Math.exp(-z * z / 2) / (z * Math.sqrt(2 * Math.PI)); // of so much or more: an upper bound
  return chance > UNLIKELY / count ? "" : ratio < 2 ? "warning" : "alarm";
}

/** Input for a key; calls `onAsk(key)`. */
export function AskKey({ value = "", onAsk }) {
  const [key, setKey] = useState(value);
  return html`<form class="ask-key" role="search" onSubmit=${(event) => { event.preventDefault(); onAsk(key); }}>
    <input type="search" class="search" aria-label="Key" placeholder="A key, such as customer-3" value=${key} onInput=${(event) => setKey(event.target.value)} spellcheck=${false} />
    <button class="primary">Follow the key</button>
  </form>`;
}

export function Ring({ vhost, name }) {
  const url = path("exchanges", vhost, name, "ring");
  const ring = useLive((signal) => get(url, {}, signal), 5, [url]);
  const traffic = useLive((signal) => get(below(url, "traffic"), {}, signal), 2, [url]);
  const buckets = useLast(ring.data);
  const seen = useLast(traffic.data);
  if (!buckets || !seen) return html`<${Page} title=${name} kind="Ring"><${Failure} error=${ring.error ?? traffic.error} /><//>`;
  const rows = seen.destinations.map((one) => {
    const share = seen.messages ? one.messages / seen.messages : 0;
    return { ...one, part: share, keyPart: seen.keys ? one.keys / seen.keys : 0, ratio: share / one.share, level: stateOf(share / one.share, one.share, seen.messages, seen.destinations.length) };
  });
  const widest = Math.max(...rows.map((row) => Math.max(row.part, row.keyPart, row.share)), 0.0001); // of a thousand queues each has a thousandth
  const retired = buckets.retired.reduce((sum, [, number]) => sum + number, 0);
  return html`<${Page} title=${name} kind="Ring" about="rings" actions=${html`<a class="button" href=${link("flow", vhost, name)}>Flow</a><a class="button" href=${link("exchanges", vhost, name)}>Exchange</a><a class="button primary" href=${link("what-if", vhost, name)}>What if</a>`}>
    <${Failure} error=${ring.error ?? traffic.error} />
    <${IncidentsOf} vhost=${vhost} name=${name} />
    <${AskKey} onAsk=${(key) => { location.hash = `${link("key", vhost, name)}?${new URLSearchParams({ key })}`; }} />
    <${Tiles}>
      <${Tile} label="Hashed" value=${seen.hashed} state="text" />
      <${Tile} label="Messages" value=${format.short(seen.messages)} unit=${seen.since ? `since ${format.clock(seen.since)}` : "lately"} />
      <${Tile} label="Different keys" value=${format.short(seen.keys)} unit="about" />
      <${Tile} label="Without the header" value=${format.short(seen.missing)} unit=${`${format.short(seen.missing_since_start)} since the start`} state=${seen.missing ? "warning" : ""} />
      <${Tile} label="Buckets" value=${format.count(buckets.buckets)} unit=${retired ? `and ${format.count(retired)} retired` : ""} />
    <//>
    ${!seen.counted && html`<${Empty}>Keys are not counted: the broker runs with --key-sketches off.<//>`}
    <div class="columns ring">
      <${Panel} title="The ring" note="outer ring: key space · inner ring: messages"><${Picture} buckets=${buckets} rows=${rows} /><//>
      <${Panel} title="Is it even?" note="how likely chance alone is to stray as far">
        <${Spread} what="Messages" test=${seen.spread.messages} />
        <${Spread} what="Different keys" test=${seen.spread.keys} />
        <p class="hint">${verdict(seen)}</p>
      <//>
    </div>
    <${Panel} title="Destinations" note="the line in a bar is the share that the weight gives">
      <${LongTable} caption="Destinations" rows=${rows} text=${(row) => row.destination} empty="Nothing is bound to this exchange." rowKey=${(row) => row.destination} columns=${[
        { label: "Destination", class: "name", render: (row) => destination(vhost, row.destination) },
        { label: "Weight", num: true, render: (row) => format.count(row.weight) },
        { label: "Share", num: true, render: (row) => format.percent(row.share) },
        { label: "Messages", num: true, render: (row) => format.count(row.messages) },
        { label: "% of messages", num: true, render: (row) => html`<span class=${row.level}>${format.percent(row.part)}</span>` },
        { label: "", class: "wide-cell", render: (row) => html`<${Bar} share=${row.part / widest} mark=${row.share / widest} state=${row.level} label=${`${format.percent(row.part)} of the messages, ${format.percent(row.share)} expected`} />` },
        { label: "Keys", num: true, render: (row) => format.count(row.keys) },
        { label: "", class: "wide-cell", render: (row) => html`<${Bar} share=${row.keyPart / widest} mark=${row.share / widest} state="keys" label=${`${format.percent(row.keyPart)} of the keys`} />` },
      ]} />
    <//>
    <${Panel} title="Hottest keys" note="of the messages of the last minutes">
      <${Table} caption="Hottest keys" rows=${seen.hottest.filter((one) => one.share - one.error > 0.002).slice(0, 12)} empty=${seen.messages ? "No key stands out." : "No key was seen yet."} columns=${[
        { label: "Key", class: "name", render: (row) => html`<a href=${`${link("key", vhost, name)}?${new URLSearchParams({ key: row.key })}`}><code>${row.key}</code></a>` },
        { label: "goes to", class: "name", render: (row) => destination(vhost, row.destination) },
        { label: "Messages", num: true, render: (row) => format.count(row.messages) },
        { label: "Share", num: true, render: (row) => format.percent(row.share) },
        { label: "", class: "wide-cell", render: (row) => html`<${Bar} share=${row.share / Math.max(...seen.hottest.map((one) => one.share), 0.0001)} state=${row.share - row.error >= 0.1 && seen.messages >= ENOUGH ? "warning" : ""} />` },
        { label: "≥", num: true, render: (row) => format.percent(Math.max(0, row.share - row.error)) },
      ]} />
    <//>
  <//>`;
}

const destination = (vhost, name) => name.startsWith("exchange:")
  ? html`<a href=${link("exchanges", vhost, name.slice(9))}>${name}</a>`
  : html`<a href=${link("queues", vhost, name.replace(/^queue:/, ""))}>${name}</a>`;

function Spread({ what, test }) {
  if (!test) return html`<p class="spread"><b>${what}</b> <span class="note">too few to tell</span></p>`;
  const unlikely = test.p_value < 0.001;
  return html`<div class="spread">
    <p><b>${what}</b> <${Mark} state=${unlikely ? "warning" : "good"}>${unlikely ? "Uneven" : "Even"}<//></p>
    <p class="note">χ² ${format.count(test.chi_squared)} with ${format.plural(test.degrees, "degree")} of freedom, p ${format.probability(test.p_value)}</p>
  </div>`;
}

/** Return the conclusion from both tests, as a text. */
function verdict({ spread, missing, messages, hashed: what }) {
  if (!messages) return "Nothing has come since the ring changed last.";
  if (missing > messages / 20) return `${format.percent(missing / messages)} of the messages lack the ${what}: they all go to one destination.`;
  if (!spread.messages) return "Too few messages to tell yet.";
  const uneven = (test) => test && test.p_value < 0.001;
  if (uneven(spread.messages) && !uneven(spread.keys)) return "Keys are spread evenly, messages are not: some keys have many more messages than others. The hottest are below.";
  if (uneven(spread.keys)) return "The keys themselves are spread unevenly: are there few different keys?";
  return "Every destination gets its share by weight.";
}

/** Two circles: the outer with the owners of the buckets, retired buckets as gaps; the inner with the received messages. */
export function Picture({ buckets, rows, lit }) {
  const levels = new Map(rows.map((row) => [row.destination, row.level]));
  const runs = buckets.destinations.flatMap(({ destination: name, runs: own }, place) => own.map(([first, number]) => ({ name, first, number, place })));
  const total = buckets.buckets + buckets.retired.reduce((sum, [, number]) => sum + number, 0);
  if (!total) return html`<${Empty}>The ring is empty.<//>`;
  if (runs.length > MOST_ARCS) return html`<${Empty}>${format.count(runs.length)} runs of buckets are too many to draw.<//>`;
  let turned = 0;
  const shares = rows.map((row, place) => ({ row, place, from: turned, to: (turned += row.part) }));
  const fullest = rows.reduce((most, row) => (row.ratio > most.ratio ? row : most), rows[0]);
  return html`<svg class="ring-picture" viewBox="-110 -110 220 220" role="img" aria-label=${lit >= 0 ? `Ring of ${rows.length} destinations; bucket ${lit} is marked` : `Ring of ${rows.length} destinations; ${fullest.destination} has ${format.percent(fullest.part)} of the messages where its weight gives ${format.percent(fullest.share)}`}>
    ${buckets.retired.map(([first, number]) => html`<path class="retired" d=${arc(first / total, (first + number) / total, 88, 100)}><title>${format.plural(number, "bucket")} retired</title></path>`)}
    ${runs.map((run) => html`<path class="share ${run.place % 2 ? "odd" : ""} ${levels.get(run.name)}" d=${arc(run.first / total, (run.first + run.number) / total, 88, 100)}><title>${run.name}: ${format.plural(run.number, "bucket")}</title></path>`)}
    ${shares.filter(({ row }) => row.part > 0).map(({ row, place, from, to }) => html`<path class="share ${place % 2 ? "odd" : ""} ${row.level}" d=${arc(from, to, 52, 82)}><title>${row.destination}: ${format.percent(row.part)} of the messages</title></path>`)}
    ${lit >= 0 && html`<path class="lit" d=${arc(lit / total, (lit + 1) / total, 84, 106)}><title>the bucket of the key</title></path>`}
    <text y="-4" class="big">${format.short(rows.length)}</text><text y="14">${rows.length === 1 ? "destination" : "destinations"}</text>
  </svg>`;
}

/** An arc between two angles, in turns from 0 to 1. */
function arc(from, to, inner, outer) {
  const end = Math.min(to, from + 0.99999);
  const at = (turn, radius) => `${(radius * Math.sin(2 * Math.PI * turn)).toFixed(2)},${(-radius * Math.cos(2 * Math.PI * turn)).toFixed(2)}`;
  const wide = end - from > 0.5 ? 1 : 0;
  return `M${at(from, outer)} A${outer},${outer} 0 ${wide} 1 ${at(end, outer)} L${at(end, inner)} A${inner},${inner} 0 ${wide} 0 ${at(from, inner)} Z`;
}
