// Components of all views. Names from the broker are always text, never markup.

import { h, html, createContext, useContext, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from "../vendor/htm-preact.js";
import * as format from "./format.js";
import { listOf, useHost } from "./host.js";
import { setQuery, useAddress, useLive } from "./live.js";
import { get } from "./api.js";

export { h, html, useState, useEffect, useRef };

/** Error boundary: shows the error if its content cannot be drawn. */
export function Boundary({ children }) {
  const [error] = useErrorBoundary((raised) => console.info(raised));
  if (!error) return children;
  return html`<${Page} title="This view could not be drawn"><p class="failure" role="alert">${String(error.message ?? error)}</p>
    <${Empty}>What the broker answered is not what this view expects. Reload the page; if that does not help, please report it.<//><//>`;
}

/** The logged-in user: `{user, tags, node, may(tag)}`. */
export const Person = createContext({ user: "", tags: [], may: () => false });
export const usePerson = () => useContext(Person);

/** A view. `about` is the term that its help explains. */
export const Page = ({ title, kind, actions, about, children }) => html`
  <header class="title">
    <div>
      ${kind && html`<p class="kind">${kind}</p>`}
      <h1 tabindex="-1" id="title">${title}</h1>${about && html` <a class="about" href=${`#/help?about=${about}`} aria-label="What is this?">?</a>`}
    </div>
    <div class="actions">${actions}</div>
  </header>
  ${children}`;

export const Panel = ({ title, note, actions, children, wide }) => html`
  <section class="panel ${wide ? "wide" : ""}">
    ${title && html`<header><h2>${title}</h2>${note && html`<p class="note">${note}</p>`}<div class="actions">${actions}</div></header>`}
    ${children}
  </section>`;

export const Tile = ({ label, value, unit, state, children }) => html`
  <div class="tile ${state ?? ""}">
    <dt>${label}</dt>
    <dd><span class="figure">${value}</span>${unit && html` <span class="unit">${unit}</span>`}${children}</dd>
  </div>`;

export const Tiles = ({ children }) => html`<dl class="tiles">${children}</dl>`;

export const Mark = ({ state, children }) => html`<span class="mark ${state ?? ""}">${children}</span>`;

/** Message of a failed request, with the broker's text. */
export const Failure = ({ error }) => error && html`<p class="failure" role="alert">${error.message}</p>`;

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

/** Pairs of a name and a value; pairs without a value are omitted. */
export const Facts = ({ facts }) => html`
  <dl class="facts">
    ${facts.filter(([, value]) => value != null && value !== "").map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;

/** A share as a bar; `mark` is the expected share. */
export const Bar = ({ share, mark, state, label }) => html`
  <span class="bar ${state ?? ""}" role="img" aria-label=${label ?? format.percent(share)}>
    <span class="filled" style=${`width:${Math.min(100, Math.max(0, share * 100))}%`}></span>
    ${mark != null && html`<span class="expected" style=${`left:${Math.min(100, mark * 100)}%`}></span>`}
  </span>`;

/** Last values as a line without axes. */
export function Spark({ values, label }) {
  const known = (values ?? []).slice(-120);
  if (known.length < 2) return html`<span class="spark"></span>`;
  const top = Math.max(...known, 1);
  const points = known.map((value, place) => `${((place / (known.length - 1)) * 100).toFixed(1)},${(20 - (value / top) * 18).toFixed(1)}`);
  return html`<svg class="spark" viewBox="0 0 100 21" preserveAspectRatio="none" role="img" aria-label=${label}>
    <path d=${`M0,21 L${points.join(" L")} L100,21 Z`} class="area" /><path d=${`M${points.join(" L")}`} class="line" />
  </svg>`;
}

/**
 * A table. Columns are `{key, label, num, minor, render, sort}`: `render(row)` gives a cell, `sort` names what the server
 * sorts by, and a phone does without what is `minor`.
 * With `sorting` (`{by, reverse, set}`) headings are buttons.
 */
export function Table({ columns, rows, sorting, caption, empty, rowKey }) {
  if (rows && !rows.length) return html`<${Empty}>${empty ?? "Nothing here."}<//>`;
  const heading = (column) => {
    if (!sorting || !column.sort) return column.label;
    const current = sorting.by === column.sort;
    return html`<button type="button" class="sort" onClick=${() => sorting.set(column.sort, current ? !sorting.reverse : Boolean(column.num))}>
      ${column.label}<span aria-hidden="true">${current ? (sorting.reverse ? " ↓" : " ↑") : ""}</span>
    </button>`;
  };
  const direction = (column) => {
    if (!sorting || !column.sort || sorting.by !== column.sort) return undefined;
    return sorting.reverse ? "descending" : "ascending";
  };
  return html`
    <div class="scroll" tabindex="0" role="region" aria-label=${caption}>
      <table>
        <caption class="hidden">${caption}</caption>
        <thead><tr>${columns.map((column) => html`<th scope="col" class=${placed(column)} aria-sort=${direction(column)}>${heading(column) || html`<span class="hidden">${column.class === "end" ? "Actions" : "More"}</span>`}</th>`)}</tr></thead>
        <tbody>
          ${(rows ?? []).map((row, place) => html`<tr key=${rowKey?.(row) ?? place} class=${row.state ?? ""}>
            ${columns.map((column) => html`<td class=${`${placed(column)} ${column.class ?? ""}`}>${column.render ? column.render(row) : row[column.key]}</td>`)}
          </tr>`)}
        </tbody>
      </table>
    </div>`;
}

