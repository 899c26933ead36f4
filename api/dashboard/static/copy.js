"use strict";

/* Buttons that copy a file's text; without JavaScript they stay hidden, and the download remains. */
(() => {
  for (const button of document.querySelectorAll("[data-copy]")) {
    if (navigator.clipboard === undefined) {
      continue;
    }
    button.hidden = false;
    const label = button.textContent;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = label; }, 2000);
    });
  }
})();
