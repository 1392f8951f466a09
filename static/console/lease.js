// Keeps a claim while its reader is at work, and gives it back when the page is closed for good.
"use strict";
(() => {
  const EVERY_MS = 60_000, WITHIN_MS = 5000;
  let renewed = Date.now(), within = 0;
  const held = () => document.querySelector("form[data-lease]");

  function active() {
    const form = held();
    if (!form || Date.now() - renewed < EVERY_MS) return;
    renewed = Date.now();
    fetch(form.dataset.lease, { method: "POST", body: new FormData(form) }).catch(() => null);
  }
  for (const kind of ["pointerdown", "keydown", "wheel"]) document.addEventListener(kind, active, { passive: true });

  // Going to another page of the console is not leaving: the claim is kept until its lease ends.
  for (const kind of ["click", "submit"]) {
    document.addEventListener(kind, (event) => { if (event.target.closest("a[href], form")) within = Date.now(); });
  }
  addEventListener("pagehide", () => {
    const form = held();
    if (form && Date.now() - within > WITHIN_MS) navigator.sendBeacon(form.action, new FormData(form));
  });
})();
