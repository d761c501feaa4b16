// A message by hand, to see whether it arrives.

import { send } from "./api.js";
import { PLAIN, h } from "./dom.js";

/** Data is one line. JSON over several lines is the same JSON on one; other text is not ours to change. */
function oneLine(data) {
  const told = data.replace(/[\n\r]+$/, "");
  if (!/[\n\r\t]/.test(told)) return told;
  try {
    JSON.parse(told);
  } catch {
    throw new Error("Data must be one line without TABs, unless it is JSON.");
  }
  return told.trim().replace(/\s*[\n\r\t]\s*/g, " ");
}

export function publish(parts, query) {
  const field = (name, label, input, hint) => [
    h("label", { for: name }, label),
    Object.assign(input, { id: name, name }),
    h("p", { class: "hint" }, hint),
  ];
  const event = h("input", {
    required: true,
    value: query.get("event") ?? "",
    ...PLAIN,
    placeholder: "user.1.connected",
  });
  const data = h("textarea", { rows: 6, spellcheck: "false", placeholder: '{"hello": "world"}' });
  const id = h("input", { ...PLAIN, placeholder: "made for you" });
  const once = h("input", { type: "checkbox", id: "once" });
  const press = h("button", { class: "main" }, "Publish");
  const said = h("p", { role: "status" });

  async function submit(pressed) {
    pressed.preventDefault();
    press.disabled = true;
    said.className = "";
    said.replaceChildren("On its way …");
    try {
      const body = { event: event.value.trim(), data: oneLine(data.value) };
      if (id.value.trim()) body.id = id.value.trim();
      if (once.checked) body.once = true;
      const answer = await send("/api/publish", body);
      said.className = "good";
      said.replaceChildren("The broker has it, as ", h("code", {}, answer.id), ".");
    } catch (error) {
      said.className = "bad";
      said.replaceChildren(error.message);
    }
    press.disabled = false;
  }

  return {
    title: "Publish",
    node: h(
      "div",
      { class: "view narrow" },
      h("h1", { tabindex: -1 }, "Publish ", h("small", {}, "a message by hand")),
      h(
        "form",
        { class: "fields", onsubmit: submit },
        field("event", "Event", event, "It goes to every queue that is subscribed to this event."),
        field("data", "Data", data, "Goes as it is, without line ends after it. JSON may stand on several lines, it is sent on one."),
        field("id", "Id", id, "Optional."),
        h(
          "p",
          { class: "check" },
          once,
          " ",
          h("label", { for: "once" }, "Only once: not if the broker has seen this id before"),
        ),
        h("p", { class: "buttons" }, press),
        said,
      ),
    ),
    update() {},
  };
}
