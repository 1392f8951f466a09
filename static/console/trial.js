// Trying a tool: ⌘↵ or Ctrl+Enter does a dry run, whose outcome is then read out and scrolled into view.
"use strict";
(() => {
  const { keys, act, has, caps } = window.countersign;
  keys.push(["Mod Enter", "Dry run", has("dry"), null]);

  const cap = () => {
    const place = document.querySelector("[data-dry-cap]:not(:has(.kbd))");
    for (const made of place ? caps("Mod Enter") : []) { made.setAttribute("aria-hidden", "true"); place.append(made); }
  };
  document.addEventListener("DOMContentLoaded", cap);

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.metaKey || event.ctrlKey) || event.repeat || event.isComposing || document.querySelector("dialog:modal")) return;
    event.preventDefault();
    act("dry")?.click();
  });

  let last = "";
  document.addEventListener("htmx:after:swap", () => {
    cap();
    const verdict = document.querySelector("#verdict");
    if (!verdict || (verdict.dataset.fresh ?? "") === last) return;
    last = verdict.dataset.fresh ?? "";
    if (!last) return;
    verdict.focus({ preventScroll: true });
    verdict.scrollIntoView({ block: "nearest" });
    document.querySelector("#trial-said").textContent = verdict.querySelector("h2").textContent;
  });
})();
