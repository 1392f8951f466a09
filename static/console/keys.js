// One table drives handlers, caps, sheet and palette. A page's own script adds rows to `countersign.keys`; they win.
"use strict";
(() => {
  const { $$ } = countersign, page = document.body.dataset, ARM_MS = 6000, UNSEEN_MS = 400, AFTER_G_MS = 1500;
  let shownAt = 0, armedAt, shownId, pressedG = -1e9;

  const unseen = () => { shownAt = performance.now(); };
  // What has just appeared cannot have been read.
  const isNew = (since) => performance.now() - since < UNSEEN_MS;
  const isOff = (key) => page.singleKeys === "off" && !/^(Enter|Escape|Mod.*)$/.test(key);

  // A button in a closed menu can be pressed if the menu itself is shown.
  // In a part that is about to be replaced nothing can.
  const act = (name) => $$(`[data-act="${name}"]`).find((e) => (e.closest("details.menu") ?? e).checkVisibility() && !e.closest("[aria-busy]"));
  const press = (name) => () => { const element = act(name); if (!element || element.disabled) return false; element.click(); };
  const has = (name) => () => act(name);
  const rows = () => $$(".q-main, a.tr[href], .runs .rowlink");
  const canStep = (way) => (rows()[0] ? rows().length > 1 : act(way));
  const current = () => {
    const all = rows(), at = all.indexOf(document.activeElement);
    return at < 0 ? all.findIndex((row) => row.ariaCurrent) : at;
  };

  // key, words, where it applies, what it does (false: nothing), the act whose button shows the key
  const KEYS = [
    ["a", "Approve (high risk: arms, Enter confirms)", has("approve"), approve, "approve"],
    ["e", "Edit the arguments", has("edit"), edit, "edit"],
    ...[["r", "Reject: 1–4 picks a reason, ⌘↵ or Ctrl+↵ sends", "reject"], ["q", "Ask the agent", "ask"], ["t", "Take over the run", "take-over"],
      ["c", "Claim or release", "claim"], ["h", "Hand over", "hand"], ["s", "Snooze", "snooze"], ["x", "Select", "select"],
      ["f", "Focus mode", "focus"], ["z", "Undo my last decision", "undo"], ["o", "Open", "open"],
      [".", "Show the new ones", "news"], ["n", "Start a run", "new"]].map(([key, words, name]) => [key, words, has(name), press(name), name]),
    ["j", "Next", () => canStep("next"), () => step(1)],
    ["k", "Previous", () => canStep("previous"), () => step(-1)],
    ["Enter", "Open", () => has("open")() && atRest(), press("open")],
    ["u", "Back to the list", has("back"), press("back")],
    ["v", "Form, Diff, JSON", has("view"), nextView],
    ["/", "Find on this page", has("find"), () => { act("find").focus(); }],
    ["1–9", "Jump to evidence", () => $$("[data-evidence]")[0], null],
    ["Escape", "Close, else clear the selection", () => menus().length || act("clear"), escape],
    ["Mod k", "Search or jump to", () => true, () => open("#palette"), "search"],
    ["?", "These keys", () => true, () => open("#keys")],
  ];
  // G, then the letter of a page.
  for (const link of $$(".rail [data-go]")) {
    KEYS.push([`g ${link.dataset.go}`, `Go to ${link.title}`, () => true, () => { link.click(); }]);
  }

  const menus = () => $$("details.menu[open]");
  const atRest = () => document.activeElement?.matches("body, main, [role=region], .q-main");

  function approve() {
    const button = act("approve");
    return button?.matches("[data-arms]:enabled") ? arm(button) : press("approve")();
  }

  function arm(button) {
    button.focus();
    if (button.value === "confirm") return; // No second A confirms.
    armedAt = performance.now();
    const label = button.querySelector("[data-label]"), words = label.textContent;
    button.value = "confirm";
    label.textContent = button.dataset.arms;
    // By then the button may have been morphed into another, or armed for another act.
    const disarm = ({ key }) => {
      if (key !== "Escape" || button.onkeydown !== disarm || button.value !== "confirm") return;
      button.value = "approve";
      label.textContent = words;
    };
    button.onkeydown = disarm;
    setTimeout(disarm, ARM_MS, { key: "Escape" });
  }

  function edit() {
    const [field] = $$("#arguments ~ fieldset:not([hidden]) [data-field]:not([readonly])");
    if (!field) return press("edit")();
    field.focus();
    field.select?.();
  }

  function escape() {
    if (!menus().length) return press("clear")();
    for (const menu of menus()) { menu.open = false; menu.querySelector("summary").focus(); }
  }

  function step(by) {
    const all = rows();
    if (!all.length) return press(by > 0 ? "next" : "previous")();
    const at = current(), to = at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + by));
    if (to === at) return;
    const row = all[to];
    if (!countersign.choose?.(row) && row.matches(".tr")) row.click();
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  }

  function nextView() {
    const views = $$('.segment [name="view"]'), at = views.findIndex((view) => view.ariaCurrent);
    views[(at + 1) % views.length].click();
  }

  function evidence(key) {
    const item = $$("[data-evidence]").find((one) => one.dataset.evidence === key);
    item?.scrollIntoView({ block: "center" });
    item?.focus();
    return item;
  }

  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    if (event.target.closest('[data-act="search"]')) { event.preventDefault(); return open("#palette"); }
    // Confirming is an act of its own: not the end of a double click, nor before its words can have been read.
    const button = event.target.closest("[data-arms]");
    if (!button || (button.value === "confirm" && event.detail < 2 && !isNew(armedAt))) return;
    event.preventDefault();
    arm(button);
  });

  // Send once. A form that only closes a dialog sends nothing.
  function lock() { for (const button of $$("[data-needs-live]:enabled")) button.disabled = button.dataset.sent = true; }
  function unlock() { for (const button of $$("[data-sent]")) { button.disabled = false; delete button.dataset.sent; } }
  document.addEventListener("submit", (event) => { if (!event.target.matches("[method=dialog]")) setTimeout(lock); });
  addEventListener("pageshow", (event) => { if (event.persisted) unlock(); });
  // What htmx sends leaves the page where it is, whatever the outcome.
  document.addEventListener("htmx:finally:request", (event) => { if (event.detail.ctx.sourceEvent?.type === "submit") unlock(); });

  // Open it at once, so that what is typed next is not taken for a key of the page.
  function open(id) { $$(id)[0].showModal(); import(page.palette).then((found) => found.fill(id)); }

  const NAMES = { Escape: "Esc", Mod: /Mac|iP/.test(navigator.platform) ? "⌘" : "Ctrl" };
  const caps = (key) => key.split(/[ +]/).map((part) => Object.assign(document.createElement("kbd"), {
    className: "kbd", textContent: NAMES[part] ?? (part.length === 1 ? part.toUpperCase() : part),
  }));

  function mark() {
    for (const [key, , , , name] of KEYS) {
      if (!name || isOff(key)) continue;
      for (const element of $$(`[data-act="${name}"]:not(.vh, :has(.kbd))`)) {
        for (const made of caps(key)) { made.setAttribute("aria-hidden", "true"); element.append(made); }
        element.setAttribute("aria-keyshortcuts", key === "Mod k" ? "Control+K Meta+K" : key.toUpperCase());
      }
    }
    for (const radio of isOff("1") ? [] : $$("label:not(:has(.kbd)) [data-reason]")) radio.closest("label").append(...caps(radio.dataset.reason));
    note();
  }

  function note() {
    const [id] = $$("#peek-id, #request"), now = id && `${id.value ?? id.dataset.approval}:${id.dataset.version}`;
    if (now !== shownId) { unseen(); shownId = now; }
  }

  // `choose`: a page's way to show a row next to its list. `unseen`: something else is shown now.
  Object.assign(countersign, { keys: KEYS, act, press, has, rows, step, isOff, caps, unseen });

  // In a text field, keys are text. Enter alone sends nothing, neither there nor from a reason.
  function pick(event) {
    if (event.key === "Enter" && event.target.matches("[data-reason]")) event.preventDefault();
    const radio = $$("dialog:modal [data-reason]").find((one) => one.dataset.reason === event.key);
    if (!radio || isOff(event.key) || event.target.matches("textarea")) return;
    event.preventDefault();
    radio.focus();
    radio.click();
  }

  document.addEventListener("keydown", (event) => {
    // A key held down on a button it has armed would go on to confirm it.
    if (event.repeat && "Enter ".includes(event.key) && event.target.matches("[data-arms]")) event.preventDefault();
    if (event.isComposing || event.repeat || event.defaultPrevented) return;
    const [dialog] = $$("dialog:modal"), mod = event.metaKey || event.ctrlKey;
    if (mod && event.key.toLowerCase() === "k" && !event.altKey && !event.shiftKey) {
      event.preventDefault();
      if (dialog?.id === "palette") dialog.close();
      else if (!dialog) open("#palette");
      return;
    }
    const typing = event.target.closest?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");
    if (mod && event.key === "Enter" && (dialog || typing)) {
      event.preventDefault();
      // In the fields of a decision it decides; elsewhere it sends what is written there, or nothing.
      if (dialog || typing.form?.id !== "decide") (dialog ?? typing.form)?.querySelector('[data-act="send"]')?.click();
      else if (!isNew(shownAt)) approve();
      return;
    }
    if (dialog) return pick(event);
    if (typing) {
      if (event.key === "Escape") typing.blur();
      return;
    }
    if (mod || event.altKey) return;
    let key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (isOff(key) && !/^Arrow/.test(key)) return;
    // After G a letter opens a page or does nothing: never what it does alone.
    const isPage = performance.now() - pressedG < AFTER_G_MS;
    pressedG = !isPage && key === "g" ? performance.now() : -1e9;
    if (isPage) key = `g ${key}`;
    else if (event.shiftKey && /^[a-z]$/.test(key)) key = `Shift+${key}`;
    // Keys that only change the view need not wait until what is shown can have been read.
    if (isNew(shownAt) && !/^[jkuvg?/]|Esc|Shift/.test(alias(key))) return;
    const found = KEYS.findLast(([name, , applies, run]) => run && alias(key) === name && applies());
    if (found ? found[3](event) !== false : evidence(key)) event.preventDefault();
  });

  // Outside lists, arrows scroll.
  const alias = (key) => (rows().length && { ArrowDown: "j", ArrowUp: "k" }[key]) || key;

  document.addEventListener("DOMContentLoaded", () => {
    mark();
    unseen();
    if (/\bdo=edit\b/.test(location.search)) edit();
  });
  document.addEventListener("htmx:after:swap", mark);
})();