const placed = (column) => (column.num ? "num " : "") + (column.minor ? "minor" : "");

/** A table of many loaded rows: the first rows whose `text(row)` contains the search text, and further rows on request. */
export function LongTable({ rows, text, few = 50, caption, empty, ...given }) {
  const [wanted, setWanted] = useState("");
  const [shown, setShown] = useState(few);
  const found = wanted ? rows.filter((row) => text(row).toLowerCase().includes(wanted.toLowerCase())) : rows;
  return html`
    ${rows.length > few && html`<div class="above"><input type="search" class="search" placeholder="Search" aria-label=${`Search ${caption.toLowerCase()}`} value=${wanted} onInput=${(event) => setWanted(event.target.value)} />
      <p class="note" role="status">${wanted && `${format.count(found.length)} of `}${format.count(rows.length)}</p></div>`}
    <${Table} ...${given} caption=${caption} rows=${found.slice(0, shown)} empty=${wanted ? "Nothing of that name." : empty} />
    ${found.length > shown && html`<button type="button" class="quiet" onClick=${() => setShown(shown + 4 * few)}>${format.count(found.length - shown)} more</button>`}`;
}

/** A table of loaded rows, sorted in descending order by the value of a column's `sort`. */
export function SortedTable({ rows, columns, order, reverse = true, ...given }) {
  const [sorting, setSorting] = useState({ by: order, reverse });
  const valueOf = (row) => sorting.by.split(".").reduce((value, step) => value?.[step], row);
  const compare = (one, other) => {
    const [left, right] = [valueOf(one), valueOf(other)];
    if (left == null || right == null) return (left != null) - (right != null);
    return typeof left === "number" && typeof right === "number" ? left - right : String(left).localeCompare(String(right), "en", { numeric: true });
  };
  const sorted = rows && [...rows].sort((one, other) => (sorting.reverse ? -1 : 1) * compare(one, other));
  return html`<${Table} ...${given} columns=${columns} rows=${sorted} sorting=${{ ...sorting, set: (by, backwards) => setSorting({ by, reverse: backwards }) }} />`;
}

/** Return the rows in the page's selected virtual host; `of` is the column with the virtual host, null without such a column. */
export function useHosted(rows, of = "vhost") {
  const host = useHost();
  return host && of ? rows?.filter((one) => one[of] === host) : rows;
}

/** Hidden columns of a table, stored in this browser: `[hidden, toggle(label)]`. */
function useHidden(caption) {
  const kept = `jumpmq.columns.${caption}`;
  const [hidden, setHidden] = useState(() => new Set(JSON.parse(localStorage.getItem(kept) ?? "[]")));
  const toggle = (label) => {
    const next = new Set(hidden.has(label) ? [...hidden].filter((one) => one !== label) : [...hidden, label]);
    localStorage.setItem(kept, JSON.stringify([...next]));
    setHidden(next);
  };
  return [hidden, toggle];
}

const Columns = ({ columns, hidden, toggle }) => html`<details class="chooser"><summary>Columns</summary>
  <div>${columns.filter(({ label }) => label).slice(1).map(({ label }) => html`<label key=${label}><input type="checkbox" checked=${!hidden.has(label)} onChange=${() => toggle(label)} /> ${label}</label>`)}</div>
</details>`;

