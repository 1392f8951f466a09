// Focus mode: the next request is fetched in advance, and shown while the last decision is sent. It can be decided once
// the server has claimed it; if somebody was quicker, it is replaced.
"use strict";
(() => {
  const { keys, has, press } = countersign;
  keys.push(
    ["s", "Skip: leave it to others", has("skip"), press("skip"), "skip"],
    ["f", "Next request", has("focus"), press("focus"), "focus"],
  );
  const area = () => document.getElementById("focus");
  let coming = null;

  async function fetchNext() {
    coming = null;
    const address = area()?.dataset.upcoming;
    if (!address) return;
    const answer = await fetch(address, { headers: { "HX-Request": "true" } }).catch(() => null);
    const text = answer?.status === 200 ? await answer.text() : "";
    if (area()?.dataset.upcoming === address) coming = text;
  }

  // Nobody may type or press in an unseen request, even if its elements have the same names as the last one's.
  const rest = () => document.getElementById("main").focus({ preventScroll: true });

  // What was typed since the next one is shown stays when it is claimed, and never gets into another one.
  let typed;
  document.addEventListener("htmx:before:swap", ({ detail: { ctx, tasks } }) => {
    if (ctx.target !== area()) return;
    if (!ctx.text.includes(`data-approval-id="${area().dataset.approvalId}"`)) rest();
    else tasks[0].swapSpec.style = "outerMorph";
  });

  function show(text) {
    rest();
    const next = new DOMParser().parseFromString(text, "text/html").getElementById("focus");
    area().replaceWith(next);
    rest(); // again, if a dialog was removed with the last request: nothing behind it could have the focus
    next.classList.add("is-coming");
    for (const button of next.querySelectorAll("button, [data-act]")) button.inert = true;
    next.oninput = ({ target }) => { typed = target; };
    document.dispatchEvent(new CustomEvent("htmx:after:swap"));
    return next.dataset.approvalId;
  }

  // Claim the next one and show it. If that fails, the decision still counts: only the next request is missing.
  async function goOn(next, values) {
    await htmx.ajax("POST", next, { target: "#focus", swap: "outerHTML", values });
    const failed = area()?.querySelector("[data-failed]");
    if (!failed) {
      // At the end the last request is still there, and the page that comes forgets.
      if (area()?.dataset.approvalId !== values.decided) countersign.forget();
      // Nobody has been told of it yet.
      if (typed?.isConnected) typed.dispatchEvent(new Event("input", { bubbles: true }));
      return fetchNext();
    }
    failed.querySelector("span").textContent = "Your decision was taken. The next request could not be loaded.";
    const retry = failed.querySelector("[data-retry]"), ours = retry.cloneNode(true);
    ours.addEventListener("click", () => { failed.remove(); goOn(next, values); });
    retry.replaceWith(ours);
  }

  // Signed out: nothing was decided, and what was typed stays where it was.
  function back(before) {
    delete sessionStorage.sent;
    if (area() !== before) area().replaceWith(before);
    for (const button of before.querySelectorAll("[data-needs-live]")) button.disabled = false;
    document.dispatchEvent(new CustomEvent("htmx:after:swap"));
    document.dispatchEvent(new CustomEvent("session.expired"));
  }

  // Refused: the same form again, as a page, so that the server says why and nothing typed is lost.
  function again(form, button) {
    form.append(Object.assign(document.createElement("input"), { type: "hidden", name: button.name, value: button.value }));
    form.hidden = true;
    document.body.append(form);
    HTMLFormElement.prototype.submit.call(form);
  }

  document.addEventListener("submit", async (event) => {
    const form = event.target, button = event.submitter;
    if (!area()?.contains(form) || !form.action.endsWith("/decide/") || button?.hasAttribute("formaction")) return;
    event.preventDefault();
    const before = area(), body = new FormData(form, button), { approvalId: decided, next } = before.dataset;
    const wanted = coming ? show(coming) : "";
    // Fetched as a part: otherwise somebody signed out would be redirected to sign in, which looks like a decision.
    const headers = { "HX-Request": "true" };
    const answer = await fetch(form.action, { method: "POST", body, headers, redirect: "manual" }).catch(() => null);
    if (answer?.status === 401) return back(before);
    if (answer?.type !== "opaqueredirect") return again(form, button);
    goOn(next, { wanted, decided });
  });

  document.addEventListener("DOMContentLoaded", () => {
    fetchNext();
    document.querySelector("form[data-onward]")?.requestSubmit();
  });
})();
