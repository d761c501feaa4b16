// One queue: its figures, where its messages come from and go to, which are next, and its end.

import { polling, remove, send } from "./api.js";
import { consumersTable } from "./connections.js";
import { PLAIN, attribute, each, figures, h, section, text } from "./dom.js";
import { count, many, rate, span, visible } from "./format.js";
import { live } from "./live.js";
import { messageRow } from "./message.js";
import { lines } from "./plots.js";
import { may } from "./session.js";

const NAMES = {
  in_rate: "In/s",
  out_rate: "Out/s",
  ready: "Ready",
  unacked: "Unacked",
  age: "Oldest",
  retries: "Retries",
  consumers: "Consumers",
};
const SINCE = { published: "Published", delivered: "Delivered", acked: "Acked", rejected: "Rejected", dropped: "Dropped" };
const PEEK = 20;
const ON_ITS_WAY = 1500; // ms: a state that was made before the queue's end may come after it

/** Asks for the queue's name before `act` is done; what it answers, or what went wrong, is said in `said`. */
function confirming(name, verb, warning, act, said) {
  const typed = h("input", {
    id: "typed",
    ...PLAIN,
    oninput: () => (press.disabled = ![name, visible(name)].includes(typed.value)),
  });
  const press = h("button", { class: "danger", disabled: true }, verb);
  const dialog = h(
    "dialog",
    { "aria-labelledby": "confirm-title", onclose: () => dialog.remove() },
    h("h2", { id: "confirm-title" }, `${verb} `, h("code", {}, name), "?"),
    h("p", {}, warning),
    h(
      "form",
      { onsubmit: submit },
      h("label", { for: "typed" }, "Type the queue’s name to confirm"),
      typed,
      h(
        "p",
        { class: "buttons" },
        press,
        h("button", { type: "button", onclick: () => dialog.close() }, "Leave it as it is"),
      ),
    ),
  );

  async function submit(event) {
    event.preventDefault();
    press.disabled = true;
    said.className = "";
    try {
      text(said, await act());
    } catch (error) {
      said.className = "bad";
      text(said, error.message);
    }
    dialog.close();
  }

  document.body.append(dialog);
  dialog.showModal();
}

