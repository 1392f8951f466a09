// What the admin's pages add for people with JavaScript. Without it they read and save the same.

// On a phone a row is a card: each value follows the name of its column.
const list = document.getElementById("result_list");
if (list) {
  const names = [...list.tHead.rows[0].cells].map((cell) => cell.querySelector(".text")?.textContent.trim() ?? "");
  for (const row of list.tBodies[0].rows) {
    [...row.cells].forEach((cell, place) => {
      if (cell.tagName === "TD" && names[place] && !cell.classList.contains("action-checkbox")) cell.dataset.label = names[place];
      if (cell.textContent.trim() === "-" && !cell.querySelector("img")) cell.classList.add("is-empty");
    });
  }
}

// A part that shows what the form would mean. It is fetched again while people type.
for (const shown of document.querySelectorAll("[data-preview]")) {
  const form = shown.closest("form");
  const watched = shown.dataset.previewOf ? form.querySelector(shown.dataset.previewOf) : form;
  let timer, asking;
  const ask = async () => {
    asking?.abort();
    asking = new AbortController();
    try {
      const answer = await fetch(shown.dataset.preview, {
        method: "POST",
        body: new URLSearchParams(new FormData(form)),
        headers: { "X-Part": "1" },
        signal: asking.signal,
      });
      if (answer.ok && !answer.redirected) shown.innerHTML = await answer.text();
    } catch {
      // Leave it as it was: a newer request is on its way, or the network is gone.
    }
  };
  for (const event of ["input", "change"]) {
    watched.addEventListener(event, () => {
      clearTimeout(timer);
      timer = setTimeout(ask, 250);
    });
  }
  // Show what was typed before an error, or before going back in history.
  if (document.querySelector(".errornote")) ask();
}

// A name that is offered is inserted at the cursor.
document.addEventListener("click", (event) => {
  const name = event.target.closest("[data-insert]");
  const field = name && document.getElementById(name.dataset.into);
  if (!field) return;
  field.setRangeText(name.dataset.insert, field.selectionStart, field.selectionEnd, "end");
  field.focus();
  field.dispatchEvent(new Event("input", { bubbles: true }));
});
