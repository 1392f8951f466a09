// Says how full a field is from four fifths on, and that text was cut because it did not fit: browsers cut it silently.
// Fetched when the first field with a limit gets the focus.
const WORTH_SAYING = 0.8;
const shown = (number) => number.toLocaleString("en");
// Shorter fields hold a number or a code, where nobody counts letters.
const SHORT = 24;
const is = (field) => field?.maxLength > SHORT && field.matches("textarea, .field input:not([type=password])");
// Fields whose text was cut, until there is room again.
const cut = new WeakSet();

function note(field) {
  const box = field.closest(".field"), id = `${field.id}-length`;
  let words = document.getElementById(id);
  if (!words) {
    words = Object.assign(document.createElement("span"), { id, className: "hint length" });
    if (box) box.append(words); else field.after(words);
    field.setAttribute("aria-describedby", `${field.getAttribute("aria-describedby") ?? ""} ${id}`.trim());
  }
  return words;
}

function say(field) {
  const { maxLength, value: { length } } = field;
  if (length < maxLength) cut.delete(field);
  const text = cut.has(field) ? `Cut at ${shown(maxLength)} characters.`
    : length >= WORTH_SAYING * maxLength ? `${shown(length)} of ${shown(maxLength)}` : "";
  if (text || document.getElementById(`${field.id}-length`)) note(field).textContent = text;
  return text;
}

document.addEventListener("beforeinput", ({ target: field, data, dataTransfer, inputType }) => {
  if (!is(field) || !inputType.startsWith("insert")) return;
  const given = (data ?? dataTransfer?.getData("text") ?? "").replace(/\r\n?/g, "\n");
  const selected = field.selectionEnd - field.selectionStart;
  if (field.value.length - selected + given.length <= field.maxLength) return;
  // After the browser has cut it.
  setTimeout(() => {
    cut.add(field);
    const text = say(field), spoken = document.getElementById("spoken");
    if (spoken && cut.has(field)) spoken.textContent = text;
  });
});
document.addEventListener("input", ({ target }) => { if (is(target)) say(target); });
document.addEventListener("focusin", ({ target }) => { if (is(target)) say(target); });
if (is(document.activeElement)) say(document.activeElement);
