// The dialog of an approval whose approver must show who they are: opens a sign-in next to the page, fetches the
// passkey script when needed, and disables Approve until the server says that what was shown is enough. When it is
// pressed, the server checks again.
"use strict";
(() => {
  const { PublicKeyCredential: Credential } = window, $ = (id) => document.getElementById(id);
  // A passkey belongs to a host name; an IP address has none.
  const can = Credential?.parseRequestOptionsFromJSON && !/^[\d.]+$|^\[/.test(location.hostname);

  function show() {
    const gate = $("approve-gate"), state = $("assurance");
    if (!gate) return;
    gate.disabled = !("assured" in state.dataset);
    // Remove the words about a failed try.
    if (!gate.disabled) { document.querySelector("[data-unassured]")?.remove(); $("passkey-says").textContent = ""; }
    for (const link of state.querySelectorAll("[data-beside]")) Object.assign(link, { href: link.dataset.beside, target: "_blank", rel: "opener" });
    for (const button of document.querySelectorAll("[data-passkey-to], [data-sign]")) button.hidden = !can;
    for (const said of state.querySelectorAll("[data-cannot]")) said.hidden = can;
    // The element that had the focus is gone.
    const dialog = $("approve-dialog");
    if (dialog.open && !document.activeElement.matches("dialog :enabled, dialog a")) ($("confirm") ?? dialog.querySelector(":enabled:not([hidden]), a")).focus();
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-passkey-to], [data-sign]");
    if (!button) return;
    event.preventDefault();
    if (button.form && !button.form.reportValidity()) return;
    const passkeys = await import($("approve-dialog").dataset.passkeys);
    passkeys.use(button);
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.id !== "confirm" || event.key !== "Enter") return;
    event.preventDefault();
    $("approve-gate").querySelector("button").click();
  });
  document.addEventListener("DOMContentLoaded", show);
  document.addEventListener("htmx:after:swap", show);
})();
