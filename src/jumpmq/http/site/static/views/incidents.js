// Incidents: one line per cause, with symptoms, begin and actions.

import { get, path, post, remove } from "../lib/api.js";
import { partOf } from "../lib/chart.js";
import * as format from "../lib/format.js";
import { useHost } from "../lib/host.js";
import { link, useLive } from "../lib/live.js";
import { Confirm, Failure, html, Mark, Spark, tell, useEffect, usePerson, useState } from "../lib/ui.js";
import { compared } from "./consumers.js";
import { Move } from "./moving.js";

const MUTED = "jumpmq muted";
const HOUR = 3600;

/** Fewer causes than this number are unfolded initially. */
const FEW = 3;

/** Number of causes shown initially. */
const SHOWN = 5;

/** Maximum number of listed causes, and of causes with a drawn backlog, each of which takes a request. */
const MOST = 100;
const DRAWN = 20;

const keyOf = (one) => [one.kind, one.object, one.vhost, one.pattern || one.name].join("\n");

/** End of the muting of incidents in this browser, in seconds since the epoch, by incident. */
function mutedNow() {
  try {
    const kept = JSON.parse(localStorage.getItem(MUTED) ?? "{}");
    return Object.fromEntries(Object.entries(kept).filter(([, until]) => until > Date.now() / 1000));
  } catch {
    return {};
  }
}

function mute(key, seconds) {
  localStorage.setItem(MUTED, JSON.stringify({ ...mutedNow(), [key]: Date.now() / 1000 + seconds }));
}

const useIncidents = () => useLive((signal) => get("/api/incidents", {}, signal), 3, []);

/** All causes, for the first page. */
export function Incidents() {
  const { data, error, again, at } = useIncidents();
  const [whole, setWhole] = useState(false);
  const host = useHost();
  if (!data) return html`<${Failure} error=${error} />`;
  const muted = mutedNow();
  const here = data.filter((one) => !host || !one.vhost || one.vhost === host);
  const shown = here.filter((one) => !(keyOf(one) in muted));
  const silent = here.length - shown.length;
  const change = (one, seconds) => { mute(keyOf(one), seconds); again(); };
  const unmute = () => { localStorage.removeItem(MUTED); again(); };
  const hidden = silent > 0 && html`<p class="note">${format.plural(silent, "cause")} muted. <button type="button" class="quiet" onClick=${unmute}>Show again</button></p>`;
  if (!shown.length) return html`${!silent && html`<${Well} at=${at} />`}${hidden}`;
  const urgent = shown.filter((one) => one.severity === "alarm").length;
  const listed = shown.slice(0, whole ? MOST : SHOWN);
  const rest = shown.length - SHOWN;
  return html`<section aria-label="Warnings">
    <header class="problems"><h2>${format.plural(shown.length, "problem")}${urgent > 0 && `, ${format.count(urgent)} urgent`}</h2>
      <button type="button" class="quiet" onClick=${() => copy(shown)}>Copy as text</button></header>
    <${Failure} error=${error} />
    <ul class="incidents">
      ${listed.map((one, number) => html`<${Incident} key=${keyOf(one)} one=${one} drawn=${number < DRAWN} open=${shown.length < FEW || one.kind === "node-down"} onMute=${() => change(one, HOUR)} />`)}
    </ul>
    ${rest > 0 && html`<button type="button" class="quiet" aria-expanded=${String(whole)} onClick=${() => setWhole(!whole)}>${whole ? "Fewer" : `${format.count(rest)} more`}</button>`}
    ${whole && shown.length > MOST && html`<p class="note">and ${format.count(shown.length - MOST)} more</p>`}${hidden}
  </section>`;
}

/** The causes as text, for the clipboard. */
export const asText = (causes) => causes.map((one) => [
  `${one.severity === "alarm" ? "URGENT " : ""}${one.kind.replaceAll("-", " ")}: ${one.name}${one.vhost && one.vhost !== "/" ? ` in ${one.vhost}` : ""} (since ${format.moment(one.since)}${trend(one) ? `, ${trend(one)}` : ""})`,
  one.text, ...one.symptoms.map((each) => each.text), `What to do: ${one.advice}`, addressOf(one),
].join("\n")).join("\n\n");

const copied = (text) => navigator.clipboard.writeText(text).then(() => tell("Copied"), () => tell("This browser does not let a page copy here."));
const copy = (causes) => copied(asText(causes));

/** Seconds before the begin of a cause that are shown by a link to the cause. */
const BEFORE = 600;

/** Address of a cause's object, with charts that start some minutes before the cause. */
function addressOf(one) {
  const about = one.queue && !one.pattern ? link("queues", one.vhost, one.queue) : place(one) ?? link();
  const day = Date.now() / 1000 - 86400;
  return `${location.origin}/${about}${about.includes("?") ? "&" : "?"}${partOf(Math.max(day, one.since - BEFORE), Date.now() / 1000)}`;
}

