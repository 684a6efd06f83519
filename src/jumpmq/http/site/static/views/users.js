// Users and their tags.

import { get, path, put, remove } from "../lib/api.js";
import { useHosts } from "./hosts.js";
import { PRESETS } from "./permissions.js";
import { useLive } from "../lib/live.js";
import { Confirm, Failure, FormButton, html, Mark, Page, Table, tell, usePerson } from "../lib/ui.js";

/** Note that a new user has no permissions, not even to open a virtual host. */
const NONE = "nothing yet";

const TAGS = ["administrator", "monitoring", "policymaker", "management"];

/** Ask before unknown tags are set; a token or another tool may use them. */
function unknownTags({ tags }) {
  const unknown = tags.split(",").map((tag) => tag.trim()).filter((tag) => tag && !TAGS.includes(tag));
  return unknown.length ? `${unknown.join(", ")} ${unknown.length === 1 ? "is not a tag" : "are not tags"} known to JumpMQ: the tags are ${TAGS.join(", ")}.` : null;
}

export function Users() {
  const { data, error, again } = useLive((signal) => get("/api/users", {}, signal), 5, []);
  const permissions = useLive((signal) => get("/api/permissions", { columns: "user,vhost" }, signal), 5, []).data;
  const where = (user) => permissions?.filter((one) => one.user === user).map((one) => one.vhost) ?? [];
  const person = usePerson();
  const hosts = useHosts();
  const save = async ({ name, password, tags, preset, vhost }) => {
    await put(path("users", name), { password, tags });
    if (preset !== NONE) await put(path("permissions", vhost, name), PRESETS[preset]);
  };
  return html`<${Page} title="Users" actions=${html`<${FormButton} label="Add a user" button="primary" send="Save" warn=${unknownTags} submit=${save} done=${() => { again(); tell("User added"); }} fields=${[
      { name: "name", label: "Name", required: true },
      { name: "password", label: "Password", type: "password", required: true, autocomplete: "new-password" },
      { name: "tags", label: "Tags", hint: "administrator, monitoring, policymaker, management; none for a user of AMQP alone" },
      { name: "preset", label: "May", type: "select", options: [NONE, ...Object.keys(PRESETS)], value: NONE },
      { name: "vhost", label: "in virtual host", type: "select", options: hosts, value: hosts[0], when: ({ preset }) => preset !== NONE },
    ]} />`}>
    <${Failure} error=${error} />
    ${data && html`<${Table} caption="Users" rows=${data} rowKey=${(one) => one.name} columns=${[
      { label: "Name", class: "name", key: "name" },
      { label: "Tags", render: (one) => one.tags.map((tag) => html`<${Mark} state="accent">${tag}<//> `) },
      { label: "May use", class: "name", render: (one) => (where(one.name).length ? where(one.name).join(", ") : permissions && html`<a href="#/permissions"><${Mark} state="warning">no virtual host<//></a>`) },
      { label: "Password", render: (one) => (one.password_hash ? "set" : html`<${Mark}>none<//>`) },
      { label: "", class: "end", render: (one) => html`
        <${FormButton} button="quiet" label="Change" title=${`Change ${one.name}`} send="Save" warn=${unknownTags} submit=${({ password, tags }) => put(path("users", one.name), { tags, ...(password ? { password } : { password_hash: one.password_hash, hashing_algorithm: one.hashing_algorithm }) })} done=${() => { again(); tell("User changed"); }} fields=${[
          { name: "password", label: "New password", type: "password", hint: "empty: the same as before", autocomplete: "new-password" },
          { name: "tags", label: "Tags", value: one.tags.join(",") },
        ]} />
        <${Confirm} quiet label="Delete" typed=${one.name === person.user ? one.name : null} title=${`Delete ${one.name}?`} text="The user's connections are closed, and sessions of this page end." submit=${() => remove(path("users", one.name))} done=${() => { again(); tell("User deleted"); }} />` },
    ]} />`}
  <//>`;
}
