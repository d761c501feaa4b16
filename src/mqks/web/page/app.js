// The page: which view is shown, the sentence of health, and what the header and the footer say.

import { remove } from "./api.js";
import { attribute, each, h, text, worded } from "./dom.js";
import { bytes, clock, span, visible } from "./format.js";
import { listen, live } from "./live.js";
import { connections } from "./connections.js";
import { durability, journal } from "./journal.js";
import { overview } from "./overview.js";
import { pipeline } from "./pipeline.js";
import { publish } from "./publish.js";
import { queue } from "./queue.js";
import { may, session } from "./session.js";
import { tail } from "./tail.js";

/** `#/name/part?query`; a view is made of (parts, query) and gives {title, node, update(live), close?}. */
const VIEWS = { "": overview, queues: overview, queue, tail, publish, pipeline, connections, journal };
const NEEDS = { tail: "history", publish: "publish" }; // the others are figures: "admin"
const permitted = (name) => may(NEEDS[name] ?? "admin");
const QUEUES = "#/queues"; // the overview, at its queues

const $ = (id) => document.getElementById(id);
const main = $("main");
let shown = null;

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [word, ...parts] = path.split("/");
  const exists = Object.hasOwn(VIEWS, word) && (word === "queue") === Boolean(parts[0]);
  const name = exists ? [word, "", ...Object.keys(NEEDS)].find(permitted) : "missing";
  const first = shown === null;
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close(); // it belongs to what is left now
  shown?.close?.();
  shown = (VIEWS[name] ?? (exists ? nothing : missing))(parts, new URLSearchParams(query));
  main.replaceChildren(shown.node);
  document.body.dataset.view = name === "queues" ? "" : name;
  for (const link of [...$("views").children, $("durability")])
    attribute(link, "aria-current", link.hash === `#/${name}` ? "page" : null);
  if (live.state) shown.update(live);
  titled();
  if (name === "queues") return toQueues();
  if (first) return; // the reader begins at the top of the page
  scrollTo(0, 0);
  shown.node.querySelector("h1").focus({ preventScroll: true });
}

const plain = (title, ...words) => ({
  title,
  node: h("div", { class: "view" }, h("h1", { tabindex: -1 }, title), h("p", {}, ...words)),
  update() {},
});
const nothing = () => plain("Nothing here is for this token");
const missing = () => plain("No such page", h("code", {}, location.hash), " is not here. ", h("a", { href: "#/" }, "Start page"));

function toQueues() {
  const heading = $("queues-heading");
  heading.focus({ preventScroll: true });
  heading.scrollIntoView();
}

function titled() {
  const { state, lost } = live;
  const sign = lost && state ? "✕ lost · " : (state?.health.level ?? "ok") === "ok" ? "" : "⚠ ";
  document.title = `${sign}${visible(shown.title)} · MQKS`;
}

let said = "";

function health({ level, sentence, phrases }) {
  const node = $("sentence");
  attribute(node, "data-level", level);
  const list = phrases?.length ? phrases : [{ text: sentence, link: "#/", level, kind: "" }];
  if (!node.firstElementChild) node.textContent = "";
  const seen = new Map(); // two jobs have the same link
  const named = (phrase) => {
    const name = `${phrase.kind} ${phrase.link}`;
    seen.set(name, (seen.get(name) ?? 0) + 1);
    return `${name} ${seen.get(name)}`;
  };
  each(node, list, named, () => {
    const link = h("a");
    let words = "";
    const update = (phrase) => {
      attribute(link, "href", phrase.link ?? "#/");
      attribute(link, "data-level", phrase.level);
      if (words !== phrase.text) link.replaceChildren(...worded((words = phrase.text)));
    };
    return { node: h("span", {}, link, " "), update };
  });
  // Read aloud when something else is wrong, not when a figure changes.
  const gist = list.map((phrase) => `${phrase.kind} ${phrase.link} ${phrase.level}`).join();
  if (said && said !== gist) text($("news"), sentence);
  said = gist;
}

function show() {
  document.body.classList.toggle("stale", live.lost);
  const { state } = live;
  text(
    $("lost"),
    live.lost && state
      ? `Connection lost, trying again. These are the figures of ${clock(state.time)}.`
      : live.lost && said === ""
        ? "Connecting …"
        : "",
  );
  titled();
  if (!state || live.lost || document.hidden) return;
  health(state.health);
  durability($("durability"), state);
  text($("host"), state.host);
  const { memory, max_memory: limit } = state.totals;
  text($("about"), `MQKS ${state.version} · up ${span(state.uptime)} · ${bytes(memory)} of ${bytes(limit)}`);
  shown.update(live);
}

$("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash belongs to the views
  main.focus();
});
document.addEventListener("click", (event) => {
  if (location.hash !== QUEUES || event.target.closest("a")?.hash !== QUEUES) return;
  event.preventDefault(); // we are there: no change of the hash tells us
  toQueues();
});
$("leave").addEventListener("click", () => remove("/api/session").finally(() => location.reload()));
$("who").hidden = session.name === null;
text($("name"), session.name);
attribute($("name"), "title", session.name); // it may be cut
for (const link of $("views").children) link.hidden = !permitted(link.hash.slice(2));
addEventListener("hashchange", route);
route();
if (may("admin")) {
  document.addEventListener("visibilitychange", show);
  listen(show);
} else {
  document.body.classList.remove("stale");
  text($("sentence"), "");
  $("metrics").hidden = true;
}
