// Layout of a flow diagram: boxes in four columns, links with a width by rate.

import * as format from "./format.js";

/** Vertical distance of boxes, in pixels. */
export const ROW = 46;

const TOP = 24;
const NARROW = 700;
const WIDEST = ROW - 14;
const BAR = 10;

/** Widths of the columns of publishers and consumers, and of the room for links, as shares of the whole width. */
const shares = (width) => (width < NARROW ? { client: 0.22, gap: 0.05 } : { client: 0.2, gap: 0.12 });

/**
 * The picture of what `/api/exchanges/V/X/flow` told: `{height, heads, nodes, links, exchange}` in pixels.
 * `rates` tells those of publishers and consumers, as far as they are known.
 */
export function layOut(told, rates, width) {
  const { client, gap } = shares(width);
  const rows = rowsOf(told);
  const consumers = consumersOf(told, rates, rows);
  const height = TOP + Math.max(rows.length, told.publishers.length, consumers.length, 3) * ROW;
  const column = { publisher: 0, exchange: width * (client + gap), queue: width * (client + gap * 2) + BAR, consumer: width * (1 - client) };
  const boxes = { client: width * client, queue: column.consumer - width * gap - column.queue };
  const publishers = spread(told.publishers.map((one) => publisherNode(one, rates)), height, column.publisher, boxes.client);
  const queues = spread(rows, height, column.queue, boxes.queue);
  const takers = spread(consumers, height, column.consumer, boxes.client);
  const total = Math.max(sum(publishers), sum(queues), 1e-9);
  const bar = { x: column.exchange, width: BAR, height: Math.min(height - TOP, Math.max(96, (height - TOP) * 0.6)) };
  bar.y = TOP + (height - TOP - bar.height) / 2 - 4;
  const wide = (rate) => (rate ? Math.min(WIDEST, Math.max(1.5, (rate / total) * bar.height)) : 1);
  const links = [
    ...atBar(publishers, bar).map(({ node, y }) => linkOf(`p ${node.key}`, node.x + node.width, middle(node), bar.x, y, node.rate, wide, "", `${node.name}: ${shownRate(node.rate)}`)),
    ...atBar(queues, bar).map(({ node, y }) => linkOf(`q ${node.key}`, bar.x + BAR, y, node.x, middle(node), node.rate, wide, node.state.endsWith("excess") ? "excess" : "", `to ${node.name}: ${shownRate(node.rate)}`)),
    ...takers.flatMap((taker) => taker.takes.map(({ row, rate }) => linkOf(`c ${taker.key} ${row}`, queues[row].x + queues[row].width, middle(queues[row]), taker.x, middle(taker), rate, wide, "", `${queues[row].name} to ${taker.name}: ${shownRate(rate)}`))),
  ];
  const heads = [
    { x: 0, anchor: "start", text: "Publishers" },
    { x: bar.x + BAR / 2, anchor: "middle", text: width < NARROW ? "" : "Exchange" },
    { x: column.queue, anchor: "start", text: "Queues" },
    { x: column.consumer, anchor: "start", text: "Consumers" },
  ];
  return { height, heads, links, exchange: bar, nodes: [...publishers, ...queues, ...takers, ...absent(publishers, takers, column, boxes, height)] };
}

const sum = (nodes) => nodes.reduce((total, one) => total + (one.rate ?? 0), 0);
const middle = (node) => node.y + (ROW - 8) / 2;
const shownRate = (rate) => (rate == null ? "not measured yet" : `${format.rate(rate)} a second`);

/** The queues in rows; the folded queues are in the middle. */
function rowsOf({ queues, folded }) {
  const rows = queues.map((one) => queueNode(one));
  if (folded.queues) {
    const { publish_rate: rate, messages_ready: ready } = folded;
    const name = `${format.count(folded.queues)} more`;
    rows.splice(Math.ceil(rows.length / 2), 0, { key: "folded", name, figures: figuresOf(folded), title: `${name} queues: ${shownRate(rate)} in, ${format.count(ready)} ready`, rate, state: `folded ${stateOf(folded)}` });
  }
  return rows;
}

function figuresOf({ publish_rate: rate, excess_rate: excess, messages_ready: ready }, state) {
  const parts = [`${format.rate(rate)}/s`];
  if (state === "excess") parts.push(`+${format.rate(excess)}/s`);
  if (ready) parts.push(`${format.short(ready)} ready`);
  return parts.join(" · ");
}

const stateOf = (one) => (one.excess_rate >= Math.max(1, one.publish_rate / 20) ? "excess" : "");

