// Tells of new requests while the inbox is in a hidden tab, if its reader allowed that; takes back what waits no longer.
"use strict";
(() => {
  const banner = document.getElementById("notify");
  if (!banner || !("Notification" in window)) return;
  banner.hidden = Notification.permission !== "default" || "notify" in localStorage;
  banner.addEventListener("click", (event) => {
    const choice = event.target.closest("[data-notify]")?.dataset.notify;
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
    const fresh = notices.filter(({ id }) => document.hidden && known?.has(id) === false);
    known = new Set([...(known ?? []), ...ids]);
    if (!fresh.length) return;
    // More than three in half a minute are told of together.
    lately = [...lately, ...fresh.map(Date.now)].filter((at) => Date.now() - at < 30_000);
    if (lately.length > 3) tell({ id: "many", title: `${lately.length} new requests are waiting`, url: "/inbox/" });
    else shown.push(...fresh.map(tell));
  }

  document.addEventListener("inbox-changed", look);
})();
