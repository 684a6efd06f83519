// Requests to the management API, with the page's session.

/** A refused or unanswered request; `status` is 0 without an answer. */
export class Refused extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

const listeners = new Set();

/** Number of logins, to ignore answers to requests of an earlier session. */
let logins = 0;

/** Time of the broker's last answer, in milliseconds; `answers` is false if the last request had no answer. */
export const heard = { at: Date.now(), answers: true };

/** Call a function when a request finds the session ended. */
export const onSessionEnd = (listener) => listeners.add(listener);

/**
 * A path of the API: parts are percent-encoded, so that any name is one part. Browsers take "." and ".." out of a path
 * even so: what has such a name is asked for with the path as a query.
 */
export const path = (...parts) => {
  const encoded = "/api/" + parts.map(encodeURIComponent).join("/");
  return parts.some((part) => part === "." || part === "..") ? `/api/-?path=${encodeURIComponent(encoded)}` : encoded;
};

/** A path below another path. */
export const below = (url, ...parts) => {
  const more = parts.map((part) => "/" + encodeURIComponent(part)).join("");
  return url + (url.includes("?") ? encodeURIComponent(more) : more);
};

/** RabbitMQ's refusals for a missing tag, each with the tag. */
const TAGS = { "Not management user": "management", "Not monitor user": "monitoring", "Not policymaker user": "policymaker", "Not administrator user": "administrator" };

/** Timeout of a GET in milliseconds. Requests that change something have no timeout. */
const PATIENCE = 15000;

async function ask(method, url, body, given) {
  const signals = [...(given ? [given] : []), ...(method === "GET" ? [AbortSignal.timeout(PATIENCE)] : [])];
  const signal = signals.length > 1 ? AbortSignal.any(signals) : signals[0];
  const asked = logins;
  let response, text;
  try {
    response = await fetch(new URL(url, location.origin), { // without a user and password of the page's own address
      method,
      signal,
      headers: { "X-JumpMQ-Page": "1", ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (error.name === "TimeoutError") throw new Refused(0, `No answer within ${PATIENCE / 1000} s: what is shown here is old. Asking again.`);
    heard.answers = false;
    throw new Refused(0, "The broker does not answer.");
  }
  heard.at = Date.now();
  heard.answers = true;
  const found = text && response.headers.get("Content-Type")?.includes("json") ? JSON.parse(text) : text;
  if (response.ok) return found;
  const reason = found.reason ?? found.error ?? (text || response.statusText);
  if (response.status === 401 && asked === logins && /Not_Authorized|Login failed/.test(reason)) listeners.forEach((listener) => listener());
  const tag = TAGS[reason];
  throw new Refused(response.status, tag ? `Your user may not do this. An administrator can give it the tag ${tag}.` : reason);
}

const withQuery = (url, query) => {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== "");
  return given.length ? `${url}${url.includes("?") ? "&" : "?"}${new URLSearchParams(given)}` : url;
};

export const get = (url, query, signal) => ask("GET", withQuery(url, query), undefined, signal);
export const put = (url, body = {}) => ask("PUT", url, body);
export const post = (url, body = {}) => ask("POST", url, body);
export const remove = (url, query) => ask("DELETE", withQuery(url, query));

/** The logged-in user; null without a login. */
export const session = () => get("/session").catch((error) => (error.status === 401 ? null : Promise.reject(error)));
export const logIn = async (username, password) => {
  const user = await post("/session", { username, password });
  logins += 1;
  return user;
};
export const logOut = () => remove("/session");
