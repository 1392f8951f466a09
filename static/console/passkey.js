// Passkeys: asks the browser for one, puts its answer into the button's form, and sends the form. A form for passkeys
// is hidden until this finds that the browser can use them, so no button does nothing.
"use strict";
(() => {
  const { PublicKeyCredential: Credential } = window;
  // A passkey belongs to a host name; an IP address has none.
  const can = Credential?.parseRequestOptionsFromJSON && Credential.parseCreationOptionsFromJSON && !/^[\d.]+$|^\[/.test(location.hostname);

  async function options(form) {
    const { options: where } = form.dataset;
    if (where.startsWith("#")) return JSON.parse(document.querySelector(where).textContent);
    const answer = await fetch(where, { headers: { Accept: "application/json" }, cache: "no-store" });
    if (answer.status === 429) throw new Error("There were too many tries. Wait a minute.");
    if (!answer.ok) throw new Error("The server did not answer. Try again.");
    return (await answer.json()).request_options;
  }

  async function ask(form) {
    const { publicKey } = await options(form);
    if (form.dataset.passkey === "get") return navigator.credentials.get({ publicKey: Credential.parseRequestOptionsFromJSON(publicKey) });
    publicKey.authenticatorSelection = { ...publicKey.authenticatorSelection, residentKey: "required", requireResidentKey: true, userVerification: "required" };
    return navigator.credentials.create({ publicKey: Credential.parseCreationOptionsFromJSON(publicKey) });
  }

  const words = { NotAllowedError: "No passkey was used. Try again, or use another way.", InvalidStateError: "This device already has a passkey for you." };

  for (const form of document.querySelectorAll("form[data-passkey]")) {
    if (!can) continue;
    form.hidden = false;
    for (const other of document.querySelectorAll("[data-no-passkey]")) other.hidden = true;
    for (const other of document.querySelectorAll("[data-after-passkey]")) other.classList.remove("primary");
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const says = form.querySelector("[data-passkey-says]"), button = form.querySelector("button");
      says.textContent = "";
      button.disabled = true;
      try {
        form.elements.credential.value = JSON.stringify((await ask(form)).toJSON());
        form.submit();
      } catch (error) {
        says.textContent = words[error.name] ?? `The passkey could not be used: ${error.message}`;
        button.disabled = false;
      }
    });
  }
})();
