// The last records of the broker's log.

import { get } from "../lib/api.js";
import * as format from "../lib/format.js";
import { setQuery, useAddress, useLive } from "../lib/live.js";
import { Failure, html, Mark, Page, several, Table, useLast } from "../lib/ui.js";

const STATES = { warning: "warning", error: "alarm", critical: "alarm" };

/** Number of requested records. */
const SHOWN = 300;

export function Log() {
  const { query } = useAddress();
  const text = query.text ?? "";
  const level = query.level ?? "";
  const { data, error } = useLive((signal) => get("/api/log", { text, level, count: SHOWN }, signal), 3, [text, level]);
  const rows = useLast(data);
  return html`<${Page} title="Log">
    <div class="above"><input type="search" class="search" placeholder="Search the log  /" aria-label="Search the log" defaultValue=${text} onChange=${(event) => setQuery({ text: event.target.value })} />
      <div class="spans" role="group" aria-label="Level">${["", "warning", "error"].map((one) => html`<button key=${one} type="button" aria-pressed=${String(one === level)} onClick=${() => setQuery({ level: one })}>${{ "": "All", warning: "Warnings", error: "Errors" }[one]}</button>`)}</div></div>
    <${Failure} error=${error} />
    ${rows && html`<${Table} caption="Log" rows=${rows} empty=${text || level ? "No record has it." : "Nothing has been logged yet."} columns=${[
      { label: "Time", class: "time", render: (one) => format.moment(one.time) },
      { label: "Level", render: (one) => html`<${Mark} state=${STATES[one.level]}>${one.level}<//>` },
      ...[["Node", "node"], ["Worker", "worker"]].filter(([, key]) => several(key)(rows)).map(([label, key]) => ({ label, key })),
      { label: "Message", class: "message", render: (one) => html`<code>${one.message}</code>` },
    ]} />`}
  <//>`;
}
