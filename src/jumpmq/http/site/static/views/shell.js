// Frame of every view: navigation, theme, logout.

import { get, heard } from "../lib/api.js";
import * as format from "../lib/format.js";
import { link, useLive } from "../lib/live.js";
import { chooseHost, useHost } from "../lib/host.js";
import { html, useEffect, usePerson, useState } from "../lib/ui.js";
import { useHosts } from "./hosts.js";

/** Milliseconds without an answer until a request is sent, and until the view is marked as old. */
const ASK_AFTER = 4000;
const OLD_AFTER = 12000;

const PLACES = [
  ["", [["", "Overview"]]],
  ["Messages", [["queues", "Queues"], ["exchanges", "Exchanges"], ["flow", "Flow"]]],
  ["Hashing", [["rings", "Rings"], ["what-if", "What if"], ["shards", "Shards"]]],
  ["Clients", [["connections", "Connections"], ["channels", "Channels"], ["consumers", "Consumers"], ["groups", "Consumer groups"]]],
  ["Reading", [["readers", "Readers and streams"]]],
  ["Admin", [["vhosts", "Virtual hosts"], ["users", "Users"], ["permissions", "Permissions"], ["policies", "Policies"], ["limits", "Limits"], ["definitions", "Definitions"], ["nodes", "Nodes"], ["log", "Log"]]],
  ["About", [["help", "Help"]]],
];
const FOR_ADMINISTRATORS = new Set(["users", "permissions", "definitions", "log"]);
/** View at which a cause is counted, by the kind of object. */
const OF_CAUSES = { queue: "queues", shards: "shards", exchange: "exchanges", node: "nodes" };
const OF_RINGS = new Set(["skew", "hot-key", "missing-header"]);
const FOR_MONITORING = new Set(["flow", "rings", "what-if", "nodes"]);
/** Views that list only the user's own objects, for a user without a monitoring tag. */
const OF_USERS = new Set(["connections", "channels", "consumers", "groups"]);

export function Shell({ title, parts, onLogout, children }) {
  const person = usePerson();
  const here = { messages: "queues", why: "queues", key: "rings" }[parts[0]] ?? parts[0] ?? "";
  useEffect(() => {
    document.getElementById("title")?.focus({ preventScroll: true });
    scrollTo(0, 0);
    document.querySelector("nav a[aria-current]")?.scrollIntoView?.({ block: "nearest", inline: "center" });
    document.body.dataset.place = parts.join("/"); // of the view that is drawn: what drives a browser waits for it
  }, [parts.join("/")]);
  useEffect(() => {
    const search = (event) => {
      if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        setGoing(true);
      }
      if (event.key === "?" && !event.target.closest("input, textarea, select, dialog")) location.hash = link("help");
      if (event.key !== "/" || event.target.closest("input, textarea, select, dialog")) return;
      const field = document.querySelector(".search");
      if (field) {
        event.preventDefault();
        field.focus();
      }
    };
    addEventListener("keydown", search);
    return () => removeEventListener("keydown", search);
  }, []);
  const silent = useSilence();
  const [going, setGoing] = useState(false);
  const counts = useCounts();
  const causes = useCauses(person.may("monitoring"));
  const alarms = Object.values(causes).includes("alarm");
  useEffect(() => {
    document.title = `${alarms ? "! " : ""}${title} · JumpMQ`;
    const icon = document.querySelector("link[rel=icon]");
    icon.href = icon.href.replace(/icon(-alarm)?\.svg/, alarms ? "icon-alarm.svg" : "icon.svg");
  }, [alarms, title]);
  const visible = (place) => (!FOR_ADMINISTRATORS.has(place) || person.may("administrator")) && (!FOR_MONITORING.has(place) || person.may("monitoring")) && (place !== "shards" || person.may("monitoring") || person.may("policymaker"));
  return html`
    <a class="skip" href="#title" onClick=${(event) => { event.preventDefault(); document.getElementById("title")?.focus(); }}>Skip to the content</a>
    <header class="top">
      <a class="brand" href=${link()}><span class="logo" aria-hidden="true"></span>JumpMQ</a>
      <span class="node">${person.node}</span>
      <${HostPicker} />
      <button type="button" class="quiet find" aria-haspopup="dialog" aria-keyshortcuts="Control+K" onClick=${() => setGoing(true)}>Go to <kbd>Ctrl K</kbd></button>
      <${Theme} />
      <span class="person">${person.user}</span>
      <button type="button" class="quiet" onClick=${onLogout}>Log out</button>
    </header>
    <nav class=${silent ? "places old" : "places"} aria-label="Views">
      ${PLACES.map(([group, places]) => places.some(([place]) => visible(place)) && html`
        <div>${group && html`<h2>${group}</h2>`}
          <ul>${places.filter(([place]) => visible(place)).map(([place, label]) => html`
            <li><a href=${link(...(place ? [place] : []))} aria-current=${place === here ? "page" : undefined}>${label}<${Beside} count=${counts[place]} cause=${causes[place]} /></a></li>`)}
          </ul>
        </div>`)}
    </nav>
    ${silent && html`<p class="silent" role="alert">The broker does not answer. What you see is from ${format.clock(heard.at / 1000)}.</p>`}
    <main class=${silent ? "old" : ""}>${children}${OF_USERS.has(here) && !person.may("monitoring") && html`<p class="note">Only what is your own is shown: the tag "monitoring" is needed for that of others.</p>`}</main>
    ${going && html`<${GoTo} views=${PLACES.flatMap(([, places]) => places).filter(([place]) => visible(place))} onClose=${() => setGoing(false)} />`}
    <div id="told" role="status"></div>`;
}

