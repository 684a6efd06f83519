// Definitions: export to a file; import, with a preview of the changes.

import { get, post } from "../lib/api.js";
import * as format from "../lib/format.js";
import { Confirm, download, Failure, html, Mark, Page, Panel, Table, tell, useState } from "../lib/ui.js";

export const Definitions = () => html`<${Page} title="Definitions"><${Export} /><${Import} /><//>`;

function Export() {
  const [error, setError] = useState(null);
  const save = async () => {
    try {
      download("definitions.json", await get("/api/definitions"));
      setError(null);
    } catch (refused) {
      setError(refused);
    }
  };
  return html`<${Panel} title="Export" note="users with hashes of passwords, virtual hosts, and all objects in the virtual hosts">
    <${Failure} error=${error} /><div class="buttons"><button type="button" class="primary" onClick=${save}>Download definitions.json</button></div>
  <//>`;
}

function Import() {
  const [file, setFile] = useState(null);
  const [state, setState] = useState({ found: null, error: null });
  const look = async (event) => {
    const [chosen] = event.target.files;
    if (!chosen) return;
    setState({ found: null, error: null });
    try {
      const definitions = JSON.parse(await chosen.text());
      setFile(definitions);
      setState({ found: await post("/api/preview/definitions", definitions), error: null });
    } catch (error) {
      setState({ found: null, error: error instanceof SyntaxError ? new Error("The file is not JSON.") : error });
    }
  };
  const refused = state.found?.changes.filter((one) => one.refused) ?? [];
  const sections = Object.entries(state.found?.sections ?? {}).filter(([, counts]) => counts.new + counts.changed + counts.same);
  return html`<${Panel} title="Import" note="a file of JumpMQ or RabbitMQ; nothing changes before you have seen what would">
    <div class="field"><label for="definitions-file">Definitions file</label><input id="definitions-file" type="file" accept=".json,application/json" onChange=${look} /></div>
    <${Failure} error=${state.error} />
    ${state.found && html`<div role="status">
      <${Table} caption="What would change" rows=${sections} empty="The file holds nothing." columns=${[
        { label: "Section", render: ([section]) => section.replace("_", " ") },
        { label: "New", num: true, render: ([, counts]) => format.count(counts.new) },
        { label: "Changed", num: true, render: ([, counts]) => format.count(counts.changed) },
        { label: "The same", num: true, render: ([, counts]) => format.count(counts.same) },
      ]} />
      ${state.found.changes.length > 0 && html`<${Table} caption="Changes" rows=${state.found.changes} columns=${[
        { label: "", render: (one) => html`<${Mark} state=${one.refused ? "alarm" : one.change === "new" ? "good" : "warning"}>${one.refused ? "refused" : one.change}<//>` },
        { label: "Section", key: "section" },
        { label: "Name", class: "name", key: "name" },
        { label: "What differs", render: (one) => one.keys.join(", ") },
      ]} />`}
      ${refused.length > 0 && html`<p class="failure" role="alert">${format.plural(refused.length, "conflict")}: <b>${refused[0].name}</b>${refused.length > 1 ? " and others exist" : " exists"} with other arguments. Nothing is imported until ${refused.length > 1 ? "they are" : "it is"} resolved.</p>`}
      <div class="buttons"><${Confirm} label="Import" title="Import these definitions?" text="The import takes the whole file or, if one entry is wrong, nothing." submit=${() => post("/api/definitions", file)} done=${() => { setState({ found: null, error: null }); tell("Definitions imported"); }} /></div>
    </div>`}
  <//>`;
}
