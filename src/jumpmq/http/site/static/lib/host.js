// The page's virtual host, selected in the page's head: lists show only objects in it.

import { path } from "./api.js";
import { carry, setQuery } from "./live.js";
import { useEffect, useState } from "../vendor/htm-preact.js";

const KEPT = "jumpmq.vhost";
const CHANGED = "hostchange";

/** The selected virtual host, "" for all. Each browser window has its own selection, which is part of every address. */
export const chosenHost = () => sessionStorage.getItem(KEPT) ?? "";

export function chooseHost(host) {
  keep(host);
  setQuery({ vhost: host });
}

function keep(host) {
  if (host) sessionStorage.setItem(KEPT, host);
  else sessionStorage.removeItem(KEPT);
  dispatchEvent(new Event(CHANGED));
}

carry("vhost", chosenHost, keep);

export function useHost() {
  const [host, setHost] = useState(chosenHost);
  useEffect(() => {
    const follow = () => setHost(chosenHost());
    addEventListener(CHANGED, follow);
    return () => removeEventListener(CHANGED, follow);
  }, []);
  return host;
}

/** Return the path of a list of one virtual host, given the path of the list of all virtual hosts. */
export function listOf(url, host) {
  if (!host) return url;
  const kind = url.replace("/api/", "");
  return kind === "connections" || kind === "channels" ? path("vhosts", host, kind) : path(kind, host);
}
