// Opens dialogs in place, and keeps what was typed, per request, until it is decided.
"use strict";
(() => {
  const { $, $$ } = countersign, store = sessionStorage;

  function open(dialog) {
    dialog.showModal();
    (dialog.querySelector(":checked[data-reason], textarea, #confirm") ?? dialog.querySelector("button"))?.focus();
  }

  // Selecting text past the edge is not a click outside the dialog.
  let pressed;
  document.addEventListener("pointerdown", ({ target }) => { pressed = target; });

  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    for (const menu of $$("details.menu[open]")) menu.open = menu.contains(event.target);
    const wanted = $(event.target.closest("[data-dialog]")?.dataset.dialog);
    if (wanted?.open === false) { event.preventDefault(); return open(wanted); }
    const dialog = event.target.closest("[data-close]")?.closest("dialog:not(#conflict)");
    if (dialog?.open) { event.preventDefault(); dialog.close(); }
    if (event.target === pressed && pressed.matches("dialog:not(#signed-out)")) pressed.close();
  });

  const draftOf = (form) => `draft:${document.body.dataset.user}:${form.getAttribute("action")}:`;
  const keyOf = (field) => draftOf(field.form) + (field.id || field.name);

  document.addEventListener("input", ({ target: field }) => { if (field.matches("[data-draft]")) store[keyOf(field)] = field.value; });
  document.addEventListener("submit", ({ target }) => { store.sent = draftOf(target); });

  document.addEventListener("focusin", ({ target }) => { if (target.maxLength > 0) import(document.body.dataset.lengths); });

  // If the page no longer asks for what was sent, it was accepted; otherwise it was refused or never arrived. A form that
  // is there again after a success says so, or the page leads to the comments. Of a request that was decided, only a
  // comment may still be sent.
  countersign.forget = () => {
    const { sent } = store;
    if (!sent || $$(".problem")[0]) return;
    delete store.sent;
    if (location.hash !== "#comments" && !$$("[data-accepted]")[0] && $$("[data-draft]").some((field) => draftOf(field.form) === sent)) return;
    const [about] = sent.split("decide/:");
    for (const key in store) if (key.startsWith(about) && !key.startsWith(`${about}comments/`)) delete store[key];
  };

  function show() {
    for (const field of $$("[data-draft]")) {
      // Keep also what was typed before this script had loaded.
      if (field.value !== (field.defaultValue ?? "")) store[keyOf(field)] = field.value;
      field.value ||= store[keyOf(field)] ?? "";
      // Radio buttons share a key here: the stored value says which one is checked.
      field.checked ||= store[keyOf(field)] === field.value;
    }
    // A dialog opened by the server becomes modal: Tab cannot reach the page behind it.
    for (const dialog of $$("dialog[open]:not(:modal)")) { dialog.close(); dialog.showModal(); }
  }

  document.addEventListener("DOMContentLoaded", countersign.forget);
  document.addEventListener("DOMContentLoaded", show);
  document.addEventListener("htmx:after:swap", show);
})();
