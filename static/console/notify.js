// Tells of new requests while the inbox is in a hidden tab, if its reader allowed that.
"use strict";
(() => {
  const MANY = 3, TOGETHER_MS = 30_000;
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

  let known = null, lately = [];

  function tell({ id, title, body, url }) {
    const told = new Notification(title, { body, tag: id });
    told.onclick = () => { window.focus(); location.assign(url); };
  }

  async function look() {
    if (Notification.permission !== "granted") return;
    const answer = await fetch(banner.dataset.notices, { redirect: "error" }).catch(() => null);
    if (!answer?.ok) return;
    const { notices } = await answer.json();
    const fresh = known && document.hidden ? notices.filter(({ id }) => !known.has(id)) : [];
    known = new Set([...(known ?? []), ...notices.map(({ id }) => id)]);
    if (!fresh.length) return;
    lately = [...lately.filter((at) => Date.now() - at < TOGETHER_MS), ...fresh.map(() => Date.now())];
    if (lately.length > MANY) tell({ id: "many", title: `${lately.length} new requests are waiting`, url: "/inbox/" });
    else fresh.forEach(tell);
  }

  document.addEventListener("inbox-changed", look);
})();
