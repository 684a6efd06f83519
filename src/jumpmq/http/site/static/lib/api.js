// The management API, asked with the page's session.

/** What the broker refused, or that it could not be asked. `status` is 0 where nobody answered. */
export class Refused extends Error {
  constructor(status, reason) {
    super(reason);
    this.status = status;
  }
}

const listeners = new Set();

/** Calls a function whenever a session turns out to have ended. */
export const onSessionEnd = (listener) => listeners.add(listener);

/** A path of the API: parts are percent-encoded, so that any name is one part. */
export const path = (...parts) => "/api/" + parts.map(encodeURIComponent).join("/");

async function ask(method, url, body, signal) {
  let response;
  try {
    response = await fetch(url, {
      method,
      signal,
      headers: { "X-JumpMQ-Page": "1", ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The broker does not answer.");
  }
  const text = await response.text();
  const found = text && response.headers.get("Content-Type")?.includes("json") ? JSON.parse(text) : text;
  if (response.ok) return found;
  const reason = found.reason ?? found.error ?? (text || response.statusText);
  if (response.status === 401 && /Not_Authorized|Login failed/.test(reason)) listeners.forEach((listener) => listener());
  throw new Refused(response.status, reason);
}

const withQuery = (url, query) => {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== "");
  return given.length ? `${url}?${new URLSearchParams(given)}` : url;
};

export const get = (url, query, signal) => ask("GET", withQuery(url, query), undefined, signal);
export const put = (url, body = {}) => ask("PUT", url, body);
export const post = (url, body = {}) => ask("POST", url, body);
export const remove = (url, query) => ask("DELETE", withQuery(url, query));

/** Who is logged in; null where nobody is. */
export const session = () => get("/session").catch((error) => (error.status === 401 ? null : Promise.reject(error)));
export const logIn = (username, password) => post("/session", { username, password });
export const logOut = () => remove("/session");
