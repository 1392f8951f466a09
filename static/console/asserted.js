// Passkeys in the dialog of an approval: one shows who its owner is, or signs the decision in the form. Fetched when a
// passkey is first needed.
const words = { NotAllowedError: "No passkey was used. Try again, or sign in again.", 422: "That passkey does not match.", 429: "Too many tries. Wait a few minutes." };
const says = (text) => { document.getElementById("passkey-says").textContent = text; };
const form = () => document.getElementById("decide");
// A passkey's answer, for the one time the form is sent.
let signature = null;

document.addEventListener("formdata", ({ target, formData }) => {
  if (signature && target.id === "decide") formData.set("assertion", signature);
});

async function ask({ publicKey }) {
  const shown = await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(publicKey) });
  return JSON.stringify(shown.toJSON());
}

async function renew({ dataset }) {
  const asked = await (await fetch(dataset.passkeyOptions, { redirect: "error" })).json();
  const body = new FormData();
  body.set("csrfmiddlewaretoken", form().elements.csrfmiddlewaretoken.value);
  body.set("credential", await ask(asked.request_options));
  // A redirect means that it was right.
  const { status } = await fetch(dataset.passkeyTo, { method: "POST", body, redirect: "manual" });
  if (status) throw { name: status };
  document.body.dispatchEvent(new Event("renewed"));
}

async function sign(button, body) {
  const asked = await fetch(button.dataset.sign, { method: "POST", body, redirect: "error" });
  if (asked.status >= 500) throw new Error("the server did not answer. Try again.");
  // If it cannot be signed, send it unsigned: the page that comes back says why, and keeps what was typed.
  if (asked.ok) signature = await ask((await asked.json()).request_options);
  button.disabled = false;
  form().requestSubmit(button);
  signature = null;
}

export async function use(button) {
  const signs = "sign" in button.dataset, body = signs && new FormData(form(), button);
  says("");
  button.disabled = true;
  await (signs ? sign(button, body) : renew(button)).catch(({ name, message }) => {
    says(words[name] ?? `The passkey could not be used: ${message ?? name}`);
  });
  button.disabled = false;
}
