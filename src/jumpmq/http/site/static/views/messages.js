// Messages of a queue or stream: searched by number, time, key, header and text; copied, moved.

import { get, path, post } from "../lib/api.js";
import * as format from "../lib/format.js";
import { link, setQuery, useAddress } from "../lib/live.js";
import { formatted, hexOf, packingOf, unpacked, withPika } from "../lib/snippets.js";
import { Confirm, download, Empty, Facts, Failure, Form, FormButton, html, jsonOf, Page, Panel, tell, useEffect, useRef, useState } from "../lib/ui.js";
import { Move } from "./moving.js";

/** Maximum number of messages per page, and of shown octets of a payload. */
const TOGETHER = 50, SHOWN = 10000;

/** Search parameters of messages. */
const SAID = ["from", "since", "key", "header", "property", "value", "text"];

/** Searchable properties: those that a hash exchange may hash. */
const PROPERTIES = ["message_id", "correlation_id", "timestamp"];

export function Messages({ vhost, name }) {
  const { query } = useAddress();
  const [queue, setQueue] = useState(null);
  const [chosen, setChosen] = useState(() => new Set());
  const said = Object.fromEntries(SAID.filter((one) => query[one]).map((one) => [one, query[one]]));
  const search = useSearch(path("queues", vhost, name, "browse"), said);
  useEffect(() => {
    get(path("queues", vhost, name), { columns: "type,messages_ready" }).then(setQueue, () => {});
  }, [vhost, name]);
  useEffect(() => setChosen(new Set()), [search.round]);
  const stream = queue?.type === "stream";
  const choose = (seq) => setChosen((before) => new Set(before.has(seq) ? [...before].filter((one) => one !== seq) : [...before, seq]));
  const asked = { ...said, ...(said.from && { from: Number(said.from) }), ...(said.since && { since: Number(said.since) }) };
  return html`<${Page} title=${name} kind=${stream ? "Messages of the stream" : "Messages of the queue"} actions=${html`
      <a class="button" href=${link("queues", vhost, name)}>${stream ? "Stream" : "Queue"}</a>
      ${queue && !stream && html`
        <${Move} vhost=${vhost} name=${name} label=${`Move ${chosen.size || ""} chosen`.replace("  ", " ")} chosen=${{ numbers: [...chosen] }} disabled=${!chosen.size} done=${search.again} />
        <${Move} vhost=${vhost} name=${name} label="Move all that match" chosen=${{ from: 0, ...asked }} done=${search.again} />
        <${Confirm} label=${`Delete ${chosen.size || ""} chosen`.replace("  ", " ")} disabled=${!chosen.size} title=${`Delete ${format.plural(chosen.size, "message")}?`} text=${`${chosen.size === 1 ? "It" : "They"} will be gone for good, and not dead-lettered. What a consumer holds meanwhile stays.`}
          submit=${() => post(path("queues", vhost, name, "contents", "delete"), { numbers: [...chosen] })} done=${({ deleted }) => { search.again(); tell(`${format.plural(deleted, "message")} deleted`); }} />`}`}>
    <${Panel}>
      <p class="note">Nothing is taken: what is found stays where it is. What consumers hold unacknowledged is not searched.</p>
      <${Said} key=${JSON.stringify(said)} said=${said} newest=${search.last} />
    <//>
    <${Failure} error=${search.error} />
    <p class="note above" role="status">${progress(search, queue)}
      ${search.busy && html`<button type="button" class="quiet" onClick=${search.stop}>Stop</button>`}
      ${!search.busy && html`<button type="button" class="quiet" onClick=${search.again}>Search again</button>`}
      ${!search.busy && search.found.length > 0 && html`<button type="button" class="quiet" onClick=${() => download(`${name}.json`, search.found)}>Download</button>`}</p>
    ${search.found.length > 0 && html`<ul class="found" aria-label="Messages">
      ${search.found.map((message) => html`<${Message} key=${message.seq} message=${message} vhost=${vhost} url=${path("queues", vhost, name, "browse")}
        chosen=${chosen.has(message.seq)} onChoose=${queue && !stream && (() => choose(message.seq))} />`)}
    </ul>`}
    ${!search.busy && !search.error && !search.found.length && html`<${Empty}>${Object.keys(said).length ? "No message matches." : "No message is here."}<//>`}
    ${!search.busy && search.next != null && html`<button type="button" onClick=${search.more}>Search on</button>`}
  <//>`;
}

