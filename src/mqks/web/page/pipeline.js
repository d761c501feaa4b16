// The jobs on Spark: how far behind they are, how fast, and what they counted.

import { attribute, each, figures, h, section, table, text } from "./dom.js";
import { ago, bytes, count, rate, span } from "./format.js";
import { bars } from "./plots.js";

const COLUMNS = [
  { label: "Count", number: true, cell: (row) => count(row.count) },
  { label: "Per second", number: true, cell: (row) => rate(row.rate) },
  { label: "Size", number: true, cell: (row) => bytes(row.bytes) },
];
// What came into a queue is counted; its rate is that of what went out.
const OF_QUEUES = [
  { label: "In", number: true, cell: (row) => count(row.count) },
  { label: "Out/s", number: true, cell: (row) => rate(row.rate) },
];
const KINDS = [
  ["event", "Events", null, COLUMNS],
  ["mask", "Masks", "names with ids left out", COLUMNS],
  ["queue", "Queues", null, OF_QUEUES],
];
const FACTS = {
  lag: "Behind",
  positions: "Behind, bytes",
  speed: "Rows/s",
  rows: "Rows",
  batch: "Batch",
  heard: "Heard",
};

function makeJob(job) {
  const state = h("span", { class: "state" });
  const why = h("p", { class: "why" });
  const facts = figures(FACTS);
  const node = h(
    "article",
    { class: "job", "aria-label": `Job ${job.job}` },
    h("h2", {}, h("code", {}, job.job), " ", state),
    why,
    facts.node,
  );
  function update(told) {
    attribute(node, "data-level", told.level);
    text(state, told.state);
    text(why, told.why ?? "");
    facts.update({
      lag: span(told.lag_seconds),
      positions: bytes(told.lag_positions),
      speed: rate(told.rows_per_second),
      rows: count(told.rows),
      batch: count(told.batch),
      heard: ago(told.age),
    });
  }
  return { node, update };
}

const MINUTE = 60_000;
const MOST_MINUTES = 60;

/** "14:05" of this place, with the date if it is not of today: minutes come in UTC. */
function minuteOf(time) {
  const at = new Date(time);
  const hour = at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  if (at.toDateString() === new Date().toDateString()) return hour;
  return `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${hour}`;
}

/** The hour up to the newest minute. Of a minute in which nothing came nothing is told: it has a bar of no height. */
function hourOf(minutes) {
  const counts = new Map(minutes.map(({ minute, count: events }) => [Date.parse(minute), events]));
  const last = Math.max(...counts.keys());
  const first = Math.max(Math.min(...counts.keys()), last - (MOST_MINUTES - 1) * MINUTE);
  const bars = [];
  for (let time = first; time <= last; time += MINUTE)
    bars.push({ key: time, name: minuteOf(time), value: counts.get(time) ?? 0 });
  return bars;
}

export function pipeline() {
  const jobs = h("div", { class: "jobs" });
  const none = h(
    "div",
    { class: "nothing" },
    h(
      "p",
      {},
      "No job has said anything yet. ",
      h("code", {}, "mqks up"),
      " runs the broker with its pipeline; ",
      h("code", {}, "mqks pipeline archive"),
      " and ",
      h("code", {}, "mqks pipeline stats"),
      " are its jobs.",
    ),
  );
  const plot = bars("Events per minute", "events");
  const heading = h("small");
  const tables = KINDS.map(([kind, label, words, columns]) => ({
    kind,
    made: table(
      `${label} of the minute`,
      [
        { label: "Name", class: "name", make: (row) => ({ node: h("code", {}, row.name) }) },
        ...columns,
      ],
      (row) => row.name,
    ),
    head: h("h3", {}, label, words ? [" ", h("small", {}, words)] : null),
  }));
  const minute = section(
    "minute",
    ["The newest minute ", heading],
    h(
      "div",
      { class: "triple" },
      tables.map(({ head, made }) => h("div", {}, head, made.node)),
    ),
  );
  const plots = h("section", { "aria-label": "Events per minute" }, plot.node);
  return {
    title: "Pipeline",
    node: h(
      "div",
      { class: "view" },
      h("h1", { tabindex: -1 }, "Pipeline ", h("small", {}, "jobs on Spark")),
      none,
      jobs,
      plots,
      minute,
    ),
    update({ state }) {
      const told = state.pipeline;
      each(jobs, told.jobs, (job) => job.job, makeJob);
      none.hidden = told.jobs.length > 0;
      plots.hidden = !told.minutes.length;
      plot.update(hourOf(told.minutes));
      minute.hidden = !told.minute;
      if (!told.minute) return;
      const { minute: newest, final } = told.minute;
      const past = (Date.parse(state.time) - Date.parse(newest)) / 1000;
      text(heading, `${minuteOf(newest)}${final ? "" : ", so far"}${past < 180 ? "" : `, ${ago(past)}`}`);
      for (const { kind, made } of tables)
        made.update(
          told.minute.rows.filter((row) => row.kind === kind),
          "Nothing.",
        );
    },
  };
}
