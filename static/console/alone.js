// A page that is a dialog and nothing behind it: closing it leads where its Cancel does.
"use strict";
document.addEventListener("close", ({ target }) => {
  // Made modal, it was closed for a moment.
  if (!target.open) target.querySelector("[data-close]")?.click();
}, true);
