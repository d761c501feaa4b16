// Who looks at the page, and what that one may. The broker decides; here is hidden what it would refuse.

import { ask } from "./api.js";

const AGAIN = 2000; // ms

async function asked() {
  for (;;) {
    try {
      return await ask("/api/session");
    } catch (error) {
      document.getElementById("lost").textContent = error.message;
      await new Promise((done) => setTimeout(done, AGAIN));
    }
  }
}

/** {name, rights, csrf}; without a name where nobody has to log in. */
export const session = await asked();

/** A right is had or not, or has masks of names. */
export const may = (right) => Boolean(session.rights[right].length ?? session.rights[right]);

/** A stream has ended: perhaps one is known no more, which leads to the login, or may something else now. */
export async function lookAgain() {
  const now = await ask("/api/session").catch(() => session);
  if (JSON.stringify(now.rights) !== JSON.stringify(session.rights)) location.reload();
}
