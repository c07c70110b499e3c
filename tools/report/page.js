// Reads values from the charts, by pointer or keyboard. Everything else on the page works without.
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);

  function attach(chart, figure) {
    const plot = figure.querySelector(".plot");
    const cross = figure.querySelector(".cross");
    const readout = figure.querySelector(".readout");
    const resting = readout.textContent;
    const stops = [...new Set(chart.lines.flatMap((line) => line.at))].sort((a, b) => a - b);
    let stop = -1; // a place in stops; -1: none

    function nearest(places, at) {
      let best = 0;
      for (let i = 1; i < places.length; ++i) {
        if (Math.abs(places[i] - at) < Math.abs(places[best] - at)) best = i;
      }
      return best;
    }
    function show(next) {
      stop = Math.max(0, Math.min(stops.length - 1, next));
      const at = stops[stop];
      const texts = [];
      let x = "";
      for (const line of chart.lines) {
        const i = nearest(line.at, at);
        if (Math.abs(line.at[i] - at) > 25) continue; // this run has nothing near
        x = x || line.x[i];
        texts.push(`${line.name} ${line.y[i]}`.trim());
      }
      readout.textContent = `${chart.unit} ${x}:  ${texts.join("   ")}`;
      cross.style.left = `${at / 10}%`;
      cross.hidden = false;
    }
    function rest() {
      stop = -1;
      cross.hidden = true;
      readout.textContent = resting;
    }

    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      show(nearest(stops, (1000 * (event.clientX - box.left)) / box.width));
    });
    plot.addEventListener("pointerleave", rest);
    plot.addEventListener("blur", rest);
    plot.addEventListener("keydown", (event) => {
      const stride = event.shiftKey ? 10 : 1;
      const from = stop < 0 ? stops.length : stop;
      const to = { ArrowLeft: from - stride, ArrowRight: from + stride, Home: 0, End: stops.length - 1 }[event.key];
      if (event.key === "Escape") rest();
      else if (to !== undefined) show(to);
      else return;
      event.preventDefault();
    });
  }

  for (const chart of charts) {
    const figure = document.querySelector(`figure[data-chart="${chart.id}"]`);
    if (figure) attach(chart, figure);
  }
})();
