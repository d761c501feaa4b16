// Questions and requests to the broker. What goes wrong is an Error whose message can be shown as it is.

const SOON = 10; // seconds for an answer
const SURELY = 40; // for what changes something: the broker itself gives up before

const LATE = "A browser has few connections to one host: close other windows of this page, if there are many.";
const LOGIN = "/login";

export async function ask(path, options) {
  const seconds = options ? SURELY : SOON;
  let answer, words;
  try {
    answer = await fetch(path, { ...options, signal: AbortSignal.timeout(seconds * 1000) });
    words = await answer.text();
  } catch (error) {
    if (error.name !== "TimeoutError") throw new Error("The broker cannot be reached.");
    const doubt = options ? " Whether it was done is not known." : "";
    throw new Error(`No answer in ${seconds} s.${doubt} ${LATE}`);
  }
  const told = parsed(words);
  if (answer.status === 401 && location.pathname !== LOGIN) location.replace(LOGIN + location.hash);
  if (answer.ok && told) return told;
  throw Object.assign(new Error(told?.error ?? `The broker answered ${answer.status}.`), { status: answer.status });
}

function parsed(words) {
  try {
    return JSON.parse(words);
  } catch {
    return null;
  }
}

export const post = (path, body, headers) =>
  ask(path, { method: "POST", headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) });

/** What no page of another site could send. Asked for each time: another window may have logged in anew. */
const proof = async () => ({ "x-csrf-token": (await ask("/api/session")).csrf ?? "" });

export const send = async (path, body) => post(path, body ?? {}, await proof());

export const remove = async (path) => ask(path, { method: "DELETE", headers: await proof() });

/** Asks now and every `seconds` while the page is looked at, one question at a time; `again` asks at once. */
export function polling(path, seconds, answered, failed) {
  let timer = 0;
  let turn = 0;
  let ended = false;
  async function again() {
    if (ended) return;
    clearTimeout(timer);
    const mine = ++turn;
    try {
      if (!document.hidden) {
        const told = await ask(path);
        if (!ended && turn === mine) answered(told);
      }
    } catch (error) {
      if (!ended && turn === mine) failed(error);
    }
    if (!ended && turn === mine) timer = setTimeout(again, seconds * 1000);
  }
  again();
  return {
    again,
    close: () => {
      ended = true;
      clearTimeout(timer);
    },
  };
}
