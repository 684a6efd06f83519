// Moving of messages: all messages of a queue, some of them, or the result of a search.

import { path, post } from "../lib/api.js";
import * as format from "../lib/format.js";
import { FormButton, html, useState } from "../lib/ui.js";

/** Kinds of destination for moved messages, each with the body of the request. */
const TARGETS = {
  "Original queue (x-death)": () => ({ origin: true }),
  "a queue": ({ destination }) => ({ queue: destination }),
  "an exchange": ({ destination, routing_key }) => ({ exchange: destination, ...(routing_key && { routing_key }) }),
};

/** Number of messages moved per request; the progress is shown after each request. */
const MOVED_AT_ONCE = 10000;

const FIELDS = [
  { name: "to", label: "To", type: "select", value: "Original queue (x-death)", options: Object.keys(TARGETS), hint: "for dead-lettered messages: the queue of the last death" },
  { name: "destination", label: "Name", required: true, when: ({ to }) => to === "a queue" || to === "an exchange" },
  { name: "routing_key", label: "Routing key", hint: "by default, each message keeps its own", when: ({ to }) => to === "an exchange" },
];

/** The requests that move `count` messages from the front, one after the other. */
function fromTheFront(count) {
  let left = count;
  return (answer, asked) => {
    if (answer) left = answer.moved < asked.count || Object.keys(answer.kept).length ? 0 : left - asked.count;
    return left > 0 ? { count: Math.min(left, MOVED_AT_ONCE) } : null;
  };
}

/** The requests that move the messages of a search, or with the given numbers. */
const chosenBy = (chosen) => (answer) => {
  if (!answer) return { ...chosen, ...(!chosen.numbers && { count: MOVED_AT_ONCE }) };
  return answer.next == null ? null : { ...chosen, from: answer.next, count: MOVED_AT_ONCE };
};

/**
 * A button that moves messages, such as dead letters back to where they died: those that are `chosen` (as the API says
 * it: `numbers`, or what a search says), else as many from the front as one asks for, of those that are `ready`.
 */
export function Move({ vhost, name, label, chosen, ready, disabled, done }) {
  const [told, setTold] = useState("");
  const fields = chosen ? FIELDS : [...FIELDS, { name: "count", label: "How many", type: "number", min: 1, value: ready, hint: "from the front" }];
  const move = async (values) => {
    const target = TARGETS[values.to](values);
    const next = chosen ? chosenBy(chosen) : fromTheFront(Number(values.count));
    const kept = {};
    let moved = 0;
    for (let asked = next(); asked; ) {
      const answer = await post(path("queues", vhost, name, "contents", "move"), { ...target, ...asked });
      moved += answer.moved;
      for (const [reason, count] of Object.entries(answer.kept)) kept[reason] = (kept[reason] ?? 0) + count;
      setTold(`${format.plural(moved, "message")} moved.`);
      asked = next(answer, asked);
    }
    const stays = Object.entries(kept).map(([reason, count]) => ` ${format.plural(count, "message")} ${count === 1 ? "stays" : "stay"}: ${reason}.`);
    setTold(`${format.plural(moved, "message")} moved.${stays.join("")}`);
  };
  return html`<${FormButton} label=${label} send="Move" stay once disabled=${disabled} fields=${fields} submit=${move} done=${done}>
    ${told && html`<p class="note" role="status">${told}</p>`}
  <//>`;
}