/** Choice of the server's filter of a list: `filters` are `[value, label]`. */
function Filters({ url, filters, current }) {
  const count = (where) => (signal) => get(url, { where, page: 1, page_size: 1, columns: "name" }, signal).then((found) => found.total_count);
  const { data } = useLive((signal) => Promise.all(filters.map(([where]) => count(where)(signal))), 30, [url]);
  return html`<div class="spans" role="group" aria-label="Which">
    ${[["", "All"], ...filters].map(([value, label], place) => html`<button key=${value} type="button" aria-pressed=${String(value === current)} onClick=${() => setQuery({ where: value, page: "" })}>${label}${value && data ? html` <span class="of" aria-hidden="true">${format.short(data[place - 1])}</span>` : ""}</button>`)}
  </div>`;
}

/** Number of rows per page of a list. */
const SIZES = ["50", "100", "500"];

/**
 * A list that the server sorts, searches and cuts into pages; what is asked for is kept in the address. It has what is in
 * the virtual host that the page is about.
 */
export function ServerTable({ url: all, columns: own, caption, empty, order, reverse, searchable = true, query: more, version, filters, bulk, rowKey }) {
  const { query } = useAddress();
  const url = listOf(all, useHost());
  const [hidden, toggle] = useHidden(caption);
  const asked = {
    page: query.page ?? 1,
    page_size: query.size ?? 50,
    sort: query.sort ?? order,
    sort_reverse: query.reverse ?? String(Boolean(reverse)),
    name: query.name ?? "",
    ...(filters && { where: query.where ?? "" }),
    ...more,
  };
  const { data, error } = useLive((signal) => get(url, asked, signal), 5, [url, JSON.stringify(asked), version]);
  const sorting = {
    by: asked.sort,
    reverse: asked.sort_reverse === "true",
    set: (sort, backwards) => setQuery({ sort, reverse: String(backwards), page: "" }),
  };
  const shown = useLast(data);
  const [chosen, setChosen] = useState(() => new Map());
  useEffect(() => setChosen(new Map()), [url]);
  const choose = (row) => setChosen((before) => {
    const next = new Map(before);
    if (!next.delete(rowKey(row))) next.set(rowKey(row), row);
    return next;
  });
  const columns = bulk ? [{ label: "", class: "choice", render: (row) => html`<input type="checkbox" aria-label=${`Choose ${row.name}`} checked=${chosen.has(rowKey(row))} onChange=${() => choose(row)} />` }, ...own] : own;
  return html`
    <div class="listing">
      <div class="above">
        ${searchable && html`<${Search} value=${asked.name} label=${`Search ${caption.toLowerCase()}`} onChange=${(name) => setQuery({ name, page: "" })} onEnter=${() => { const [only, ...others] = document.querySelectorAll(".listing tbody tr"); if (only && !others.length) only.querySelector("a")?.click(); }} />`}
        ${filters && html`<${Filters} url=${url} filters=${filters} current=${asked.where} />`}
        <p class="note" role="status">${shown && (asked.name ? `${format.count(shown.filtered_count)} of ${format.count(shown.total_count)}` : format.count(shown.total_count))}</p>
        ${shown?.total_count > 50 && html`<select class="size" aria-label="Rows of a page" value=${String(asked.page_size)} onChange=${(event) => setQuery({ size: event.target.value, page: "" })}>${SIZES.map((one) => html`<option key=${one} value=${one} selected=${one === String(asked.page_size)}>${one} a page</option>`)}</select>`}
        <${Columns} columns=${columns} hidden=${hidden} toggle=${toggle} />
        ${shown && html`<${Pages} page=${shown.page} count=${shown.page_count} />`}
      </div>
      ${chosen.size > 0 && html`<${Bulk} rows=${[...chosen.values()]} actions=${bulk} done=${(kept) => setChosen(new Map(kept.map((row) => [rowKey(row), row])))} />`}
      <${Failure} error=${error} />
      ${shown ? html`<${Table} rowKey=${rowKey} columns=${columns.filter(({ label, when }) => !hidden.has(label) && (!when || when(shown.items)))} rows=${shown.items} sorting=${sorting} caption=${caption} empty=${asked.name ? "Nothing of that name." : asked.where ? "None of these." : empty} />` : !error && html`<div class="waiting" />`}
    </div>`;
}

/** Show a column only if its values differ. */
export const several = (key) => (rows) => new Set(rows.map((row) => row[key])).size > 1;

