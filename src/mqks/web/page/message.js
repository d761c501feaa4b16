// One message, whole, in a dialog: its data as JSON with indents, and itself as a line for nc.

import { ask } from "./api.js";
import { figures, h, text } from "./dom.js";
import { bytes, count, hasControls, instant, pretty } from "./format.js";

/**
 * As typed into nc. Null if it has control characters: to a terminal they are keys, and what follows a carriage return
 * is another request. The broker checks it too.
 */
const line = ({ nc }) => (nc == null || hasControls(nc) ? null : nc);

/** With escapes as JSON has them, where pasting it would press keys. */
const copied = ({ data }) =>
  hasControls(data)
    ? JSON.stringify(data).replace(/[\x7f-\x9f]/g, (one) => `\\u00${one.charCodeAt(0).toString(16)}`)
    : data;

/** To the clipboard, also over plain HTTP, where browsers offer none. */
async function copy(words) {
  if (navigator.clipboard) return navigator.clipboard.writeText(words);
  const area = h("textarea", { class: "unseen" }, words);
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("not copied");
}

function copier(label, words) {
  const press = h("button", { type: "button" }, label);
  press.addEventListener("click", async () => {
    const done = await copy(words()).then(
      () => "Copied",
      () => "Select and copy it yourself",
    );
    text(press, done);
    setTimeout(() => text(press, label), 1500);
  });
  return press;
}

export async function openMessage(brief) {
  let message = brief;
  const data = h("pre", { tabindex: 0, "aria-label": "Data" });
  const nc = h("pre", { class: "nc", tabindex: 0, "aria-label": "As a line for nc" });
  const note = h("p", { class: "quiet" });
  const typed = copier("Copy as nc line", () => line(message));
  const facts = figures({ id: "Id", time: "Came", position: "Position", bytes: "Size", retry: "Retries" });
  const dialog = h(
    "dialog",
    { class: "message", "aria-labelledby": "message-title", onclose: () => dialog.remove() },
    h(
      "form",
      { method: "dialog", class: "bar" },
      h("h2", { id: "message-title" }, h("code", {}, brief.event || "no name")),
      h("button", {}, "Close"),
    ),
    facts.node,
    data,
    h("p", { class: "quiet" }, "As a line for nc:"),
    nc,
    h(
      "p",
      { class: "buttons" },
      typed,
      copier("Copy data", () => copied(message)),
    ),
    note,
  );

  function show(told) {
    message = told;
    facts.update({
      id: told.id,
      time: instant(told.time),
      position: count(told.position),
      bytes: bytes(told.bytes),
      retry: count(told.retry ?? 0),
    });
    text(data, pretty(told.data));
    const words = line(told);
    text(nc, words ?? (told.truncated ? "only when all of it is here" : "cannot be typed: it has control characters, or is not UTF-8"));
    typed.disabled = words === null;
  }

  show(brief);
  document.body.append(dialog);
  dialog.showModal();
  try {
    show({ ...(await ask(`/api/messages/${brief.position}`)), retry: brief.retry });
  } catch (error) {
    text(
      note,
      brief.truncated ? `Only its beginning is here. ${error.message}` : error.status === 404 ? "" : error.message,
    );
  }
}

/** A row of a list of messages; a press shows it whole. */
export function messageRow(message) {
  const press = h(
    "button",
    { type: "button", class: "message", onclick: () => openMessage(message) },
    h("time", {}, instant(message.time).slice(11)),
    h("b", {}, message.event || "no name"),
    h("span", { class: "data" }, message.data),
    message.retry ? h("i", {}, `retry ${message.retry}`) : null,
  );
  return { node: h("li", {}, press), update: () => {} };
}
