"use strict";
(() => {
  const pairs = /*PAIRS*/;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const settings = {
    responsive: true, displaylogo: false, displayModeBar: false,
  };
  const colours = (text) => dark.matches
    ? text.replace(/#[0-9a-f]{6}/g, (colour) => pairs[colour] || colour) : text;
  const draw = () => document.querySelectorAll("figure.chart").forEach((figure) => {
    const chart = JSON.parse(colours(figure.querySelector("script").textContent));
    if (figure.clientWidth < 420) chart.layout.font.size = 11;
    chart.layout.hoverlabel = { font: { family: chart.layout.font.family } };
    Plotly.react(figure.querySelector(".plot"), chart.data, chart.layout, settings);
  });
  dark.addEventListener("change", draw);
  draw();
})();
