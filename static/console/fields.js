// The fields of a form made from a schema. When morphed, a control keeps what was typed; after Restore it takes the
// server's value.
"use strict";
document.addEventListener("htmx:after:swap", () => {
  for (const field of document.querySelectorAll("[data-restored]")) {
    for (const option of field.options ?? []) option.selected = option.defaultSelected;
    if (!field.options) { field.checked = field.defaultChecked; field.value = field.defaultValue; }
    delete field.dataset.restored;
  }
});