/** Number of a view's objects, with a dot for the worst cause. */
const Beside = ({ count, cause }) => html`
  ${cause && html`<span class="dot ${cause}" role="img" aria-label=${cause === "alarm" ? "with an alarm" : "with a warning"}></span>`}
  ${count != null && html`<span class="of">${format.short(count)}</span>`}`;

/** Return the numbers of queues, exchanges, connections, channels and consumers in the page's selected virtual host. */
function useCounts() {
  const host = useHost();
  const { data } = useLive((signal) => get("/api/overview", { columns: "object_totals", vhost: host }, signal), 10, [host]);
  return data?.object_totals ?? {};
}

/** The worst cause per view, in the page's selected virtual host. */
function useCauses(may) {
  const host = useHost();
  const { data } = useLive((signal) => (may ? get("/api/incidents", {}, signal) : []), 5, [may]);
  const found = {};
  for (const { kind, object, severity, vhost } of data ?? []) {
    if (host && vhost && vhost !== host) continue;
    const place = object === "exchange" && OF_RINGS.has(kind) ? "rings" : OF_CAUSES[object];
    if (place && found[place] !== "alarm") found[place] = severity;
  }
  return found;
}

/** Choice of the page's virtual host, if there are several. */
function HostPicker() {
  const hosts = useHosts();
  const host = useHost();
  if (hosts.length < 2 && !host) return null;
  const names = [...new Set([...hosts, ...(host ? [host] : [])])].sort();
  return html`<select class="host" aria-label="Virtual host that is shown" value=${host} onChange=${(event) => chooseHost(event.target.value)}>
    <option value="" selected=${!host}>All virtual hosts</option>
    ${names.map((name) => html`<option key=${name} value=${name} selected=${name === host}>${name}</option>`)}
  </select>`;
}

/** The palette, loaded when first opened. */
function GoTo(given) {
  const [Loaded, setLoaded] = useState(null);
  useEffect(() => { import("./palette.js").then(({ Palette }) => setLoaded(() => Palette), given.onClose); }, []);
  return Loaded && html`<${Loaded} ...${given} />`;
}

/** Return true while the broker does not answer. Without recent answers of other requests, the hook sends its own. */
function useSilence() {
  const [silent, setSilent] = useState(false);
  useEffect(() => {
    let asking = false;
    const look = () => {
      const age = Date.now() - heard.at;
      if (!document.hidden && !asking && (age > ASK_AFTER || !heard.answers)) {
        asking = true;
        get("/api/whoami").catch(() => null).finally(() => {
          asking = false;
          setSilent(!heard.answers);
        });
      }
      if (!document.hidden) setSilent(!heard.answers || age > OLD_AFTER);
    };
    const timer = setInterval(look, 1000);
    return () => clearInterval(timer);
  }, []);
  return silent;
}

/** Light, dark, or as the system has it. */
function Theme() {
  const system = () => (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? system());
  const other = theme === "dark" ? "light" : "dark";
  const change = () => {
    document.documentElement.dataset.theme = other;
    if (other === system()) localStorage.removeItem("jumpmq.theme");
    else localStorage.setItem("jumpmq.theme", other);
    setTheme(other);
    dispatchEvent(new Event("themechange"));
  };
  return html`<button type="button" class="quiet theme" onClick=${change} aria-label=${`Show in ${other} colours`}>${theme === "dark" ? "☀" : "☾"}</button>`;
}
