// Which view is at which address.

import { Channel, Channels } from "./channels.js";
import { Connection, Connections } from "./connections.js";
import { Consumers } from "./consumers.js";
import { Definitions } from "./definitions.js";
import { Hosts } from "./hosts.js";
import { Exchange, Exchanges } from "./exchanges.js";
import { Group, Groups } from "./groups.js";
import { Limits } from "./limits.js";
import { Log } from "./log.js";
import { Node, Nodes } from "./nodes.js";
import { Overview } from "./overview.js";
import { Permissions } from "./permissions.js";
import { Policies } from "./policies.js";
import { Queue, Queues } from "./queues.js";
import { Readers } from "./readers.js";
import { Ring, Rings } from "./rings.js";
import { Shards, ShardsOf } from "./shards.js";
import { Users } from "./users.js";
import { WhatIf, WhatIfOf } from "./what_if.js";
import { Why } from "./why.js";
import { Empty, Failure, html, Page, useEffect, useState } from "../lib/ui.js";

const Nowhere = () => html`<${Page} title="Nothing is here"><${Empty}>There is no view at this address.<//><//>`;

/** A view whose module is loaded when it is opened first: large, and not for every visit. */
function later(load, name, title) {
  return function Later(given) {
    const [loaded, setLoaded] = useState({});
    useEffect(() => { load().then((module) => setLoaded({ View: module[name] }), (error) => setLoaded({ error })); }, []);
    useEffect(() => { if (loaded.View) document.getElementById("title")?.focus({ preventScroll: true }); }, [loaded]);
    if (loaded.View) return html`<${loaded.View} ...${given} />`;
    return html`<${Page} title=${given.name ?? title}><${Failure} error=${loaded.error} /><//>`;
  };
}

const flow = () => import("./flow.js");
const messages = () => import("./messages.js");

/** Lists, and the view of one thing in a virtual host. */
const VIEWS = {
  queues: [Queues, Queue, "Queues"],
  messages: [null, later(messages, "Messages", "Messages"), "Messages"],
  exchanges: [Exchanges, Exchange, "Exchanges"],
  flow: [later(flow, "Flows", "Flow"), later(flow, "Flow", "Flow"), "Flow"],
  rings: [Rings, Ring, "Rings"],
  "what-if": [WhatIf, WhatIfOf, "What if"],
  shards: [Shards, ShardsOf, "Shards"],
  connections: [Connections, Connection, "Connections"],
  channels: [Channels, Channel, "Channels"],
  consumers: [Consumers, null, "Consumers"],
  nodes: [Nodes, Node, "Nodes"],
  groups: [Groups, Group, "Consumer groups"],
  why: [null, Why, "Deliveries"],
  readers: [Readers, null, "Readers and streams"],
  vhosts: [Hosts, null, "Virtual hosts"],
  users: [Users, null, "Users"],
  permissions: [Permissions, null, "Permissions"],
  policies: [Policies, null, "Policies"],
  limits: [Limits, null, "Limits"],
  definitions: [Definitions, null, "Definitions"],
  log: [Log, null, "Log"],
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
