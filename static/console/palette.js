// The palette, and the sheet of keys. Fetched when first wanted; without script the same link leads to the search page.
const { $, $$, keys, isOff, caps } = countersign;
const dialog = $("palette"), input = $("palette-q"), acts = $("palette-acts");
const applying = (all) => [...new Map(keys.filter(([key, , applies]) => (all || !isOff(key)) && applies()).map((row) => [row[0], row])).values()];
const make = (tag, parts) => Object.assign(document.createElement(tag), parts);
const options = () => $$("#palette [role=option]");
const chosen = () => options().find((option) => option.ariaSelected === "true");

export function fill(id) {
  if (id === "#palette") { offer(); htmx.trigger(input, "palette"); return; }
  $$("#keys dl")[0].replaceChildren(...applying().flatMap(([key, words]) => {
    const name = make("dt", {});
    name.append(...caps(key));
    return [name, make("dd", { textContent: words })];
  }));
}

function choose(option = options()[0]) {
  for (const [number, other] of options().entries()) {
    other.id = `palette-${number}`;
    other.ariaSelected = other === option;
  }
  input.setAttribute("aria-activedescendant", option?.id ?? "");
  option?.scrollIntoView({ block: "nearest" });
}

function offer() {
  const wanted = input.value.trim().toLowerCase();
  const rows = applying(true).filter(([key, words, , run]) => run && !/^(g |Mod|E)/.test(key) && words.toLowerCase().includes(wanted));
  acts.replaceChildren(...rows.map(([key, words, , run]) => {
    const option = make("div", { className: "pal-i", role: "option", textContent: words });
    const shown = make("span", { className: "kbds" });
    if (applying().some((row) => row[0] === key)) shown.append(...caps(key));
    option.append(shown);
    option.addEventListener("click", () => { dialog.close(); run(); });
    return option;
  }));
  acts.parentNode.hidden = !rows.length;
  choose();
}

input.addEventListener("input", offer);
dialog.addEventListener("close", () => { input.value = ""; });
// Most swaps happen in the page behind.
document.addEventListener("htmx:after:swap", () => { if (dialog.open) choose(chosen()); });
dialog.addEventListener("keydown", (event) => {
  const all = options(), at = all.indexOf(chosen()), by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (event.isComposing || event.target !== input || !all.length) return;
  if (by) choose(all[(at + by + all.length) % all.length]);
  else if (event.key === "Enter") all[Math.max(at, 0)].click();
  else return;
  event.preventDefault();
});
