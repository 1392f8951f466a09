// Opens dialogs in place, and keeps what was typed, per request, until it is decided.
"use strict";
(() => {
  const $$ = (selector) => [...document.querySelectorAll(selector)], store = sessionStorage;

  function open(id) {
    const dialog = document.getElementById(id);
    if (!dialog || dialog.open) return false;
    dialog.showModal();
    (dialog.querySelector("textarea, #confirm") ?? dialog.querySelector("button"))?.focus();
    return true;
  }

  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    for (const menu of $$("details.menu[open]")) menu.open = menu.contains(event.target);
    const link = event.target.closest("[data-dialog]");
    if (link && open(link.dataset.dialog)) return event.preventDefault();
    const close = event.target.closest("[data-close]");
    const dialog = close?.closest("dialog:not(#conflict)");
    if (dialog?.open) { event.preventDefault(); dialog.close(); }
    if (event.target.matches("dialog:not(#signed-out)")) event.target.close();
  });

  const draftOf = (form) => `draft:${document.body.dataset.user}:${form.getAttribute("action")}:`;
  const keyOf = (field) => draftOf(field.form) + field.id;

  document.addEventListener("input", ({ target: field }) => { if (field.matches("[data-draft]")) store[keyOf(field)] = field.value; });
  document.addEventListener("submit", ({ target }) => { if (target.querySelector("[data-draft]")) store.sent = draftOf(target); });

  // What was typed before this script was there is kept too.
  function restore() {
    for (const field of $$("[data-draft]")) {
      if (field.value !== field.defaultValue) store[keyOf(field)] = field.value;
      field.value ||= store[keyOf(field)] ?? "";
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

  document.addEventListener("DOMContentLoaded", () => {
    forget();
    restore();
    // What the server opened becomes modal: the page behind it cannot be reached by Tab.
    for (const dialog of $$("dialog[open]")) { dialog.close(); dialog.showModal(); }
    if (/\bdo=edit\b/.test(location.search)) document.querySelector("#arguments ~ fieldset [data-field]")?.focus();
  });
  document.addEventListener("htmx:after:swap", () => {
    restore();
    // Morphed, a control keeps what was typed; after Restore it takes what the server wrote.
    for (const field of $$("[data-restored]")) {
      if (field.type === "checkbox") field.checked = field.defaultChecked;
      else if (field instanceof HTMLSelectElement) for (const option of field.options) option.selected = option.defaultSelected;
      else field.value = field.defaultValue;
      delete field.dataset.restored;
    }
  });
})();