/** Actions for all chosen rows: `actions` are `{label, text(rows), run(row)}`. */
const Bulk = ({ rows, actions, done }) => html`<div class="bulk" role="group" aria-label="What was chosen">
  <span role="status">${format.count(rows.length)} chosen</span>
  ${actions.map(({ label, text, run }) => html`<${Confirm} key=${label} label=${label} title=${`${label} ${format.plural(rows.length, "queue")}?`} text=${text(rows)} submit=${async () => {
    const failed = [];
    for (const row of rows) await run(row).catch((error) => failed.push([row, error]));
    done(failed.map(([row]) => row));
    if (failed.length) throw new Error(`${format.count(rows.length - failed.length)} of ${format.count(rows.length)} done; ${failed[0][0].name}: ${failed[0][1].message}`);
  }} done=${() => tell(`${label}: ${format.plural(rows.length, "queue")}`)} />`)}
  <button type="button" class="quiet" onClick=${() => done([])}>Choose none</button>
</div>`;

/** The last value other than undefined, so that a list stays until its next page has arrived. */
export function useLast(value) {
  const last = useRef(value);
  if (value !== undefined) last.current = value;
  return last.current;
}

function Search({ value, label, onChange, onEnter }) {
  const timer = useRef();
  return html`<input type="search" class="search" placeholder="Search by name  /" aria-label=${label} defaultValue=${value} onKeyDown=${(event) => event.key === "Enter" && onEnter?.()}
    onInput=${(event) => {
      clearTimeout(timer.current);
      const text = event.target.value;
      timer.current = setTimeout(() => onChange(text), 250);
    }} />`;
}

const Pages = ({ page, count }) => count > 1 && html`
  <nav class="pages" aria-label="Pages">
    <button type="button" disabled=${page <= 1} onClick=${() => setQuery({ page: page - 1 })} aria-label="Previous page">‹</button>
    <span>${page} / ${format.count(count)}</span>
    <button type="button" disabled=${page >= count} onClick=${() => setQuery({ page: page + 1 })} aria-label="Next page">›</button>
  </nav>`;

/** A dialog over the page, with the focus kept within; Escape closes it, unless it is `lasting`. */
export function Dialog({ title, onClose, lasting, children }) {
  const dialog = useRef();
  useLayoutEffect(() => {
    dialog.current.showModal();
    (dialog.current.querySelector("input, select, textarea") ?? dialog.current.querySelector("form button"))?.focus();
    return () => dialog.current?.close();
  }, []);
  return html`<dialog ref=${dialog} aria-labelledby="dialog-title" onClose=${onClose} onCancel=${(event) => lasting && event.preventDefault()} onClick=${(event) => !lasting && event.target === dialog.current && onClose()}>
    <div class="dialog">
      <header><h2 id="dialog-title">${title}</h2>${!lasting && html`<button type="button" class="quiet" aria-label="Close this dialog" onClick=${onClose}>✕</button>`}</header>
      ${children}
    </div>
  </dialog>`;
}

/**
 * A form. Fields are `{name, label, type, value, options, hint, required}`; `submit(values)` does it and may throw what the
 * broker says. `done(result)` is called after. Where `warn(values)` gives a text, that is shown first, and the button
 * has to be pressed once more. `danger` and `label` may be functions of the values. A form that is sent `once` can be sent
 * again when a value was changed.
 */
export function Form({ fields, submit, done, label, danger, warn, once, children }) {
  const [values, setValues] = useState(() => Object.fromEntries(fields.map((field) => [field.name, field.value ?? (field.type === "checkbox" ? false : "")])));
  const [state, setState] = useState({ busy: false, error: null, warning: null });
  const set = (name, value) => {
    setValues((before) => ({ ...before, [name]: value }));
    setState({ busy: false, error: null, warning: null });
  };
  const of = (given) => (typeof given === "function" ? given(values) : given);
  const send = async (event) => {
    event.preventDefault();
    const focused = document.activeElement; // which a button loses while it is disabled
    setState((before) => ({ ...before, busy: true, error: null }));
    try {
      const warning = state.warning ? null : await warn?.(values);
      if (warning) {
        setState({ busy: false, error: null, warning });
        return;
      }
      const result = await submit(values);
      setState({ busy: false, error: null, warning: null, isSent: once });
      done?.(result);
    } catch (error) {
      setState({ busy: false, error, warning: null });
      setTimeout(() => document.activeElement === document.body && focused?.focus());
    }
  };
  return html`<form onSubmit=${send}>
    ${fields.filter((field) => !field.when || field.when(values)).map((field) => html`<${Field} key=${field.name} field=${field} value=${values[field.name]} onChange=${(value) => set(field.name, value)} />`)}
    ${typeof children === "function" ? children(values) : children}
    <div class="foot"><${Failure} error=${state.error} />
    ${state.warning && html`<p class="caution" role="alert">${state.warning}</p>`}
    <div class="buttons"><button class=${state.warning || of(danger) ? "danger" : "primary"} disabled=${state.busy || state.isSent}>${state.warning ? `${of(label)} all the same` : of(label)}</button></div></div>
  </form>`;
}

