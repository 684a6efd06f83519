// Values over time, drawn by uPlot in the page's colours.

import { get } from "./api.js";
import * as format from "./format.js";
import { carry, setQuery, useLive } from "./live.js";
import { Failure, html, useEffect, useLast, useRef, useState } from "./ui.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** State shared by all charts of the page: the time span in seconds, and the selected part (`[from, to]`, or null). */
const shared = { span: Number(sessionStorage.getItem("jumpmq.span")) || 300, zoom: null };
const CHANGED = "chartchange";

function keep(changes) {
  Object.assign(shared, changes);
  sessionStorage.setItem("jumpmq.span", shared.span);
  dispatchEvent(new Event(CHANGED));
}

function share(changes) {
  keep(changes);
  setQuery({ span: spanned(), part: part() });
}

const spanned = () => (shared.span === 300 ? "" : String(shared.span));
const part = () => (shared.zoom ? shared.zoom.map(Math.round).join("-") : "");

/** Query of an address that shows a view's charts between two times, in seconds since the epoch. */
export const partOf = (from, till) => `part=${Math.round(from)}-${Math.round(till)}`;

carry("span", spanned, (text) => {
  if (SPANS.some(([seconds]) => String(seconds) === text)) keep({ span: Number(text) });
});
carry("part", part, (text) => {
  const [from, till] = text.split("-").map(Number);
  if (!(from > 0 && from < till && till - from <= 2 * SPANS.at(-1)[0])) return; // an address may say anything
  const age = Date.now() / 1000 - from;
  keep({ zoom: [from, till], ...(shared.span < age && { span: (SPANS.find(([seconds]) => seconds >= age) ?? SPANS.at(-1))[0] }) });
});

function useShared(what) {
  const [value, setValue] = useState(shared[what]);
  useEffect(() => {
    const follow = () => setValue(shared[what]);
    addEventListener(CHANGED, follow);
    return () => removeEventListener(CHANGED, follow);
  }, [what]);
  return value;
}

export const useSpan = () => useShared("span");

/** Time span in seconds, above which samples are a minute apart. */
const FINE = 600;

const SPANS = [[300, "5 min"], [600, "10 min"], [3600, "1 h"], [21600, "6 h"], [86400, "24 h"]];

/** Choice of the charts' time span. After a part was selected with the mouse, a button shows the whole span again. */
export function SpanPicker() {
  const span = useSpan();
  const zoom = useShared("zoom");
  return html`<div class="spans" role="group" aria-label="Time span">
    ${SPANS.map(([seconds, label]) => html`<button key=${seconds} type="button" aria-pressed=${String(seconds === span)} onClick=${() => share({ span: seconds, zoom: null })}>${label}</button>`)}
    ${zoom && html`<button type="button" onClick=${() => share({ zoom: null })}>${format.clock(zoom[0])} – ${format.clock(zoom[1])} ✕<span class="hidden">, show all</span></button>`}
  </div>`;
}

/**
 * A chart of `lines`, `{label, values, colour, fill}`, over the times `at` (seconds). `show(value)` writes a value.
 * The text beside the chart has the latest values, for screen readers. With the pointer on any chart, all charts show the
 * values at the pointer's time. `events` (`{at, text}`) are drawn as lines across the chart.
 */
export function Chart({ title, at, lines, show, events = [], height = 150 }) {
  const [pointed, setPointed] = useState(null);
  const span = useSpan();
  const zoom = useShared("zoom");
  const place = useRef();
  const plot = useRef();
  const data = [at ?? [], ...lines.map((line) => line.values ?? [])];
  const latest = useRef();
  latest.current = { data, show, events, setPointed, least: show === format.percent ? 0.1 : 5 };

  const few = (at?.length ?? 0) < 2; // of which no line can be drawn
  useEffect(() => {
    if (few) return undefined;
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(place.current, lines, height, latest), latest.current.data, place.current);
    };
    draw();
    const resizing = new ResizeObserver(() => place.current && plot.current?.setSize({ width: place.current.clientWidth, height }));
    resizing.observe(place.current);
    addEventListener("themechange", draw);
    return () => {
      resizing.disconnect();
      removeEventListener("themechange", draw);
      plot.current.destroy();
      plot.current = null;
    };
  }, [few, lines.map((line) => line.label).join()]);
  useEffect(() => {
    plot.current?.setData(data, !zoom);
    if (zoom) plot.current?.setScale("x", { min: zoom[0], max: zoom[1] });
  }, [at, zoom, few]);

  const then = pointed != null && at?.[pointed] != null;
  const last = (line) => show((then ? line.values?.[pointed] : line.values?.at(-1)) ?? null);
  return html`<figure class="chart">
    <figcaption><h2>${then ? html`<span class="hidden">${title}, </span>${format.clock(at[pointed])}` : title}</h2>
      <ul>${lines.map((line) => html`<li><i style=${`background:var(--${line.colour})`}></i>${line.label} <b>${last(line)}</b></li>`)}</ul>
    </figcaption>
    ${few
      ? html`<p key="few" class="few note" style=${`height:${height}px`}>No history yet. Recording started now; first points in ${span > FINE ? "2 min" : "5 s"}.</p>`
      : html`<div key="plot" ref=${place} aria-hidden="true" style=${`height:${height}px`}></div>`}
  </figure>`;
}