function progress({ busy, found, searched, next, last }, queue) {
  const matches = format.plural(found.length, "match", "matches");
  if (!busy && next == null) return `${matches} in ${format.plural(searched, "message")}.`;
  const all = queue ? ` of ${format.count(queue.messages_ready)}` : "";
  return `${matches} in the first ${format.count(searched)}${all} messages.`;
}

/**
 * Search messages, in several requests, until enough are found or all are searched. Returns `{found, searched, next, last,
 * busy, error, round}`, where `last` is the number of the youngest message, and the functions `more`, `stop` and `again`.
 */
function useSearch(url, said) {
  const nothing = { found: [], searched: 0, next: null, last: null, busy: true, error: null };
  const [state, setState] = useState({ ...nothing, round: 0 });
  const aborting = useRef();
  const go = async (before) => {
    aborting.current?.abort();
    const own = new AbortController();
    aborting.current = own;
    let now = { ...before, busy: true, error: null };
    let wanted = TOGETHER;
    try {
      do {
        setState(now);
        const answer = await get(url, { ...said, ...(now.next != null && { from: now.next }), count: wanted, truncate: SHOWN }, own.signal);
        wanted -= answer.messages.length;
        now = { ...now, found: now.found.concat(answer.messages), searched: now.searched + answer.searched, next: answer.next, last: answer.last_seq };
      } while (wanted > 0 && now.next != null);
    } catch (error) {
      if (own.signal.aborted) return;
      now = { ...now, error };
    }
    if (!own.signal.aborted) setState({ ...now, busy: false });
  };
  const again = () => go({ ...nothing, round: state.round + 1 });
  useEffect(() => {
    again();
    return () => aborting.current?.abort();
  }, [url, JSON.stringify(said)]);
  const stop = () => {
    aborting.current?.abort();
    setState((before) => ({ ...before, busy: false }));
  };
  return { ...state, more: () => go(state), stop, again };
}

/** Conversion of seconds since the epoch to the value of a local time field, and back. */
const local = (seconds) => new Date((seconds - new Date(seconds * 1000).getTimezoneOffset() * 60) * 1000).toISOString().slice(0, 19);
const seconds = (text) => String(new Date(text).getTime() / 1000);

function Said({ said, newest }) {
  const fields = [
    { name: "from", label: "From number", type: "number", min: 0, value: said.from },
    { name: "since", label: "Published since", type: "datetime-local", value: said.since && local(Number(said.since)) },
    { name: "key", label: "Routing key", value: said.key },
    { name: "header", label: "Header or property", value: said.header ?? said.property, hint: PROPERTIES.join(", ") },
    { name: "value", label: "with the value", value: said.value },
    { name: "text", label: "Text in the payload", value: said.text },
  ];
  const submit = async (values) => {
    if (values.value && !values.header) throw new Error("A value needs the name of a header.");
    const isProperty = PROPERTIES.includes(values.header) && values.value;
    setQuery({ ...values, since: values.since && seconds(values.since), property: isProperty ? values.header : "", header: isProperty ? "" : values.header });
  };
  return html`<${Form} fields=${fields} label="Search" submit=${submit}>
    ${newest != null && html`<div class="buttons"><button type="button" onClick=${() => setQuery({ from: String(Math.max(0, newest - TOGETHER + 1)) })}>Newest</button></div>`}
  <//>`;
}

function Message({ message, vhost, url, chosen, onChoose }) {
  const [open, setOpen] = useState(false);
  const { seq } = message;
  return html`<li>
    <div class="line">
      ${onChoose && html`<input type="checkbox" aria-label=${`Choose message ${seq}`} checked=${chosen} onChange=${onChoose} />`}
      <button type="button" class="quiet" aria-expanded=${String(open)} onClick=${() => setOpen(!open)}>${open ? "▾" : "▸"} ${format.count(seq)}</button>
      ${message.published_at && html`<span class="note">${format.moment(message.published_at)}</span>`}
      <b>${message.routing_key}</b>
      <span class="note">${format.octets(message.payload_bytes)}</span>
      <code class="start">${message.payload_encoding === "base64" ? "not UTF-8" : message.payload.slice(0, 200)}</code>
    </div>
    ${open && html`<${Whole} message=${message} vhost=${vhost} url=${url} />`}
  </li>`;
}

