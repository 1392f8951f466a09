// Opens dialogs in place. Without script the same links lead to a page that has them open.
// Keeps what was typed in them, per request, until it is sent.
"use strict";
(() => {
  function open(id) {
    const dialog = document.getElementById(id);
    if (!dialog || dialog.open) return false;
    dialog.showModal();
    (dialog.querySelector("textarea") ?? dialog.querySelector("button"))?.focus();
    return true;
  }

  const draftKey = (field) => `draft:${field.form?.getAttribute("action")}:${field.id}`;

  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const link = event.target.closest("[data-dialog]");
    if (link && open(link.dataset.dialog)) return event.preventDefault();
    const close = event.target.closest("[data-close]");
    const dialog = close?.closest("dialog");
    if (dialog?.open && dialog.id !== "conflict") { event.preventDefault(); dialog.close(); }
    if (event.target instanceof HTMLDialogElement) event.target.close();
  });

  document.addEventListener("input", (event) => {
    if (event.target.matches("[data-draft]")) sessionStorage.setItem(draftKey(event.target), event.target.value);
  });
  document.addEventListener("submit", (event) => {
    for (const field of event.target.querySelectorAll("[data-draft]")) sessionStorage.removeItem(draftKey(field));
  });

  function restore() {
    for (const field of document.querySelectorAll("[data-draft]")) {
      const kept = sessionStorage.getItem(draftKey(field));
      if (kept && !field.value) field.value = kept;
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    restore();
    // What the server opened becomes modal: the page behind it cannot be reached by Tab.
    for (const dialog of document.querySelectorAll("dialog[open]")) { dialog.close(); dialog.showModal(); }
    if (new URLSearchParams(location.search).get("do") === "edit") document.querySelector("#arguments ~ fieldset [data-field]")?.focus();
  });
  document.addEventListener("htmx:after:swap", restore);
})();
