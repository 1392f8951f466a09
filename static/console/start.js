// The form of a new run, as it was left in this tab: the chosen agent brings its fields and routes. Cancel leaves
// nothing behind.
"use strict";
addEventListener("load", () => {
  const agent = document.querySelector("#start [name=agent]:checked");
  if (agent && !agent.defaultChecked) agent.dispatchEvent(new Event("change", { bubbles: true }));
});
document.addEventListener("click", ({ target }) => {
  const form = target.closest("[data-discard]")?.closest("form");
  // Treated as sent, so the next page forgets it.
  if (form) sessionStorage.sent = `draft:${document.body.dataset.user}:${form.getAttribute("action")}:`;
});
