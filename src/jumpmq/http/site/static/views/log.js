// The last records of the broker's log.

import { get } from "../lib/api.js";
import * as format from "../lib/format.js";
import { setQuery, useAddress, useLive } from "../lib/live.js";
import { Failure, html, Mark, Page, Table, useLast } from "../lib/ui.js";

const STATES = { warning: "warning", error: "alarm", critical: "alarm" };

const LEVELS = ["debug", "info", "warning", "error", "critical"];

export function Log() {
  const { query } = useAddress();
  const text = query.text ?? "";
  const level = query.level ?? "";
  const { data, error } = useLive((signal) => get("/api/log", { text }, signal), 3, [text]);
  const rows = useLast(data)?.filter((one) => !level || LEVELS.indexOf(one.level) >= LEVELS.indexOf(level));
  return html`<${Page} title="Log">
    <div class="above"><input type="search" class="search" placeholder="Search the log  /" aria-label="Search the log" defaultValue=${text} onChange=${(event) => setQuery({ text: event.target.value })} />
      <div class="spans" role="group" aria-label="Level">${["", "warning", "error"].map((one) => html`<button key=${one} type="button" aria-pressed=${String(one === level)} onClick=${() => setQuery({ level: one })}>${{ "": "All", warning: "Warnings", error: "Errors" }[one]}</button>`)}</div></div>
    <${Failure} error=${error} />
    ${rows && html`<${Table} caption="Log" rows=${rows.slice(0, 300)} empty=${text || level ? "No record has it." : "Nothing has been logged yet."} columns=${[
      { label: "Time", class: "time", render: (one) => format.moment(one.time) },
      { label: "Level", render: (one) => html`<${Mark} state=${STATES[one.level]}>${one.level}<//>` },
      { label: "Message", class: "message", render: (one) => html`<code>${one.message}</code>` },
    ]} />`}
  <//>`;
}
