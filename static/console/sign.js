// A passkey that signs what the form amounts to. Fetched when a decision is first signed.
// What the passkey has answered, for the one time the form is sent.
let signature = null;
document.addEventListener("formdata", ({ target, formData }) => {
  if (signature && target.id === "decide") formData.set("assertion", signature);
});

export async function sign(button, body, ask) {
  const asked = await fetch(button.dataset.sign, { method: "POST", body, redirect: "error" });
  if (asked.status >= 500) throw new Error("the server did not answer. Try again.");
  // What cannot be signed as it stands is sent as it is: the page that comes back says why, and keeps what was typed.
  if (asked.ok) signature = await ask((await asked.json()).request_options.publicKey);
  button.disabled = false;
  button.form.requestSubmit(button);
  signature = null;
}