/** Note that there is no problem, with the number of answering nodes; green only if all nodes answer. */
function Well({ at }) {
  const { data } = useLive((signal) => get("/api/nodes", { columns: "name,running" }, signal), 3, []);
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  if (!data) return null;
  const down = data.filter((one) => !one.running);
  if (down.length) return html`<p class="unwell" role="alert">${down.map((one) => one.name).join(", ")} ${down.length === 1 ? "does" : "do"} not answer: ${data.length - down.length} of ${format.plural(data.length, "node")} ${data.length - down.length === 1 ? "does" : "do"}.</p>`;
  const where = data.length > 1 ? ` on ${data.length} of ${data.length} nodes` : "";
  return html`<p class="well"><span aria-hidden="true">✓</span> No problems${where} <span class="checked">· checked ${Math.max(0, Math.round((now - at) / 1000))} s ago</span></p>`;
}

/** Causes of one queue, ring, shard or exchange, for the head of its page, or `elsewhere`. */
export function IncidentsOf({ vhost, name, queue, elsewhere }) {
  const { data } = useIncidents();
  const concerns = (one) => one.vhost === vhost && (queue
    ? (one.object === "queue" && (one.name === name || one.names.includes(name))) || [one, ...one.symptoms].some((each) => each.queue === name || (each.object === "queue" && each.name === name))
    : one.object !== "queue" && one.name === name);
  const found = data?.filter(concerns) ?? [];
  return found.length > 0 && html`<ul class="incidents" aria-label="What is wrong here">
    ${found.map((one) => html`<${Incident} key=${keyOf(one)} one=${one} drawn open here=${elsewhere ? undefined : name} />`)}
  </ul>`;
}

/** A text; commands between backticks become code. */
const withCode = (text) => text.split("`").map((part, at) => (at % 2 ? html`<code key=${at}>${part}</code>` : part));

function Incident({ one, drawn, open, here, onMute }) {
  const [unfolded, setUnfolded] = useState(open);
  const to = place(one);
  const chain = one.symptoms.filter((each) => each.name !== one.name);
  const about = one.queue && !one.pattern ? one.queue : "";
  return html`<li class=${one.severity}>
    <div class="line">
        <button type="button" class="quiet" aria-expanded=${String(unfolded)} aria-label=${`Details of ${one.kind.replaceAll("-", " ")} ${one.name}`} onClick=${() => setUnfolded(!unfolded)}>${unfolded ? "▾" : "▸"}</button>
        <${Mark} state=${one.severity}>${one.severity === "alarm" && "! "}${one.kind.replaceAll("-", " ")}<//>${one.severity === "alarm" && html`<span class="hidden">urgent</span>`}
        ${one.name !== here && to && html`<a href=${to}>${one.name}</a>`}
        ${about && about !== one.name && about !== here && html`<span aria-hidden="true">→</span> <a href=${link("queues", one.vhost, about)}>${about}</a>`}
        ${one.vhost && one.vhost !== "/" && html`<span class="note">in ${one.vhost}</span>`}
        <span class="note trend">${trend(one)}</span>
        ${about && drawn && html`<${Backlog} vhost=${one.vhost} name=${about} />`}
        <span class="note">since ${format.since(one.since)}</span>
    </div>
    <div class="unfolded" hidden=${!unfolded}>
      <p>${one.text}</p>
      ${chain.length > 0 && html`<ul class="symptoms">${chain.slice(0, 10).map((each) => html`<li key=${keyOf(each)}>${each.text}</li>`)}</ul>`}
      ${one.symptoms.filter((each) => each.name === one.name).slice(0, 10).map((each) => html`<p>${each.text}</p>`)}
      ${one.count > 1 && html`<p class="names">${one.names.map((name) => html`<a href=${link("queues", one.vhost, name)}>${name}</a> `)}${one.count > one.names.length && `and ${format.count(one.count - one.names.length)} more`}</p>`}
      <p class="advice"><b>What to do:</b> ${withCode(one.advice)}</p>
      <div class="advice actions">${[one, ...one.symptoms.filter((each, at, all) => each.kind !== one.kind && all.findIndex((other) => other.kind === each.kind) === at)].map((each) => html`<${Mending} key=${keyOf(each)} one=${each} />`)}${actionsOf(one).map(([label, to]) => html`<a key=${label} class="button" href=${to}>${label}</a>`)}${onMute && html` <button type="button" class="quiet" onClick=${() => copied(addressOf(one))}>Copy link</button> <button type="button" class="quiet" onClick=${onMute}>Mute for an hour</button>`}</div>
    </div>
  </li>`;
}

