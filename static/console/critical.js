// The dialog that approves what is critical: asks for a passkey in place, or opens a sign-in beside the page, and keeps
// Approve shut until the server says that it was enough. The server judges by itself when it is pressed.
"use strict";
(() => {
  const { PublicKeyCredential: Credential } = window, $ = (id) => document.getElementById(id);
  // A passkey belongs to a name; an address of numbers has none.
  const can = Credential?.parseRequestOptionsFromJSON && !/^[\d.]+$|^\[/.test(location.hostname);
  const words = { NotAllowedError: "No passkey was used. Try again, or sign in again.", 422: "That passkey does not match.", 429: "Too many tries. Wait a few minutes." };

  function show() {
    const gate = $("approve-gate"), state = $("assurance");
    if (!gate) return;
    gate.disabled = !("assured" in state.dataset);
    // What was said of not having been it.
    if (!gate.disabled) { document.querySelector("[data-unassured]")?.remove(); $("passkey-says").textContent = ""; }
    for (const link of state.querySelectorAll("[data-beside]")) Object.assign(link, { href: link.dataset.beside, target: "_blank", rel: "opener" });
    for (const button of state.querySelectorAll("[data-passkey-to]")) button.hidden = !can;
    // What had the focus is gone.
    if ($("critical-dialog").open && !document.activeElement.matches("dialog :enabled, dialog a")) $("confirm").focus();
  }

  async function renew(button) {
    const says = $("passkey-says"), { passkeyOptions, passkeyTo } = button.dataset;
    says.textContent = "";
    button.disabled = true;
    try {
      const { request_options: { publicKey } } = await (await fetch(passkeyOptions, { redirect: "error" })).json();
      const shown = await navigator.credentials.get({ publicKey: Credential.parseRequestOptionsFromJSON(publicKey) });
      const body = new FormData();
      body.set("csrfmiddlewaretoken", $("decide").elements.csrfmiddlewaretoken.value);
      body.set("credential", JSON.stringify(shown.toJSON()));
      // It leads on when it was right.
      const { status } = await fetch(passkeyTo, { method: "POST", body, redirect: "manual" });
      if (status) throw { name: status };
      document.body.dispatchEvent(new Event("renewed"));
    } catch ({ name, message }) {
      says.textContent = words[name] ?? `The passkey could not be used: ${message ?? name}`;
    }
    button.disabled = false;
  }

  document.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-passkey-to]");
    if (button) renew(button);
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.id !== "confirm" || event.key !== "Enter") return;
    event.preventDefault();
    $("approve-gate").querySelector("button").click();
  });
  document.addEventListener("DOMContentLoaded", show);
  document.addEventListener("htmx:after:swap", show);
})();
