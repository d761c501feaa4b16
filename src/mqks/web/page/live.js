// What the broker says of itself each second, and whether it still says it.
//
// A browser has six connections to one host, and all its tabs share them: so only a page that is looked at keeps one
// open. A hidden one asks now and then, for its title.

import { ask } from "./api.js";
import { lookAgain } from "./session.js";

const PATIENCE = 4000; // ms without news after which the figures count as old
const AGAIN = 2000; // ms until a connection that was refused is tried again
const HIDDEN = 15000; // ms between two questions of a page that nobody sees

export const live = { state: null, spark: { step: 10, queues: {}, totals: {} }, lost: true };

/** Calls `changed(live)` at each news and when the connection is lost or found. */
export function listen(changed) {
  let source = null;
  let alarm = 0;

  function after(ms, act) {
    clearTimeout(alarm);
    alarm = setTimeout(act, ms);
  }

  function heard(state) {
    live.state = state;
    live.lost = false;
    changed(live);
  }

  function lose() {
    source?.close(); // ours to open again: browsers differ in when they do
    live.lost = true;
    changed(live);
    after(AGAIN, open);
    lookAgain();
  }

  function open() {
    source = new EventSource("/api/live");
    source.onerror = lose;
    source.addEventListener("state", (event) => {
      after(PATIENCE, lose);
      heard(JSON.parse(event.data));
    });
    source.addEventListener("spark", (event) => {
      live.spark = JSON.parse(event.data);
      if (live.state) changed(live);
    });
    after(PATIENCE + AGAIN, lose);
  }

  async function glance() {
    const state = await ask("/api/state").catch(() => null);
    if (!document.hidden) return; // the stream is open again
    if (state) heard(state);
    else if (!live.lost) changed(Object.assign(live, { lost: true }));
    after(HIDDEN, glance);
  }

  function turn() {
    source?.close();
    if (document.hidden) after(live.state ? HIDDEN : 0, glance);
    else open();
  }

  document.addEventListener("visibilitychange", turn);
  turn();
}