/** Button that removes a cause at once, for causes with such an action. */
function Mending({ one: { kind, vhost, name, queue, pattern, text, messages } }) {
  const person = usePerson();
  if (pattern) return null;
  if (kind === "dead-letters-wait") return html`<${Move} vhost=${vhost} name=${name} label="Move back" ready=${messages} />`;
  if (kind === "hidden-queue") return html`<${Confirm} label="Move to the exchange" title=${`Move the messages of ${name}?`} text="The messages are published to the sharded exchange, each with its own key, and go to the shards." submit=${() => post(path("queues", vhost, name, "contents", "move"), { exchange: name })} done=${() => tell("Messages moved")} />`;
  if (kind === "keys-wait") return html`<${Confirm} label="Release" title="Deliver held messages now?" text=${`${name} delivers them although earlier messages of their keys are left in ${queue}: those of a key may be delivered out of order, or at two consumers at once.`} submit=${() => remove(path("fences", vhost, name, queue))} done=${() => tell("Released")} />`;
  if (kind === "losses") return person.may("administrator") && html`<${Confirm} label="Acknowledge" title="Acknowledge the losses?" text="The alarm ends, of all nodes. What is missing is only in a backup." submit=${() => remove("/api/losses")} done=${() => tell("Losses acknowledged")}><${Losses} /><//>`;
  const slow = kind === "slow-consumer" && text.match(/ wait\. '(.*)' takes [\d.,]+\/s, the others/s)?.[1];
  if (slow && person.may("administrator")) return html`<${Confirm} label="Close the slow one" title=${`Close the connection of ${slow}?`} text="All channels and consumers of the connection end, and its unacknowledged messages are delivered to other consumers." submit=${async () => {
    const found = compared((await get(path("queues", vhost, name), { columns: "consumer_details" })).consumer_details).find((one) => one.slow && one.channel_details);
    if (!found) throw new Error("No consumer is much slower than the others any more.");
    return remove(path("connections", found.channel_details.connection_name));
  }} done=${() => tell("Connection closed")} />`;
  return null;
}

/** List of unacknowledged losses of the data directories. */
function Losses() {
  const { data, error } = useLive((signal) => get("/api/losses", {}, signal), 0, []);
  return html`<${Failure} error=${error} />${data && html`<ul class="losses" aria-label="Losses">${data.slice(0, MOST).map((one) => html`<li key=${one.loss}>${one.loss} <span class="note">found ${format.moment(one.found_at)}</span></li>`)}</ul>
    ${data.length > MOST && html`<p class="note">and ${format.count(data.length - MOST)} more: jumpmqctl list_losses</p>`}`}`;
}

/** Return links to the views with actions against a cause, as pairs of label and address. */
function actionsOf({ kind, object, vhost, name, queue, pattern, text }) {
  if (object === "node") return [["Nodes", link("nodes")], ["Log", `${link("log")}?level=warning`]];
  if (object === "broker") return [["Connections", link("connections")], ["Log", link("log")]];
  const about = pattern ? "" : queue || (object === "queue" ? name : "");
  const consumers = about && ["Its consumers", link("queues", vhost, about)];
  const hot = text.match(/^The key '(.*)' has /)?.[1];
  return {
    "hot-key": [hot && ["Follow the key", `${link("key", vhost, name)}?${new URLSearchParams({ key: hot })}`], ["Ring", link("rings", vhost, name)]],
    skew: [["Ring", link("rings", vhost, name)], ["What if", link("what-if", vhost, name)]],
    "missing-header": [["Publishers", link("exchanges", vhost, name)]],
    "shard-without-consumer": [["Shards", link("shards", vhost, name)]],
    "dead-letters-wait": about && [["Browse", link("messages", vhost, about)], ["What they died of", link("queues", vhost, about)]],
    "queue-without-consumer": about && [["Browse", link("messages", vhost, about)], ["Bindings", link("queues", vhost, about)]],
    "slow-consumer": [consumers],
    "queue-full": [consumers, ["Policies", link("policies")]],
    "keys-wait": about && [["Held messages", link("why", vhost, name)], ["Its consumers", link("queues", vhost, about)]],
    "move-stands-still": [["Nodes", link("nodes")]],
  }[kind]?.filter?.(Boolean) ?? [];
}

/** Return a text with the number of waiting messages, its growth, and the time until the queue is full or empty. */
function trend({ kind, messages, growth, full_in: full, symptoms }) {
  if (!messages) return "";
  const parts = [`${format.short(messages)} waiting`];
  if ([kind, ...symptoms.map((each) => each.kind)].includes("queue-full")) return `${parts[0]}, full`;
  if (growth >= 0.5) parts.push(`grows ${format.rate(growth)}/s`);
  if (growth <= -0.5) parts.push(`empty in ≈ ${format.about(messages / -growth)}`);
  if (full != null) parts.push(`full in ≈ ${format.about(full)}`);
  return parts.join(", ");
}

function Backlog({ vhost, name }) {
  const { data } = useLive((signal) => get(path("history", "queues", vhost, name), { seconds: 300 }, signal), 5, [vhost, name]);
  return html`<${Spark} values=${data?.ready} label=${`Ready messages of ${name} over the last minutes`} />`;
}

function place({ object, kind, vhost, name, pattern }) {
  if (pattern) return `${link("queues")}?${new URLSearchParams({ name: pattern.replace(/\*$/, "") })}`;
  if (object === "queue") return link("queues", vhost, name);
  if (object === "shards") return link("shards", vhost, name);
  if (object === "node") return link("nodes", name);
  return object === "exchange" ? link(kind === "skew" || kind === "hot-key" || kind === "missing-header" ? "rings" : "exchanges", vhost, name) : null;
}
