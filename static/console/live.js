// Says whether the page is current, and keeps title, favicon and badges true.
// Loaded before htmx: the stream's first events must find these listeners.
"use strict";
(() => {
  const STALE_MS = 25_000, OFFLINE_MS = 60_000;
  let last = 0, opened = false, ended = false, unreachable = false, connection = null, offlineSince = null;
  const started = Date.now();

  const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  const seconds = (ms) => Math.round(ms / 1000);

  function state() {
    const silent = Date.now() - (last || started);
    if (ended) return ["off", "Signed out. Sign in again to decide."];
    if (unreachable || silent > OFFLINE_MS) {
      offlineSince ??= Date.now() - (unreachable ? 0 : silent);
      return ["off", `Offline since ${clock(offlineSince)}. Decisions are disabled.`];
    }
    offlineSince = null;
    if (!opened) return silent > 5000 ? ["stale", "Reconnecting"] : ["", "Connecting"];
    return silent > STALE_MS ? ["stale", `Reconnecting, last update ${seconds(silent)} s ago`] : ["", "Live"];
  }

  function show() {
    const [kind, words] = state();
    for (const pill of document.querySelectorAll("[data-live-pill]")) {
      pill.classList.toggle("stale", kind === "stale");
      pill.classList.toggle("off", kind === "off");
      const label = pill.querySelector("[data-live-words]");
      const text = label.closest(".rail, .topbar") ? words.split(/[.,]/)[0] : words;
      if (label.textContent !== text) label.textContent = text;
    }
    // What is not current is not decided on. A page that never had a stream decides as without script.
    const stop = kind === "off" || (kind === "stale" && opened);
    for (const button of document.querySelectorAll("[data-needs-live]")) {
      if (stop && !button.disabled) { button.disabled = true; button.title = words; button.dataset.stopped = ""; }
      else if (!stop && "stopped" in button.dataset) { button.disabled = false; button.title = ""; delete button.dataset.stopped; }
    }
  }

  function heard() { last = Date.now(); opened = true; unreachable = false; show(); }

  // A browser without a network may still reach a server on its own machine: the server's answer counts.
  async function reach() {
    unreachable = navigator.onLine === false && !(await fetch(document.body.dataset.counts).catch(() => null));
    show();
  }

  async function count() {
    const { counts, favicon } = document.body.dataset;
    const answer = await fetch(counts, { headers: { Accept: "application/json" }, redirect: "error" }).catch(() => null);
    if (!answer?.ok) return;
    const { waiting } = await answer.json();
    for (const badge of document.querySelectorAll("[data-waiting]")) badge.hidden = waiting === 0;
    for (const figure of document.querySelectorAll("[data-waiting-n]")) figure.textContent = waiting;
    const title = document.title.replace(/^\(\d+\) /, "");
    document.title = waiting ? `(${waiting}) ${title}` : title;
    document.getElementById("favicon").href = `${favicon}${Math.min(waiting, 10)}.svg`;
    speak(waiting);
  }

  let spokenAt = 0, spoken = null;
  function speak(waiting) {
    if (spoken !== null && waiting > spoken && Date.now() - spokenAt > 10_000) {
      document.getElementById("spoken").textContent = `${waiting - spoken} new, ${waiting} waiting`;
      spokenAt = Date.now();
    }
    spoken = waiting;
  }

  function reconnect() { connection?.reader?.cancel(); }

  document.addEventListener("htmx:sse:before:connection", (event) => { connection = event.detail.connection; });
  document.addEventListener("htmx:sse:after:connection", (event) => { if (event.detail.connection.status < 400) heard(); });
  document.addEventListener("htmx:sse:before:message", heard);
  document.addEventListener("inbox-changed", count);
  document.addEventListener("session.expired", () => {
    ended = true; show();
    document.getElementById("live")?.remove();
  });
  document.addEventListener("visibilitychange", () => {
    // A stream that was killed silently while the tab was hidden looks open; ask for a new one.
    if (!document.hidden && opened && Date.now() - last > STALE_MS) reconnect();
  });
  addEventListener("online", () => { unreachable = false; show(); reconnect(); });
  addEventListener("offline", reach);
  setInterval(() => { show(); if (opened && Date.now() - last > STALE_MS + 5000 && !document.hidden) reconnect(); }, 1000);
  setInterval(() => { if (navigator.onLine === false && !document.hidden) reach(); }, 3000);
  document.addEventListener("DOMContentLoaded", reach);
  document.addEventListener("htmx:after:swap", show);
})();
