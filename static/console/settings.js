// Browser notifications: the button here asks for permission, and the test shows one.
"use strict";
(() => {
  const ask = document.querySelector("[data-notify-ask]"), state = document.querySelector("[data-notify-state]");
  const words = {
    granted: "This browser shows notifications of this workspace.",
    denied: "This browser blocks them. Allow them in its settings for this address.",
    default: "This browser has not been asked yet.",
  };
  const permission = () => (window.Notification ? Notification.permission : "");

  function show() {
    state.textContent = words[permission()] ?? "This browser has no notifications.";
    ask.hidden = permission() !== "default";
  }

  ask.addEventListener("click", async () => { await Notification.requestPermission(); show(); });
  show();

  const tested = document.querySelector("[data-tested]");
  if (!tested) return;
  const line = tested.querySelector("[data-tested-browser]");
  if (permission() !== "granted") { line.textContent = `Browser: not shown. ${words[permission()] ?? "It has no notifications."}`; return; }
  try {
    new Notification(tested.dataset.tested, { body: "This is a test. There is nothing for you to do.", tag: "test" });
    line.textContent = "Browser: shown, unless your system holds notifications back.";
  } catch (error) {
    line.textContent = `Browser: not shown. ${error.message}`;
  }
})();
