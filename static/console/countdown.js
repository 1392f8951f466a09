// Counts down elements with data-until, in the server's words.
"use strict";
(() => {
  const { $, $$ } = countersign, ended = new WeakSet();

  function words(seconds, over = "time is up") {
    if (seconds <= 0) return over;
    if (seconds < 900) return `${Math.floor(seconds / 60)}:${`${seconds % 60}`.padStart(2, 0)}`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
    return `${Math.floor(seconds / 86400)} d`;
  }

  function tick() {
    for (const element of $$("[data-until]")) {
      const left = (Date.parse(element.dataset.until) - Date.now()) / 1000;
      const text = words(Math.ceil(left), element.dataset.over);
      if (element.textContent !== text) {
        element.textContent = text;
        if (element.matches("[role=timer]") && [300, 60, 0].includes(Math.ceil(left))) $("spoken").textContent = `Expires: ${text}`;
      }
      const due = element.closest(".due")?.classList, drain = element.closest(".toast")?.querySelector(".drain rect");
      drain?.setAttribute("width", `${Math.max(0, left / element.dataset.whole) * 100}%`);
      due?.toggle("soon", left < 900 && left >= 300);
      due?.toggle("now", left < 300);
      if (left <= 0 && !ended.has(element)) end(element);
    }
  }

  function end(element) {
    ended.add(element);
    element.closest("[data-toast]")?.remove();
    if (element.dataset.ends) document.body.dispatchEvent(new Event(element.dataset.ends, { bubbles: true }));
  }

  setInterval(tick, 500);
  tick();
})();
