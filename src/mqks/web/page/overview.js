// The first view: the figures of all, the flow, the queues.

import { figures, h } from "./dom.js";
import { count, rate } from "./format.js";
import { flowView } from "./flow.js";
import { lines } from "./plots.js";
import { queuesView } from "./queues.js";

export function overview() {
  const totals = figures(
    {
      in: "Published/s",
      out: "Delivered/s",
      ready: "Ready",
      unacked: "Unacked",
      consumers: "Consumers",
      connections: "Connections",
    },
    "figures large",
  );
  const plot = lines("Messages per second", { in: "in", out: "out" }, 72);
  const flow = flowView();
  const queues = queuesView();
  return {
    title: "Overview",
    node: h(
      "div",
      { class: "view" },
      h("h1", { class: "unseen", tabindex: -1 }, "Overview"),
      h("div", { class: "sum" }, totals.node, plot.node),
      flow.node,
      queues.node,
    ),
    update(live) {
      const { totals: sum } = live.state;
      totals.update({
        in: rate(sum.rates.published),
        out: rate(sum.rates.delivered),
        ready: count(sum.ready),
        unacked: count(sum.unacked),
        consumers: count(sum.consumers),
        connections: count(sum.connections),
      });
      plot.update(
        [
          { name: "in", values: live.spark.totals.in ?? [], now: sum.rates.published },
          { name: "out", values: live.spark.totals.out ?? [], now: sum.rates.delivered },
        ],
        live.spark.step,
        "/s",
      );
      flow.update(live.state);
      queues.update(live);
    },
  };
}
