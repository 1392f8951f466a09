// Opens dialogs in place, and keeps what was typed, per request, until it is decided.
"use strict";
(() => {
  const { $, $$ } = countersign, store = sessionStorage;

  function open(dialog) {
    dialog.showModal();
    (dialog.querySelector(":checked[data-reason], textarea, #confirm") ?? dialog.querySelector("button"))?.focus();
  }

  // To select a text out over the edge is no click beside the dialog.
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
  document.addEventListener("submit", ({ target }) => { if (target.querySelector("[data-draft]")) store.sent = draftOf(target); });

  document.addEventListener("focusin", ({ target }) => { if (target.maxLength > 0) import(document.body.dataset.lengths); });

  // What was typed before this script was there is kept too.
  function restore() {
    for (const field of $$("[data-draft]")) {
      if (field.value !== (field.defaultValue ?? "")) store[keyOf(field)] = field.value;
      field.value ||= store[keyOf(field)] ?? "";
      // Of a radio button, which has no id of its own here, it says which of them.
      if (store[keyOf(field)] === field.value) field.checked = true;
    }
  }

  // What was sent and is not asked for again has been decided; what is, was refused or never arrived. Only the box of
  // comments asks for more when one was said: that is where the page then leads.
  function forget() {
    const { sent } = store;
    if (!sent || $$(".problem")[0]) return;
    delete store.sent;
    if (location.hash !== "#comments" && $$("[data-draft]").some((field) => draftOf(field.form) === sent)) return;
    for (const key in store) if (key.startsWith(sent)) delete store[key];
  }

  // What the server opened becomes modal: the page behind it cannot be reached by Tab.
  function cover() { for (const dialog of $$("dialog[open]:not(:modal)")) { dialog.close(); dialog.showModal(); } }

  document.addEventListener("DOMContentLoaded", () => {
    forget();
    restore();
    cover();
  });
  document.addEventListener("htmx:after:swap", () => {
    restore();
    cover();
  });
})();
