// A token becomes a session; then the view that was asked for is shown.

import { ask, post } from "./api.js";

const $ = (id) => document.getElementById(id);
const enter = () => location.replace(`/${location.hash}`);

function say(words, kind) {
  $("said").textContent = words;
  $("said").className = kind;
}

$("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  $("press").disabled = true;
  say("One moment …", "");
  try {
    await post("/api/session", { token: $("token").value.trim() });
    enter();
  } catch (error) {
    say(error.message, "bad");
    $("token").select();
  }
  $("press").disabled = false;
});

// Who came by a link of another site is logged in, perhaps: with such a link the browser sends no cookie.
ask("/api/session").then(enter, () => {});
