"use strict";

/* Follows a run: its state, its numbers, its charts and its logs; a turn of its history reloads. */
(() => {
  const { live, log, events, over } = document.currentScript.dataset;
  const BETWEEN = 1500;

  const write = (id, text) => {
    const place = document.getElementById(id);
    if (place !== null && text !== null && text !== undefined) {
      place.textContent = text;
    }
  };

  const draw = (figures) => {
    let isMissing = false;
    for (const [id, figure] of Object.entries(figures)) {
      if (figure === null) {
        continue;
      }
      isMissing = isMissing || document.getElementById(id) === null;
      document.dispatchEvent(new CustomEvent("figure", { detail: { id, figure } }));
    }
    return !isMissing;
  };

  const show = (now) => {
    write("state", now.state);
    write("step", now.step === null ? null : now.step.toLocaleString("en"));
    write("left", now.left);
    document.querySelectorAll("[data-beside]").forEach((row, index) => {
      const values = now.beside[index];
      if (values !== undefined) {
        [values.predicted, values.measured, values.ratio].forEach((text, place) => {
          row.cells[place + 1].textContent = text;
        });
      }
    });
    return draw(now.figures);
  };

  const readLogs = async () => {
    for (const box of document.querySelectorAll("[data-node]")) {
      const { node, attempt, offset } = box.dataset;
      const answer = await fetch(`${log}?node=${node}&attempt=${attempt}&offset=${offset}`);
      if (answer.ok) {
        const isAtEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 8;
        box.append(await answer.text());
        box.dataset.offset = answer.headers.get("X-End-Offset");
        if (isAtEnd) {
          box.scrollTop = box.scrollHeight;
        }
      }
    }
  };

  const look = async () => {
    try {
      const answer = await fetch(live, { cache: "no-store" });
      if (answer.ok) {
        const now = await answer.json();
        if (now.is_over || now.event_count !== Number(events) || !show(now)) {
          location.reload();
          return;
        }
        await readLogs();
      }
    } catch {
      /* the service is away for a moment: look again */
    }
    setTimeout(look, BETWEEN);
  };

  for (const box of document.querySelectorAll("[data-node]")) {
    box.scrollTop = box.scrollHeight;
  }
  if (over === undefined) {
    setTimeout(look, BETWEEN);
  }
})();
