// Two launches side by side. profkit/evidence/counters.py says what counts as moved; its thresholds
// come with the page, and a test holds the two to one answer.

/** How a value changed, or null when it did not: the row of the table and how far it moved. */
function movedBy(metric, before, after) {
  if (before === null || after === null) return null;
  const { points, relative } = DATA.thresholds;
  const far = Math.abs(after - before);
  if (metric.unit === "share") {
    if (far < points) return null;
    const change = 100 * (after - before);
    return { weight: far * 4, text: `${change >= 0 ? "+" : "-"}${Math.abs(change).toFixed(1)} points` };
  }
  if (far <= relative * Math.max(Math.abs(before), Math.abs(after))) return null;
  const factor = before ? after / before : Infinity;
  const known = factor > 0 && Number.isFinite(factor);
  const weight = known ? Math.min(Math.abs(Math.log2(factor)), 4) : 4;
  if (!Number.isFinite(factor)) return { weight, text: "from 0" };
  return { weight, text: factor < 10 ? `${factor.toFixed(2)}x` : `${Math.round(factor).toLocaleString("en")}x` };
}

/** Every metric of the kernel that differs, farthest first. */
function moved(before, after) {
  return DATA.metrics
    .map((metric, i) => ({ metric, i, by: movedBy(metric, before.values[i], after.values[i]) }))
    .filter((x) => x.by && !DATA.not_the_kernel.some((start) => x.metric.name.startsWith(start)))
    .sort((a, b) => Math.round(1e6 * b.by.weight) - Math.round(1e6 * a.by.weight));
}

/** What became of a rule: gone, new, changed, unknown or stays; null when it fires on neither side. */
function became(was, now) {
  const [one, other] = [was[0], now[0]];
  if (one !== "fires" && other !== "fires") return null;
  if (one === "unknown" || other === "unknown") return "unknown";
  if (other === "clear") return "gone";
  if (one === "clear") return "new";
  const [a, b] = [was[2], now[2]];
  if ((a === null) !== (b === null)) return "changed";
  return a && b && Math.abs(Math.log(a / b)) > DATA.thresholds.gain ? "changed" : "stays";
}

const BECAME = ["gone", "new", "changed", "unknown", "stays"];

/** Rule -> status, cause, gain and its text. */
const statuses = ({ findings, clear }) => ({
  ...findings, ...Object.fromEntries(clear.map((n) => [DATA.rules[n], ["clear"]])),
});

function findingRows(before, after) {
  const most = (x) => Math.max(1, ...[x.was, x.now].map((side) => (side[0] === "fires" && side[2]) || 1));
  const [was, now] = [before, after].map(statuses);
  return Object.keys(was)
    .filter((rule) => rule in now)
    .map((rule) => ({ rule, was: was[rule], now: now[rule] }))
    .map((x) => ({ ...x, what: became(x.was, x.now) }))
    .filter((x) => x.what)
    .sort((a, b) => BECAME.indexOf(a.what) - BECAME.indexOf(b.what) || most(b) - most(a))
    .map(({ rule, was, now, what }) => {
      const gain = (side) => (side[0] === "fires" ? side[3] || "-" : side[0]);
      return [what, rule, gain(was), gain(now), (now[0] === "fires" ? now : was)[1]];
    });
}

const FIRST = 15;

function movedTable(rows) {
  return make("div", "wide moved", tableOf(["metric", ">before", ">after", ">change", "meaning"], rows));
}

/** What moved less, behind a fold. */
function rest(rows) {
  return make("details", "more", make("summary", "", `${rows.length} more`), movedTable(rows));
}

function compareChosen() {
  const [before, after] = ["before", "after"].map((id) => DATA.launches[Number(byId(id).value) - 1]);
  const time = DATA.metrics.findIndex((metric) => metric.name === "time");
  const sides = (get) => (get(before) === get(after) ? get(before) : `${get(before)} → ${get(after)}`);
  const facts = [
    ["kernel", sides((x) => x.kernel)],
    ["bound", sides((x) => x.bound)],
    ["time under ncu", `${textOf(before, time)} → ${textOf(after, time)} (one launch each: no verdict)`],
  ];
  if (before.timed && after.timed) facts.push(["timed without a profiler", `${before.timed} → ${after.timed}`]);
  const rows = moved(before, after).map(({ metric, i, by }) => [
    metric.name, textOf(before, i), textOf(after, i), by.text, metric.meaning,
  ]);
  const findings = findingRows(before, after);
  byId("compared").replaceChildren(
    make("dl", "facts", ...facts.map(([name, text]) => make("div", "", make("dt", "", name), make("dd", "", text)))),
    make("h3", "", "Findings"),
    make("div", "wide", tableOf(["", "rule", ">gain before", ">gain after", "cause"], findings)),
    make("h3", "", `Metrics that moved (${rows.length})`),
    movedTable(rows.slice(0, FIRST)),
    ...(rows.length > FIRST ? [rest(rows.slice(FIRST))] : []),
  );
  reachable(byId("compared"));
}

if (DATA.launches.length > 1) {
  for (const [id, chosen] of [["before", 1], ["after", 2]]) {
    const select = byId(id);
    for (const launch of DATA.launches) {
      const option = make("option", "", `${launch.number} ${launch.label}`);
      option.value = launch.number;
      option.selected = launch.number === chosen;
      select.append(option);
    }
    select.addEventListener("change", compareChosen);
  }
  byId("swap").addEventListener("click", () => {
    const [before, after] = [byId("before"), byId("after")];
    [before.value, after.value] = [after.value, before.value];
    compareChosen();
  });
  compareChosen();
} else byId("compare").hidden = true;

document.documentElement.dataset.ready = "yes";
