// Whether the page is current, signed in, complete and of this release. Loaded before htmx, to catch its first events.
"use strict";
(() => {
  const STALE_MS = 25_000, OFFLINE_MS = 60_000, LOST_MS = 3000, SPEAK_MS = 10_000;
  // `since`: when the page was opened, or shown again.
  let last = 0, since = Date.now(), opened, ended, unreachable, lostAt, connection, offlineSince;

  const $ = (id) => document.getElementById(id), $$ = (selector) => [...document.querySelectorAll(selector)], page = document.body.dataset;
  // Shared by the scripts of a page.
  window.countersign = { $, $$ };
  const long = (ms) => (ms < 120_000 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / 60_000)} min`);
  const ask = (url) => fetch(url, { headers: { Accept: "application/json" }, redirect: "error" })
    .then((answer) => (answer.ok ? answer.json() : null)).catch(() => null);

  function state() {
    const now = Date.now(), silent = now - (last || since);
    if (ended) return ["off", "Signed out. Sign in again to decide."];
    if (unreachable || Math.min(silent, now - since) > OFFLINE_MS) {
      offlineSince ??= unreachable ? now : last || since;
      return ["off", `Offline since ${new Date(offlineSince).toTimeString().slice(0, 5)}. Decisions are disabled.`];
    }
    offlineSince = null;
    if (!opened) return silent > 5000 ? ["stale", "Reconnecting"] : ["", "Connecting"];
    const isStale = silent > STALE_MS || (lostAt && now - lostAt > LOST_MS);
    return isStale ? ["stale", `Reconnecting, last update ${long(silent)} ago`] : ["", "Live"];
  }

  function show() {
    const [kind, words] = state();
    for (const pill of $$("[data-live-pill]")) {
      for (const one of ["stale", "off"]) pill.classList.toggle(one, one === kind);
      const label = pill.querySelector("[data-live-words]");
      const text = label.closest(".rail, .topbar") ? words.split(/[.,]/)[0] : words;
      if (label.textContent !== text) label.textContent = text;
    }
    // Nobody decides on a stale page. A page that never had a stream decides as without JavaScript.
    const stop = kind === "off" || (kind === "stale" && opened);
    for (const button of $$("[data-needs-live]")) {
      if (stop ? button.disabled && !button.dataset.why : !button.dataset.why) continue;
      button.disabled = stop;
      for (const one of [button, button.closest(".decide, .dialog-foot")]) if (one) one.title = one.dataset.why = stop ? words : "";
    }
    speak();
  }

  function heard() { last = Date.now(); opened = true; unreachable = false; lostAt = 0; show(); }

  // Without a network a server on the same machine may still answer.
  async function reach() {
    unreachable = navigator.onLine === false && !(await fetch(page.counts).catch(() => null));
    show();
  }

  let counting, waiting, spoken, spokenAt = 0;
  function count() { counting ||= setTimeout(look, 150); }
  async function look() {
    counting = 0;
    const found = await ask(page.counts);
    if (!found) return;
    waiting = found.waiting;
    spoken = Math.min(spoken ?? waiting, waiting);
    for (const badge of $$("[data-waiting]")) badge.hidden = !waiting;
    for (const figure of $$("[data-waiting-n]")) figure.textContent = waiting;
    document.title = (waiting ? `(${waiting}) ` : "") + document.title.replace(/^\(\d+\) /, "");
    $("favicon").href = `${page.favicon}${Math.min(waiting, 10)}${found.due ? "-due" : ""}.svg`;
    speak();
  }
  function speak() {
    if (!(waiting > spoken) || Date.now() - spokenAt < SPEAK_MS) return;
    $("spoken").textContent = `${waiting - spoken} new, ${waiting} waiting`;
    spoken = waiting; spokenAt = Date.now();
  }

  // ---- signed out: sign in next to this page, then continue in it

  let parked;
  function expire() {
    if (ended) return;
    ended = true;
    parked = $("live");
    parked.remove();
    show();
    $("signed-out").showModal();
  }
  async function resume(asked) {
    if (!ended) return;
    const session = await ask(page.session);
    // Two calls may be under way at once; only one may resume the stream.
    if (!ended) return;
    if (!session?.user) { $("still").hidden = !asked; return; }
    // A different person must not continue on this page.
    if (session.user !== page.user) return location.reload();
    for (const field of $$("[name=csrfmiddlewaretoken]")) field.value = session.token;
    document.body.setAttribute("hx-headers:inherited", JSON.stringify({ "X-CSRFToken": session.token }));
    const stream = parked.cloneNode();
    stream.removeAttribute("data-htmx-powered");
    document.body.append(stream);
    htmx.process(stream);
    ended = false; since = Date.now();
    $("signed-out").close();
    show();
  }

  // ---- a part that could not be loaded says so in its place

  function fail({ detail: { ctx } }) {
    const status = ctx?.response?.status, target = ctx?.target;
    if (!target || ctx.sourceElement.id === "live" || status === 409 || status === 422) return;
    if (status === 401) return expire();
    target.querySelector("[data-failed]")?.remove();
    const answer = document.createElement("template");
    answer.innerHTML = (status && ctx.text) || "";
    const words = answer.content.querySelector("[data-failed]") ?? $("failed").content.firstElementChild.cloneNode(true);
    words.querySelector("[data-retry]")?.addEventListener("click", () => {
      words.remove();
      if (ctx.sourceEvent?.type) htmx.trigger(ctx.sourceElement, ctx.sourceEvent.type);
      else htmx.ajax(ctx.request.method, ctx.request.action, { source: ctx.sourceElement, target, swap: ctx.swap });
    });
    // The old content must not be taken for what was asked for.
    if (target.ariaBusy) target.replaceChildren();
    target.ariaBusy = null;
    target.prepend(words);
  }

  function reconnect() { connection?.reader?.cancel(); }

  document.addEventListener("htmx:sse:before:connection", (event) => {
    connection = event.detail.connection;
    if (connection.attempt && !document.hidden) lostAt ||= Date.now();
  });
  document.addEventListener("htmx:sse:after:connection", (event) => { if (event.detail.connection.status < 400) heard(); });
  document.addEventListener("htmx:sse:before:message", heard);
  document.addEventListener("htmx:response:error", fail);
  document.addEventListener("htmx:error", fail);
  document.addEventListener("inbox-changed", count);
  document.addEventListener("session.expired", expire);
  // Another page's stream has taken this one's place.
  document.addEventListener("replaced", () => { lostAt = 1; });
  document.addEventListener("deploy", (event) => { $("newer").hidden = event.detail.data === page.release; });
  document.addEventListener("click", (event) => { if (event.target.closest("[data-again]")) resume(true); });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    since = Date.now();
    resume();
    // A stream that was cut silently while the tab was hidden still looks open.
    if (opened && since - last > STALE_MS) reconnect();
  });
  addEventListener("focus", () => resume());
  addEventListener("online", () => { reach(); reconnect(); });
  addEventListener("offline", reach);
  setInterval(() => {
    show();
    if (document.hidden) return;
    if (navigator.onLine === false) reach();
    if (opened && Date.now() - last > STALE_MS + 5000) reconnect();
  }, 1000);
  // No event says when a request becomes due.
  setInterval(() => { if (!ended && waiting) count(); }, 30_000);
  document.addEventListener("DOMContentLoaded", () => {
    reach();
    if (document.activeElement === document.body && !location.hash && !$$("[autofocus]")[0]) $("main").focus({ preventScroll: true });
  });
  document.addEventListener("htmx:after:swap", show);
})();
