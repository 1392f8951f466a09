// A run's page: the chosen row, folded steps, keys, and what a refresh must not change.
"use strict";
(() => {
  const { keys, act, press, has } = window.countersign;
  const run = () => document.getElementById("run");
  const trace = () => document.querySelector(".trace");
  const chosen = () => document.querySelector('a.tr[aria-current="true"]');
  const folded = new Set();
  let atEnd = false, before = null;
  // A refresh that was asked for but has not begun, or was aborted because somebody chose a row.
  let missed = false;

  const calls = (step) => document.querySelectorAll(`.trace li[data-step="${step}"]:has(> .in1, > .in2)`);
  const stepOf = () => (document.activeElement.closest(".trace li") ?? chosen()?.closest("li"))?.dataset.step;
  const draw = () => { for (const step of folded) for (const row of calls(step)) row.hidden = true; };

  function mark(row) {
    if (!row || row === chosen()) return;
    chosen()?.removeAttribute("aria-current");
    row.setAttribute("aria-current", "true");
  }

  function fold(on) {
    const step = stepOf();
    if (!step || !calls(step).length) return false;
    folded[on ? "add" : "delete"](step);
    for (const row of calls(step)) row.hidden = on;
    if (on) document.getElementById(`row-${step}`)?.focus();
    return true;
  }

  async function copy(link) {
    await navigator.clipboard.writeText(link.dataset.trace ?? link.href);
    document.getElementById("spoken").textContent = link.dataset.trace ? "Trace id copied" : "Link copied";
    link.classList.add("is-done");
    setTimeout(() => link.classList.remove("is-done"), 1200);
  }

  keys.push(
    ["e", "Next error", has("next-error"), press("next-error"), "next-error"],
    ["p", "Pause", has("pause"), press("pause"), "pause"],
    ["y", "Copy the link", has("copy"), press("copy")],
    ["n", "Next match", has("next-match"), press("next-match")],
    ["Shift+N", "Previous match", has("previous-match"), null],
    ["ArrowLeft", "Fold the calls of a step", () => Boolean(trace()), () => fold(true)],
    ["ArrowRight", "Unfold them", () => Boolean(trace()), () => fold(false)],
  );

  // Handled here: the row in the table only shows the key.
  document.addEventListener("keydown", (event) => {
    if (event.key === "N" && !event.target.closest("input, textarea") && press("previous-match")() !== false) event.preventDefault();
  }, true);

  document.addEventListener("click", (event) => {
    const link = event.target.closest('[data-act="copy"], [data-act="copy-row"], [data-trace]');
    if (link && navigator.clipboard && !event.ctrlKey && !event.metaKey) { event.preventDefault(); copy(link); return; }
    const row = event.target.closest("a.tr[hx-get]:not([hx-target])");
    if (!row || event.ctrlKey || event.metaKey || event.shiftKey) return;
    // Enter on the chosen row moves the focus into the inspector.
    if (row === chosen() && !event.detail) document.getElementById("inspector").focus();
    mark(row);
    document.getElementById("inspector").ariaBusy = true;
    run().classList.add("is-inspecting");
  });

  // Choosing a row aborts a refresh under way, which would show the earlier choice; a refresh asked for meanwhile comes
  // afterwards. It asks for what is shown by then, and for everything that has been loaded.
  const isRefresh = (ctx) => ctx.sourceElement.id === "run";
  document.addEventListener("htmx:config:request", ({ detail: { ctx } }) => { missed ||= isRefresh(ctx); });
  document.addEventListener("htmx:before:request", ({ detail: { ctx } }) => {
    if (!isRefresh(ctx)) return;
    missed = false;
    const asked = new URL(location.href);
    const upto = document.getElementById("more")?.dataset.upto;
    if (upto) asked.searchParams.set("upto", upto);
    ctx.request.action = asked.pathname + asked.search;
  });
  document.addEventListener("htmx:finally:request", ({ detail: { ctx } }) => {
    if (isRefresh(ctx)) missed ||= ctx.status.includes("AbortError");
    // A refresh that waited begins right after this.
    else setTimeout(() => { if (missed) htmx.trigger(document.body, "run-changed"); });
  });
  document.addEventListener("htmx:before:swap", () => {
    const list = trace();
    before = chosen()?.id;
    atEnd = Boolean(list) && list.scrollTop > 0 && list.scrollTop + list.clientHeight > list.scrollHeight - 8;
  });
  document.addEventListener("htmx:after:swap", () => {
    draw();
    // After going back, or after a key: the row in the inspector is the chosen one.
    mark(document.getElementById(`row-${document.getElementById("inspector")?.dataset.row}`));
    if (atEnd && trace()) trace().scrollTop = trace().scrollHeight;
    else if (chosen()?.id !== before) chosen()?.scrollIntoView({ block: "nearest" });
  });
})();
