// The table of queues: in the order of trouble, or by a column; a box to find some by name.

import { PLAIN, attention, attribute, each, h, text } from "./dom.js";
import { count, many, rate, span } from "./format.js";
import { ask } from "./api.js";
import { sparkline } from "./plots.js";

const COLUMNS = [
  { name: "name", label: "Queue" },
  { name: "in_rate", label: "In/s", show: rate },
  { name: "out_rate", label: "Out/s", show: rate },
  { name: "ready", label: "Ready", show: count },
  { name: "unacked", label: "Unacked", show: count },
  { name: "age", label: "Oldest", show: (age) => (age == null ? "" : span(age)) },
  { name: "retries", label: "Retries", show: count },
  { name: "consumers", label: "Consumers", show: count },
];

const MOST = 200; // rows, as many as the state has
const LEAST_SLOTS = 12; // of a sparkline: a broker that has just started has less to show

const compare = (one, other) => (typeof one === "string" ? one.localeCompare(other) : (one ?? -1) - (other ?? -1));

function makeRow(queue) {
  const link = h("a", { href: `#/queue/${queue.key}` }, queue.name);
  const why = h("span", { class: "why" });
  const cells = COLUMNS.slice(1).map((column) =>
    h("td", { role: "cell", class: "number live", "data-label": column.label }),
  );
  const spark = sparkline();
  const node = h(
    "tr",
    { role: "row" },
    h("th", { role: "rowheader", scope: "row" }, link, why),
    cells,
    h("td", { role: "cell", class: "sparks", "data-label": "15 min" }, spark.node),
  );
  function update(told) {
    attribute(node, "data-level", told.level);
    text(why, told.why ?? "");
    COLUMNS.slice(1).forEach((column, index) => {
      text(cells[index], column.show(told[column.name]));
      attribute(cells[index], "data-zero", told[column.name] ? null : "");
    });
    spark.update(told.spark, told.slots, told.step);
  }
  return { node, update };
}

export function queuesView() {
  let sorted = null; // {name, down}, or null: by trouble
  let told = null; // what is live
  let found = null; // where the state has not all queues: what the broker found, {total, queues}
  let asked = 0;
  let turns = 0;

  const heads = COLUMNS.map((column) => {
    const press = h("button", { type: "button", onclick: () => sort(column.name) }, column.label);
    return h("th", { role: "columnheader", scope: "col", class: column.show ? "number" : null }, press);
  });
  const body = h("tbody", { role: "rowgroup" });
  const pointedAt = attention(body);
  const trouble = h("button", { type: "button", class: "quiet", onclick: () => sort(null) }, "By trouble");
  const filter = h("input", {
    type: "search",
    id: "filter",
    placeholder: "Filter by name",
    ...PLAIN,
    oninput: choose,
  });
  const shown = h("p", { class: "quiet", "aria-live": "polite" });
  const nothing = h("p", { class: "nothing" });
  const scroller = h(
    "div",
    { class: "wide" },
    h(
      "table",
      { class: "queues", role: "table", "aria-describedby": "queue-order" },
      h("caption", { class: "unseen" }, "Queues"),
      h(
        "thead",
        { role: "rowgroup" },
        h("tr", { role: "row" }, heads, h("th", { role: "columnheader", scope: "col" }, "15 min")),
      ),
      body,
    ),
  );
  const order = h("small", { id: "queue-order" });
  const node = h(
    "section",
    { "aria-labelledby": "queues-heading" },
    h(
      "div",
      { class: "bar" },
      h("h2", { id: "queues-heading", tabindex: -1 }, "Queues ", order),
      h("label", { class: "unseen", for: "filter" }, "Filter queues by name"),
      filter,
      trouble,
    ),
    shown,
    scroller,
    nothing,
  );

  function sort(name) {
    if (name === null) sorted = null;
    else sorted = { name, down: sorted?.name === name ? !sorted.down : name !== "name" };
    choose();
  }

  function choose() {
    found = null;
    draw(true);
    lookUp();
  }

  const turned = () => sorted && sorted.down === (sorted.name === "name");

  /** The state has the queues that need somebody most; for a name or another order all are looked at. */
  async function lookUp() {
    const mine = ++asked;
    const wanted = filter.value.trim();
    if (!told || told.state.totals.queues <= told.state.queues.length || !(wanted || sorted)) return;
    const query = { limit: MOST, name: wanted, sort: sorted?.name ?? "trouble" };
    const looked = (offset) => ask(`/api/queues?${new URLSearchParams({ ...query, offset })}`);
    const first = !found;
    try {
      let answer = await looked(0);
      // The broker has the largest first, or the first name; the other end is at the end of its list.
      if (turned() && answer.total > MOST) answer = await looked(answer.total - MOST);
      if (mine !== asked) return;
      found = answer;
    } catch {
      return; // what was found before stands; that the broker is lost is said elsewhere
    }
    draw(first);
  }

  /** Rows stay where they are: only figures change. */
  function steady(rows) {
    const places = new Map([...body.children].map((row, index) => [row.dataset.key, index]));
    return rows
      .map((row, index) => [places.get(row.key) ?? 1e6 + index, row])
      .sort((one, other) => one[0] - other[0])
      .map(([, row]) => row);
  }

  function draw(asked) {
    if (!told) return;
    const { state, spark } = told;
    const wanted = filter.value.trim().toLowerCase();
    const fresh = new Map(state.queues.map((queue) => [queue.key, queue]));
    let rows = found
      ? found.queues.map((queue) => ({ ...queue, ...fresh.get(queue.key) }))
      : state.queues.filter((queue) => queue.name.toLowerCase().includes(wanted));
    if (sorted)
      rows = [...rows].sort((one, other) => compare(one[sorted.name], other[sorted.name]) * (sorted.down ? -1 : 1));
    const held = !asked && pointedAt();
    if (held) rows = steady(rows);
    const slots = Math.max(spark.totals.in?.length ?? 0, LEAST_SLOTS);
    each(
      body,
      rows.map((queue) => ({ ...queue, spark: spark.queues[queue.key] ?? queue.spark, slots, step: spark.step })),
      (queue) => queue.key,
      (queue) => {
        const row = makeRow(queue);
        row.node.dataset.key = queue.key;
        return row;
      },
    );
    heads.forEach((head, index) =>
      attribute(
        head,
        "aria-sort",
        sorted?.name === COLUMNS[index].name ? (sorted.down ? "descending" : "ascending") : null,
      ),
    );
    attribute(trouble, "aria-pressed", sorted ? "false" : "true");
    const by = sorted ? COLUMNS.find((column) => column.name === sorted.name).label.toLowerCase() : "trouble";
    text(order, `by ${by}${held ? ", held while you point at it" : ""}`);
    const all = wanted ? (found?.total ?? rows.length) : state.totals.queues;
    const words = wanted ? [`${many(all, "queue")} with “${filter.value.trim()}” in the name.`] : [];
    if (all > rows.length) {
      words.push(`These ${count(rows.length)} of ${count(all)} ${sorted ? `are the first by ${by}` : "need you most"}.`);
      if (!wanted) words.push("The filter finds the others.");
    }
    text(shown, words.join(" "));
    scroller.hidden = !rows.length;
    text(nothing, rows.length ? "" : wanted ? "" : "No queues yet.");
  }

  return {
    node,
    update(live) {
      told = live;
      draw(false);
      if (turns++ % 3 === 0) lookUp();
    },
  };
}
