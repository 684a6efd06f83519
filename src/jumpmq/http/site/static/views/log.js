// The last records of the broker's log.

import { get } from "../lib/api.js";
import * as format from "../lib/format.js";
import { setQuery, useAddress, useLive } from "../lib/live.js";
import { Failure, html, Mark, Page, Table, useLast } from "../lib/ui.js";

const STATES = { warning: "warning", error: "alarm", critical: "alarm" };

export function Log() {
  const { query } = useAddress();
  const text = query.text ?? "";
  const { data, error } = useLive((signal) => get("/api/log", { text }, signal), 3, [text]);
  const rows = useLast(data);
  return html`<${Page} title="Log">
    <div class="above"><input type="search" class="search" placeholder="Search the log  /" aria-label="Search the log" defaultValue=${text} onChange=${(event) => setQuery({ text: event.target.value })} /></div>
    <${Failure} error=${error} />
    ${rows && html`<${Table} caption="Log" rows=${rows.slice(0, 300)} empty=${text ? "No record has it." : "Nothing has been logged yet."} columns=${[
      { label: "Time", class: "time", render: (one) => format.moment(one.time) },
      { label: "Level", render: (one) => html`<${Mark} state=${STATES[one.level]}>${one.level}<//>` },
      { label: "Message", class: "message", render: (one) => html`<code>${one.message}</code>` },
    ]} />`}
  <//>`;
}
