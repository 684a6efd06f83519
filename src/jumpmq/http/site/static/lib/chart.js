// Values over time, drawn by uPlot in the page's colours.

import { html, useEffect, useRef } from "./ui.js";

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

  useEffect(() => {
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
  }, [lines.map((line) => line.label).join()]);
  useEffect(() => plot.current?.setData(data), [at]);

  const last = (line) => show(line.values?.at(-1) ?? 0);
  return html`<figure class="chart">
    <figcaption><h3>${title}</h3>
      <ul>${lines.map((line) => html`<li><i style=${`background:var(--${line.colour})`}></i>${line.label} <b>${last(line)}</b></li>`)}</ul>
    </figcaption>
    <div ref=${place} aria-hidden="true" style=${`height:${height}px`}></div>
  </figure>`;
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
      { ...axis, grid: { show: false }, space: 80, size: 24, values: (_, times) => times.map((time) => new Date(time * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: times.length > 1 && times[1] - times[0] < 60 ? "2-digit" : undefined, hour12: false })) },
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
