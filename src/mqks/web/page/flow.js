// Events → queues → consumers. The width of a line is its rate; places depend on who is connected to whom, not on
// rates, so that nothing jumps.

import { attribute, each, h, s, section, text } from "./dom.js";
import { count, cut, many, rate, visible } from "./format.js";

const ROW = 42; // least height of a box
const GAP = 12;
const THICK = 26; // px of the fastest line, at most
const KINDS = ["event", "queue", "consumer"];

const mean = (numbers) => numbers.reduce((sum, number) => sum + number, 0) / numbers.length;

/** Boxes and lines with their places, from what the broker told and the width that there is. */
export function layout(flow, queues, width) {
  const box = Math.min(width * 0.26, 260);
  const thick = Math.min((width - 3 * box) / 8, THICK);
  const lefts = { event: 0, queue: (width - box) / 2, consumer: width - box };
  const rows = new Map(queues.map((queue) => [queue.key, queue]));
  const nodes = new Map();
  const add = (kind, node, words) =>
    nodes.set(`${kind}:${node.key}`, {
      id: `${kind}:${node.key}`,
      kind,
      ...node,
      ...words,
      into: [],
      out: [],
      left: lefts[kind],
      box,
    });
  const linked = new Set(flow.links.map((link) => link.from));
  const drawn = flow.events.filter((event) => linked.has(`event:${event.key}`) || !event.name.startsWith("mqks."));
  for (const event of drawn)
    add("event", event, {
      detail: `${rate(event.rate)}/s`,
      href: event.key.startsWith("*") ? "#/tail" : `#/tail?mask=${event.key.replace(/^~/, "")}`,
    });
  for (const queue of flow.queues) {
    const row = rows.get(queue.key);
    const ready = queue.ready ?? row?.ready;
    const waits = ready ? [`${count(ready)} ready`] : [];
    const words = box < 160 && ready ? waits : [`${rate(row?.in_rate ?? queue.rate)}/s`, ...waits];
    add("queue", queue, {
      detail: words.join(" · "),
      level: queue.level ?? row?.level,
      href: `#/queue/${queue.key}`,
    });
  }
  for (const consumer of flow.consumers) {
    const several = consumer.count > 1 ? ` · ${consumer.count}×` : "";
    add("consumer", consumer, {
      name: consumer.label,
      detail: `${rate(consumer.rate)}/s${several}`,
      href: "#/connections",
    });
  }

  const links = flow.links.filter((link) => nodes.has(link.from) && nodes.has(link.to));
  const fastest = Math.max(...links.map((link) => link.rate), 0);
  for (const link of links) {
    link.id = `${link.from}>${link.to}`;
    link.width = link.rate > 0 ? Math.max((link.rate / fastest) * thick, 1.25) : 1;
    nodes.get(link.from).out.push(link);
    nodes.get(link.to).into.push(link);
  }

  let height = ROW;
  for (const kind of KINDS) {
    const column = [...nodes.values()].filter((node) => node.kind === kind);
    for (const node of column)
      node.rank = node.into.length ? mean(node.into.map((link) => nodes.get(link.from).order)) : 1e9;
    if (kind === "event") column.forEach((node) => (node.rank = 0));
    column.sort((one, other) => one.rank - other.rank || (one.name < other.name ? -1 : 1));
    let top = 0;
    column.forEach((node, order) => {
      const sums = [node.into, node.out].map((side) => side.reduce((sum, link) => sum + link.width, 0));
      Object.assign(node, { order, top, height: Math.max(ROW, ...sums.map((sum) => sum + 10)) });
      top += node.height + GAP;
    });
    height = Math.max(height, top - GAP);
  }
  for (const kind of KINDS) {
    const column = [...nodes.values()].filter((node) => node.kind === kind);
    const used = column.reduce((sum, node) => sum + node.height + GAP, -GAP);
    for (const node of column) node.top += (height - used) / 2;
  }

  for (const node of nodes.values()) {
    for (const [side, end, other] of [
      ["into", "end", "from"],
      ["out", "start", "to"],
    ]) {
      const list = node[side].sort((one, two) => nodes.get(one[other]).order - nodes.get(two[other]).order);
      let at = node.top + (node.height - list.reduce((sum, link) => sum + link.width, 0)) / 2;
      for (const link of list) {
        link[end] = at + link.width / 2;
        at += link.width;
      }
    }
  }
  for (const link of links) {
    const [from, to] = [nodes.get(link.from), nodes.get(link.to)];
    const [x1, x2] = [from.left + box, to.left];
    const bend = (x2 - x1) / 2;
    const [y1, y2] = [link.start.toFixed(1), link.end.toFixed(1)];
    link.path = `M${x1},${y1}C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`;
    link.words = `${from.name} → ${to.name}: ${rate(link.rate)} per second`;
  }
  return { nodes: [...nodes.values()], links, height };
}

