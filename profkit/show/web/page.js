"use strict";
// The page's own: what the other scripts share, light and dark, opening and printing.

const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

/** An element with a class and content: strings become text, never markup. */
function make(tag, className, ...content) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...content);
  return element;
}

/** A table of rows of strings; columns whose title begins with > are aligned to the right. */
function tableOf(titles, rows) {
  const right = titles.map((title) => title.startsWith(">"));
  const cells = (row, tag) => row.map((cell, i) => make(tag, right[i] ? "n" : "", cell));
  const head = make("thead", "", make("tr", "", ...cells(titles.map((t) => t.replace(/^>/, "")), "th")));
  // A corner without words is no heading.
  for (const empty of head.querySelectorAll("th:empty")) empty.replaceWith(make("td", ""));
  const body = make("tbody", "", ...rows.map((row) => make("tr", "", ...cells(row, "td"))));
  return make("table", "plain", head, body);
}

/** Storage is not there for every page that is opened from disk: then nothing is remembered. */
const memory = {
  get(key) { try { return localStorage.getItem(key); } catch { return null; } },
  set(key, value) { try { localStorage.setItem(key, value); } catch { /* not kept */ } },
};

const THEMES = ["auto", "light", "dark"];

function useTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").textContent = { auto: "◐ auto", light: "☀ light", dark: "☾ dark" }[theme];
  byId("theme").setAttribute("aria-label", `Colours: ${theme}. Change`);
  memory.set("profkit-theme", theme);
}

byId("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme ?? "auto";
  useTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
});
const kept = memory.get("profkit-theme");
useTheme(THEMES.includes(kept) ? kept : "auto");

const launches = () => [...document.querySelectorAll("details.one")];

/** Open a launch's section and bring it into view. */
function openLaunch(number) {
  const section = byId(`launch-${number}`);
  if (!section) return;
  section.open = true;
  section.scrollIntoView();
  section.querySelector("summary").focus({ preventScroll: true });
}

function openHash() {
  const found = /^#launch-(\d+)$/.exec(location.hash);
  if (found) openLaunch(Number(found[1]));
}
addEventListener("hashchange", openHash);

byId("open-all").addEventListener("click", () => launches().forEach((x) => { x.open = true; }));
byId("close-all").addEventListener("click", () => launches().forEach((x) => { x.open = false; }));

// On paper stands what is open: the answer and the table on the first pages, details on demand.

// What a metric means, where its name or its value is pointed at: said once in the data.
const meaningOf = new Map(DATA.metrics.map((metric) => [metric.name, `${metric.name}: ${metric.meaning}`]));
document.addEventListener("mouseover", ({ target }) => {
  const place = target.closest?.(".metric, dt[data-meaning], .bars dt, .code td:nth-child(3)");
  if (!place || place.title) return;
  if (place.matches("td, .bars dt")) {
    place.title = DATA.meanings[place.matches("td") ? place.textContent.split(" ")[0] : place.textContent] ?? "";
    return;
  }
  const name = place.dataset.meaning ?? place.textContent.split(" ")[0];
  if (meaningOf.has(name)) place.title = meaningOf.get(name);
});

const isFolded = (element) => element.closest("details:not([open])") !== null;

/** What is larger than its place can be reached, and scrolled, by keyboard. What is folded has no width yet. */
function reachable(inside) {
  const places = [...inside.querySelectorAll(".wide, .kernel")].filter((place) => !isFolded(place));
  const over = places.map( // all read, then all written
    (place) => place.scrollWidth > place.clientWidth || place.scrollHeight > place.clientHeight,
  );
  places.forEach((place, i) => {
    if (over[i]) place.tabIndex = 0;
    else if (place.hasAttribute("tabindex")) place.removeAttribute("tabindex");
  });
}
document.addEventListener("toggle", ({ target }) => target.open && reachable(target), true);
addEventListener("resize", () => reachable(document));
reachable(document);

const launchOf = (inside) => DATA.launches[Number(inside.closest(".one").dataset.launch) - 1];
const textOf = (launch, i) => launch.texts[i] || DATA.not_collected;

/** The rules that are clear, written when they are asked for. */
for (const more of document.querySelectorAll("details.clear")) {
  more.addEventListener("toggle", () => {
    more.querySelector("p").textContent = launchOf(more).clear.map((n) => DATA.rules[n]).join(", ");
  });
}

/** All metrics of a launch, written when they are asked for. */
for (const more of document.querySelectorAll("details.metrics")) {
  more.addEventListener("toggle", () => {
    const place = more.querySelector("div");
    if (!more.open || place.firstChild) return;
    const rows = DATA.metrics.map((metric, i) => [metric.name, textOf(launchOf(more), i), metric.meaning]);
    place.append(tableOf(["metric", ">value", "meaning"], rows));
    reachable(more);
  });
}
