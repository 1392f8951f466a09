// Counts down what carries data-until, in words as the server writes them.
"use strict";
(() => {
  const { $, $$ } = countersign, ended = new WeakSet();

  function words(seconds) {
    if (seconds <= 0) return "time is up";
    if (seconds < 900) return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
    return `${Math.floor(seconds / 86400)} d`;
  }

  function tick() {
    for (const element of $$("[data-until]")) {
      const left = (Date.parse(element.dataset.until) - Date.now()) / 1000;
      const text = words(Math.ceil(left));
      if (element.textContent !== text) {
        element.textContent = text;
        if (element.matches("[role=timer]") && [300, 60, 0].includes(Math.ceil(left))) $("spoken").textContent = `Expires: ${text}`;
      }
      if (element.dataset.whole) drain(element, left / Number(element.dataset.whole));
      const due = element.closest(".due");
      if (due) { due.classList.toggle("soon", left < 900 && left >= 300); due.classList.toggle("now", left < 300); }
      if (left <= 0 && !ended.has(element)) end(element);
    }
  }

  function drain(element, share) {
    const bar = element.closest(".toast")?.querySelector(".drain rect");
    bar?.setAttribute("width", `${Math.max(0, Math.min(100, share * 100))}%`);
  }

  function end(element) {
    ended.add(element);
    element.closest("[data-toast]")?.remove();
    if (element.dataset.ends) document.body.dispatchEvent(new CustomEvent(element.dataset.ends, { bubbles: true }));
  }

  setInterval(tick, 500);
  document.addEventListener("DOMContentLoaded", tick);
})();
