// The dialog of an approval that asks whoever gives it to show who they are: asks for a passkey in place, opens a sign-in
// beside the page, or lets a passkey sign the decision itself. Approve stays shut until the server says that what was
// shown is enough. The server judges by itself when it is pressed.
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
    for (const button of document.querySelectorAll("[data-passkey-to], [data-sign]")) button.hidden = !can;
    for (const said of state.querySelectorAll("[data-cannot]")) said.hidden = can;
    // What had the focus is gone.
    if ($("approve-dialog").open && !document.activeElement.matches("dialog :enabled, dialog a")) ($("confirm") ?? $("approve-dialog").querySelector(":enabled:not([hidden]), a")).focus();
  }

  async function ask(publicKey) {
    const shown = await navigator.credentials.get({ publicKey: Credential.parseRequestOptionsFromJSON(publicKey) });
    return JSON.stringify(shown.toJSON());
  }

  const says = (text) => { $("passkey-says").textContent = text; };
  const failed = ({ name, message }) => says(words[name] ?? `The passkey could not be used: ${message ?? name}`);

  async function renew(button) {
    const { passkeyOptions, passkeyTo } = button.dataset;
    says("");
    button.disabled = true;
    try {
      const { request_options: { publicKey } } = await (await fetch(passkeyOptions, { redirect: "error" })).json();
      const body = new FormData();
      body.set("csrfmiddlewaretoken", $("decide").elements.csrfmiddlewaretoken.value);
      body.set("credential", await ask(publicKey));
      // It leads on when it was right.
      const { status } = await fetch(passkeyTo, { method: "POST", body, redirect: "manual" });
      if (status) throw { name: status };
      document.body.dispatchEvent(new Event("renewed"));
    } catch (error) {
      failed(error);
    }
    button.disabled = false;
  }

  async function sign(button) {
    if (!button.form.reportValidity()) return;
    const body = new FormData(button.form, button);
    says("");
    button.disabled = true;
    await import(button.dataset.script).then((found) => found.sign(button, body, ask)).catch(failed);
    button.disabled = false;
  }

  document.addEventListener("click", (event) => {
    const passkey = event.target.closest("[data-passkey-to]"), signing = event.target.closest("[data-sign]");
    if (passkey) renew(passkey);
    if (!signing) return;
    event.preventDefault();
    sign(signing);
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.id !== "confirm" || event.key !== "Enter") return;
    event.preventDefault();
    $("approve-gate").querySelector("button").click();
  });
  document.addEventListener("DOMContentLoaded", show);
  document.addEventListener("htmx:after:swap", show);
})();
