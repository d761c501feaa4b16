// Lines and bars over time, as SVG. Each has a title in words, and tells the value under the pointer.

import { attribute, each, h, s, text } from "./dom.js";
import { rate, short, span } from "./format.js";

/** The newest value is at the right end; `slots` is how many have room. */
function points(values, most, width, height, slots = values.length) {
  const step = width / Math.max(slots - 1, 1);
  const drawn = slots === 1 ? [values[0], values[0]] : values;
  const left = width - (drawn.length - 1) * step;
  return drawn.map(
    (value, index) => `${Math.max(left + index * step, 0).toFixed(1)},${(height - (value / most) * height).toFixed(1)}`,
  );
}

const WIDE = 90;

/**
 * A small drawing for a row: what came in as a line, what waited as an area, each on its own scale. `slots` is the same
 * for all rows, so that what is above each other happened at the same time.
 */
export function sparkline() {
  const title = s("title");
  const area = s("path", { class: "waiting" });
  const line = s("polyline", { class: "in" });
  const node = s(
    "svg",
    { class: "spark", viewBox: `0 -1 ${WIDE} 24`, preserveAspectRatio: "none", role: "img" },
    title,
    area,
    line,
  );
  let drawn = null;
  function update(told, slots, step) {
    if (told === drawn) return;
    drawn = told;
    const { ready = [], in: came = [] } = told ?? {};
    const waited = Math.max(...ready, 0);
    const fastest = Math.max(...came, 0);
    attribute(line, "points", points(came, fastest || 1, WIDE, 22, slots).join(" "));
    const edge = points(ready, waited || 1, WIDE, 22, slots);
    attribute(area, "d", waited ? `M${edge[0].split(",")[0]},22L${edge.join("L")}L${WIDE},22Z` : "");
    text(
      title,
      told
        ? `Last ${span(slots * step)}: at most ${rate(fastest)} in per second, at most ${rate(waited)} ready`
        : "Not here: the queue’s page has it",
    );
  }
  return { node, update };
}

/** A round number, not below `value`: where the axis ends. */
function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((factor) => factor * power >= value) * power;
}

/** Shapes of one kind: [{key, …its attributes}]. All is set anew each time, since the scale may be another one. */
function shapes(parent, kind, list) {
  each(
    parent,
    list,
    (one) => one.key,
    () => {
      const node = s(kind);
      const update = ({ key, ...attributes }) => {
        for (const [name, value] of Object.entries(attributes)) attribute(node, name, value);
      };
      return { node, update };
    },
  );
}

const SIDE = 44; // room for the axis' figures
const FOOT = 20;

/**
 * A plot as wide as its place: update({most, from, to, title, now, length, place(part), tell(index), …}).
 * `draw(marks, told, width, height, most)` draws what is its own; `place` finds the value under the
 * pointer, `tell` has the words for it.
 */