export function queue([key]) {
  const path = `/api/queues/${key}`;
  let name = decodeText(key);
  let waiting = 0;

  const heading = h("code", {}, name);
  const why = h("p", { class: "why" });
  const said = h("p", { role: "status" });
  const now = figures(NAMES, "figures large");
  const sofar = figures(SINCE);
  const speed = lines("In and out, per second", { in: "in", out: "out" });
  const depth = lines("Ready", { ready: "waiting" });
  const events = h("ul", { class: "names" });
  const others = h("p", { class: "quiet" });
  const pattern = h("pre", { hidden: true });
  const life = h("p", { class: "quiet" });
  const consumers = consumersTable();
  const next = h("ol", { class: "messages", "aria-label": "The next messages" });
  const peeked = h("p", { class: "quiet" });
  const danger = (verb, warning, act) =>
    h(
      "button",
      { type: "button", class: "danger", onclick: () => confirming(name, verb, warning(), act, said) },
      `${verb} …`,
    );
  const purge = danger(
    "Purge",
    () => `${many(waiting, "message")} that wait in it will be gone. What consumers have and did not ack stays theirs.`,
    async () => {
      const { purged } = await send(`${path}/purge`);
      polls.forEach((poll) => poll.again());
      return `${many(purged, "message")} purged.`;
    },
  );
  const drop = danger(
    "Delete",
    () => "The queue, its subscriptions and all its messages will be gone. Its consumers get nothing more.",
    async () => {
      await remove(path);
      end();
      return "Deleted.";
    },
  );

  const ending = section("end", "The end of it", h("p", { class: "buttons" }, purge, drop));
  const content = h("div", { hidden: true });
  const node = h(
    "div",
    { class: "view" },
    h("p", { class: "back" }, h("a", { href: "#/" }, "← All queues")),
    h("h1", { tabindex: -1 }, heading),
    why,
    said,
    content,
  );
  content.append(
    now.node,
    h("div", { class: "pair" }, speed.node, depth.node),
    h(
      "div",
      { class: "pair" },
      section("from", "Events", events, others, pattern, life),
      section("sofar", "Since the start", sofar.node),
    ),
    section("to", "Consumers", consumers.node),
    may("history")
      ? section("next", ["Next messages ", h("small", {}, "looking takes nothing")], peeked, next)
      : "",
    ending,
  );

  function show(row) {
    attribute(node, "data-level", row.level);
    text(why, row.why ?? "");
    waiting = row.ready;
    now.update({
      in_rate: rate(row.in_rate),
      out_rate: rate(row.out_rate),
      ready: count(row.ready),
      unacked: count(row.unacked),
      age: span(row.age),
      retries: count(row.retries),
      consumers: count(row.consumers),
    });
    sofar.update(Object.fromEntries(Object.keys(SINCE).map((name) => [name, count(row[name])])));
  }

  function tell(answer) {
    name = answer.name;
    content.hidden = false;
    ending.hidden = !answer.may_manage;
    text(heading, name);
    show(answer);
    each(events, answer.all_events, (event) => event, makeEvent);
    const hidden = answer.event_count - answer.all_events.length;
    text(others, hidden > 0 ? `and ${count(hidden)} more` : "");
    pattern.hidden = answer.pattern == null;
    text(pattern, answer.pattern ?? "");
    text(
      life,
      answer.delete_when_unused == null ? "" : `Deleted after ${span(answer.delete_when_unused)} without consumers.`,
    );
    consumers.update(answer.consumers_list, "Nobody consumes it.");
    const { spark } = answer;
    const { step } = live.spark;
    const speeds = ["in", "out"].map((way) => ({ name: way, values: spark[way], now: answer[`${way}_rate`] }));
    speed.update(speeds, step, "/s");
    depth.update([{ name: "ready", values: spark.ready, now: answer.ready }], step);
  }

  function peek(answer) {
    const list = answer.messages;
    waiting = answer.ready;
    each(next, list, (message) => `${message.position} ${message.retry}`, messageRow);
    text(
      peeked,
      list.length
        ? waiting > list.length
          ? `The first ${count(list.length)} of ${count(waiting)}.`
          : ""
        : waiting
          ? "What waits cannot be read now."
          : "Nothing waits.",
    );
  }

  let polls = [];
  let ended = NaN;

  function begin() {
    const failed = (place, words) => (error) => {
      if (error.status !== 404) return text(place, words + error.message);
      end();
      text(why, "There is no such queue (any more).");
    };
    polls = [polling(path, 2, tell, failed(why, ""))];
    if (may("history"))
      polls.push(polling(`${path}/messages?limit=${PEEK}`, 3, peek, failed(peeked, "This list is old: ")));
  }

  function close() {
    polls.forEach((poll) => poll.close());
    polls = [];
  }

  /** It is gone, and so are its figures. */
  function end() {
    close();
    ended = Date.parse(live.state?.time);
    content.hidden = true;
    text(why, "");
  }

  begin();
  return {
    get title() {
      return `Queue ${name}`;
    },
    node,
    update({ state }) {
      const row = state.queues.find((one) => one.key === key);
      if (row && polls.length) show(row);
      else if (row && Date.parse(state.time) - ended > ON_ITS_WAY) begin(); // it is there again
    },
    close,
  };
}

function makeEvent(event) {
  if (event.endsWith("…")) return { node: h("li", {}, h("code", {}, event)), update() {} }; // only its beginning is told
  const key = encodeURIComponent(event);
  const link = (verb, right, href) =>
    may(right) ? [" ", h("a", { href, "aria-label": `${verb} ${event}` }, verb.toLowerCase())] : [];
  return {
    node: h(
      "li",
      {},
      h("code", {}, event),
      link("Watch", "history", `#/tail?mask=${key}`),
      link("Publish", "publish", `#/publish?event=${key}`),
    ),
    update() {},
  };
}

/** The name in a key, until the broker tells it: a name need not be UTF-8. */
function decodeText(key) {
  try {
    return decodeURIComponent(key);
  } catch {
    return key;
  }
}
