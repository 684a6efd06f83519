// Copies of the homes of a cluster: nodes, lag, and requested number.

import { get, path, put } from "../lib/api.js";
import * as format from "../lib/format.js";
import { link, useLive } from "../lib/live.js";
import { Failure, FormButton, html, LongTable, Mark, Panel, tell, usePerson } from "../lib/ui.js";

/** The panel of copies. Without copies, present or requested, it is empty; for administrators, who can request copies, it is folded. */
export function Copies() {
  const person = usePerson();
  const { data, error, again } = useLive((signal) => get("/api/copies", {}, signal), 3, []);
  if (!data?.length) return html`<${Failure} error=${error} />`;
  const mayChange = person.may("administrator");
  const isCopied = data.some((one) => one.copies > 1 || one.wanted.copies > 1);
  if (!isCopied && !mayChange) return null;
  const table = html`<${LongTable} caption="Copies" rows=${data} text=${(one) => `${one.home} ${one.seat} ${one.leader}`} rowKey=${(one) => one.home} columns=${[
    { label: "Home", num: true, key: "home" },
    { label: "Seat", render: (one) => html`<a href=${link("nodes", one.seat)}>${one.seat}</a>` },
    { label: "Served by", render: (one) => !one.running ? html`<${Mark} state="alarm">none<//>` : html`<a href=${link("nodes", one.leader)}>${one.leader}</a>${one.leader !== one.seat && html` <${Mark} state="warning">not its seat<//>`}` },
    { label: "In the set", render: inTheSet },
    { label: "Members", render: (one) => one.members.map((member) => html`<${Member} key=${member.node} ...${member} />`) },
    { label: "Wanted", render: wish },
    ...(mayChange ? [{ label: "", class: "end", render: (one) => html`<${SetCopies} home=${one} again=${again} />` }] : []),
  ]} />`;
  return html`<${Panel} title="Copies" note="of homes, on other nodes; copies in the set store each message before the confirm">
    <${Failure} error=${error} />
    ${isCopied ? table : html`<details><summary>No home has copies: while a node is down, its queues are</summary>${table}</details>`}
  <//>`;
}

function inTheSet({ in_set: stored, copies, min, confirms }) {
  const text = `${stored} of ${copies}`;
  return confirms ? text : html`<${Mark} state="alarm">${text}${stored ? `, ${min} needed: nothing is confirmed` : ": down"}<//>`;
}

/** A member with its state and lag. Only the node that serves the home knows the lag. */
const Member = ({ node, state, lag_bytes: behind, trouble, damaged }) => html`<span class="link-of"><span class=${`dot ${STORES.includes(state) ? "good" : ""}`} aria-hidden="true"></span> ${node} <span class="note">${state}${behind > 0 && `, ${format.octets(behind)} behind`}</span>${trouble && html` <span title=${trouble}><${Mark} state="warning">${damaged ? "damaged" : "problem"}<//></span>`}</span>`;

/** States of the members that store each commit before it is complete. */
const STORES = ["leader", "in set"];

/** Requested changes of the copies that are not in effect yet. */
function wish({ copies, min, seat, leader, wanted }) {
  const parts = [];
  if (wanted.copies !== copies || wanted.min !== min) parts.push(`${format.plural(wanted.copies, "copy", "copies")}, min ${wanted.min}`);
  if (wanted.leader !== leader && wanted.leader !== seat) parts.push(`served by ${wanted.leader}`);
  return parts.join("; ");
}

const SetCopies = ({ home, again }) => html`<${FormButton} button="quiet" label="Set copies" title=${`Copies of home ${home.home}`} send="Set"
  fields=${[
    { name: "copies", label: "Copies, the seat's included", type: "number", min: 1, value: home.wanted.copies, required: true },
    { name: "min", label: "Copies that must store a message before the confirm", type: "number", min: 1, hint: "Half of them, rounded up, unless given." },
  ]}
  warn=${({ copies }) => Number(copies) > 1 && home.members.length === 1 && `The process of home ${home.home} starts again once, as it gets copies for the first time: connections to it are closed.`}
  submit=${({ copies, min }) => put(path("copies", home.home), { copies: Number(copies), ...(min && { min: Number(min) }) })}
  done=${() => { again(); tell("Copies set"); }} />`;
