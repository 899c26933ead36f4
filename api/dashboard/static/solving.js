"use strict";

/* Follows a search by server-sent events; when it ends, the page loads what came of it. */
(() => {
  const section = document.getElementById("solving");
  const bar = document.getElementById("ruled-out");
  const phase = document.getElementById("phase");

  const duration = (seconds) => {
    if (seconds === null || seconds === undefined) {
      return "n/a";
    }
    if (seconds >= 1) {
      return `${Number(seconds.toPrecision(3))} s`;
    }
    return `${Number((seconds * 1000).toPrecision(3))} ms`;
  };

  const show = (name, text) => {
    section.querySelector(`[data-progress='${name}']`).textContent = text;
  };

  const phases = JSON.parse(section.dataset.phases);

  const events = new EventSource(section.dataset.events);
  events.addEventListener("progress", (event) => {
    const progress = JSON.parse(event.data);
    const total = progress.configurations_total;
    const decided = total - progress.open_count;
    bar.max = Math.max(total, 1);
    bar.value = decided;
    phase.textContent = phases[progress.phase] ?? progress.phase.replaceAll("_", " ");
    show("decided", total ? `${decided.toLocaleString("en")} of ${total.toLocaleString("en")}` : "n/a");
    show("milp_count", progress.milp_count.toLocaleString("en"));
    show("best_seconds", duration(progress.best_seconds));
    show("lower_bound_seconds", duration(progress.lower_bound_seconds));
  });
  events.addEventListener("state", (event) => {
    if (JSON.parse(event.data).state !== "running") {
      events.close();
      location.reload();
    }
  });
})();
