// Sharded exchanges; one exchange with its shards, and a preview of another number of shards.

import { below, get, path, post, put } from "../lib/api.js";
import * as format from "../lib/format.js";
import { link, useLive } from "../lib/live.js";
import { Bar, Confirm, Empty, Facts, Failure, Form, html, Mark, Page, Panel, Table, tell, Tile, Tiles, useHosted, useLast, usePerson, useState } from "../lib/ui.js";
import { IncidentsOf } from "./incidents.js";
import { Outcome } from "./what_if.js";

export function Shards() {
  const { data, error } = useLive((signal) => get("/api/exchanges", { columns: "name,vhost,type,policy,effective_policy_definition" }, signal), 5, []);
  const rows = useHosted(data)?.filter((one) => "shards-per-node" in one.effective_policy_definition);
  return html`<${Page} title="Shards" about="shards">
    <${Failure} error=${error} />
    ${rows && html`<${Table} caption="Sharded exchanges" rows=${rows} empty="No exchange is sharded: a policy with shards-per-node makes one so." columns=${[
      { label: "Exchange", class: "name", render: (one) => html`<a href=${link("shards", one.vhost, one.name)}>${one.name}</a>` },
      { label: "Virtual host", key: "vhost", minor: true },
      { label: "Type", key: "type" },
      { label: "Policy", key: "policy" },
      { label: "Shards a node", num: true, render: (one) => format.count(one.effective_policy_definition["shards-per-node"]) },
    ]} />`}
  <//>`;
}

export function ShardsOf({ vhost, name }) {
  const person = usePerson();
  const url = path("exchanges", vhost, name);
  const { data, error, again } = useLive((signal) => get(below(url, "shards"), {}, signal), 2, [url]);
  const about = useLive((signal) => get(url, {}, signal), 5, [url]);
  const shards = useLast(data);
  const exchange = useLast(about.data);
  if (!shards || !exchange) return html`<${Page} title=${name} kind="Shards"><${Failure} error=${error ?? about.error} /><//>`;
  const settings = exchange.effective_policy_definition;
  const total = shards.reduce((sum, one) => sum + one.messages, 0);
  const most = Math.max(...shards.map((one) => one.messages), 1);
  const busiest = Math.max(...shards.map((one) => one.consumers), 1);
  const down = shards.filter((one) => one.state === "down").length;
  const idle = shards.filter((one) => !one.consumers && one.state !== "down").length;
  const several = new Set(shards.map((one) => one.of)).size > 1;
  return html`<${Page} title=${name} kind="Shards" about="shards" actions=${html`${person.may("monitoring") && html`<a class="button" href=${link("flow", vhost, name)}>Flow</a>`}<a class="button" href=${link("exchanges", vhost, name)}>Exchange</a>`}>
    <${Failure} error=${error} />
    ${person.may("monitoring") && html`<${IncidentsOf} vhost=${vhost} name=${name} />`}
    <${Tiles}>
      <${Tile} label="Shards" value=${format.count(shards.length)} />
      ${down > 0 && html`<${Tile} label="Down" value=${format.count(down)} state="alarm" />`}
      <${Tile} label="Messages" value=${format.count(total)} />
      <${Tile} label="Consumers" value=${format.count(shards.reduce((sum, one) => sum + one.consumers, 0))} />
      <${Tile} label="Without a consumer" value=${format.count(idle)} state=${idle && total ? "warning" : ""} />
    <//>
    <${Panel} title="Shards" note="the line is an even share">
      <${Table} caption="Shards" rows=${shards} empty="There are no shards." rowKey=${(one) => one.name} columns=${[
        ...(several ? [{ label: "Node", class: "name", render: (one) => html`<a href=${link("nodes", one.node)}>${one.node}</a>` }] : []),
        { label: "Shard", num: true, key: "number" },
        { label: "Queue", class: "name", render: (one) => html`<a href=${link("queues", vhost, one.name)}>${one.name}</a>` },
        { label: "Messages", num: true, render: (one) => one.state === "down" ? html`<${Mark} state="alarm">down<//>` : format.count(one.messages) },
        { label: "", class: "wide-cell", render: (one) => one.state !== "down" && html`<${Bar} share=${one.messages / most} mark=${total ? total / shards.length / most : null} state=${one.skew > 2 && total > 100 ? "warning" : ""} label=${`${format.percent(one.share)} of the messages`} />` },
        { label: "Skew", num: true, render: (one) => (total && one.state !== "down" ? one.skew.toFixed(2) : "–") },
        { label: "Consumers", num: true, render: (one) => one.state === "down" ? "–" : one.consumers ? format.count(one.consumers) : html`<${Mark} state="warning">none<//>` },
        { label: "", class: "wide-cell", render: (one) => html`<${Bar} share=${one.consumers / busiest} state="keys" label=${format.plural(one.consumers, "consumer")} />` },
      ]} />
    <//>
    <div class="columns">
      <${Panel} title="Policy"><${Facts} facts=${[["Name", exchange.policy], ["Exchange's type", exchange.type], ...Object.entries(settings).map(([key, value]) => [key, format.plain(value)])]} /><//>
      ${"shards-per-node" in settings && html`<${MoreShards} vhost=${vhost} name=${name} exchange=${exchange} settings=${settings} mayChange=${person.may("policymaker")} done=${again} />`}
    </div>
  <//>`;
}

function MoreShards({ vhost, name, exchange, settings, mayChange, done }) {
  const [wanted, setWanted] = useState(null);
  const spreads = exchange.type === "x-consistent-hash" || exchange.type === "x-modulus-hash";
  const ask = async ({ shards }) => {
    const found = spreads ? await post(path("exchanges", vhost, name, "ring", "what-if"), { shards: Number(shards) }) : null;
    setWanted({ shards: Number(shards), found });
  };
  const change = async () => {
    const { pattern, priority, definition, "apply-to": applyTo } = await get(path("policies", vhost, exchange.policy));
    await put(path("policies", vhost, exchange.policy), { pattern, priority, "apply-to": applyTo, definition: { ...definition, "shards-per-node": wanted.shards } });
  };
  return html`<${Panel} title="Preview another number of shards">
    <${Form} fields=${[{ name: "shards", label: "Shards a node", type: "number", min: 1, value: settings["shards-per-node"] + 1, required: true }]} label="Show" submit=${ask} />
    ${wanted && (wanted.found ? html`<${Outcome} found=${wanted.found} />` : html`<${Empty}>An exchange of type ${exchange.type} does not spread keys.<//>`)}
    ${wanted && wanted.shards < settings["shards-per-node"] && html`<p class="note">Fewer shards: existing shards stay, because they may hold messages.</p>`}
    ${wanted && mayChange && html`<div class="buttons"><${Confirm} label=${`Set ${wanted.shards} shards`} title="Change the policy?" text=${`The policy ${exchange.policy} will say ${format.plural(wanted.shards, "shard")} a node, for every matching exchange.`} submit=${change} done=${() => { setWanted(null); done(); tell("Policy changed"); }} /></div>`}
  <//>`;
}
