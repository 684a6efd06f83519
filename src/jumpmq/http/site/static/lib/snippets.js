// Readable forms of payloads, and messages as programs of a client.

/** JSON with line breaks and indents, with unchanged numbers and strings; null for other text. */
export function formatted(text) {
  try {
    if (typeof JSON.parse(text) !== "object") return null;
  } catch {
    return null;
  }
  let depth = 0, found = "";
  const line = () => "\n" + "  ".repeat(depth);
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{[]\s*[}\]]|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    if (token === "{" || token === "[") {
      depth++;
      found += token + line();
    } else if (token === "}" || token === "]") {
      depth--;
      found += line() + token;
    } else if (token === ",") found += token + line();
    else found += token === ":" ? ": " : /^[{[]/.test(token) ? token.replace(/\s/g, "") : token;
  }
  return found;
}

const octetsOf = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));

/** Maximum number of shown octets after decompression, and in hexadecimal: a small payload may become large. */
const DECODED = 200000, IN_HEX = 16384;

/** Return the compression of a payload that is no text: "gzip" or "deflate", from the publisher's property or the first octets; else null. */
export function packingOf({ payload, payload_encoding: encoding }, said) {
  if (encoding !== "base64") return null;
  if (said === "gzip" || said === "deflate") return said;
  return payload.startsWith("H4sI") ? "gzip" : null;
}

/** A decompressed payload as text, JSON with line breaks, with a note on its form: `{text, note, dumped}`. */
export async function unpacked(base64, packing) {
  const reader = new Blob([octetsOf(base64)]).stream().pipeThrough(new DecompressionStream(packing)).getReader();
  const parts = [];
  let size = 0;
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      parts.push(value);
      size += value.length;
      if (size > DECODED) break;
    }
  } catch {
    throw new Error(`The payload is not ${packing}, or not whole.`);
  }
  const cut = size > DECODED;
  if (cut) reader.cancel().catch(() => {});
  const octets = new Uint8Array(await new Blob(parts).arrayBuffer()).slice(0, DECODED);
  const note = `decompressed (${packing})${cut ? `, the first ${DECODED.toLocaleString("en")} octets` : `, ${size.toLocaleString("en")} octets`}`;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(octets, { stream: cut }); // a letter may be cut in two
    return { text: formatted(text) ?? text, note };
  } catch {
    return { text: dump(octets), dumped: true, note: `${note}, not UTF-8: in hexadecimal` };
  }
}

/** A payload in hexadecimal, with its characters beside: `{text, note, dumped}`. */
export function hexOf(base64) {
  const octets = octetsOf(base64);
  return { text: dump(octets), dumped: true, note: octets.length > IN_HEX ? `the first ${IN_HEX.toLocaleString("en")} octets in hexadecimal` : "in hexadecimal" };
}

function dump(octets) {
  const lines = [];
  for (let start = 0; start < Math.min(octets.length, IN_HEX); start += 16) {
    const some = [...octets.subarray(start, start + 16)];
    const hex = some.map((one) => one.toString(16).padStart(2, "0")).join(" ");
    lines.push(`${start.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${some.map((one) => (one > 31 && one < 127 ? String.fromCharCode(one) : ".")).join("")}`);
  }
  return lines.join("\n");
}

/** A JSON value as a Python literal. */
function python(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([key, inner]) => `${python(key)}: ${python(inner)}`).join(", ")}}`;
  return JSON.stringify(value);
}

/** A Python program that publishes a message once more, with pika. */
export function withPika({ exchange, routing_key: key, properties, payload, payload_encoding: encoding }) {
  const binary = encoding === "base64";
  const given = Object.entries(properties).map(([name, value]) => `${name}=${python(value)}`);
  return [
    ...(binary ? ["import base64"] : []), "import os", "", "import pika", "",
    `connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))`,
    "channel = connection.channel()",
    "channel.basic_publish(",
    `    exchange=${python(exchange)},`,
    `    routing_key=${python(key)},`,
    `    body=${binary ? `base64.b64decode(${python(payload)})` : `${python(payload)}.encode()`},`,
    `    properties=pika.BasicProperties(${given.join(", ")}),`,
    ")",
    "connection.close()", "",
  ].join("\n");
}
