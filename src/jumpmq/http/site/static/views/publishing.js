// Publishing of one message, for a test.

import { path, post } from "../lib/api.js";
import { jsonOf, tell } from "../lib/ui.js";

/** Return the properties of the form that publishes to an exchange. */
export const publishing = (vhost, exchange, key = "") => ({
  title: "Publish a message",
  send: "Publish",
  fields: [
    { name: "routing_key", label: "Routing key", value: key },
    { name: "headers", label: "Headers", type: "textarea", rows: 2, hint: `JSON, such as {"customer": "7"}` },
    { name: "persistent", label: "Persistent", type: "checkbox", value: true },
    { name: "payload", label: "Payload", type: "textarea" },
  ],
  submit: ({ routing_key, headers, persistent, payload }) =>
    post(path("exchanges", vhost, exchange, "publish"), {
      routing_key,
      payload,
      payload_encoding: "string",
      properties: { headers: jsonOf(headers, "Headers"), delivery_mode: persistent ? 2 : 1 },
    }),
  done: ({ routed }) => tell(routed ? "Published to a queue" : "Published, but no queue took the message"),
});
