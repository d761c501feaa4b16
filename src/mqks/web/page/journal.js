// The disk: what `ok` means, how far the journal is synced, how much room is left, and who keeps it from shrinking.

import { attribute, figures, h, section, table, text } from "./dom.js";
import { ago, bytes, count, many, millis, span } from "./format.js";

const MODES = {
  always: ["fsync always", "An ok means: on disk. Power may fail at any moment."],
  interval: [
    "fsync now and then",
    "An ok means: written. A crash of the broker loses nothing, power loss may lose what came since the last sync.",
  ],
  never: ["fsync never", "An ok means: written. The system decides when it is on disk."],
  memory: ["in memory", "Nothing is kept: what is here is gone when the broker ends."],
};

function lasts(days) {
  if (days > 999) return "years of disk left";
  return `${days < 2 ? span(days * 86400) : many(Math.floor(days), "day")} of disk left`;
}

/** The badge on every page: mode, last sync, disk. */
export function durability(node, { journal }) {
  const parts = [MODES[journal.durability]?.[0] ?? journal.durability];
  if (journal.durability !== "memory") {
    if (journal.last_sync != null) parts.push(`synced ${ago(journal.last_sync)}`);
    parts.push(journal.days_left == null ? `${bytes(journal.disk_free)} free` : lasts(journal.days_left));
  }
  text(node, journal.full ? "disk full" : parts.join(" · "));
  attribute(node, "data-mode", journal.full ? "full" : journal.durability);
}

export function journal() {
  const words = h("p", { class: "lead" });
  const sync = figures(
    { mode: "Mode", last: "Last sync", p50: "Sync, median", p99: "Sync, slowest 1 %", syncs: "Syncs" },
    "figures large",
  );
  const files = figures({
    bytes: "Size",
    segments: "Segments",
    earliest: "First position",
    synced: "Synced to",
    written: "Written to",
  });
  const disk = figures({ free: "Free", total: "Of", days: "Lasts" });
  const used = h("meter", { min: 0, max: 1, low: 0.8, high: 0.95, optimum: 0, "aria-label": "Disk in use" });
  const pinned = h("p");
  const holds = table(
    "Holds",
    [
      { label: "Hold", class: "name", make: (row) => ({ node: h("code", {}, row.name) }) },
      { label: "Position", number: true, cell: (row) => count(row.position) },
      { label: "Behind", number: true, cell: (row) => bytes(row.behind) },
      { label: "Ends in", number: true, cell: (row) => span(row.seconds) },
    ],
    (row) => row.name,
  );
  const onDisk = h(
    "div",
    {},
    section("files", "Files", files.node, pinned),
    section("disk", "Disk", disk.node, used),
    section("holds", ["Holds ", h("small", {}, "who wants the journal kept")], holds.node),
  );
  return {
    title: "Journal",
    node: h("div", { class: "view" }, h("h1", { tabindex: -1 }, "Journal"), words, sync.node, onDisk),
    update({ state: { journal: told, queues } }) {
      text(words, MODES[told.durability]?.[1]);
      sync.update({
        mode: told.durability,
        last: ago(told.last_sync),
        p50: millis(told.sync_p50),
        p99: millis(told.sync_p99),
        syncs: count(told.syncs),
      });
      onDisk.hidden = told.durability === "memory";
      files.update({
        bytes: bytes(told.bytes),
        segments: count(told.segments),
        earliest: count(told.earliest),
        synced: count(told.synced),
        written: count(told.written),
      });
      disk.update({
        free: bytes(told.disk_free),
        total: bytes(told.disk_total),
        days: told.days_left == null ? "no end in sight" : span(told.days_left * 86400),
      });
      used.value = told.disk_total ? 1 - told.disk_free / told.disk_total : 0;
      const holder = queues.find((row) => row.name === told.pinned_by);
      pinned.replaceChildren(
        ...(told.pinned_by == null
          ? []
          : [
              "The oldest segment stays because of ",
              holder ? h("a", { href: `#/queue/${holder.key}` }, holder.name) : h("code", {}, told.pinned_by),
              ".",
            ]),
      );
      holds.update(told.holds ?? [], "Nobody holds it.");
    },
  };
}
