// Tells news while the inbox is in a hidden tab, if its reader allowed that; closes notices that are out of date.
"use strict";
(() => {
  const banner = countersign.$("notify");
  if (!banner || !("Notification" in window)) return;
  banner.hidden = Notification.permission !== "default" || localStorage.notify;
  banner.addEventListener("click", (event) => {
    const choice = event.target.closest("button")?.dataset.notify;
    if (!choice) return;
    localStorage.notify = choice;
    banner.hidden = true;
    if (choice === "ask") Notification.requestPermission();
  });

  let known, lately = [], shown = [];

  function tell({ id, title, body, url }) {
    const told = new Notification(title, { body, tag: id });
    told.onclick = () => { focus(); location = url; };
    return told;
  }

  async function look() {
    if (Notification.permission !== "granted") return;
    const answer = await fetch(banner.dataset.notices, { redirect: "error" }).catch(() => null);
    if (!answer?.ok) return;
    const { notices } = await answer.json();
    const ids = notices.map(({ id }) => id);
    shown.forEach((told) => ids.includes(told.tag) || told.close());
    const fresh = notices.filter(({ id }) => document.hidden && known && !known.has(id));
    known = new Set([...known ?? [], ...ids]);
    if (!fresh[0]) return;
    // More than three in half a minute become one notice.
    lately = [...lately, ...fresh.map(Date.now)].filter((at) => Date.now() - at < 30_000);
    if (lately.length > 3) tell({ id: "many", title: `${lately.length} more to look at`, url: "/inbox/" });
    else shown.push(...fresh.map(tell));
  }

  document.addEventListener("inbox-changed", look);
  // No event says when a request becomes due.
  setInterval(look, 30_000);
})();
