"use strict";

/* Says how model and cluster are understood as soon as they are given, and what empty fields stand for. */
(() => {
  const form = document.getElementById("request");
  let asked = 0;

  const look = async () => {
    const mine = (asked += 1);
    const answer = await fetch(form.dataset.understanding, {
      method: "POST", body: new FormData(form), credentials: "same-origin",
    });
    const found = answer.ok ? await answer.json() : null;
    if (found === null || mine !== asked) {
      return;
    }
    for (const part of ["model", "cluster"]) {
      document.getElementById(`understood-${part}`).textContent = found[part];
    }
    for (const name of ["global_batch_size", "sequence_length"]) {
      form.elements[name].placeholder = found.empty[name] ?? "";
    }
  };

  form.addEventListener("change", look);
  if (form.querySelector(".complaint") === null) {
    look();
  }
})();
