"use strict";

/* Shows how far questions are; when one is answered, the page loads its answer. */
(() => {
  const url = document.currentScript.dataset.states;
  const boxes = [...document.querySelectorAll("[data-analysis]")];

  const look = async () => {
    const answer = await fetch(url, { credentials: "same-origin" });
    if (!answer.ok) {
      return;
    }
    const states = new Map((await answer.json()).map((each) => [each.key, each]));
    for (const box of boxes) {
      const now = states.get(box.dataset.analysis);
      if (now === undefined || now.state !== "running") {
        location.reload();
        return;
      }
      const bar = box.querySelector("progress");
      bar.max = Math.max(now.total, 1);
      bar.value = now.done;
      box.querySelector("[data-phase]").textContent = now.phase;
    }
    setTimeout(look, 1000);
  };

  setTimeout(look, 700);
})();
