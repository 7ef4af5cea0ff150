// What changes while a page of the dashboard is open: new rows, figures, charts, the drawer, keys.
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  document.documentElement.classList.add("script");

  // Times are written in the zone of the server; show them in that of the browser.
  const shown = {
    clock: new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" }),
    date: new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" }),
  };
  const localise = (root) => {
    for (const t of $$("time[data-show]", root)) t.textContent = shown[t.dataset.show].format(new Date(t.dateTime));
  };

  // Live updates.
  let paused = false;
  const pause = (on) => {
    paused = on;
    const button = $("#pause");
    button.textContent = on ? "Resume" : "Pause";
    button.setAttribute("aria-pressed", on);
  };
  let streams = [];
  const listen = () => {
    streams.forEach((s) => s.close());
    streams = $$("[data-live]").map((body) => {
      const s = new EventSource(body.dataset.live);
      s.addEventListener("row", (e) => arrive(body, e.data));
      return s;
    });
  };
  // A browser opens few connections to a host, so a tab in the background has no stream. When it comes to the front
  // after a while, it has missed rows.
  let hidden = 0;
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      hidden = Date.now();
      streams.forEach((s) => s.close());
    } else if (!paused && Date.now() - hidden > 30000) {
      location.reload();
    } else {
      listen();
    }
  });
  let waiting = [];
  const arrive = (body, html) => {
    if ("reload" in body.dataset) return location.reload();
    if (paused) return;
    const row = document.createElement("tbody");
    row.innerHTML = html;
    const tr = row.firstElementChild;
    if (!tr || $(`[data-id="${CSS.escape(tr.dataset.id)}"]`, body)) return;
    const button = $("#new");
    if (button && scrollY > 120) {
      waiting.push(tr);
      if (waiting.length > body.dataset.most) waiting.shift();
      button.textContent = `${waiting.length} new`;
      button.hidden = false;
      return;
    }
    insert(body, tr);
  };
  const insert = (body, tr) => {
    localise(tr);
    tr.classList.add("fresh");
    body.prepend(tr);
    while (body.rows.length > body.dataset.most) body.lastElementChild.remove();
  };
  const showNew = () => {
    const body = $("#live");
    waiting.splice(0).forEach((tr) => insert(body, tr));
    $("#new").hidden = true;
    scrollTo({ top: 0 });
  };
  setInterval(() => {
    if (paused || document.hidden) return;
    for (const part of $$("[hx-trigger=refresh]")) htmx.trigger(part, "refresh");
  }, 5000);
  setInterval(() => {
    for (const c of $$("[data-countdown]")) {
      const s = Math.max(0, Math.round((Date.parse(c.dataset.countdown) - Date.now()) / 1000));
      const h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
      c.textContent = "in " + (h ? `${h} h ${m} m` : m ? `${m} m ${s % 60} s` : `${s} s`);
    }
  }, 1000);

  // Charts. Colours come from the stylesheet, so that they follow the scheme.
  const colour = (name) => {
    const probe = document.createElement("i");
    probe.style.color = `var(--${name})`;
    document.body.append(probe);
    const c = getComputedStyle(probe).color;
    probe.remove();
    return c;
  };
  const hour = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const second = shown.clock;
  const ticks = (_, at, __, ___, step) => at.map((s) => (step < 60 ? second : step < 86400 ? hour : day).format(s * 1000));
  const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
  const names = ["allowed", "throttled", "blocked", "failed"];
  const tones = ["allowed", "delayed", "blocked", "error"];
  const charts = new Map();
  const draw = () => {
    for (const [figure, plot] of charts) if (!figure.isConnected) { plot.destroy(); charts.delete(figure); }
    for (const figure of $$("[data-chart]")) timeline(figure);
    for (const figure of $$("[data-spacing]")) spacing(figure);
  };
  const timeline = (figure) => {
    const { step, times, series } = JSON.parse(figure.dataset.chart);
    // Each series is drawn over the one before: the sums of the rest make a stack.
    const stack = series.map((_, i) => times.map((_, t) => series.slice(i).reduce((sum, s) => sum + s[t], 0)));
    const data = [times, ...stack];
    const width = figure.clientWidth - 16;
    figure.series = series;
    const old = charts.get(figure);
    if (old && old.step === step) { old.setSize({ width, height: 200 }); old.setData(data); return; }
    old?.destroy();
    $(".tip", figure)?.remove();
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const bars = uPlot.paths.bars({ size: [0.8, 24] });
    const plot = new uPlot({
      width, height: 200, legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false } },
      scales: { x: { time: true, range: (_, first, last) => [first - step / 2, last + step / 2] }, y: { range: (_, min, max) => [0, Math.max(4, max * 1.05)] } },
      axes: [{ ...axis, grid: { show: false }, values: ticks }, { ...axis, size: 56, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6, 1e7] }],
      series: [{}, ...tones.map((t) => ({ fill: colour(t), width: 0, paths: bars, points: { show: false } }))],
      hooks: {
        setCursor: [(u) => {
          const i = u.cursor.idx;
          tip.hidden = i == null || u.cursor.left < 0;
          if (tip.hidden) return;
          const at = new Date(u.data[0][i] * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short", hourCycle: "h23" });
          tip.textContent = `${at}: ` + names.map((n, s) => `${figure.series[s][i].toLocaleString()} ${n}`).join(", ");
          tip.style.left = Math.min(u.cursor.left + 64, figure.clientWidth - tip.offsetWidth - 8) + "px";
          tip.style.top = "0";
        }],
        setSelect: [(u) => {
          if (u.select.width < 8) return;
          const time = (left) => new Date(u.posToVal(left, "x") * 1000).toISOString().replace(/\.\d+/, "");
          const q = new URLSearchParams({ since: time(u.select.left), until: time(u.select.left + u.select.width) });
          location.search = q;
        }],
      },
    }, data, figure);
    plot.step = step;
    plot.over.addEventListener("click", () => {
      const i = plot.cursor.idx;
      if (i == null || plot.select.width > 8) return;
      const time = (s) => new Date(s * 1000).toISOString().replace(/\.\d+/, "");
      location.href = figure.dataset.link + "?" + new URLSearchParams({ since: time(times[i]), until: time(times[i] + step) });
    });
    figure.append(tip);
    charts.set(figure, plot);
  };
  // The gaps between requests, as dots on a logarithmic scale, and the required Delay as a line.
  const spacing = (figure) => {
    const { times, gaps, required, kinds } = JSON.parse(figure.dataset.spacing);
    const of = (kind) => gaps.map((g, i) => (kinds[i] === kind ? g : null));
    const width = figure.clientWidth - 16;
    const old = charts.get(figure);
    if (old) { old.setSize({ width, height: 240 }); return; }
    const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const dots = (tone, size) => ({ stroke: colour(tone), paths: () => null, points: { show: true, size, fill: colour(tone), width: 0 } });
    const decades = (_, at) => at.map((s) => (Math.abs(Math.log10(s) - Math.round(Math.log10(s))) < 1e-6 ? s : null));
    const seconds = (s) => (s >= 1 ? `${s} s` : `${Math.round(s * 1000)} ms`);
    const all = [...gaps, ...required].filter((s) => s > 0);
    const low = Math.min(...all) / 1.5, high = Math.max(...all) * 1.5;
    const tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    const plot = new uPlot({
      width, height: 240, legend: { show: false }, cursor: { y: false, points: { show: false } },
      scales: { x: { time: true, range: (_, first, last) => (last - first < 60 ? [first - 30, last + 30] : [first, last]) }, y: { distr: 3, range: [low, high] } },
      axes: [
        { ...axis, grid: { show: false }, values: ticks },
        { ...axis, size: 64, grid: { ...axis.grid, filter: decades }, values: (_, at) => at.map((s) => (s == null ? "" : seconds(s))), filter: decades },
      ],
      series: [{}, { stroke: colour("text"), width: 1.5, dash: [4, 3], paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }, dots("accent", 5), dots("delayed", 5), dots("blocked", 8)],
      hooks: {
        setCursor: [(u) => {
          const i = u.cursor.idx;
          tip.hidden = i == null || u.cursor.left < 0;
          if (tip.hidden) return;
          const words = ["", ", too short", ", shorter with a cause"];
          tip.textContent = `${shown.date.format(times[i] * 1000)}: ${seconds(+gaps[i].toFixed(3))} of ${seconds(+required[i].toFixed(3))} required${words[kinds[i]]}`;
          tip.style.left = Math.min(u.cursor.left + 64, figure.clientWidth - tip.offsetWidth - 8) + "px";
          tip.style.top = "0";
        }],
      },
    }, [times, required, of(0), of(2), of(1)], figure);
    figure.append(tip);
    charts.set(figure, plot);
  };
  const redraw = () => { for (const [figure, plot] of charts) { plot.destroy(); charts.delete(figure); } draw(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let resized;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(draw, 100); });

  // The drawer shows the request of a row. Its URL is that of the request, as a page of its own.
  const address = () => location.pathname + location.search;
  const here = address(); // of the page below the drawer
  let at = here;
  let loading;
  const drawer = () => $("#drawer");
  const open = async (url, link) => {
    $(".chosen")?.classList.remove("chosen");
    link?.closest("tr").classList.add("chosen");
    loading?.abort();
    loading = new AbortController();
    try {
      const response = await fetch(url, { headers: { "HX-Request": "true" }, signal: loading.signal });
      if (response.status === 401) return location.reload();
      $("#details").innerHTML = await response.text();
    } catch (e) {
      if (e.name !== "AbortError") location.reload();
      return;
    }
    localise($("#details"));
    if (!drawer().open) drawer().showModal();
    drawer().scrollTop = 0;
    reveal(drawer());
  };
  // The line that decided is in the middle of its robots.txt.
  const reveal = (root) => {
    const line = $(".file .hit", root);
    if (line) line.parentElement.scrollTop = line.offsetTop - line.parentElement.offsetTop - line.parentElement.clientHeight / 2;
  };
  const rowOf = (url) => $$("main a.url").find((a) => a.href === url);
  const choose = (link) => {
    link.focus({ preventScroll: true });
    history[at === here ? "pushState" : "replaceState"]({ drawer: true }, "", link.href);
    at = address();
    open(link.href, link);
  };
  addEventListener("click", (e) => {
    if (e.defaultPrevented || e.button || e.ctrlKey || e.metaKey || e.shiftKey || e.altKey) return;
    const row = e.target.closest("main tr[data-id]");
    if (!row || e.target.closest("a, button")?.matches(":not(.url)") || String(getSelection())) return;
    const link = $("a.url", row);
    if (!link) return;
    e.preventDefault();
    choose(link);
  });
  // The drawer closes when the browser is back at the page below: then URL and drawer agree at every moment.
  let leaving = false, hiding = 0;
  const leave = () => {
    if (leaving) return;
    leaving = true;
    history.back();
  };
  const hide = () => {
    loading?.abort();
    if (!drawer().open) return;
    hiding++;
    drawer().close();
    $(".chosen a.url")?.focus({ preventScroll: true });
  };
  addEventListener("popstate", (e) => {
    leaving = false;
    if (address() === at) return; // another part of the same page
    at = address();
    if (at === here) hide();
    else if (e.state?.drawer && rows().length) open(location.href, rowOf(location.href));
    else location.reload();
  });
  const closed = () => {
    if (hiding) hiding--;
    else leave(); // some browsers close a dialog at the second Esc without a question
  };
  const copy = async (button) => {
    const text = button.closest("section").querySelector(".snippet");
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch { // a page without TLS has no clipboard
      getSelection().selectAllChildren(text);
      button.textContent = "Selected: copy it with the keys";
    }
    setTimeout(() => { button.textContent = before; }, 2000);
  };
  addEventListener("click", (e) => { if (e.target.closest("[data-copy]")) copy(e.target.closest("[data-copy]")); });

  // Keys.
  const rows = () => $$("main tbody tr[data-id]");
  const move = (by) => {
    const all = rows(), at = all.findIndex((tr) => tr.classList.contains("chosen"));
    const next = all[Math.max(0, Math.min(all.length - 1, at + by))];
    if (!next) return;
    all[at]?.classList.remove("chosen");
    next.classList.add("chosen");
    next.scrollIntoView({ block: "nearest" });
    $("a", next).focus({ preventScroll: true });
    if (drawer().open) choose($("a.url", next));
  };
  const keys = {
    "/": () => $(".search input").focus(),
    "?": () => $("#keys").showModal(),
    p: () => pause(!paused),
    j: () => move(1),
    k: () => move(-1),
  };
  for (let i = 1; i <= 6; i++) keys[i] = () => $$(".rail a")[i - 1].click();
  addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, textarea, select, #keys")) return;
    if (leaving || drawer().open && !"jk".includes(e.key)) return;
    const act = keys[e.key];
    if (act) { e.preventDefault(); act(); }
  });

  addEventListener("DOMContentLoaded", () => {
    localise(document);
    draw();
    listen();
    $("#pause").addEventListener("click", () => pause(!paused));
    $("#new")?.addEventListener("click", showNew);
    drawer().addEventListener("cancel", (e) => { e.preventDefault(); leave(); });
    drawer().addEventListener("close", closed);
    drawer().addEventListener("click", (e) => { if (e.target === drawer() || e.target.closest(".close")) leave(); });
    reveal(document);
    document.addEventListener("htmx:after:swap", () => { localise(document); draw(); });
  });
})();
