// The charts: specifications and data come with the page, Vega draws them as SVG.

const tip = byId("tip");

/** What hovering shows: names and texts of the datum, as text. */
function showTip(handler, event, item, value) {
  tip.hidden = value == null || value === "";
  if (tip.hidden) return;
  const list = make("dl", "");
  for (const [name, text] of Object.entries(value)) {
    if (text !== "" && text != null) list.append(make("dt", "", name), make("dd", "", String(text)));
  }
  tip.replaceChildren(list);
  const { clientX: x, clientY: y } = event.touches?.[0] ?? event;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 12) : y + 18}px`;
}

// By name: Vega measures on a canvas, which inherits nothing and would take every word for narrower than it is.
const FONT = getComputedStyle(document.body).fontFamily;

/** The values of a specification's parameters, and its data. */
function fill(name, data, width) {
  const spec = structuredClone(DATA.specs[name]);
  spec.config.font = FONT;
  const [left, right, bottom, top] = data.frame;
  const decades = { across: Math.log10(right / left), up: Math.log10(top / bottom) };
  for (const param of spec.params) param.value = decades[param.name] ?? param.value;
  const corners = [{ x: left, y: bottom }, { x: right, y: top }];
  if (width < 620) Object.assign(spec.config.legend, { columns: 3, layout: { top: { direction: "vertical" } } });
  const [roofs, words, points] = [data.roofs, data.words, data.points].map(rowsOf);
  return { ...spec, width, datasets: { roofs, words, points, frame: corners } };
}

const drawn = new Map();

/** Draw a chart into its place, once for each width. */
async function draw(place, name, data) {
  const width = Math.floor(place.getBoundingClientRect().width);
  if (drawn.get(place)?.width === width) return;
  drawn.set(place, { width });
  const options = {
    mode: "vega-lite", ast: true, renderer: "svg", actions: false, defaultStyle: false, tooltip: showTip,
    logLevel: 1, // errors
  };
  const { view } = await vegaEmbed(place, fill(name, data, Math.max(width, 240)), options);
  view.addEventListener("click", (event, item) => {
    if (item?.datum?.launch) location.hash = `launch-${item.datum.launch}`;
  });
  drawn.set(place, { width, view });
}

/** What a place on the page shows. */
const dataOf = (place) => {
  const { chart, index } = place.dataset;
  return index === undefined ? launchOf(place)[chart] : DATA[chart][index];
};

/** Without a point there is no roofline: then what to collect for one. */
function drawPlace(place) {
  const data = dataOf(place);
  if (data.points.rows.length === 0) {
    const why = data.lacking.length ? data.lacking.join("; ") : "nothing was counted that has a place on it";
    place.replaceChildren(make("p", "faint", `No point: ${why}.`));
    return null;
  }
  return draw(place, place.dataset.chart, data);
}

const overviews = DATA.roofline.map((roofline, index) => {
  const place = make("div", "chart");
  Object.assign(place.dataset, { chart: "roofline", index });
  const title = make("h3", "", roofline.device);
  byId("rooflines").append(...(DATA.roofline.length > 1 ? [title] : []), place);
  return place;
});

/** The launch under the pointer or the focus stands out on the roofline; 0: none. */
function pick(number) {
  for (const place of overviews) {
    drawn.get(place)?.view?.signal("picked", Number(number)).runAsync();
  }
}
for (const [type, end] of [["mouseover", false], ["focusin", false], ["mouseout", true], ["focusout", true]]) {
  body?.addEventListener(type, (event) => pick(end ? 0 : event.target.closest("tr")?.dataset.number ?? 0));
}

/** Charts wait for their turn, so that the page answers meanwhile; those of what is folded are not asked for. */
const waiting = new Set();
let drawing = false;

async function drawWaiting() {
  if (drawing) return;
  drawing = true;
  for (const place of waiting) {
    waiting.delete(place);
    await new Promise((ready) => { setTimeout(ready); });
    if (place.offsetParent && !isFolded(place)) await drawPlace(place);
  }
  drawing = false;
  document.documentElement.dataset.ready = "yes";
}

function ask(places) {
  for (const place of places) waiting.add(place);
  drawWaiting();
}

/** What comes into sight is next; the rest of what is open follows, for it may be printed. */
const sight = new IntersectionObserver((seen) => {
  const now = seen.filter((x) => x.isIntersecting).map((x) => x.target);
  const later = [...waiting].filter((place) => !now.includes(place));
  if (now.length === 0) return;
  waiting.clear();
  ask([...now, ...later]);
});

const inLaunch = (launch) => [...launch.querySelectorAll(".chart")];
for (const launch of launches()) {
  launch.addEventListener("toggle", () => launch.open && ask(inLaunch(launch)));
  inLaunch(launch).forEach((place) => sight.observe(place));
}

function drawAll() {
  openHash();
  ask(overviews);
  launches().filter((launch) => launch.open).forEach((launch) => ask(inLaunch(launch)));
}

let settling;
addEventListener("resize", () => {
  clearTimeout(settling);
  settling = setTimeout(() => ask(drawn.keys()), 150);
});
