// The inbox: the preview next to the list if there is room, ticked rows, rows that arrive, rows that go.
"use strict";
(() => {
  const GONE_MS = 10_000;
  const { $, $$, keys, has, press, step } = countersign;
  const picks = (more = "") => $$(`#queue [name="pick"]${more}`);
  const current = () => picks().find((box) => box.closest(".is-current"));
  const told = () => { count(); window.htmx?.trigger(document.body, "picked"); };
  const count = () => { ticked = picks(":checked").length; };
  let ticked = 0;

  function tick(box, on = !box.checked) { box.checked = on; told(); return true; }
  const canExtend = () => picks()[1] && current();
  const extend = (way) => () => { tick(current(), true); step(way); tick(current(), true); };
  function clear() { for (const box of picks()) box.checked = false; told(); }

  keys.push(
    ["b", "Review what is selected", has("batch"), press("batch"), "batch"],
    ["x", "Select", current, () => tick(current())],
    ["Shift+j", "Extend the selection down", canExtend, extend(1)],
    ["Shift+k", "Extend the selection up", canExtend, extend(-1)],
  );

  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-filter-close]")) $("filters").replaceChildren();
    else if (event.target.closest('[data-act="clear"]')) clear(); else return;
    event.preventDefault();
  });
  document.addEventListener("change", count);
  // On a phone a long press selects.
  document.addEventListener("contextmenu", (event) => {
    const box = matchMedia("(pointer: coarse)").matches && event.target.closest("#queue .q")?.querySelector('[name="pick"]');
    if (box) { event.preventDefault(); $("selecting").checked = tick(box); }
  });

  // Rows that others decided stay a while; new ones are inserted only while nobody is reading.
  const seen = new WeakSet();
  // If the preview could not be loaded, only the row says what is chosen.
  const chosen = () => $("peek-id")?.value ?? $$("#queue .is-current")[0]?.id.slice(4);
  let shown = chosen();

  function go(row) {
    if (!row.matches(".is-gone")) seen.delete(row);
    else if (row.matches(".is-current, :hover")) setTimeout(go, GONE_MS, row);
    else row.remove();
  }

  const reading = () => $$("#queue :checked, #queue:is(:hover, :focus-within), dialog:modal, #filters form")[0]
    || $("queue-scroll").scrollTop || ($("peek").checkVisibility() && $$("#queue .is-current")[0]);

  function mark(id) {
    for (const row of $$("#queue .q")) {
      const is = row.id.slice(4) === id;
      row.classList.toggle("is-current", is);
      row.querySelector(".q-main").ariaCurrent = is || null;
    }
  }

  // An answer or failure about a request other than the one chosen last comes too late: drop it. If a button is armed,
  // what others do must not disarm it: look again a little later.
  for (const type of ["htmx:config:request", "htmx:after:request", "htmx:error"]) {
    document.addEventListener(type, (event) => {
      const { ctx } = event.detail, armed = $$("[value=confirm]")[0] && ctx?.sourceEvent?.type === "inbox-changed";
      if (ctx?.target?.id !== "peek" || !armed && (!chosen() || ctx.request.action.includes(chosen()))) return;
      event.preventDefault();
      event.stopPropagation();
      if (armed) setTimeout(() => htmx.trigger(ctx.target, "inbox-changed"), 1000);
    }, true);
  }

  document.addEventListener("htmx:after:swap", () => {
    // The list may have been fetched before the choice.
    if (chosen()) mark(chosen());
    // A ticked row that others decided loses its box.
    if (picks(":checked").length < ticked) told();
    const moved = chosen() !== shown;
    shown = chosen();
    for (const row of $$("#queue .is-gone")) {
      if (moved && !row.matches(".is-current")) row.remove();
      else if (!seen.has(row)) { seen.add(row); setTimeout(go, GONE_MS, row); }
    }
    if ($("news") && !reading()) htmx.ajax("GET", $("news").href, { target: ".split", select: ".split", swap: "outerMorph" });
  });
  countersign.choose = (row) => {
    const peek = $("peek");
    if (!row.dataset.peek || !peek?.checkVisibility() || !window.htmx) return;
    const id = row.closest(".q").id.slice(4);
    // What was typed and ticked belongs to its request: the next one gets new elements.
    if (id !== chosen()) for (const one of $$("#peek dialog, #peek form:has([data-draft])")) one.remove();
    mark(id);
    countersign.unseen();
    // Busy until the chosen one is there. A refresh of the list meanwhile is about the chosen one.
    peek.ariaBusy = true;
    if ($("peek-id")) $("peek-id").value = id;
    peek.setAttribute("hx-get", row.dataset.peek);
    htmx.trigger(peek, "choose");
    return true;
  };

  document.addEventListener("click", (event) => {
    // Show the new ones next to the request being read, which may have changed since their count was shown.
    const news = event.target.closest("#news");
    if (news && chosen()) news.search = `${news.search.replace(/&id=.*/, "")}&id=${chosen()}`;
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const row = event.target.closest(".q-main");
    if (row && countersign.choose(row)) return event.preventDefault();
    const stepper = event.target.closest("#peek .btn-group button");
    if (stepper) { event.preventDefault(); step(stepper.dataset.act === "next" ? 1 : -1); }
  });

  // The form remembers which request comes next, so that deciding leads there.
  document.addEventListener("submit", (event) => {
    const following = event.target.querySelector("[data-following]");
    if (!following) return;
    const left = $$("#queue .q:not(.is-gone)"), at = left.findIndex((row) => row.matches(".is-current"));
    following.value = (left[at + 1] ?? left[at - 1])?.id.slice(4) ?? "";
  });
})();
