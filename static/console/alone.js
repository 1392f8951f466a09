// A page that is only a dialog: closing it leads where its Cancel does.
"use strict";
document.addEventListener("close", ({ target }) => {
  // It closes for a moment when it is made modal: ignore that.
  if (!target.open) target.querySelector("[data-close]")?.click();
}, true);
