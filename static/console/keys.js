// One table drives the handlers, the key caps and the ? sheet. A cap exists only where its key works.
"use strict";
(() => {
  const ARM_MS = 6000, UNSEEN_MS = 400;
  let shownAt = 0, shownId = "";

  const act = (name) => [...document.querySelectorAll(`[data-act="${name}"]`)].find((e) => e.checkVisibility());
  const press = (name) => () => { const element = act(name); if (!element || element.disabled) return false; element.click(); return true; };
  const has = (name) => () => Boolean(act(name));
  const rows = () => [...document.querySelectorAll(".q-main, a.tr[href], .runs .rowlink")];
  const canStep = (way) => (rows().length ? rows().length > 1 : Boolean(act(way)));
  const current = () => {
    const all = rows();
    return all.includes(document.activeElement) ? all.indexOf(document.activeElement) : all.findIndex((row) => row.getAttribute("aria-current") === "true");
  };

  // key, words, where it applies, what it does, the act whose button carries the cap
  const KEYS = [
    ["a", "Approve (high risk: arms, Enter confirms)", has("approve"), approve, "approve"],
    ["e", "Edit the arguments", has("edit"), edit, "edit"],
    ["r", "Reject: 1–4 picks a reason, ⌘↵ or Ctrl+↵ sends", has("reject"), press("reject"), "reject"],
    ["z", "Undo my last decision", has("undo"), press("undo"), "undo"],
    ["j", "Next", () => canStep("next"), () => step(1)],
    ["k", "Previous", () => canStep("previous"), () => step(-1)],
    ["o", "Open", has("open"), press("open"), "open"],
    ["Enter", "Open", () => has("open")() && atRest(), press("open")],
    ["u", "Back to the list", has("back"), press("back")],
    ["v", "Form, Diff, JSON", has("view"), nextView],
    [".", "Show the new ones", has("news"), press("news"), "news"],
    ["n", "Start a run", has("new"), press("new"), "new"],
    ["/", "Find in the queue", has("find"), () => { act("find").focus(); return true; }],
    ["1–9", "Jump to evidence", () => Boolean(document.querySelector("[data-evidence]")), null],
    ["?", "These keys", () => true, sheet],
  ];

  const atRest = () => document.activeElement === document.body || document.activeElement?.matches("main, [role=region], .q-main");

  // ---- acts

  function approve() {
    const button = act("approve");
    if (!button || button.disabled) return false;
    if (button.dataset.arms && !button.classList.contains("is-armed")) return arm(button);
    button.click();
    return true;
  }

  function arm(button) {
    const label = button.querySelector("[data-label]");
    const words = label.textContent;
    button.classList.add("is-armed");
    label.textContent = button.dataset.arms + words.charAt(0).toLowerCase() + words.slice(1);
    button.focus();
    setTimeout(() => {
      if (!button.isConnected) return;
      button.classList.remove("is-armed");
      label.textContent = words;
    }, ARM_MS);
    return true;
  }

  function edit() {
    const field = document.querySelector("#arguments ~ fieldset:not([hidden]) [data-field]:not([readonly])");
    if (!field) return press("edit")();
    field.focus();
    field.select?.();
    return true;
  }

  function step(by) {
    const all = rows();
    if (!all.length) return press(by > 0 ? "next" : "previous")();
    const at = current(), to = at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + by));
    if (to === at) return true;
    if (!choose(all[to]) && all[to].matches(".tr")) all[to].click();
    all[to].focus({ preventScroll: true });
    all[to].scrollIntoView({ block: "nearest" });
    return true;
  }

  function nextView() {
    const views = [...document.querySelectorAll('.segment [name="view"]')];
    const at = views.findIndex((view) => view.getAttribute("aria-current") === "true");
    views[(at + 1) % views.length].click();
    return true;
  }

  function evidence(number) {
    const item = document.querySelector(`[data-evidence="${number}"]`);
    if (!item) return false;
    item.scrollIntoView({ block: "center" });
    item.focus();
    return true;
  }

  // ---- the queue: a row is shown beside the list where there is room for it

  function choose(row) {
    const peek = document.getElementById("peek");
    if (!peek || !peek.checkVisibility() || !window.htmx) return false;
    for (const other of rows()) {
      other.toggleAttribute("aria-current", false);
      other.closest(".q").classList.remove("is-current");
    }
    row.setAttribute("aria-current", "true");
    row.closest(".q").classList.add("is-current");
    shownAt = performance.now();
    htmx.ajax("GET", row.dataset.peek, { target: "#peek", swap: "outerMorph" });
    return true;
  }

  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const row = event.target.closest(".q-main");
    if (row?.dataset.peek && choose(row)) return event.preventDefault();
    const stepper = event.target.closest('#peek [data-act="next"], #peek [data-act="previous"]');
    if (stepper) { event.preventDefault(); step(stepper.dataset.act === "next" ? 1 : -1); return; }
    const button = event.target.closest("[data-arms]");
    if (button && !button.classList.contains("is-armed")) { event.preventDefault(); arm(button); }
  });

  // The form remembers which request comes next, so that deciding leads there.
  document.addEventListener("submit", (event) => {
    const following = event.target.querySelector("[data-following]");
    if (following) {
      const all = [...document.querySelectorAll('#queue [name="shown"]')].filter((input) => !input.closest(".is-gone"));
      const at = all.findIndex((input) => input.closest(".q").classList.contains("is-current"));
      following.value = (all[at + 1] ?? all[at - 1])?.value ?? "";
    }
    // Once is enough; the server would take a repeat for the same decision anyway.
    setTimeout(() => { for (const button of document.querySelectorAll("[data-needs-live]")) button.disabled = true; });
  });
  addEventListener("pageshow", (event) => {
    if (event.persisted) for (const button of document.querySelectorAll("[data-needs-live]")) button.disabled = false;
  });

  // ---- the sheet and the caps, from the same table

  function sheet() {
    let dialog = document.getElementById("keys");
    if (!dialog) {
      dialog = document.createElement("dialog");
      dialog.id = "keys"; dialog.className = "dialog"; dialog.setAttribute("aria-labelledby", "keys-title");
      const title = Object.assign(document.createElement("h2"), { id: "keys-title", className: "dialog-head", textContent: "Keys on this page" });
      const body = Object.assign(document.createElement("div"), { className: "dialog-body" });
      const list = Object.assign(document.createElement("dl"), { className: "keys" });
      body.append(list);
      const foot = Object.assign(document.createElement("form"), { className: "dialog-foot", method: "dialog" });
      foot.append(Object.assign(document.createElement("button"), { className: "btn", textContent: "Close" }));
      dialog.append(title, body, foot);
      document.body.append(dialog);
    }
    dialog.querySelector("dl").replaceChildren(...KEYS.filter(([, , applies]) => applies()).flatMap(([key, words]) => {
      const name = document.createElement("dt");
      name.append(cap(key));
      return [name, Object.assign(document.createElement("dd"), { textContent: words })];
    }));
    dialog.showModal();
    return true;
  }

  const cap = (key) => Object.assign(document.createElement("kbd"), { className: "kbd", textContent: key.length === 1 ? key.toUpperCase() : key });

  function caps() {
    for (const [key, , , , name] of KEYS) {
      for (const element of name ? document.querySelectorAll(`[data-act="${name}"]:not(.vh):not(:has(.kbd))`) : []) {
        const made = cap(key);
        made.setAttribute("aria-hidden", "true");
        element.append(made);
        element.setAttribute("aria-keyshortcuts", key.toUpperCase());
      }
    }
    for (const radio of document.querySelectorAll("[data-reason]")) {
      const label = radio.closest("label");
      if (!label.querySelector(".kbd")) label.append(cap(radio.dataset.reason));
    }
    note();
  }

  function note() {
    const id = document.getElementById("peek-id") ?? document.getElementById("request");
    const now = id ? `${id.value ?? id.dataset.approval}:${id.dataset.version ?? ""}` : "";
    if (now !== shownId) { shownAt = performance.now(); shownId = now; }
  }

  // ---- listening

  function inDialog(event, dialog) {
    if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) {
      const send = dialog.querySelector('[data-act="send"]');
      if (send && !send.disabled) { event.preventDefault(); send.closest("form").requestSubmit(send); }
    } else if (/^[1-4]$/.test(event.key) && !(event.target.matches("textarea") && event.target.value) && dialog.id === "reject-dialog") {
      const radio = dialog.querySelector(`[data-reason="${event.key}"]`);
      if (radio) { event.preventDefault(); radio.checked = true; }
    }
  }

  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.repeat || event.defaultPrevented) return;
    const dialog = document.querySelector("dialog:modal");
    if (dialog) return inDialog(event, dialog);
    const typing = event.target.closest("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");
    if (typing) {
      if (event.key === "Escape") typing.blur();
      else if (event.key === "Enter" && (event.metaKey || event.ctrlKey)) { event.preventDefault(); approve(); }
      return;
    }
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    if (performance.now() - shownAt < UNSEEN_MS) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (/^[1-9]$/.test(key)) { if (evidence(key)) event.preventDefault(); return; }
    const found = KEYS.find(([name, , applies, run]) => run && alias(key) === name && applies());
    if (found && found[3]()) event.preventDefault();
  });

  // Arrows move in a list only; elsewhere they scroll.
  const alias = (key) => (rows().length && { ArrowDown: "j", ArrowUp: "k" }[key]) || key;

  document.addEventListener("DOMContentLoaded", () => { caps(); shownAt = performance.now(); });
  document.addEventListener("htmx:after:swap", caps);
})();
