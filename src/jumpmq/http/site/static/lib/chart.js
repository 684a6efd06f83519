// Values over time, drawn by uPlot in the page's colours.

import { get } from "./api.js";
import * as format from "./format.js";
import { useLive } from "./live.js";
import { html, useEffect, useLast, useRef } from "./ui.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/**
 * A chart of `lines`, `{label, values, colour, fill}`, over the times `at` (seconds). `show(value)` writes a value.
 * What it shows last is said in words beside it, for whom the picture is none.
 */
export function Chart({ title, at, lines, show, height = 150 }) {
  const place = useRef();
  const plot = useRef();
  const data = [at ?? [], ...lines.map((line) => line.values ?? [])];
  const latest = useRef();
  latest.current = { data, show };

  const few = (at?.length ?? 0) < 2; // of which no line can be drawn
  useEffect(() => {
    if (few) return undefined;
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(place.current, lines, height, latest), latest.current.data, place.current);
    };
    draw();
    const resizing = new ResizeObserver(() => plot.current.setSize({ width: place.current.clientWidth, height }));
    resizing.observe(place.current);
    addEventListener("themechange", draw);
    return () => {
      resizing.disconnect();
      removeEventListener("themechange", draw);
      plot.current.destroy();
      plot.current = null;
    };
  }, [few, lines.map((line) => line.label).join()]);
  useEffect(() => plot.current?.setData(data), [at]);

  const last = (line) => show(line.values?.at(-1) ?? 0);
  return html`<figure class="chart">
    <figcaption><h3>${title}</h3>
      <ul>${lines.map((line) => html`<li><i style=${`background:var(--${line.colour})`}></i>${line.label} <b>${last(line)}</b></li>`)}</ul>
    </figcaption>
    ${few
      ? html`<p key="few" class="few note" style=${`height:${height}px`}>It is followed from now on: a line in a few seconds.</p>`
      : html`<div key="plot" ref=${place} aria-hidden="true" style=${`height:${height}px`}></div>`}
  </figure>`;
}

/** Between marks of the axis, in seconds. */
const INTERVALS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

const COLOURS = ["accent", "second", "third"];

/** The charts that samples of a broker or an object can fill, each with its columns and their names. */
const KNOWN = {
  rates: ["Messages a second", format.rate, { publish: "published", deliver_get: "delivered", ack: "acknowledged" }],
  published: ["Messages a second", format.rate, { publish_in: "in", publish_out: "to queues" }],
  backlog: ["Backlog", format.short, { ready: "ready", unacknowledged: "unacknowledged" }],
  unanswered: ["Not answered yet", format.short, { unacknowledged: "unacknowledged", unconfirmed: "unconfirmed" }],
  octets: ["Octets a second", format.octets, { recv_oct: "from client", send_oct: "to client" }],
  memory: ["Memory", format.octets, { memory: "process", messages: "messages" }],
  disk: ["Disk", format.octets, { disk_free: "free" }],
};
const LEVELS = new Set(["backlog", "memory", "disk"]);

/** Some of the known charts, of `samples` as `/api/history` answers. */
export const Charts = ({ samples, which }) => html`<div class="charts">
  ${which.map((one) => {
    const [title, show, columns] = KNOWN[one];
    const lines = Object.entries(columns).map(([column, label], place) => ({ label, values: samples[column], colour: COLOURS[place], fill: !place && LEVELS.has(one) }));
    return html`<${Chart} key=${one} title=${title} at=${samples.at} show=${show} lines=${lines} />`;
  })}
</div>`;

/** The same over the last five minutes, asked for again and again; `url` is that of an object's history. */
export function LiveCharts({ url, which }) {
  const { data } = useLive((signal) => get(url, { seconds: 300 }, signal), 2, [url]);
  const samples = useLast(data);
  return samples && html`<${Charts} samples=${samples} which=${which} />`;
}

function options(place, lines, height, latest) {
  const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  return {
    width: place.clientWidth,
    height,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 } },
    padding: [8, 16, 0, 0],
    scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.05, 5)] } },
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
