// Palette (Ctrl-K): opens any queue, exchange, connection or view by name.

import { get } from "../lib/api.js";
import * as format from "../lib/format.js";
import { link } from "../lib/live.js";
import { Dialog, html, useEffect, usePerson, useRef, useState } from "../lib/ui.js";

/** Maximum number of shown objects per kind. */
const EACH = 6;

const SOURCES = [
  ["Queue", "/api/queues", "name,vhost", (one) => ["queues", one.vhost, one.name]],
  ["Exchange", "/api/exchanges", "name,vhost,type", (one) => one.name && ["exchanges", one.vhost, one.name]],
  ["Connection", "/api/connections", "name,vhost,user_provided_name", (one) => ["connections", one.name]],
];

/** Return the objects with the text in their names, found by the broker: at most `EACH` per source. */
async function found(text, signal) {
  const lists = await Promise.all(SOURCES.map(async ([kind, url, columns, place]) => {
    const { items, filtered_count: all } = await get(url, { page: 1, page_size: EACH, name: text, columns, sort: "name" }, signal);
    const shown = items.filter(place).map((one) => ({ kind, name: one.user_provided_name ?? one.name, vhost: one.vhost, to: link(...place(one)) }));
    return all > EACH ? [...shown, { kind, name: `${format.count(all - EACH)} more ...`, to: `${link(url.replace("/api/", ""))}?${new URLSearchParams({ name: text })}` }] : shown;
  }));
  return lists.flat();
}

/** Lists loaded as a whole, each with the address of an entry's view. The broker lists only the entries that the user may see. */
const WHOLE = [
  ["Consumer group", "/api/consumer-groups", (one) => [link("groups", one.vhost, one.source_kind, one.source, one.name), one.name]],
  ["Spark query", "/api/readers", (one) => [link("readers"), one.name]],
  ["Virtual host", "/api/vhosts", (one) => [link("vhosts"), one.name]],
  ["Policy", "/api/policies", (one) => [link("policies"), one.name]],
  ["User", "/api/users", (one) => [link("users"), one.name]],
];

/** The entries of all lists, requested once when the palette opens. */
async function wholeLists() {
  const lists = await Promise.all(WHOLE.map(([kind, url, place]) => get(url).then((found) => found.map((one) => {
    const [to, name] = place(one);
    return { kind, name, vhost: kind === "Virtual host" ? undefined : one.vhost, to };
  }), () => [])));
  return lists.flat().filter((one, at, all) => all.findIndex((other) => other.kind === one.kind && other.name === one.name && other.vhost === one.vhost) === at);
}

/** The rings on which a key can be followed, requested once when the palette opens. */
async function ringsOf() {
  const lists = await Promise.all(["x-consistent-hash", "x-modulus-hash"].map((type) => get("/api/exchanges", { type, page: 1, page_size: 20, columns: "name,vhost", sort: "name" }).then(({ items }) => items, () => [])));
  return lists.flat();
}

/** Actions of the palette: the view, and the label of the button to press there. */
const ACTIONS = [
  ["queues", "Declare a queue"], ["exchanges", "Declare an exchange"], ["policies", "Add a policy"],
  ["vhosts", "Add a virtual host", "administrator"], ["users", "Add a user", "administrator"], ["permissions", "Grant", "administrator"], ["nodes", "Rebalance", "administrator"],
];

/** Press a button as soon as its view is drawn. */
function press(label, tries = 40) {
  const button = [...document.querySelectorAll("main .title button")].find((one) => one.textContent === label);
  if (button) button.click();
  else if (tries) setTimeout(() => press(label, tries - 1), 50);
}

/** The palette; `views` are the views that the user may open: `[place, label]`. */
export function Palette({ views, onClose }) {
  const person = usePerson();
  const [text, setText] = useState("");
  const [objects, setObjects] = useState([]);
  const [at, setAt] = useState(0);
  const input = useRef();
  const [rings, setRings] = useState([]);
  const [others, setOthers] = useState([]);
  useEffect(() => { input.current.focus(); ringsOf().then(setRings); wholeLists().then(setOthers); }, []);
  useEffect(() => {
    const aborting = new AbortController();
    const timer = text && setTimeout(() => found(text, aborting.signal).then(setObjects, () => {}), 150);
    if (!text) setObjects([]);
    return () => {
      clearTimeout(timer);
      aborting.abort();
    };
  }, [text]);
  useEffect(() => { document.getElementById(`option-${at}`)?.scrollIntoView({ block: "nearest" }); }, [at]);
  const named = views.filter(([, label]) => label.toLowerCase().includes(text.toLowerCase()));
  const keys = text ? rings.map(({ vhost, name }) => ({ kind: "Key", name: `${text} on ${name}`, vhost, to: `${link("key", vhost, name)}?${new URLSearchParams({ key: text })}` })) : [];
  const alike = text ? others.filter(({ name }) => name.toLowerCase().includes(text.toLowerCase())) : [];
  const each = new Map();
  const few = alike.filter(({ kind }) => each.set(kind, (each.get(kind) ?? 0) + 1).get(kind) <= EACH);
  const doable = ACTIONS.filter(([, label, tag]) => text && label.toLowerCase().includes(text.toLowerCase()) && (!tag || person.may(tag)));
  const options = [...objects, ...few, ...doable.map(([place, label]) => ({ kind: "Action", name: label, to: link(place), then: () => press(label) })), ...named.map(([place, label]) => ({ kind: "View", name: label, to: link(...(place ? [place] : [])) })), ...keys];
  const current = Math.min(at, Math.max(0, options.length - 1));
  const go = (option) => {
    onClose();
    location.hash = option.to;
    option.then?.();
  };
  const pressed = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      setAt((current + step + options.length) % Math.max(1, options.length));
    } else if (event.key === "Enter" && options[current]) {
      event.preventDefault();
      go(options[current]);
    }
  };
  return html`<${Dialog} title="Go to" onClose=${onClose}>
    <input ref=${input} type="text" role="combobox" aria-expanded="true" aria-controls="options" aria-activedescendant=${options.length ? `option-${current}` : undefined} aria-label="Name of a queue, exchange, connection or view, or a key"
      placeholder="A queue, exchange, connection or view, or a key" autocomplete="off" spellcheck=${false} value=${text} onKeyDown=${pressed} onInput=${(event) => { setText(event.target.value); setAt(0); }} />
    <ul id="options" role="listbox" aria-label="Found" class="options">
      ${options.map((option, place) => html`<li key=${option.kind + option.name + option.to} id=${`option-${place}`} role="option" aria-selected=${String(place === current)} onClick=${() => go(option)}>
        <span class="note">${option.kind}</span> ${option.name} ${option.vhost && option.vhost !== "/" && html`<span class="note">in ${option.vhost}</span>`}
      </li>`)}
    </ul>
    ${!options.length && html`<p class="note" role="status">Nothing of that name.</p>`}
  <//>`;
}
