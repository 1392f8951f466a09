// The page of one request: says what its reader is doing, copies its address, prints it, stops stale pages, and brings
// back what was typed if the reader left for another request or a decision never arrived, for example because they had
// been signed out.
"use strict";
(() => {
  const typing = () => document.activeElement?.matches("#decide [data-field]");
  const doing = () => (document.hidden ? "away" : typing() || document.querySelector("#request .was") ? "editing" : "viewing");

  // The form's fields that belong to the page, not to its reader.
  const OWN = new Set(["csrfmiddlewaretoken", "decision_id", "version", "action_digest", "now", "anyway", "assertion"]);
  const form = () => document.getElementById("decide");
  const typed = () => [...new FormData(form())].filter(([name]) => !OWN.has(name));
  const key = () => `form:${document.body.dataset.user}:${form().getAttribute("action")}`;
  // Typed before the reader went to another request. If the request has changed since, the form starts afresh.
  const left = () => `${key()}${form().elements.version.value}`;
  let back, first, isSent;

  function bringBack() {
    const url = form()?.getAttribute("hx-post");
    if (!form()) return;
    first = JSON.stringify(typed());
    const isAfresh = performance.getEntriesByType("navigation")[0]?.type === "reload";
    const sent = sessionStorage[key()] ?? (isAfresh ? null : sessionStorage[left()]);
    delete sessionStorage[key()];
    delete sessionStorage[left()];
    if (!sent || !url || sent === first) return;
    back = JSON.parse(sent);
    htmx.ajax("POST", url, { source: form(), target: "#request", swap: "outerMorph" });
  }

  document.addEventListener("submit", ({ target, submitter }) => {
    if (target.id !== "decide" || submitter?.hasAttribute("formaction")) return;
    isSent = true;
    // Keep only what the reader changed: somebody else may change the rest meanwhile.
    const now = JSON.stringify(typed());
    if (now !== first) sessionStorage[key()] = now;
  });
  addEventListener("pagehide", () => {
    const now = form()?.hasAttribute("hx-post") && JSON.stringify(typed());
    if (now && !isSent && now !== first) sessionStorage[left()] = now;
  });
  document.addEventListener("htmx:config:request", (event) => {
    const { body } = event.detail.ctx.request;
    if (event.target.id === "presence") body.set("doing", doing());
    if (!back || event.target.id !== "decide") return;
    for (const name of new Set(body.keys())) if (!OWN.has(name)) body.delete(name);
    for (const [name, value] of back) body.append(name, value);
    back = null;
  });

  function ready() {
    for (const button of document.querySelectorAll("[data-copy][hidden]")) button.hidden = false;
    // People must look at what changed before they decide.
    const stale = document.querySelector("#news[data-stale] .callout");
    if (stale) for (const button of document.querySelectorAll("#request .decide [data-needs-live]")) button.disabled = true;
  }

  document.addEventListener("click", (event) => {
    const copy = event.target.closest("[data-copy]"), print = event.target.closest("[data-print]");
    if (!copy && !print) return;
    event.preventDefault();
    (copy ?? print).closest("details")?.removeAttribute("open");
    if (print) return window.print();
    const from = document.getElementById(copy.dataset.copy);
    navigator.clipboard?.writeText(from ? from.value : location.origin + location.pathname).then(() => {
      document.getElementById("spoken").textContent = "Copied";
    });
  });
  document.addEventListener("DOMContentLoaded", () => { ready(); bringBack(); });
  document.addEventListener("htmx:after:swap", ready);
})();
