// Payloads as they are read best, and messages as what a client would write.

/** JSON with line breaks and indents, its numbers and strings as they were; null for what is no JSON. */
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

/** A value of JSON as Python writes it. */
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