function Whole({ message, vhost, url }) {
  const [whole, setWhole] = useState(message.payload_bytes > SHOWN ? null : message);
  const [raw, setRaw] = useState(false);
  const [decoded, setDecoded] = useState(null);
  const [snippet, setSnippet] = useState("");
  const [error, setError] = useState(null);
  const shown = whole ?? message;
  const { headers, ...properties } = Array.isArray(message.properties) ? {} : message.properties;
  const pretty = shown.payload_encoding === "string" ? formatted(shown.payload) : null;
  const packing = packingOf(shown, properties.content_encoding);
  const complete = async () => {
    if (whole) return whole;
    const { messages } = await get(url, { from: message.seq, to: message.seq, count: 1 });
    if (!messages.length) throw new Error("The message no longer exists.");
    setWhole(messages[0]);
    return messages[0];
  };
  const doing = (act) => () => complete().then(act).then(() => setError(null), setError);
  return html`<div class="whole">
    <${Facts} facts=${[
      ["Exchange", message.exchange || "(default)"], ["Routing key", message.routing_key], ["Redelivered", message.redelivered ? "yes" : null],
      ...Object.entries(properties).map(([key, value]) => [key, format.plain(value)]),
      ...Object.entries(headers ?? {}).map(([key, value]) => [key, html`<code>${format.plain(value)}</code>`]),
    ]} />
    <p class="note">${whole ? format.octets(message.payload_bytes) : `the first ${format.octets(SHOWN)} of ${format.octets(message.payload_bytes)}`}${shown.payload_encoding === "base64" ? `, not UTF-8${decoded ? "" : ": shown in base64"}` : ""}</p>
    ${decoded && html`<p class="note">${decoded.note}</p>`}
    <pre class=${decoded?.dumped ? "dump" : ""} tabindex="0" role="region" aria-label=${`Payload of message ${message.seq}`}>${decoded ? decoded.text : raw || !pretty ? shown.payload : pretty}</pre>
    <div class="buttons">
      ${packing && html`<button type="button" aria-pressed=${String(decoded?.of === packing)} onClick=${doing(async (one) => setDecoded(decoded?.of === packing ? null : { of: packing, ...(await unpacked(one.payload, packing)) }))}>Decompress</button>`}
      ${shown.payload_encoding === "base64" && html`<button type="button" aria-pressed=${String(decoded?.of === "hex")} onClick=${doing((one) => setDecoded(decoded?.of === "hex" ? null : { of: "hex", ...hexOf(one.payload) }))}>Hex</button>`}
      ${!whole && html`<button type="button" onClick=${doing(() => {})}>Show all</button>`}
      ${pretty && html`<button type="button" aria-pressed=${String(raw)} onClick=${() => setRaw(!raw)}>As it is</button>`}
      <button type="button" onClick=${doing((one) => copy(one.payload, "The payload is copied."))}>Copy payload</button>
      <button type="button" onClick=${doing((one) => { setSnippet(withPika(one)); return copy(withPika(one), "The program is copied."); })}>Copy for pika</button>
      ${whole && whole.payload_encoding === "string" && html`<${FormButton} label="Edit and publish" title="Publish a message like this one" send="Publish" fields=${[
        { name: "exchange", label: "Exchange", value: message.exchange, hint: "empty: the default exchange, by the queue's name" },
        { name: "routing_key", label: "Routing key", value: message.routing_key },
        { name: "properties", label: "Properties", type: "textarea", value: JSON.stringify(Array.isArray(message.properties) ? {} : message.properties, null, 1) },
        { name: "payload", label: "Payload", type: "textarea", value: whole.payload },
      ]} submit=${({ exchange, properties: given, ...values }) => post(path("exchanges", vhost, exchange || "amq.default", "publish"), { ...values, payload_encoding: "string", properties: jsonOf(given, "Properties") })}
        done=${({ routed }) => tell(routed ? "Published to a queue" : "Published, but no queue took the message")} />`}
    </div>
    <${Failure} error=${error} />
    ${snippet && html`<pre aria-label="Program">${snippet}</pre>`}
  </div>`;
}

/** Copy a text to the clipboard. Browsers allow this for pages of this machine and over TLS only. */
async function copy(text, told) {
  await navigator.clipboard?.writeText(text).then(() => tell(told), () => {});
}