/** Distances of the axis marks, in seconds. */
const INTERVALS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

const COLOURS = ["accent", "second", "third"];

/** Charts of a broker's or an object's samples, each with its columns and their labels. */
const KNOWN = {
  rates: ["Messages a second", format.rate, { publish: "published", deliver_get: "delivered", ack: "acknowledged" }],
  published: ["Messages a second", format.rate, { publish_in: "published", publish_out: "to queues" }],
  redelivered: ["Redelivered a second", format.rate, { redeliver: "redelivered" }],
  backlog: ["Backlog", format.short, { ready: "ready", unacknowledged: "unacknowledged" }],
  unanswered: ["Not answered yet", format.short, { unacknowledged: "unacknowledged", unconfirmed: "unconfirmed" }],
  octets: ["Octets a second", format.octets, { recv_oct: "from client", send_oct: "to client" }],
  memory: ["Memory", format.octets, { memory: "process", messages: "messages" }],
  cpu: ["Processor", format.percent, { cpu: "of one processor" }],
  connections: ["Connections", format.short, { connections: "open" }],
  disk: ["Disk", format.octets, { disk_free: "free" }],
};
const LEVELS = new Set(["backlog", "memory", "disk", "cpu", "connections"]);

/** Some of the charts, of `samples` from `/api/history`. */
export function Charts({ samples, which }) {
  const events = eventsOf(samples);
  return html`<div class="charts">
  ${which.map((one) => {
    const [title, show, columns] = KNOWN[one];
    const lines = Object.entries(columns).map(([column, label], place) => ({ label, values: samples[column], colour: COLOURS[place], fill: !place && LEVELS.has(one) }));
    return html`<${Chart} key=${one} title=${title} at=${samples.at} show=${show} lines=${lines} events=${events} />`;
  })}
</div>
${events.length > 0 && html`<ul class="events note" aria-label="What happened">${events.slice(-MANY).map((one) => html`<li key=${one.at + one.text}>${format.clock(one.at)} ${one.text}</li>`)}</ul>`}`;
}

/** Maximum number of events listed below the charts. */
const MANY = 6;

/** Events in the time span: the broker's own, and changes of the number of consumers. */
function eventsOf({ at, events = [], consumers = [] }) {
  const found = events.filter((one) => one.at >= at[0]);
  for (let place = 1; place < consumers.length; place++) {
    const [before, after] = [consumers[place - 1], consumers[place]];
    if (before != null && after != null && before !== after) found.push({ at: at[place], text: `${format.plural(after, "consumer")}, before ${format.count(before)}` });
  }
  return found.sort((one, other) => one.at - other.at);
}

/** Charts of an object's history at `url`, for the chosen time span, updated regularly. */
export function LiveCharts({ url, which }) {
  const span = useSpan();
  const { data, error } = useLive((signal) => get(url, { seconds: span }, signal), refreshed(span), [url, span]);
  const samples = useLast(data);
  return samples && html`<${Failure} error=${error} /><${SpanPicker} /><${Charts} samples=${samples} which=${which} />`;
}

/** Seconds between requests for samples; samples of several hours are a minute apart. */
export const refreshed = (span) => (span > FINE ? 15 : 2);

/** Show the part selected with the mouse in all charts. */
function choosePart(plot) {
  const { left, width } = plot.select;
  if (width < 8) return;
  share({ zoom: [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")] });
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
}

/** Draw a line across the chart at each event. */
function drawEvents(plot, events) {
  const { left, top, width, height } = plot.bbox;
  const drawing = plot.ctx;
  drawing.save();
  drawing.strokeStyle = colour("muted");
  drawing.setLineDash([4, 4]);
  for (const { at } of events.slice(-50)) {
    const x = plot.valToPos(at, "x", true);
    if (x < left || x > left + width) continue;
    drawing.beginPath();
    drawing.moveTo(x, top);
    drawing.lineTo(x, top + height);
    drawing.stroke();
  }
  drawing.restore();
}

function options(place, lines, height, latest) {
  const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  return {
    width: place.clientWidth,
    height,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, sync: { key: "page" }, drag: { x: true, y: false, setScale: false }, bind: { dblclick: () => () => share({ zoom: null }) } },
    hooks: {
      setCursor: [(plot) => latest.current.setPointed(plot.cursor.left >= 0 ? plot.cursor.idx : null)],
      setSelect: [choosePart],
      draw: [(plot) => drawEvents(plot, latest.current.events)],
    },
    padding: [8, 26, 0, 0], // half a time of the axis has room at the right
    scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.05, latest.current.least)] } },
    axes: [
      { ...axis, grid: { show: false }, space: 80, size: 24, incrs: INTERVALS, values: (_, times) => times.map((time) => new Date(time * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: times.length > 1 && times[1] - times[0] < 60 ? "2-digit" : undefined, hour12: false })) },
      { ...axis, size: 58, space: 34, values: (_, values) => values.map((value) => latest.current.show(value)) },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.label,
        stroke: colour(line.colour),
        width: 1.5,
        fill: line.fill ? colour(`${line.colour}-soft`) : undefined,
        points: { show: false },
      })),
    ],
  };
}
