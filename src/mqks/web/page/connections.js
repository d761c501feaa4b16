// Who is connected, and who consumes what.

import { polling } from "./api.js";
import { h, section, table, text } from "./dom.js";
import { bytes, count, many, span } from "./format.js";

/** Consumers, of all queues or of one. */
export const consumersTable = (...first) =>
  table(
    "Consumers",
    [
      ...first,
      { label: "Consumer", class: "name", make: (row) => ({ node: h("code", {}, row.id) }) },
      { label: "From", class: "from", cell: (row) => row.client },
      { label: "Ack", cell: (row) => (row.manual_ack ? "manual" : "automatic") },
      { label: "Unacked", number: true, cell: (row) => count(row.unacked) },
      {
        label: "Prefetch",
        number: true,
        cell: (row) => (row.paused ? "paused" : row.prefetch ? count(row.prefetch) : "no limit"),
      },
      { label: "Delivered", number: true, cell: (row) => count(row.delivered) },
    ],
    (row) => `${row.client} ${row.id}`,
  );

const toQueue = {
  label: "Queue",
  class: "name",
  make: (row) => ({ node: h("a", { href: `#/queue/${row.key}` }, row.queue) }),
};

function makeClient(row) {
  const why = h("span", { class: "why" });
  return {
    node: h("span", { "data-level": "trouble" }, h("code", {}, row.client), " ", why),
    update: (told) => text(why, told.why ?? ""),
  };
}

export function connections() {
  const said = h("p", { class: "quiet" });
  const wrong = h("p", { class: "bad", role: "status" });
  const consumers = consumersTable(toQueue);
  const clients = table(
    "Connections",
    [
      { label: "From", class: "name", make: makeClient },
      { label: "Since", cell: (row) => `${span(row.since)} ago` },
      { label: "Consumers", number: true, cell: (row) => count(row.consumers) },
      { label: "Waits to be read", number: true, cell: (row) => bytes(row.pending) },
      { label: "Received", number: true, cell: (row) => bytes(row.received) },
      { label: "Sent", number: true, cell: (row) => bytes(row.sent) },
    ],
    (row) => row.client,
  );
  const parts = [
    ["consumers", "Consumers", consumers, "Nobody consumes."],
    ["clients", "Connections", clients, "Nobody is connected."],
  ];
  const sections = parts.map(([id, label, made]) => {
    const cut = h("small");
    const node = section(id, [label, " ", cut], made.node);
    return { node, cut };
  });
  const polls = parts.map(([, label, made, none], index) =>
    polling(
      `/api/${label.toLowerCase()}`,
      2,
      (answer) => {
        const rows = answer[label.toLowerCase()];
        made.update(rows, none);
        const cut = answer.total > rows.length;
        text(sections[index].cut, cut ? `the first ${count(rows.length)} of ${count(answer.total)}` : "");
        text(wrong, "");
      },
      (error) => text(wrong, `These are old: ${error.message}`),
    ),
  );
  return {
    title: "Connections",
    node: h(
      "div",
      { class: "view" },
      h("h1", { tabindex: -1 }, "Connections"),
      said,
      wrong,
      sections.map((section) => section.node),
    ),
    update({ state: { totals } }) {
      const words = [many(totals.connections, "connection"), many(totals.consumers, "consumer")];
      if (totals.refused) words.push(`${many(totals.refused, "client")} refused since the start`);
      text(said, `${words.join(", ")}.`);
    },
    close: () => polls.forEach((poll) => poll.close()),
  };
}
