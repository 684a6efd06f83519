// Views by address.

import { Consumers } from "./consumers.js";
import { Hosts } from "./hosts.js";
import { Overview } from "./overview.js";
import { Queue, Queues } from "./queues.js";
import { Empty, Failure, html, Page, useEffect, useState } from "../lib/ui.js";

const Nowhere = () => html`<${Page} title="Nothing is here"><${Empty}>There is no view at this address.<//><//>`;

/** A view with a large module, loaded when first opened. */
function later(load, name, title) {
  return function Later(given) {
    const [loaded, setLoaded] = useState({});
    useEffect(() => { load().then((module) => setLoaded({ View: module[name] }), (error) => setLoaded({ error })); }, []);
    useEffect(() => { if (loaded.View) document.getElementById("title")?.focus({ preventScroll: true }); }, [loaded]);
    if (loaded.View) return html`<${loaded.View} ...${given} />`;
    return html`<${Page} title=${given.name ?? title}><${Failure} error=${loaded.error} /><//>`;
  };
}

const key = () => import("./key.js");
const shards = () => import("./shards.js");
const log = () => import("./log.js");
const rings = () => import("./rings.js");
const whatIf = () => import("./what_if.js");
const why = () => import("./why.js");
const flow = () => import("./flow.js");
const messages = () => import("./messages.js");
const channels = () => import("./channels.js");
const connections = () => import("./connections.js");
const exchanges = () => import("./exchanges.js");
const help = () => import("./help.js");
const definitions = () => import("./definitions.js");
const groups = () => import("./groups.js");
const limits = () => import("./limits.js");
const nodes = () => import("./nodes.js");
const permissions = () => import("./permissions.js");
const policies = () => import("./policies.js");
const readers = () => import("./readers.js");
const users = () => import("./users.js");

/** Views of lists, and of one object in a virtual host. */
const VIEWS = {
  queues: [Queues, Queue, "Queues"],
  messages: [null, later(messages, "Messages", "Messages"), "Messages"],
  exchanges: [later(exchanges, "Exchanges", "Exchanges"), later(exchanges, "Exchange", "Exchange"), "Exchanges"],
  flow: [later(flow, "Flows", "Flow"), later(flow, "Flow", "Flow"), "Flow"],
  rings: [later(rings, "Rings", "Rings"), later(rings, "Ring", "Ring"), "Rings"],
  key: [null, later(key, "Key", "Key"), "Key"],
  "what-if": [later(whatIf, "WhatIf", "What if"), later(whatIf, "WhatIfOf", "What if"), "What if"],
  shards: [later(shards, "Shards", "Shards"), later(shards, "ShardsOf", "Shards"), "Shards"],
  connections: [later(connections, "Connections", "Connections"), later(connections, "Connection", "Connection"), "Connections"],
  channels: [later(channels, "Channels", "Channels"), later(channels, "Channel", "Channel"), "Channels"],
  consumers: [Consumers, null, "Consumers"],
  nodes: [later(nodes, "Nodes", "Nodes"), later(nodes, "Node", "Node"), "Nodes"],
  groups: [later(groups, "Groups", "Consumer groups"), later(groups, "Group", "Consumer group"), "Consumer groups"],
  why: [null, later(why, "Why", "Deliveries"), "Deliveries"],
  readers: [later(readers, "Readers", "Readers and streams"), null, "Readers and streams"],
  vhosts: [Hosts, null, "Virtual hosts"],
  users: [later(users, "Users", "Users"), null, "Users"],
  permissions: [later(permissions, "Permissions", "Permissions"), null, "Permissions"],
  policies: [later(policies, "Policies", "Policies"), null, "Policies"],
  limits: [later(limits, "Limits", "Limits"), null, "Limits"],
  definitions: [later(definitions, "Definitions", "Definitions"), null, "Definitions"],
  help: [later(help, "Help", "Help"), null, "Help"],
  log: [later(log, "Log", "Log"), null, "Log"],
};

/** The view of an address: `{View, title, vhost, name, names}`; connections and channels have only a name. */
export function viewOf([place, ...names]) {
  if (!place) return { View: Overview, title: "Overview" };
  const [List, One, title] = VIEWS[place] ?? [];
  if (List && !names.length) return { View: List, title };
  if (One && names.length) {
    const name = names.at(-1);
    return { View: One, title: name, name, names, vhost: names.length > 1 ? names[0] : undefined };
  }
  return { View: Nowhere, title: "Nothing is here" };
}
