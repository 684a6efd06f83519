// Consumer groups: who has which queue or slot and since when, what passes on, which keys wait, and how far groups are in
// streams.

import { get, path, put, remove } from "../lib/api.js";
import * as format from "../lib/format.js";
import { Charts, refreshed, SpanPicker, useSpan } from "../lib/chart.js";
import { link, useLive } from "../lib/live.js";
import { Confirm, Failure, FormButton, Facts, html, LongTable, Mark, Page, Panel, Table, tell, Tile, Tiles, useHosted, useLast, useState } from "../lib/ui.js";
import { AllFences, FencesOf } from "./fences.js";

const keyOf = (group) => [group.vhost, group.source_kind, group.source, group.name];
const sourceOf = (group) => html`<a href=${link(`${group.source_kind}s`, group.vhost, group.source)}>${format.name(group.source)}</a>`;
const trouble = (count) => count ? html`<${Mark} state="warning">${format.count(count)}<//>` : "0";

const COLUMNS = [
  { label: "Group", class: "name", render: (group) => html`<a href=${link("groups", ...keyOf(group))}>${format.name(group.name)}</a>` },
  { label: "Consumes", class: "name", render: sourceOf },
  { label: "Virtual host", key: "vhost" },
  { label: "", render: (group) => group.state !== "stable" && html`<${Mark}>${group.state}<//>` },
  { label: "Members", num: true, render: (group) => format.count(group.members.length) },
  { label: "Units", num: true, render: (group) => format.count(group.units.length) },
  { label: "Without a member", num: true, render: (group) => trouble(group.unassigned) },
  { label: "Draining", num: true, render: (group) => format.count(group.draining) },
  { label: "Left out", num: true, render: (group) => trouble(group.refused.length) },
  { label: "Ready", num: true, render: (group) => format.count(group.ready) },
  { label: "Unacked", num: true, render: (group) => format.count(group.unacknowledged) },
];

export function Groups() {
  const { data, error } = useLive((signal) => get("/api/consumer-groups", {}, signal), 2, []);
  const rows = useHosted(data);
  return html`<${Page} title="Consumer groups" about="groups">
    <${Failure} error=${error} />
    ${rows && html`<${Table} caption="Consumer groups" rows=${rows} columns=${COLUMNS} rowKey=${(group) => keyOf(group).join("\n")} empty="No consumer group has members. A consumer joins one with the argument x-consumer-group." />`}
    <${AllFences} />
    <${Offsets} />
  <//>`;
}

/** Name of a member; without one, the client's name of its connection, with the consumer tag. */
function called({ name, consumer_tag: tag, channel_details: channel }) {
  const unnamed = channel?.user_provided_name && name.startsWith(channel.name);
  return unnamed ? `${channel.user_provided_name}${channel.name.slice(channel.connection_name.length)} ${tag}` : name;
}

const MEMBERS = [
  { label: "Member", class: "name", render: (member) => html`<span title=${called(member)}>${shorter(called(member))}</span>` },
  { label: "", render: (member) => html`<${Mark} state=${{ serving: "good", away: "warning" }[member.state]}>${member.state}<//>${member.grace_left != null ? ` for another ${format.span(member.grace_left)}` : ""}` },
  { label: "Weight", num: true, key: "weight" },
  { label: "Units", num: true, render: (member) => format.count(member.units) },
  { label: "Unacked", num: true, render: (member) => format.count(member.messages_unacknowledged) },
  { label: "Prefetch", num: true, render: (member) => member.prefetch_count ? format.count(member.prefetch_count) : "any" },
  { label: "Delivered", num: true, render: (member) => format.count(member.messages_delivered) },
  { label: "Since", num: true, render: (member) => format.span(member.seconds) },
  { label: "Connection", class: "name", render: ({ channel_details: channel }) => channel && html`<a href=${link("connections", channel.connection_name)}>${channel.user_provided_name ?? channel.connection_name}</a>` },
];

