"use strict";

/* Draws each chart from the JSON beside it, in the colours of the page's light or dark scheme. */
(() => {
  const CONFIG = { displayModeBar: false, responsive: true, showTips: false };
  const NARROW_PIXELS = 560; // no room for words beside the bars
  const REFERENCE = /^var\((--[a-z-]+)\)$/;

  const resolved = (value, style) => {
    if (typeof value === "string") {
      const found = REFERENCE.exec(value);
      return found ? style.getPropertyValue(found[1]).trim() : value;
    }
    if (Array.isArray(value)) {
      return value.map((item) => resolved(item, style));
    }
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(
        Object.entries(value).map(([name, item]) => [name, resolved(item, style)]),
      );
    }
    return value;
  };

  const charts = [...document.querySelectorAll(".chart")].map((target) => {
    const source = target.querySelector("script[type='application/json']");
    const figure = JSON.parse(source.textContent);
    target.replaceChildren();
    return { target, figure };
  });

  const draw = () => {
    const style = getComputedStyle(document.documentElement);
    for (const { target, figure } of charts) {
      if (target.closest("details:not([open])") !== null) {
        continue; // it has no width before it is unfolded
      }
      const { data, layout } = resolved(figure, style);
      if (target.clientWidth < NARROW_PIXELS) {
        layout.annotations = [];
      }
      Plotly.react(target, data, layout, CONFIG);
    }
  };

  document.addEventListener("figure", (event) => {
    const chart = charts.find(({ target }) => target.id === event.detail.id);
    if (chart !== undefined) {
      chart.figure = event.detail.figure;
      draw();
    }
  });
  draw();
  document.addEventListener("toggle", draw, true);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
