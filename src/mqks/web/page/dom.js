// Nodes, made and patched. Names and data come from anyone: they become text that can be seen, never markup.

import { visible } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element: h("a", {href, class, onclick}, "text", node, …). What is null is left out. */
export const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);

/** The same for SVG. */
export const s = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

/** A section that its heading names; `heading` may be several children. */
export const section = (id, heading, ...content) =>
  h("section", { "aria-labelledby": id }, h("h2", { id }, heading), content);

/** Of an input for what is no prose. */
export const PLAIN = { autocomplete: "off", spellcheck: "false", autocapitalize: "off" };

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else attribute(node, name, value);
  }
  const told = children.flat(2).filter((child) => child != null);
  node.append(...told.map((child) => (typeof child === "string" ? visible(child) : child)));
  return node;
}

/** Touches the node only if the value is another one, so that selected text stays selected. */
export function attribute(node, name, value) {
  const told = value === true ? "" : value;
  if (told == null || told === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(told)) node.setAttribute(name, told);
}

export function text(node, value) {
  const told = visible(String(value ?? ""));
  if (node.textContent !== told) node.textContent = told;
}

const kept = new WeakMap(); // parent → key → {node, update}

/**
 * The children of `parent` become those of `items`. `make(item)` gives {node, update}; a node lives as long as its key
 * does, and is moved only when it must, so that focus and selections survive.
 */
export function each(parent, items, keyOf, make) {
  if (!kept.has(parent)) kept.set(parent, new Map());
  const known = kept.get(parent);
  const wanted = new Map();
  for (const item of items) {
    const key = keyOf(item);
    const row = known.get(key) ?? make(item);
    row.update(item);
    wanted.set(key, row);
  }
  for (const [key, row] of known) if (!wanted.has(key)) row.node.remove();
  let place = parent.firstElementChild;
  for (const { node } of wanted.values()) {
    if (node === place) place = place.nextElementSibling;
    else move(parent, node, place);
  }
  kept.set(parent, wanted);
}

function move(parent, node, place) {
  if (parent.moveBefore && node.isConnected && parent.isConnected) return parent.moveBefore(node, place);
  const focused = node.contains(document.activeElement) ? document.activeElement : null;
  parent.insertBefore(node, place);
  focused?.focus({ preventScroll: true });
}

const ATTENTION = 6000; // ms

/** Whether somebody points at what is in `node`, or goes through it by keyboard: then it should not move away. */
export function attention(node) {
  const last = { pointer: -Infinity, focus: -Infinity }; // each counts for itself
  const seen = (event) => {
    // Browsers also tell of moves when not the pointer moved, but what is under it.
    if (event.type !== "pointermove" || event.movementX || event.movementY) last.pointer = performance.now();
  };
  for (const kind of ["pointermove", "pointerdown"]) node.addEventListener(kind, seen);
  for (const kind of ["keydown", "focusin"]) node.addEventListener(kind, () => (last.focus = performance.now()));
  node.addEventListener("focusout", () => (last.focus = -Infinity));
  node.addEventListener("pointerleave", (event) => {
    // A finger leaves before its tap is a click: what it was on has to be there still.
    if (event.pointerType !== "touch") last.pointer = -Infinity;
  });
  return () => performance.now() - Math.max(last.pointer, last.focus) < ATTENTION;
}

/** A sentence in which `names` between backticks are set as code. */
export const worded = (sentence) => sentence.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part));

/** <dl> of figures: figures({ready: "Ready", …}) and then update({ready: "12"}). */
export function figures(names, className = "figures") {
  const cells = {};
  const node = h("dl", { class: className });
  for (const [key, label] of Object.entries(names)) {
    cells[key] = h("dd", { class: "live" });
    node.append(h("div", {}, h("dt", {}, label), cells[key]));
  }
  return { node, update: (values) => Object.entries(values).forEach(([key, value]) => text(cells[key], value)) };
}

/**
 * A table: columns are {name, label, number, cell}, where cell(row) is a text, or for `make` columns a node that is
 * made once and updated by its own `update(row)`.
 */
export function table(caption, columns, keyOf) {
  // Roles are named, since on a phone the table is none to its style.
  const body = h("tbody", { role: "rowgroup" });
  const head = columns.map((column) =>
    h("th", { role: "columnheader", scope: "col", class: column.number ? "number" : null }, column.label),
  );
  const nothing = h("p", { class: "nothing", hidden: true });
  const node = h(
    "div",
    { class: "wide" },
    h(
      "table",
      { class: "cards", role: "table" },
      h("caption", { class: "unseen" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
      body,
    ),
    nothing,
  );
  const make = (item) => {
    const updates = [];
    const cells = columns.map((column) => {
      const cell = h("td", {
        role: "cell",
        "data-label": column.label,
        class: column.number ? "number live" : column.class,
      });
      if (column.make) {
        const made = column.make(item);
        cell.append(made.node);
        updates.push(made.update ?? (() => {}));
      } else updates.push((row) => text(cell, column.cell(row)));
      return cell;
    });
    return { node: h("tr", { role: "row" }, cells), update: (row) => updates.forEach((update) => update(row)) };
  };
  return {
    node,
    update(rows, words) {
      each(body, rows, keyOf, make);
      nothing.hidden = rows.length > 0;
      node.firstElementChild.hidden = !rows.length;
      text(nothing, words);
    },
  };
}
