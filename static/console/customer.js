// A customer's page: follows the conversation, and keeps what is typed until it is sent. Without this script, a reload
// shows what is new.
(() => {
  const page = document.querySelector("[data-stream]");
  if (!page) return;
  const offline = document.getElementById("offline"), old = offline.textContent;
  const UNSENT = "You are not connected, so nothing was sent. What you wrote stays here: send it when you are connected again.";
  // `lost` counts how often nobody answered: what was asked before that says nothing about now.
  let asking = false, again = false, reached = false, lost = 0, stream, later;

  const connected = () => { offline.hidden = true; offline.textContent = old; };

  // ---- what is typed is kept in this tab until a page shows it in the conversation

  const box = document.getElementById("text"), store = sessionStorage, written = `talk:${location.pathname}`, sent = `${written}:sent`;
  const latest = () => Math.max(0, ...[...document.querySelectorAll("#moving li.customer")].map(({ id }) => id.slice(1)));
  if (latest() > store[sent]) delete store[written];
  delete store[sent];
  box.value ||= store[written] ?? "";
  box.addEventListener("input", () => { store[written] = box.value; });

  // Sent without a network, it would lead to the browser's error page, and the conversation would be gone.
  document.addEventListener("submit", async (event) => {
    const { target: form, submitter } = event;
    if (navigator.onLine || reached) {
      if (form.contains(box)) { store[written] = box.value; store[sent] = latest(); }
      return;
    }
    event.preventDefault();
    // A server on the same machine still answers.
    reached = await fetch(page.dataset.part).catch(() => null);
    if (!reached) { lost += 1; offline.textContent = UNSENT; offline.hidden = false; }
    else if (submitter.isConnected) form.requestSubmit(submitter);
    reached = false;
  });

  if (!window.EventSource) return;

  // ---- new parts appear on their own

  // These fields change with every rendering, so they are not news.
  const FRESH = ["csrfmiddlewaretoken", "request_key", "answer_id"].map((name) => `input[name=${name}]`).join();
  function told(part) {
    const copy = part.cloneNode(true);
    for (const field of copy.querySelectorAll(FRESH)) field.remove();
    return copy.innerHTML;
  }

  const soon = (act) => setTimeout(act, 2000 + Math.random() * 3000);
  // The stream does not repeat what was missed.
  function retry() {
    offline.hidden = false;
    clearTimeout(later);
    later = soon(refresh);
  }

  // The server renders every part; the stream only says that there is something new.
  async function refresh() {
    if (asking) { again = true; return; }
    asking = true;
    clearTimeout(later);
    const before = lost;
    try {
      const answer = await fetch(page.dataset.part, { headers: { Accept: "text/html" } });
      if (answer.status === 404 || answer.status === 410) { location.reload(); return; }
      if (answer.status === 429 || answer.status >= 500) { retry(); return; }
      if (!answer.ok) return;
      const made = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("moving");
      const shown = document.getElementById("moving");
      if (stream.readyState === EventSource.OPEN && lost === before) connected();
      // Replace nothing that has the focus: a button must not move under a finger.
      if (made && shown && told(made) !== told(shown) && !shown.contains(document.activeElement)) {
        const atEnd = window.innerHeight + window.scrollY >= document.body.scrollHeight - 80;
        shown.replaceWith(made);
        if (atEnd) window.scrollTo(0, document.body.scrollHeight);
      }
    } catch { retry(); } finally {
      asking = false;
      if (again) { again = false; refresh(); }
    }
  }

  function listen() {
    stream = new EventSource(page.dataset.stream);
    stream.onopen = () => { if (!offline.hidden) refresh(); };
    stream.onerror = () => {
      offline.hidden = false;
      // After an answer that is not a stream, as from a server that is starting, the browser does not retry.
      if (stream.readyState === EventSource.CLOSED) soon(listen);
    };
    for (const name of ["message", "status", "confirmations", "needed", "mode"]) stream.addEventListener(name, refresh);
    stream.addEventListener("draft", (event) => {
      const draft = document.getElementById("draft");
      const text = JSON.parse(event.data).text;
      if (draft && text) draft.textContent = text; else refresh();
    });
    stream.addEventListener("closed", () => { stream.close(); location.reload(); });
  }

  listen();
  addEventListener("focusout", () => setTimeout(refresh, 0));
})();
