// Hooks that poll the broker, and the address of the view.

import { useCallback, useEffect, useState } from "../vendor/htm-preact.js";

/**
 * The latest answer of `ask`, which is given an AbortSignal, asked every `seconds` while the page is seen.
 * Returns `{data, at, error, again}`, `at` being when the data came, in milliseconds; after an error the last data stays.
 */
export function useLive(ask, seconds, keys) {
  const [state, setState] = useState({ data: undefined, error: null });
  const [round, setRound] = useState(0);
  const again = useCallback(() => setRound((number) => number + 1), []);
  useEffect(() => setState({ data: undefined, error: null }), keys);
  useEffect(() => {
    const aborting = new AbortController();
    let timer;
    const next = async () => {
      if (!document.hidden) {
        try {
          const data = await ask(aborting.signal);
          if (!aborting.signal.aborted) setState({ data, at: Date.now(), error: null });
        } catch (error) {
          if (!aborting.signal.aborted) setState((before) => ({ ...before, error }));
        }
      }
      if (!aborting.signal.aborted && seconds) timer = setTimeout(next, seconds * 1000);
    };
    next();
    return () => {
      aborting.abort();
      clearTimeout(timer);
    };
  }, [...keys, round]);
  return { ...state, again };
}

/** The address behind `#`: `parts` of its path, decoded, and its `query` as an object. */
export function readAddress() {
  const [place, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = place.split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { parts, query: Object.fromEntries(new URLSearchParams(query)) };
}

/** Query parameters in the address of every view, by name: how to read and set each. A shared link shows the same. */
const carried = new Map();

/** Add the value of `read()` to the query of each address, unless ""; call `write` for an address with another value. */
export function carry(name, read, write) {
  carried.set(name, { read, write });
}

/** Synchronize the address and the carried values; to be called before the first drawing. */
export function settleAddress() {
  const { parts, query } = readAddress();
  let isShort = false;
  for (const [name, { read, write }] of carried) {
    if (name in query) {
      if (query[name] !== read()) write(query[name]);
    } else if (read()) {
      query[name] = read();
      isShort = true;
    }
  }
  if (isShort) history.replaceState(null, "", `${link(...parts)}?${new URLSearchParams(query)}`);
}
addEventListener("hashchange", settleAddress);

export function useAddress() {
  const [address, setAddress] = useState(readAddress);
  useEffect(() => {
    const follow = () => setAddress(readAddress());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return address;
}

/** The address of a view: `link("queues", vhost, name)`. */
export const link = (...parts) => "#/" + parts.map(encodeURIComponent).join("/");

/** Replace values in the query of the address, without a new entry in the history. */
export function setQuery(changes) {
  const { parts, query } = readAddress();
  const given = Object.entries({ ...query, ...changes }).filter(([, value]) => value !== "" && value != null);
  history.replaceState(null, "", link(...parts) + (given.length ? `?${new URLSearchParams(given)}` : ""));
  dispatchEvent(new HashChangeEvent("hashchange"));
}