function queueNode(one) {
  const state = stateOf(one);
  const figures = figuresOf(one, state);
  return { key: one.name, queue: one.name, name: one.name, figures, title: `${one.name}: ${figures}, ${format.plural(one.consumers, "consumer")}`, rate: one.publish_rate, state };
}

function publisherNode(one, rates) {
  const rate = rates.published(one.name);
  const name = one.name ?? "others";
  const figures = [rate == null ? "" : `${format.rate(rate)}/s`, one.channels > 1 ? `${format.count(one.channels)} channels` : ""].filter(Boolean).join(" · ");
  return { key: `p ${one.name}`, name, figures, title: [name, one.user && `user ${one.user}`, figures].filter(Boolean).join(", "), rate, state: "" };
}

/** Consumers of the rows, in the order of their rows, so that few links cross. */
function consumersOf(told, rates, rows) {
  const at = new Map(rows.map((row, place) => [row.queue, place]));
  const known = new Map(told.queues.map((one) => [one.name, one]));
  const alone = (queue) => told.consumers.filter((one) => queue in one.queues).length === 1;
  const nodes = told.consumers.map((one) => {
    const takes = Object.keys(one.queues).filter((queue) => at.has(queue)).map((queue) => {
      const rate = known.get(queue).deliver_rate;
      if (one.kind === "reader") return { row: at.get(queue), rate: alone(queue) ? rate : null }; // readers are not counted one by one
      return { row: at.get(queue), rate: rates.delivered(one.kind, one.name, queue, rate) };
    });
    const rate = takes.some((each) => each.rate != null) ? takes.reduce((total, each) => total + (each.rate ?? 0), 0) : null;
    const figures = [rate == null ? "" : `${format.rate(rate)}/s`, one.messages_unacknowledged ? `${format.short(one.messages_unacknowledged)} unacked` : "", one.consumers > 1 ? `${format.count(one.consumers)}×` : ""].filter(Boolean).join(" · ");
    const mean = takes.reduce((total, each) => total + each.row, 0) / Math.max(1, takes.length);
    return { key: `c ${one.kind} ${one.name}`, kind: one.kind, name: one.name, figures, title: [one.name, one.user && `user ${one.user}`, figures].filter(Boolean).join(", "), rate, state: "", takes, mean };
  });
  nodes.sort((one, other) => one.mean - other.mean);
  if (told.other_consumers) nodes.push({ key: "c others", name: `${format.count(told.other_consumers)} more`, figures: "", title: `${told.other_consumers} more consumers`, rate: null, state: "folded", takes: [] });
  return nodes;
}

/** Boxes below each other, centred vertically. */
function spread(nodes, height, x, width) {
  const step = Math.min(ROW * 2, nodes.length ? (height - TOP) / nodes.length : ROW);
  const first = TOP + (height - TOP - step * nodes.length) / 2 + (step - ROW) / 2;
  return nodes.map((node, place) => ({ ...node, x, y: first + step * place, width }));
}

/** Ends of the links at the exchange's bar, in the order of the boxes, spaced by rate. */
function atBar(nodes, bar) {
  const weights = nodes.map((node) => (node.rate ?? 0) + sum(nodes) / Math.max(1, nodes.length) / 4 + 1e-6);
  const all = weights.reduce((total, one) => total + one, 0);
  let passed = 0;
  return nodes.map((node, place) => {
    const y = bar.y + ((passed + weights[place] / 2) / all) * bar.height;
    passed += weights[place];
    return { node, y };
  });
}

function linkOf(key, x1, y1, x2, y2, rate, wide, state, title) {
  const bend = (x2 - x1) / 2;
  const points = [`M${x1},${y1}`, `C${x1 + bend},${y1}`, `${x2 - bend},${y2}`, `${x2},${y2}`];
  return { key, d: points.join(" "), rate: rate ?? 0, width: wide(rate), state, title };
}

/** Boxes that take the place of missing publishers or consumers. */
function absent(publishers, takers, column, boxes, height) {
  const y = TOP + (height - TOP - ROW) / 2;
  const found = [];
  if (!publishers.length) found.push({ key: "no publisher", name: "none connected", figures: "", title: "No channel that is open has published to it", x: column.publisher, y, width: boxes.client, state: "folded" });
  if (!takers.length) found.push({ key: "no consumer", name: "none", figures: "", title: "No consumer takes from these queues", x: column.consumer, y, width: boxes.client, state: "folded" });
  return found;
}
