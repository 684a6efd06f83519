// Readable forms of numbers, sizes and times.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const count = (value) => (value == null ? "–" : whole.format(value));

/** 1,234 below a hundred thousand, then 123k and 1.2M. */
export function short(value) {
  if (value == null) return "–";
  if (Math.abs(value) < 1e5) return whole.format(value);
  if (Math.abs(value) < 1e6) return `${Math.round(value / 1e3)}k`;
  return value < 1e9 ? `${(value / 1e6).toFixed(1)}M` : `${(value / 1e9).toFixed(1)}G`;
}

/** A clause of the broker as a sentence. */
export const sentence = (text) => text.replace(/^./, (first) => first.toUpperCase()) + (/[.!?]$/.test(text) ? "" : ".");

/** Messages per second. */
export const rate = (value) => (value == null ? "–" : value && value < 10 ? value.toFixed(1) : short(value));

export function octets(value) {
  if (value == null) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  for (; value >= 1000 && unit < 4; unit++) value /= 1000;
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function percent(share) {
  if (share == null) return "–";
  const value = share * 100;
  return `${value && value < 10 ? value.toFixed(1) : Math.round(value)} %`;
}

/** A probability: 0.43, or < 0.0001. */
export const probability = (value) => (value == null ? "–" : value < 1e-4 ? "< 0.0001" : value.toFixed(4));

/** A span of time in its two largest units. */
export function span(seconds) {
  if (seconds == null) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** An approximate span of time, in one unit. */
export function about(seconds) {
  const [size, unit] = seconds < 90 ? [1, "s"] : seconds < 5400 ? [60, "min"] : seconds < 172800 ? [3600, "h"] : [86400, "d"];
  return `${Math.max(1, Math.round(seconds / size))} ${unit}`;
}

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
/** A time of day, with the date if not today. */
export const since = (seconds) => (new Date(seconds * 1000).toDateString() === new Date().toDateString() ? clock(seconds) : moment(seconds));
export const moment = (seconds) => new Date(seconds * 1000).toLocaleString([], { hour12: false });

/** A value of AMQP as text: strings as they are, all else as JSON. */
export const plain = (value) => (typeof value === "string" ? value : JSON.stringify(value));

/** Invisible characters, and characters that change the direction of text. */
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** A name; with invisible characters or blanks at its ends, in quotes with \u escapes. */
export const name = (text) => (text === text.trim() && text && !text.match(UNSEEN) ? text : `"${text.replace(UNSEEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`)}"`);

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** A channel, by the client's name of its connection, if any, and its number. */
export const channel = ({ name, number }, { user_provided_name: provided }) => (provided ? `${provided} (${number})` : name);
