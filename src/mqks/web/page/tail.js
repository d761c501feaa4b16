// Messages as they come, those that a mask lets through.

import { attention, each, h, text } from "./dom.js";
import { count, many } from "./format.js";
import { messageRow } from "./message.js";
import { lookAgain } from "./session.js";

const MOST = 300; // rows that are kept
const HELD = 300; // ms until we look whether the list may move again

const asking = (masks) => (masks.length ? `?${masks.map((mask) => `mask=${encodeURIComponent(mask)}`).join("&")}` : "");

export function tail(parts, query) {
  let source = null;
  let waiting = []; // came since the last drawing
  let rows = [];
  let came = 0;
  let left = 0; // told by the broker, or put aside here while paused
  let paused = false;
  let away = false; // the page was hidden for a while
  let again = 0;
  let later = 0;
  let awaited = false; // a drawing

  const mask = h("input", {
    id: "mask",
    name: "mask",
    value: query.getAll("mask").join(" "),
    placeholder: "user.*.connected",
    autocomplete: "off",
    spellcheck: "false",
    autocapitalize: "off",
  });
  const pause = h(
    "button",
    {
      type: "button",
      onclick: () => {
        paused = !paused;
        text(pause, paused ? "Go on" : "Pause");
        draw();
      },
    },
    "Pause",
  );
  const clear = h(
    "button",
    {
      type: "button",
      class: "quiet",
      onclick: empty,
    },
    "Clear",
  );
  const said = h("p", { class: "quiet" });
  const news = h("p", { class: "bad", role: "status" }); // what is to be heard: counts are not
  const list = h("ol", { class: "messages", "aria-label": "Messages, the newest first" });
  const pointedAt = attention(list);
  const held = () => pointedAt() || list.querySelector(":focus-visible") || document.querySelector("dialog[open]");
  const form = h(
    "form",
    {
      class: "bar",
      onsubmit: (event) => {
        event.preventDefault();
        apply();
      },
    },
    h("label", { for: "mask" }, "Events"),
    mask,
    h("button", {}, "Watch"),
    pause,
    clear,
  );

  const masksOf = () => mask.value.split(/\s+/).filter(Boolean);

  function apply() {
    const masks = masksOf();
    history.replaceState(null, "", `#/tail${asking(masks)}`);
    open(masks);
    empty();
  }

  function empty() {
    rows = [];
    waiting = [];
    came = left = 0;
    away = false;
    draw();
  }

  function open(masks) {
    source?.close();
    clearTimeout(again);
    source = new EventSource(`/api/tail${asking(masks)}`);
    source.onopen = () => text(news, "");
    source.onerror = () => {
      source.close();
      text(news, "Connection lost, trying again. If it stays like this, the mask may be wrong.");
      again = setTimeout(() => open(masks), 2000);
      lookAgain();
    };
    source.addEventListener("message", (event) => {
      came += 1;
      if (paused) left += 1;
      else waiting.push({ ...JSON.parse(event.data), number: came });
      if (waiting.length > MOST) waiting.shift();
      soon();
    });
    source.addEventListener("skipped", (event) => {
      const { count: skipped } = JSON.parse(event.data);
      came += skipped;
      left += skipped;
      soon();
    });
  }

  function soon() {
    if (!awaited) requestAnimationFrame(draw);
    awaited = true;
  }

  /** Browsers have few connections, so a page that is not seen keeps none. */
  function turn() {
    if (!document.hidden) return open(masksOf());
    away = true;
    source.close();
    clearTimeout(again);
  }

  function draw() {
    clearTimeout(later);
    awaited = false;
    const words = [came ? `${many(came, "message")} came` : paused ? "Paused" : "Waiting for messages"];
    if (came && paused) words.push("paused");
    if (left) words.push(`${count(left)} of them not shown`);
    if (came > MOST) words.push(`the last ${MOST} are here`);
    if (away) words.push("none while the page was hidden");
    if (rows.length && waiting.length && held()) {
      words.push(`held while you are at the list, ${count(waiting.length)} wait`);
      awaited = true;
      later = setTimeout(draw, HELD);
    } else {
      rows = [...waiting.reverse(), ...rows].slice(0, MOST);
      waiting = [];
      each(list, rows, (message) => message.number, messageRow);
    }
    text(said, `${words.join(", ")}.`);
  }

  open(query.getAll("mask"));
  document.addEventListener("visibilitychange", turn);
  draw();
  return {
    title: "Tail",
    node: h(
      "div",
      { class: "view" },
      h("h1", { tabindex: -1 }, "Tail ", h("small", {}, "messages as they come")),
      form,
      h(
        "p",
        { class: "hint" },
        "Names of events, with ",
        h("code", {}, "*"),
        " for what is between two dots, several with spaces between them; empty: all. Watching takes nothing from any queue.",
      ),
      said,
      news,
      list,
    ),
    update() {},
    close() {
      document.removeEventListener("visibilitychange", turn);
      clearTimeout(again);
      clearTimeout(later);
      source.close();
    },
  };
}