const pen = document.createElement("canvas").getContext("2d");

/** As much of the words as has room. */
function fitting(words, room) {
  pen.font = `13px ${getComputedStyle(document.body).fontFamily}`;
  const wide = (letters) => pen.measureText(cut(words, letters)).width;
  let letters = Math.min(words.length, Math.ceil(room / 3));
  while (letters > 1 && wide(letters) > room) letters -= 1;
  return cut(words, letters);
}

/** Measures only when it must: words and room are mostly those of a second ago. */
function fitted(node) {
  let known = "";
  return (words, room) => {
    if (known === `${room} ${words}`) return;
    known = `${room} ${words}`;
    text(node, fitting(visible(words), room));
  };
}

function makeBox(node) {
  const title = s("title");
  const frame = s("rect", { rx: 7 });
  const name = s("text", { class: "name", x: 11, y: 18 });
  const detail = s("text", { class: "detail live", x: 11, y: 34 });
  const [fitName, fitDetail] = [fitted(name), fitted(detail)];
  const place = s("a", { class: `box ${node.kind}` }, title, frame, name, detail);
  function update(told) {
    attribute(place, "href", told.href);
    attribute(place, "transform", `translate(${told.left} ${(told.top + (told.height - ROW) / 2).toFixed(1)})`);
    attribute(place, "data-level", told.level);
    attribute(frame, "y", -(told.height - ROW) / 2);
    attribute(frame, "width", told.box);
    attribute(frame, "height", told.height);
    text(title, `${told.kind} ${told.name}: ${told.detail}`);
    fitName(told.name, told.box - 20);
    fitDetail(told.detail, told.box - 20);
  }
  return { node: place, update };
}

function makeLine() {
  const title = s("title");
  const path = s("path", { class: "flow" }, title);
  function update(link) {
    attribute(path, "d", link.path);
    attribute(path, "stroke-width", link.width.toFixed(2));
    attribute(path, "data-still", link.rate > 0 ? null : "");
    text(title, link.words);
  }
  return { node: path, update };
}

export function flowView() {
  const title = s("title", { id: "flow-title" }, "Flow of messages");
  const words = s("desc", { id: "flow-words" });
  const lines = s("g");
  const boxes = s("g");
  const svg = s(
    "svg",
    { class: "flows", role: "group", "aria-labelledby": "flow-title", "aria-describedby": "flow-words" },
    title,
    words,
    lines,
    boxes,
  );
  const more = h("p", { class: "quiet" });
  const nothing = h(
    "p",
    { class: "nothing" },
    "Nothing flows yet. Queues show up here as soon as somebody consumes: ",
    h("code", {}, "c1 consume my-queue my.event"),
  );
  const list = h("ul");
  const node = section(
    "flow-heading",
    ["Flow ", h("small", {}, "events → queues → consumers, the wider the faster")],
    h("a", { class: "skip", href: "#/queues" }, "Skip to the queues"),
    svg,
    nothing,
    more,
    h("details", { class: "instead" }, h("summary", {}, "The flow in words"), list),
  );
  let told = null;

  function draw() {
    const width = svg.clientWidth;
    if (!told || !width) return;
    const drawn = layout(told.flow, told.queues, width);
    attribute(svg, "height", drawn.nodes.length ? drawn.height + 2 : 0);
    attribute(svg, "viewBox", `0 -1 ${width} ${drawn.height + 2}`);
    each(lines, drawn.links, (link) => link.id, makeLine);
    each(boxes, drawn.nodes, (box) => box.id, makeBox);
    nothing.hidden = drawn.nodes.length > 0;
    const { events, queues, consumers } = told.flow;
    const sums = [many(events.length, "event"), many(queues.length, "queue"), many(consumers.length, "client")];
    text(words, `${sums.join(", ")}. The list after the drawing says the same in words.`);
    const hidden = Object.entries(told.flow.more ?? {})
      .filter(([, number]) => number)
      .map(([kind, number]) => many(number, kind.slice(0, -1)));
    text(more, hidden.length ? `Not drawn, since they are slower: ${hidden.join(", ")}.` : "");
    each(
      list,
      drawn.links,
      (link) => link.id,
      () => {
        const item = h("li");
        return { node: item, update: (link) => text(item, link.words) };
      },
    );
  }

  new ResizeObserver(draw).observe(svg);
  return {
    node,
    update: (state) => {
      told = state;
      draw();
    },
  };
}