function plot(name, height, draw) {
  const title = s("title");
  const marks = s("g");
  const grid = s("g", { class: "grid" });
  const labels = s("g", { class: "grid" });
  const cursor = s("line", { class: "cursor", y1: 0, y2: height, visibility: "hidden" });
  const svg = s(
    "svg",
    { class: "plot", height: height + FOOT + 8, role: "img" },
    title,
    s("g", { transform: "translate(0 8)" }, grid, labels, marks, cursor),
  );
  const readout = h("span", { class: "live" });
  const node = h("figure", {}, h("figcaption", {}, h("b", {}, name), " ", readout), svg);
  let told = null;

  function redraw() {
    const width = Math.max(svg.clientWidth - SIDE, 50);
    if (!told || !svg.clientWidth) return;
    const most = ceiling(told.most);
    const levels = [0, 0.5, 1].map((part) => ({ key: part, y: height * (1 - part), label: short(part * most) }));
    shapes(
      grid,
      "line",
      levels.map(({ key, y }) => ({ key, x1: 0, x2: width, y1: y, y2: y })),
    );
    const marked = [
      ...levels.map(({ key, y, label }) => ({ key, x: width + 6, y: y + 4, label })),
      { key: "from", x: 0, y: height + 16, label: told.from },
      { key: "to", x: width, y: height + 16, label: told.to, "text-anchor": "end" },
    ];
    shapes(
      labels,
      "text",
      marked.map(({ label, ...place }) => place),
    );
    marked.forEach(({ label }, index) => text(labels.children[index], label));
    text(title, told.title);
    draw(marks, told, width, height, most);
  }

  svg.addEventListener("pointermove", (event) => {
    if (!told?.length) return;
    const width = Math.max(svg.clientWidth - SIDE, 50);
    const part = Math.min(Math.max(event.offsetX / width, 0), 1);
    const index = told.place(part);
    attribute(cursor, "visibility", "visible");
    attribute(cursor, "x1", part * width);
    attribute(cursor, "x2", part * width);
    text(readout, told.tell(index));
  });
  svg.addEventListener("pointerleave", () => {
    attribute(cursor, "visibility", "hidden");
    text(readout, told?.now ?? "");
  });
  new ResizeObserver(redraw).observe(svg);
  return {
    node,
    update(figures) {
      told = figures;
      if (cursor.getAttribute("visibility") === "hidden") text(readout, told.now);
      redraw();
    },
  };
}

/** Lines over the last minutes: update([{name, values, now}], step in seconds, unit); `now` is this moment's value. */
export function lines(name, classes, height = 120) {
  const made = plot(name, height, (marks, told, width, tall, most) =>
    shapes(
      marks,
      "polyline",
      told.series.map(({ name, values }) => ({
        key: name,
        class: `line ${classes[name] ?? name}`,
        points: points(values, most, width, tall).join(" "),
      })),
    ),
  );
  return {
    node: made.node,
    update(told, step, unit = "") {
      const series = told.map(({ name, values, now }) => ({ name, values: [...values, now ?? 0] }));
      const length = Math.max(...series.map(({ values }) => values.length), 0);
      const tell = (index) => series.map((one) => `${one.name} ${rate(one.values[index] ?? 0)}${unit}`).join(", ");
      made.update({
        series: series.map((one) => ({
          ...one,
          values: [...Array(length - one.values.length).fill(0), ...one.values],
        })),
        length,
        most: Math.max(...series.flatMap(({ values }) => values), 0),
        from: length > 1 ? `${span((length - 1) * step)} ago` : "",
        to: "now",
        title: `${name}, the last ${span((length - 1) * step)}: now ${tell(length - 1)}`,
        now: tell(length - 1),
        place: (part) => Math.round(part * (length - 1)),
        tell: (index) => `${index === length - 1 ? "now" : `${span((length - 1 - index) * step)} ago`}: ${tell(index)}`,
      });
    },
  };
}

/** Bars: update([{key, name, value}]), the newest last, each as far from the next. */
export function bars(name, unit, height = 140) {
  const made = plot(name, height, (marks, told, width, tall, most) => {
    const step = width / told.length;
    shapes(
      marks,
      "rect",
      told.bars.map(({ key, value }, index) => {
        const size = value ? Math.max((value / most) * tall, 1) : 0;
        return {
          key,
          class: "bar",
          x: (index * step + Math.min(step * 0.1, 2)).toFixed(1),
          width: Math.max(step - Math.min(step * 0.2, 4), 1).toFixed(1),
          y: (tall - size).toFixed(1),
          height: size.toFixed(1),
        };
      }),
    );
  });
  return {
    node: made.node,
    update(list) {
      const tell = (bar) => `${bar.name}: ${rate(bar.value)} ${unit}`;
      made.update({
        bars: list,
        length: list.length,
        most: Math.max(...list.map((bar) => bar.value), 0),
        from: list[0]?.name ?? "",
        to: list.at(-1)?.name ?? "",
        title: `${name}. ${list.slice(-5).map(tell).join(", ")}`,
        now: list.length ? tell(list.at(-1)) : "no figures yet",
        place: (part) => Math.min(Math.floor(part * list.length), list.length - 1),
        tell: (index) => tell(list[index]),
      });
    },
  };
}
