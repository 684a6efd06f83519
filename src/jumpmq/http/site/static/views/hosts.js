// Virtual hosts: the list, and the names for forms.

import { get, path, put, remove } from "../lib/api.js";
import * as format from "../lib/format.js";
import { chooseHost, useHost } from "../lib/host.js";
import { link, useLive } from "../lib/live.js";
import { Confirm, Failure, FormButton, html, Mark, Page, Spark, Table, tell, useEffect, usePerson, useState } from "../lib/ui.js";

/** The names of all virtual hosts, the selected one first. */
export function useHosts() {
  const [hosts, setHosts] = useState(["/"]);
  const chosen = useHost();
  useEffect(() => {
    get("/api/vhosts", { columns: "name" }).then((found) => setHosts(found.map(({ name }) => name)), () => {});
  }, []);
  return hosts.includes(chosen) ? [chosen, ...hosts.filter((one) => one !== chosen)] : hosts;
}

/** Time span of the lines in the list, and distance of their points, in seconds. */
const AGE = 300, APART = 10;

/** Kinds of queue that clients declare. */
export const KINDS = ["classic", "quorum", "stream"];

export function Hosts() {
  const person = usePerson();
  const may = person.may("administrator");
  const chosen = useHost();
  const { data, error, again } = useLive((signal) => get("/api/vhosts", { lengths_age: AGE, lengths_incr: APART }, signal), 5, []);
  const add = ({ name, description, default_queue_type }) => put(path("vhosts", name), { description, default_queue_type });
  const rate = (one, what) => format.rate(one.message_stats[`${what}_details`]?.rate);
  const show = (host) => () => {
    chooseHost(host);
    location.hash = link("queues");
  };
  return html`<${Page} title="Virtual hosts" about="vhosts" actions=${may && html`<${FormButton} label="Add a virtual host" button="primary" send="Add" submit=${add} done=${() => { again(); tell("Virtual host added"); }} fields=${[
      { name: "name", label: "Name", required: true },
      { name: "description", label: "Description" },
      { name: "default_queue_type", label: "Default type of queue", type: "select", options: KINDS, value: "classic" },
    ]} />`}>
    <${Failure} error=${error} />
    ${data && html`<${Table} caption="Virtual hosts" rows=${data} rowKey=${(one) => one.name} columns=${[
      { label: "Name", class: "name", render: (one) => html`<button type="button" class="quiet" aria-pressed=${String(one.name === chosen)} onClick=${show(one.name)}>${one.name}</button>` },
      { label: "Description", key: "description", minor: true },
      { label: "Ready", num: true, render: (one) => format.count(one.backlog.ready) },
      { label: "Unacked", num: true, render: (one) => format.count(one.backlog.unacknowledged) },
      { label: "Over time", render: (one) => html`<${Spark} values=${samplesOf(one)} label=${`Messages in ${one.name} over the last minutes`} />` },
      { label: "Published /s", num: true, render: (one) => rate(one, "publish") },
      { label: "Acked /s", num: true, render: (one) => rate(one, "ack") },
      { label: "", render: (one) => one.tracing && html`<${Mark} state="warning">traced<//>` },
      { label: "", class: "end", render: (one) => may && html`<${Trace} host=${one} done=${again} /> <${Confirm} quiet label="Delete" typed=${one.name === "/" ? one.name : null} title=${`Delete ${one.name}?`} text=${`Deletes everything in the virtual host: queues with ${format.plural(one.messages, "message")}, exchanges, policies and permissions. Connections to the virtual host are closed.`} submit=${() => remove(path("vhosts", one.name))} done=${() => { if (one.name === chosen) chooseHost(""); again(); tell("Virtual host deleted"); }} />` },
    ]} />`}
  <//>`;
}

/** Start or stop the trace of a virtual host: copies of all its messages. */
function Trace({ host: { name, tracing }, done }) {
  return html`<${Confirm} quiet label=${tracing ? "Stop trace" : "Trace"} title=${tracing ? `Stop tracing ${name}?` : `Trace ${name}?`}
    text=${tracing ? "Messages are no longer copied." : "A copy of every message that is published or delivered goes to the exchange amq.rabbitmq.trace, by publish.EXCHANGE and deliver.QUEUE: bind a queue there. It costs throughput, and who may read that queue sees all messages."}
    submit=${() => put(path("vhosts", name), { tracing: !tracing })} done=${() => { done(); tell(tracing ? "Trace stopped" : "Traced"); }} />`;
}

/** The API's samples of an object's message count, oldest first. */
export const samplesOf = (one) => one.messages_details?.samples?.map(({ sample }) => sample).reverse();
