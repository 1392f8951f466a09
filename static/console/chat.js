// The conversation: sends with one shortcut, stops with two presses, stays at the end while the reader is there, and
// announces finished messages. Everything also works without it.
"use strict";
(() => {
  const AGAIN_MS = 1500, NEAR = 80;
  let escaped = 0, atEnd = true, heard = 0;
  const { keys, act, has, caps } = window.countersign;
  const box = () => document.getElementById("say-text");
  const pane = () => { const talk = document.querySelector("[data-talk]"); return talk && talk.scrollHeight > talk.clientHeight ? talk : document.scrollingElement; };
  const said = () => document.querySelectorAll("[data-said]");

  keys.push(["Mod Enter", "Send", has("say"), null], ["Esc Esc", "Stop the agent", has("stop"), null, "stop"], ["t", "Take over", has("take-over"), window.countersign.press("take-over"), "take-over"]);

  // The key is named as on this machine.
  function cap() {
    const send = act("say");
    if (!send || send.querySelector(".kbd")) return;
    for (const made of caps("Mod Enter")) { made.setAttribute("aria-hidden", "true"); send.append(made); }
  }
  document.addEventListener("DOMContentLoaded", cap);

  // Runs before the handlers of every page: in the box these keys mean only this.
  addEventListener("keydown", (event) => {
    if (event.isComposing || event.repeat || document.querySelector("dialog:modal")) return;
    if (event.target === box() && event.key === "Enter" && (event.metaKey || event.ctrlKey)) {
      event.preventDefault();
      event.stopPropagation();
      const send = box().form.querySelector("[type=submit]");
      if (!send.disabled) box().form.requestSubmit(send);
    } else if (event.key === "Escape" && act("stop")) {
      event.preventDefault();
      const hint = document.getElementById("stop-hint");
      if (Date.now() - escaped < AGAIN_MS) return act("stop").click();
      escaped = Date.now();
      if (hint) { hint.textContent = "Esc again stops the agent"; setTimeout(() => { hint.textContent = ""; }, AGAIN_MS); }
    }
  }, true);

  function follow() { const talk = pane(); talk.scrollTop = talk.scrollHeight; }

  function announce() {
    const all = [...said()], fresh = all.slice(heard).filter((one) => one.dataset.said !== "customer");
    heard = all.length;
    const region = document.getElementById("chat-heard");
    if (region && fresh.length) region.textContent = fresh.map((one) => `${one.querySelector("b").textContent}: ${(one.querySelector(".said-b") ?? one).textContent.slice(0, 300)}`).join(". ");
  }

  // A refresh keeps a button armed if it is still about the same request.
  let armed;
  const about = ({ form, dataset }) => JSON.stringify([form.action, form.version.value, form.action_digest.value, dataset.arms]);
  const label = (button) => button.querySelector("[data-label]");
  function note() {
    const [button] = document.querySelectorAll(".asked [data-arms][value=confirm]");
    armed = button && { button, about: about(button), words: label(button).textContent };
  }
  function keep() {
    const button = armed?.button;
    if (!button?.isConnected || !button.dataset.arms || about(button) !== armed.about) return;
    button.value = "confirm";
    label(button).textContent = armed.words;
  }

  document.addEventListener("htmx:before:swap", () => { const talk = pane(); atEnd = talk.scrollHeight - talk.scrollTop - talk.clientHeight < NEAR; note(); });
  document.addEventListener("htmx:after:swap", () => { keep(); announce(); if (atEnd) follow(); });
  document.addEventListener("DOMContentLoaded", () => {
    heard = said().length;
    if (!location.search) follow();
    if (location.hash !== "#say-text" || !box()) return;
    // The message that led here was sent: it is no longer a draft, although the same box asks for more.
    box().value = box().defaultValue;
    box().dispatchEvent(new Event("input", { bubbles: true }));
    box().focus({ preventScroll: true });
    history.replaceState(null, "", location.pathname);
  });
})();
