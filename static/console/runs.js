// Cancelling in the list: a second click within three seconds does it. Without JavaScript the link asks on a page.
"use strict";
(() => {
  const ARM_MS = 3000;
  // Kept outside the page's elements: rows are replaced whenever a run moves.
  let armed = "", timer = 0;

  const show = () => {
    for (const link of document.querySelectorAll("[data-twice]")) {
      const is = link.href === armed;
      if (is === link.classList.contains("is-armed")) continue;
      link.classList.toggle("is-armed", is);
      link.firstChild.textContent = is ? "Really cancel" : "Cancel";
    }
  };
  const arm = (href) => { armed = href; clearTimeout(timer); if (href) timer = setTimeout(arm, ARM_MS, ""); show(); };

  document.addEventListener("click", async (event) => {
    const link = event.target.closest("[data-twice]");
    if (!link || event.ctrlKey || event.metaKey || !window.htmx) return;
    event.preventDefault();
    if (link.href !== armed) return arm(link.href);
    arm("");
    await htmx.ajax("POST", link.href, { source: document.body, swap: "none" });
    htmx.trigger(document.body, "runs-changed");
  });
  document.addEventListener("htmx:after:swap", show);
})();