function Field({ field, value, onChange }) {
  const id = `field-${field.name}`;
  const common = { id, name: field.name, required: field.required, "aria-describedby": field.hint ? `${id}-hint` : undefined };
  const change = (event) => onChange(event.target.type === "checkbox" ? event.target.checked : event.target.value);
  let input;
  if (field.type === "select") {
    input = html`<select ...${common} value=${value} onChange=${change}>${field.options.map((option) => html`<option value=${option} selected=${option === value}>${option}</option>`)}</select>`;
  } else if (field.type === "textarea") {
    input = html`<textarea ...${common} rows=${field.rows ?? 4} value=${value} onInput=${change} spellcheck=${false}></textarea>`;
  } else if (field.type === "checkbox") {
    input = html`<input ...${common} type="checkbox" checked=${value} onChange=${change} />`;
  } else {
    input = html`<input ...${common} type=${field.type ?? "text"} min=${field.min} value=${value} onInput=${change} autocomplete=${field.autocomplete ?? "off"} spellcheck=${false} />`;
  }
  return html`<div class="field ${field.type ?? ""}">
    <label for=${id}>${field.label}</label>${input}${field.hint && html`<p class="hint" id=${`${id}-hint`}>${field.hint}</p>`}
  </div>`;
}

/** A button that asks for confirmation first, with the consequences. With `typed`, the user has to type that text. */
export function Confirm({ label, title, text, warn, submit, done, quiet, typed, disabled, children }) {
  const [open, setOpen] = useState(false);
  return html`
    <button type="button" class=${quiet ? "quiet danger" : "danger"} disabled=${disabled} aria-haspopup="dialog" onClick=${() => setOpen(true)}>${label}</button>
    ${open && html`<${Dialog} title=${title} onClose=${() => setOpen(false)}>
      <p>${text}</p>${children}
      <${Form} fields=${typed ? [{ name: "typed", label: `Type ${typed} to go on`, required: true }] : []} label=${label} danger warn=${warn} submit=${async (values) => {
        if (typed && values.typed !== typed) throw new Error(`That is not ${typed}.`);
        return submit(values);
      }} done=${(result) => { setOpen(false); done?.(result); }} />
    <//>`}`;
}

/** A button that opens a form in a dialog. The dialog closes after the submit, unless `stay`; `opened` and `closed` are called. */
export function FormButton({ label, title, fields, submit, done, button = "", send, stay, danger, warn, once, disabled, opened, closed, children }) {
  const [open, setOpen] = useState(false);
  return html`
    <button type="button" class=${button} disabled=${disabled} aria-haspopup="dialog" onClick=${() => { setOpen(true); opened?.(); }}>${label}</button>
    ${open && html`<${Dialog} title=${title ?? label} onClose=${() => { setOpen(false); closed?.(); }}>
      <${Form} fields=${fields} label=${send ?? label} danger=${danger} warn=${warn} once=${once} submit=${submit} done=${(result) => { setOpen(Boolean(stay)); done?.(result); }}>${children}<//>
    <//>`}`;
}

/** Parse an input as JSON; an empty input is an empty object. */
export function jsonOf(text, what) {
  try {
    return text.trim() ? JSON.parse(text) : {};
  } catch {
    throw new Error(`${what} must be JSON, such as {"x-max-length": 1000}`);
  }
}

/** Save a value as a JSON file, by the browser. */
export function download(name, value) {
  const octets = new Blob([JSON.stringify(value, null, 1)], { type: "application/json" });
  const anchor = Object.assign(document.createElement("a"), { href: URL.createObjectURL(octets), download: name });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10000);
}

/** Show a short notice, also to screen readers. */
export function tell(text) {
  const place = document.getElementById("told");
  place.textContent = text;
  place.classList.add("shown");
  clearTimeout(tell.timer);
  tell.timer = setTimeout(() => place.classList.remove("shown"), 4000);
}