const UNITS = [
  { label: "Queue", class: "name", render: (unit) => html`<a href=${link("why", unit.vhost, unit.queue)}>${format.name(unit.queue)}</a>` },
  { label: "Slot", num: true, render: (unit) => unit.slot ?? "" },
  { label: "Member", class: "name", render: (unit) => unit.holder ?? html`<${Mark} state="warning">none<//>` },
  { label: "Since", num: true, render: (unit) => format.span(unit.seconds) },
  { label: "Owner epoch", num: true, render: (unit) => unit.owner_epoch ?? "" },
  { label: "Ready", num: true, render: (unit) => format.count(unit.ready) },
  { label: "Unacked", num: true, render: (unit) => format.count(unit.unacknowledged) },
  { label: "Oldest", num: true, render: (unit) => unit.oldest == null ? "" : format.span(unit.oldest) },
  { label: "Offset", num: true, render: (unit) => unit.offset ?? "" },
  { label: "", render: ({ draining, unbound }) => html`${unbound && html`<${Mark}>unbound<//> `}${draining && html`<${Mark} state="warning">drains<//> ${format.plural(draining.messages, "message")} at ${draining.connection_name} for ${format.span(draining.seconds)}`}` },
];

/** A name with the middle of a long generated tag cut out. */
const shorter = (text) => (text.length > 44 ? `${text.slice(0, 34)}…${text.slice(-6)}` : text);

/** Slots of a queue, combined per member; states of the slots are counted. */
function together(units) {
  const found = new Map();
  for (const unit of units) {
    const key = `${unit.queue}\n${unit.owner ?? ""}`;
    const one = found.get(key) ?? { vhost: unit.vhost, queue: unit.queue, holder: unit.holder, slots: [], ready: 0, unacknowledged: 0, oldest: null, draining: 0, owner: unit.owner };
    one.slots.push(unit.slot);
    one.ready += unit.ready;
    one.unacknowledged += unit.unacknowledged;
    one.oldest = unit.oldest == null ? one.oldest : Math.max(unit.oldest, one.oldest ?? 0);
    one.draining += unit.draining ? 1 : 0;
    found.set(key, one);
  }
  return [...found.values()];
}

const TOGETHER = [
  { label: "Queue", class: "name", render: (one) => html`<a href=${link("why", one.vhost, one.queue)}>${format.name(one.queue)}</a>` },
  { label: "Member", class: "name", render: (one) => (one.holder ? html`<span title=${one.holder}>${shorter(one.holder)}</span>` : html`<${Mark} state="warning">none<//>`) },
  { label: "Slots", num: true, render: (one) => format.count(one.slots.length) },
  { label: "Ready", num: true, render: (one) => format.count(one.ready) },
  { label: "Unacked", num: true, render: (one) => format.count(one.unacknowledged) },
  { label: "Oldest", num: true, render: (one) => one.oldest == null ? "" : format.span(one.oldest) },
  { label: "", render: (one) => one.draining > 0 && html`<${Mark} state="warning">${format.plural(one.draining, "slot")} draining<//>` },
];

/** Maximum number of slots listed individually. */
const FEW = 8;

/** Maximum number of queues whose backlogs are added up for a group. */
const ADDED = 16;

/** Backlog of a group over time: the sum of its queues. */
function Lag({ vhost, queues }) {
  const span = useSpan();
  const names = queues.slice(0, ADDED);
  const { data } = useLive(async (signal) => sumOf(await Promise.all(names.map((name) => get(path("history", "queues", vhost, name), { seconds: span }, signal)))), refreshed(span) + 1, [vhost, names.join("\n"), span]);
  const samples = useLast(data);
  return samples && html`<${SpanPicker} /><${Charts} samples=${samples} which=${["rates", "backlog"]} />${queues.length > ADDED && html`<p class="note">of the first ${ADDED} of ${format.plural(queues.length, "queue")}</p>`}`;
}

/** The sum of several queues' histories, which have equal sample times. */
function sumOf(histories) {
  const columns = ["publish", "deliver_get", "ack", "ready", "unacknowledged"];
  const rows = new Map();
  for (const one of histories) one.at.forEach((at, place) => {
    const key = Math.round(at);
    const row = rows.get(key) ?? { at, of: 0, sums: columns.map(() => 0) };
    columns.forEach((column, number) => { row.sums[number] = one[column][place] == null || row.sums[number] == null ? null : row.sums[number] + one[column][place]; });
    row.of += 1;
    rows.set(key, row);
  });
  const whole = [...rows.values()].filter((row) => row.of === histories.length).sort((one, other) => one.at - other.at);
  return { at: whole.map((row) => row.at), ...Object.fromEntries(columns.map((column, number) => [column, whole.map((row) => row.sums[number])])) };
}

/** Maximum number of shown partitions; those with problems come first. */
const SHOWN = 200;
const rank = (unit) => (unit.draining ? 0 : unit.owner == null ? 1 : unit.ready ? 2 : 3);

const COUNTS = [["joins", "Joins"], ["leaves", "Leaves"], ["moves", "Moves"], ["handovers", "Handovers"], ["forced_handovers", "Forced"], ["late_acknowledgements", "Late acks"]];

const ending = (group, again) => ({ label: "", class: "end", render: (member) => html`<${Confirm} quiet label="End" title=${`End member ${called(member)}?`} text="What it holds is delivered again, to other members. Its consumer is cancelled; the client may join again." submit=${() => remove(path("consumer-groups", ...group, "members", member.name))} done=${() => { again(); tell("Member ended"); }} />` });

export function Group({ names: [vhost, kind, source, name] }) {
  const { data, error, again } = useLive((signal) => get(path("consumer-groups", vhost), {}, signal), 1, [vhost, kind, source, name]);
  const found = data?.find((group) => group.source_kind === kind && group.source === source && group.name === name);
  const group = useLast(found);
  const gone = data && !found;
  const [each, setEach] = useState(false);
  if (!group) return html`<${Page} title=${name} kind="Consumer group"><${Failure} error=${error ?? (gone && new Error("The consumer group has no members."))} /><//>`;
  const names = new Map(group.members.map((member) => [member.name, called(member)]));
  const units = group.units.map((unit) => ({ ...unit, vhost, holder: names.get(unit.owner) ?? unit.owner })).sort((one, other) => rank(one) - rank(other));
  const slotted = units.length > FEW && units.some((unit) => unit.slot != null);
  return html`<${Page} title=${name} kind="Consumer group" about="groups">
    <${Failure} error=${error ?? (gone && new Error("The consumer group has no members any more. What you see was so until then."))} />
    <p class="note">It consumes ${group.source_kind} ${sourceOf(group)} of virtual host ${vhost}. Idle members are on standby. Queues and slots are reassigned ${group.rebalance_delay} s after a member joins or leaves.</p>
    <${Tiles}>
      <${Tile} label="State" value=${group.state} />
      <${Tile} label="Members" value=${format.count(group.members.length)} />
      <${Tile} label="Units" value=${format.count(group.units.length)} />
      <${Tile} label="Without a member" value=${format.count(group.unassigned)} state=${group.unassigned ? "warning" : ""} />
      <${Tile} label="Draining" value=${format.count(group.draining)} />
      <${Tile} label="Ready" value=${format.count(group.ready)} />
      <${Tile} label="Unacknowledged" value=${format.count(group.unacknowledged)} />
    <//>
    <${Lag} vhost=${vhost} queues=${[...new Set(group.units.map(({ queue }) => queue))]} />
    <${Panel} title="Members"><${Table} caption="Members of this group" columns=${[...MEMBERS, ending([vhost, kind, source, name], again)]} rows=${group.members} rowKey=${(member) => member.name} empty="No member." /><//>
    <${FencesOf} vhost=${vhost} names=${group.units.map(({ queue }) => queue)} />
    ${group.refused.length > 0 && html`<${Panel} title="Left out" note="queues left out of the group"><${Table} caption="Queues that are left out" rows=${group.refused} columns=${[{ label: "Queue", class: "name", key: "queue" }, { label: "Reason", key: "reason" }]} /><//>`}
    ${slotted && !each ? html`<${Panel} title="Slots by member" actions=${html`<button type="button" class="quiet" onClick=${() => setEach(true)}>Show each slot</button>`}>
      <${LongTable} caption="Slots by member" columns=${TOGETHER} rows=${together(units)} text=${(one) => `${one.queue} ${one.holder ?? ""}`} rowKey=${(one) => `${one.queue}\n${one.owner ?? ""}`} />
    <//>` : html`<${Panel} title="Units" actions=${slotted && html`<button type="button" class="quiet" onClick=${() => setEach(false)}>By member</button>`} note=${units.length > SHOWN ? `the first ${SHOWN} of ${format.count(units.length)}: those that drain, have no member or have messages` : "queues and slots, each at one member at a time"}>
      <${Table} caption="Units of this group" columns=${UNITS} rows=${units.slice(0, SHOWN)} rowKey=${(unit) => `${unit.queue}\n${unit.slot}`} empty="The group has nothing to share." />
    <//>`}
    <${Panel} title="Since the group began"><${Facts} facts=${COUNTS.map(([key, label]) => [label, format.count(group[key])])} /><//>
  <//>`;
}

function Offsets() {
  const { data, error, again } = useLive((signal) => get("/api/group-offsets", {}, signal), 2, []);
  const rows = useHosted(data);
  const where = (one) => path("group-offsets", one.vhost, one.queue, one.group);
  return html`<${Panel} title="Offsets in streams" note="the lowest that a group has not settled; kept without members, too">
    <${Failure} error=${error} />
    ${rows && html`<${Table} caption="Offsets of consumer groups" rows=${rows} empty="No consumer group has an offset in a stream." rowKey=${(one) => [one.vhost, one.queue, one.group].join("\n")} columns=${[
      { label: "Group", class: "name", key: "group" },
      { label: "Stream", class: "name", render: (one) => html`<a href=${link("why", one.vhost, one.queue)}>${one.queue}</a>` },
      { label: "Virtual host", key: "vhost" },
      { label: "Offset", num: true, render: (one) => format.count(one.offset) },
      { label: "End", num: true, render: (one) => format.count(one.end) },
      { label: "Lag", num: true, render: (one) => format.count(one.lag) },
      { label: "Unacked", num: true, render: (one) => format.count(one.unacknowledged) },
      { label: "Skipped", num: true, render: (one) => trouble(one.skipped) },
      { label: "", render: (one) => !one.members && html`<${Mark}>no members<//>` },
      { label: "", class: "end", render: (one) => html`
        <${FormButton} button="quiet" label="Set" title=${`Where ${one.group} goes on in ${one.queue}`} send="Set" fields=${[{ name: "offset", label: "Offset", required: true, value: String(one.offset), hint: "first, last, next, an offset, or an age such as 2h; what members hold now comes again if it is behind that" }]} submit=${({ offset }) => put(where(one), { offset })} done=${() => { again(); tell("Offset set"); }} />
        ${!one.members && html`<${Confirm} quiet label="Delete" title=${`Delete the offset of ${one.group}?`} text="A returning group begins as a new group." submit=${() => remove(where(one))} done=${() => { again(); tell("Offset deleted"); }} />`}` },
    ]} />`}
  <//>`;
}
