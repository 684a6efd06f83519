// Preview of the keys that a change of a ring would move, and the change itself.

import { below, get, path, post } from "../lib/api.js";
import * as format from "../lib/format.js";
import { link, useLive } from "../lib/live.js";
import { Bar, Confirm, Empty, Failure, Form, html, LongTable, Page, Panel, Table, tell, useLast, useRef, useState } from "../lib/ui.js";
import { RingList } from "./rings.js";

/** Methods of removal, each with its effect on the keys of a removed queue. */
const WAYS = { minimal: "minimal", shift: "RabbitMQ's method", modulus: "hash mod N" };
const MOVED = { minimal: "only the keys of the removed queue move", shift: "RabbitMQ's method: keys of other queues move, too", modulus: "hash mod N: most keys move" };

export const WhatIf = () => html`<${Page} title="What if" about="what-if"><${RingList} columns=${[
  { label: "Exchange", sort: "name", class: "name", render: (one) => html`<a href=${link("what-if", one.vhost, one.name)}>${one.name}</a>` },
  { label: "Virtual host", sort: "vhost", key: "vhost", minor: true },
]} /><//>`;

export function WhatIfOf({ vhost, name }) {
  const url = path("exchanges", vhost, name, "ring");
  const { data, error, again } = useLive((signal) => get(url, {}, signal), 5, [url]);
  const ring = useLast(data);
  const [changes, setChanges] = useState([]);
  const asked = useRef(0);
  const latest = useRef(changes); // also before the page was drawn with them
  const [answered, setAnswered] = useState({ found: null, error: null });
  if (!ring) return html`<${Page} title=${name} kind="What if"><${Failure} error=${error} /><//>`;
  const weights = Object.fromEntries(ring.destinations.map((one) => [one.destination, one.weight]));

  const ask = async (wanted) => {
    const question = ++asked.current;
    const answer = (given) => question === asked.current && setAnswered(given); // unless something else was asked since
    setChanges((latest.current = wanted));
    answer({ found: null, error: null, waiting: wanted.length > 0 });
    if (!wanted.length) return;
    try {
      answer({ found: await post(below(url, "what-if"), { changes: wanted }), error: null });
    } catch (refused) {
      answer({ found: null, error: refused });
    }
  };
  const change = (destination, weight) => ask([...latest.current.filter((one) => one.destination !== destination), { destination, weight }]);
  const make = () => post(below(url, "changes"), { changes });
  const made = () => {
    ask([]);
    again();
    tell("Ring changed");
  };
  const planned = new Map(changes.map((one) => [one.destination, one.weight]));
  return html`<${Page} title=${name} kind="What if" about="what-if" actions=${html`<a class="button" href=${link("rings", vhost, name)}>Ring</a>`}>
    ${answered.found && html`<${Panel} title="Apply" note=${MOVED[answered.found.removal]}>
      <ul class="steps">${changes.slice(0, 10).map((one) => html`<li>${described(one, weights[one.destination])}</li>`)}${changes.length > 10 && html`<li>and ${format.count(changes.length - 10)} more</li>`}</ul>
      <div class="buttons"><${Confirm} label="Make these changes" title="Change the ring?" text=${`${format.percent(answered.found.outcomes[answered.found.removal].moved)} of the keys move. Messages in queues stay where they are. All changes are made, or none.`} submit=${make} done=${made} /></div>
    <//>`}
    <div class="columns">
      <${Panel} title="Change" note="nothing happens yet">
        <${LongTable} caption="Destinations" rows=${ring.destinations} few=${20} text=${(one) => one.destination} empty="Nothing is bound." rowKey=${(one) => one.destination} columns=${[
          { label: "Destination", class: "name", key: "destination" },
          { label: "Weight", num: true, render: (one) => html`<${Weight} of=${one.destination} weight=${planned.get(one.destination) || one.weight}
              change=${change} disabled=${planned.get(one.destination) === 0} />` },
          { label: "", class: "end", render: (one) => planned.has(one.destination)
            ? html`<button type="button" class="quiet" onClick=${() => ask(latest.current.filter((other) => other.destination !== one.destination))}>Keep as it is</button>`
            : html`<button type="button" class="quiet" onClick=${() => change(one.destination, 0)}>Unbind</button>` },
        ]} />
        <${Form} fields=${[{ name: "destination", label: "Bind another queue", required: true }, { name: "weight", label: "Weight", type: "number", min: 1, value: 1 }]} label="Add" submit=${async ({ destination, weight }) => change(destination, Number(weight))} />
      <//>
      <${Panel} title="Moves" note=${answered.found ? `a sample of ${format.count(answered.found.keys)} keys` : ""}>
        <${Failure} error=${answered.error} />
        ${answered.found ? html`<${Outcome} found=${answered.found} />` : !answered.error && html`<${Empty}>${answered.waiting ? "Routing a sample of keys ..." : "Unbind, bind or change a weight: here is then what share of the keys would move, and from where to where."}<//>`}
      <//>
    </div>
  <//>`;
}

/** Input for a weight. The typed value stays when the page is redrawn. */
function Weight({ of, weight, change, disabled }) {
  const [typed, setTyped] = useState(null);
  const done = (event) => {
    setTyped(null);
    if (event.target.value) change(of, Number(event.target.value));
  };
  return html`<input class="weight" type="number" min="1" max="10000" aria-label=${`Weight of ${of}`} value=${typed ?? weight}
    onInput=${(event) => setTyped(event.target.value)} onChange=${done} disabled=${disabled} />`;
}

function described({ destination, weight }, before) {
  if (!weight) return `Unbind ${destination}.`;
  return before ? `Change the weight of ${destination} from ${before} to ${weight}.` : `Bind ${destination} with weight ${weight}.`;
}

export function Outcome({ found }) {
  const most = Math.max(found.least, ...Object.values(found.outcomes).map((one) => one.moved), 0.0001);
  const own = found.outcomes[found.removal];
  const line = (label, moved, state) => html`<div class="outcome"><dt>${label}</dt><dd><${Bar} share=${moved / most} state=${state} label=${format.percent(moved)} /> <b>${format.percent(moved)}</b></dd></div>`;
  return html`
    <dl class="outcomes">
      ${line("the least possible", found.least, "keys")}
      ${Object.entries(found.outcomes).map(([way, one]) => line(WAYS[way] + (way === found.removal ? " (this exchange)" : ""), one.moved, one.moved > found.least * 1.2 + 0.005 ? "warning" : ""))}
    </dl>
    <h3>Sources and targets</h3>
    <${Table} caption="Moves" rows=${own.moves.slice(0, 30)} empty="No key moves." columns=${[
      { label: "from", class: "name", key: "from" },
      { label: "to", class: "name", key: "to" },
      { label: "of all keys", num: true, render: (one) => format.percent(one.share) },
      { label: "", class: "wide-cell", render: (one) => html`<${Bar} share=${one.share / own.moves[0].share} />` },
    ]} />
    ${own.moves.length + own.other_moves > 30 && html`<p class="note">and ${format.count(own.moves.length + own.other_moves - 30)} more</p>`}`;
}
