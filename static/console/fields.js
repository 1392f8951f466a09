// A control that a person has typed in keeps what was typed when its element is morphed. After
// Restore it takes what the server wrote.
"use strict";
document.addEventListener("htmx:after:swap", () => {
  for (const field of document.querySelectorAll("[data-restored]")) {
    if (field.type === "checkbox") field.checked = field.defaultChecked;
    else if (field instanceof HTMLSelectElement) for (const option of field.options) option.selected = option.defaultSelected;
    else field.value = field.defaultValue;
    delete field.dataset.restored;
  }
});
