"use strict";

/* Says how many plans are selected; the form works without it. */
(() => {
  const form = document.getElementById("selection");
  const status = document.getElementById("selected");
  if (form === null || status === null) {
    return;
  }
  const hint = status.textContent;
  const tell = () => {
    const count = form.querySelectorAll("input[name='plan']:checked").length;
    if (count === 0) {
      status.textContent = hint;
    } else if (count === 1) {
      status.textContent = "1 plan selected; select at least one more.";
    } else if (count <= 6) {
      status.textContent = `${count} plans selected.`;
    } else {
      status.textContent = `${count} plans selected; at most six can be compared.`;
    }
  };
  form.addEventListener("change", tell);
  tell();
})();
