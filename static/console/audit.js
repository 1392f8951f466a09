// A row opens below itself and closes again; keys of the audit trail. Without JavaScript a row leads to its permalink.
"use strict";
(() => {
  const rowOf = (link) => link.closest("tr"), opened = () => document.querySelector("tr.detail");

  function close() {
    const detail = opened();
    if (!detail) return null;
    const row = detail.previousElementSibling;
    row.classList.remove("is-open");
    row.querySelector(".rowlink").ariaExpanded = "false";
    detail.remove();
    return row;
  }

  // Before htmx sees the click: a second press closes what the first opened.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-event]");
    if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    if (close() === rowOf(link)) { event.preventDefault(); event.stopImmediatePropagation(); }
  }, true);

  document.addEventListener("htmx:after:swap", () => {
    const details = [...document.querySelectorAll("tr.detail")];
    // Two quick presses have fetched it twice.
    for (const extra of details.slice(0, -1)) if (extra.previousElementSibling?.matches(".is-open, .detail")) extra.remove();
    const row = opened()?.previousElementSibling;
    if (!row?.matches("tr[id]") || row.matches(".is-open")) return;
    for (const other of document.querySelectorAll("tr.is-open")) other.classList.remove("is-open");
    row.classList.add("is-open");
    row.querySelector(".rowlink").ariaExpanded = "true";
  });

  for (const link of document.querySelectorAll("[data-event]")) link.ariaExpanded = "false";

  const copy = document.querySelector("[data-copy-here]");
  if (copy && navigator.clipboard) {
    copy.hidden = false;
    copy.addEventListener("click", async () => {
      await navigator.clipboard.writeText(location.origin + location.pathname);
      copy.lastChild.textContent = "Copied";
    });
  }

  const { keys, has, press } = countersign;
  keys.push(["x", "Export what is found", has("export"), press("export"), "export"]);
  keys.push(["v", "Check the chain now", has("verify"), press("verify"), "verify"]);
  keys.push(["Escape", "Close the row", () => opened(), () => { close()?.querySelector(".rowlink").focus(); }]);
})();
